//! A reader for ABNF (RFC 5234) as RFC 3261 §25 and RFC 3966 §3 write it: text in, a graph of nodes out.
//!
//! Understood are rules, `/`, groups, options, repetitions, literals without case, `%x41`, `%x41-5A` and
//! `%x41.42`, and comments. A rule that is defined again replaces the earlier one: that is how deviations are
//! laid over the standard.

use std::collections::HashMap;

/// A place in [`Grammar::nodes`].
pub type NodeId = usize;

/// One element of a rule.
#[derive(Clone, Debug)]
pub enum Node {
    /// One byte of a set.
    Class(Box<[bool; 256]>),
    /// All of these, in order.
    Seq(Vec<NodeId>),
    /// One of these.
    Alt(Vec<NodeId>),
    /// The node from `min` to `max` times.
    Repeat {
        /// What is repeated.
        inner: NodeId,
        /// How often at least.
        min: usize,
        /// How often at most.
        max: Option<usize>,
    },
    /// A rule by its number in [`Grammar::rules`].
    Rule(usize),
}

/// Rules, ready to be matched.
#[derive(Clone, Debug, Default)]
pub struct Grammar {
    nodes: Vec<Node>,
    /// Names and bodies.
    rules: Vec<(String, Option<NodeId>)>,
    by_name: HashMap<String, usize>,
    /// By node: the bytes that it can begin with, and whether it can be empty.
    starts: Vec<([bool; 256], bool)>,
}

impl Grammar {
    /// Reads texts of rules, one after another.
    ///
    /// # Panics
    /// If a text is no ABNF, or uses a rule that nobody defines: a mistake in our own files.
    #[must_use]
    pub fn read(texts: &[&str]) -> Grammar {
        let mut grammar = Grammar::default();
        for text in texts {
            for definition in definitions(text) {
                let (name, body) =
                    definition.split_once('=').expect("invariant: a definition has an equals sign");
                let rule = grammar.rule_number(name.trim());
                let tokens = tokens(body);
                let mut reader = Reader { grammar: &mut grammar, tokens: &tokens, at: 0 };
                let node = reader.alternatives();
                assert_eq!(reader.at, tokens.len(), "not understood: {definition}");
                grammar.rules[rule].1 = Some(node);
            }
        }
        for (name, body) in &grammar.rules {
            assert!(body.is_some(), "rule `{name}` is used and not defined");
        }
        grammar.merge_classes();
        grammar.find_starts();
        grammar
    }

    /// The number of a rule.
    ///
    /// # Panics
    /// If there is none of this name.
    #[must_use]
    pub fn rule(&self, name: &str) -> usize {
        *self.by_name.get(name).unwrap_or_else(|| panic!("there is no rule `{name}`"))
    }

    /// The name of a rule.
    #[must_use]
    pub fn name(&self, rule: usize) -> &str {
        &self.rules[rule].0
    }

    /// The node that a rule stands for.
    #[must_use]
    pub fn body(&self, rule: usize) -> NodeId {
        self.rules[rule].1.expect("invariant: read() has checked that all rules are defined")
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn rule_number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.by_name.get(name) {
            return number;
        }
        self.rules.push((name.to_owned(), None));
        self.by_name.insert(name.to_owned(), self.rules.len() - 1);
        self.rules.len() - 1
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Makes one class of alternatives that are all one byte: the same language, matched sooner.
    fn merge_classes(&mut self) {
        loop {
            let mut changed = false;
            for id in 0..self.nodes.len() {
                let merged = match &self.nodes[id] {
                    Node::Alt(parts) => self.union(parts),
                    Node::Seq(parts) if parts.len() == 1 => self.union(parts),
                    _ => None,
                };
                if let Some(class) = merged {
                    self.nodes[id] = Node::Class(Box::new(class));
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// What each node can begin with: found in rounds, until a round finds nothing new.
    fn find_starts(&mut self) {
        self.starts = vec![([false; 256], false); self.nodes.len()];
        loop {
            let before = self.starts.clone();
            for id in 0..self.nodes.len() {
                self.starts[id] = match &self.nodes[id] {
                    Node::Class(class) => (**class, false),
                    Node::Rule(rule) => self.starts[self.body(*rule)],
                    Node::Alt(parts) => self.starts_of(parts, |_| true),
                    Node::Seq(parts) => {
                        let (bytes, _) = self.starts_of(parts, |empty| empty);
                        (bytes, parts.iter().all(|&part| self.starts[part].1))
                    }
                    Node::Repeat { inner, min, .. } => {
                        let (bytes, empty) = self.starts[*inner];
                        (bytes, empty || *min == 0)
                    }
                };
            }
            if self.starts == before {
                return;
            }
        }
    }

    /// Starts of these nodes together, as far as `goes_on` after one that can be empty or not.
    fn starts_of(&self, parts: &[NodeId], goes_on: fn(bool) -> bool) -> ([bool; 256], bool) {
        let (mut bytes, mut any_empty) = ([false; 256], false);
        for &part in parts {
            let (more, empty) = &self.starts[part];
            bytes.iter_mut().zip(more).for_each(|(byte, more)| *byte |= more);
            any_empty |= empty;
            if !goes_on(*empty) {
                break;
            }
        }
        (bytes, any_empty)
    }

    /// The bytes that a node must begin with; `None` if it can be empty.
    #[must_use]
    pub fn must_start(&self, id: NodeId) -> Option<&[bool; 256]> {
        let (bytes, empty) = &self.starts[id];
        (!empty).then_some(bytes)
    }

    fn union(&self, parts: &[NodeId]) -> Option<[bool; 256]> {
        let mut union = [false; 256];
        for &part in parts {
            let class = self.class(part)?;
            for (all, one) in union.iter_mut().zip(class) {
                *all |= one;
            }
        }
        Some(union)
    }

    /// The bytes that a node stands for, if it is one byte.
    #[must_use]
    pub fn class(&self, id: NodeId) -> Option<&[bool; 256]> {
        match &self.nodes[id] {
            Node::Class(class) => Some(class),
            Node::Rule(rule) => match &self.nodes[self.body(*rule)] {
                Node::Class(class) => Some(class),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Definitions without comments; what does not begin in the first column goes on with the one before it.
fn definitions(text: &str) -> Vec<String> {
    let mut definitions: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = without_comment(line);
        if line.trim().is_empty() {
            continue;
        }
        match definitions.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => last.push_str(line),
            _ => definitions.push(line.to_owned()),
        }
    }
    definitions
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            ';' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

/// Words, literals (with their first quote), and single signs.
fn tokens(body: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = body.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '"' => 2 + rest[1..].find('"').expect("invariant: literals of our files end"),
            '/' | '(' | ')' | '[' | ']' | '*' => 1,
            _ => rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-.%".contains(c))).unwrap_or(rest.len()),
        };
        assert!(len > 0, "not understood: {rest}");
        tokens.push(rest[..len].to_owned());
        // A repetition is a token apart from what it repeats: `3DIGIT`.
        if first.is_ascii_digit() {
            let last = tokens.last_mut().expect("invariant: it was just pushed");
            let digits = last.find(|c: char| !c.is_ascii_digit()).unwrap_or(last.len());
            let word = last.split_off(digits);
            if !word.is_empty() {
                tokens.push(word);
            }
        }
        rest = rest[len..].trim_start();
    }
    tokens
}

struct Reader<'g> {
    grammar: &'g mut Grammar,
    tokens: &'g [String],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self, token: &str) -> bool {
        let there = self.peek() == token;
        self.at += usize::from(there);
        there
    }

    fn alternatives(&mut self) -> NodeId {
        let mut parts = vec![self.sequence()];
        while self.take("/") {
            parts.push(self.sequence());
        }
        if parts.len() == 1 { parts[0] } else { self.grammar.add(Node::Alt(parts)) }
    }

    fn sequence(&mut self) -> NodeId {
        let mut parts = Vec::new();
        while !matches!(self.peek(), "" | "/" | ")" | "]") {
            parts.push(self.repetition());
        }
        self.grammar.add(Node::Seq(parts))
    }

    /// `*X`, `1*X`, `*3X`, `3X`, or X alone.
    fn repetition(&mut self) -> NodeId {
        let min = self.number();
        let (min, max) = if self.take("*") {
            (min.unwrap_or(0), self.number())
        } else {
            match min {
                Some(n) => (n, Some(n)),
                None => return self.element(),
            }
        };
        let inner = self.element();
        self.grammar.add(Node::Repeat { inner, min, max })
    }

    fn number(&mut self) -> Option<usize> {
        let number = self.peek().parse().ok()?;
        self.at += 1;
        Some(number)
    }

    fn element(&mut self) -> NodeId {
        if self.take("(") {
            let node = self.alternatives();
            assert!(self.take(")"), "a group is not closed");
            return node;
        }
        if self.take("[") {
            let inner = self.alternatives();
            assert!(self.take("]"), "an option is not closed");
            return self.grammar.add(Node::Repeat { inner, min: 0, max: Some(1) });
        }
        let token = self.peek().to_owned();
        self.at += 1;
        if let Some(literal) = token.strip_prefix('"') {
            return self.literal(literal.trim_end_matches('"').as_bytes());
        }
        if let Some(value) = token.strip_prefix("%x").or_else(|| token.strip_prefix("%X")) {
            return self.value(value);
        }
        let rule = self.grammar.rule_number(&token);
        self.grammar.add(Node::Rule(rule))
    }

    /// Letters of a literal stand for both cases (RFC 5234 §2.3).
    fn literal(&mut self, text: &[u8]) -> NodeId {
        let parts = text.iter().map(|byte| {
            let mut class = [false; 256];
            class[usize::from(byte.to_ascii_lowercase())] = true;
            class[usize::from(byte.to_ascii_uppercase())] = true;
            self.grammar.add(Node::Class(Box::new(class)))
        });
        let parts = parts.collect();
        self.grammar.add(Node::Seq(parts))
    }

    fn value(&mut self, value: &str) -> NodeId {
        let byte = |text: &str| {
            u8::from_str_radix(text, 16).expect("invariant: our files have bytes in hexadecimal")
        };
        let class = |from: u8, to: u8| {
            let mut class = [false; 256];
            (from..=to).for_each(|b| class[usize::from(b)] = true);
            Node::Class(Box::new(class))
        };
        if let Some((from, to)) = value.split_once('-') {
            return self.grammar.add(class(byte(from), byte(to)));
        }
        let parts = value.split('.').map(|b| self.grammar.add(class(byte(b), byte(b)))).collect();
        self.grammar.add(Node::Seq(parts))
    }
}
