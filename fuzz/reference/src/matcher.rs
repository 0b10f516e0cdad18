//! Whether a text is what a rule says, and which parts of it are what other rules say.
//!
//! Slow and plain: a rule maps the set of places where it may begin to the set of places where it may end.
//! That is the whole language of the grammar, whatever is ambiguous in it, without a decision taken too
//! early.

use super::abnf::{Grammar, Node, NodeId};
use std::collections::HashMap;
use std::ops::Range;

/// Longest text that is matched, in bytes.
pub const TEXT_BYTES_MAX: usize = 1_024;

const WORDS: usize = TEXT_BYTES_MAX / 64 + 1;

/// Places in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Set {
    words: [u64; WORDS],
    /// How many words the text needs.
    used: usize,
}

impl Set {
    fn empty(used: usize) -> Set {
        Set { words: [0; WORDS], used }
    }

    fn insert(&mut self, at: usize) {
        self.words[at / 64] |= 1 << (at % 64);
    }

    fn has(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 != 0
    }

    fn is_empty(&self) -> bool {
        self.words[..self.used].iter().all(|&word| word == 0)
    }

    fn add(&mut self, other: &Set) {
        let words = self.words[..self.used].iter_mut().zip(other.words);
        words.for_each(|(word, more)| *word |= more);
    }

    fn without(&self, other: &Set) -> Set {
        let mut rest = *self;
        rest.words[..self.used].iter_mut().zip(other.words).for_each(|(word, less)| *word &= !less);
        rest
    }

    /// From the first to the last.
    fn rising(&self) -> impl Iterator<Item = usize> + '_ {
        self.words[..self.used].iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(index * 64 + bit)
            })
        })
    }

    /// From the last to the first.
    fn falling(&self) -> impl Iterator<Item = usize> + '_ {
        self.words[..self.used].iter().enumerate().rev().flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| 63 - left.leading_zeros() as usize)?;
                left &= !(1 << bit);
                Some(index * 64 + bit)
            })
        })
    }
}

/// One text under one grammar.
pub struct Matcher<'a> {
    grammar: &'a Grammar,
    text: &'a [u8],
    /// Ends by node and start; filled while values are looked for.
    known: HashMap<(NodeId, usize), Set>,
}

impl<'a> Matcher<'a> {
    /// `None` if the text is longer than [`TEXT_BYTES_MAX`].
    #[must_use]
    pub fn new(grammar: &'a Grammar, text: &'a [u8]) -> Option<Matcher<'a>> {
        (text.len() <= TEXT_BYTES_MAX).then(|| Matcher { grammar, text, known: HashMap::new() })
    }

    /// Whether the whole text is what `rule` says.
    #[must_use]
    pub fn accepts(&self, rule: &str) -> bool {
        self.step(self.grammar.body(self.grammar.rule(rule)), &self.one(0)).has(self.text.len())
    }

    /// Where in the text the `wanted` rules are, in their order; `None` if the text is not what `rule` says.
    ///
    /// Where the grammar leaves a choice, the earlier alternative and the longer part are taken.
    pub fn parts(&mut self, rule: &str, wanted: &[&str]) -> Option<Vec<(&'a str, Range<usize>)>> {
        if !self.accepts(rule) {
            return None;
        }
        let wanted: Vec<usize> = wanted.iter().map(|name| self.grammar.rule(name)).collect();
        let mut search = Search { holds: vec![None; self.grammar.len()], wanted, found: Vec::new() };
        let body = self.grammar.body(self.grammar.rule(rule));
        self.derive(body, 0, self.text.len(), &mut search);
        Some(search.found)
    }

    fn step(&self, id: NodeId, from: &Set) -> Set {
        if from.is_empty() {
            return *from;
        }
        match self.grammar.node(id) {
            Node::Class(class) => {
                let mut to = self.nowhere();
                from.rising().filter(|&at| self.is_in(class, at)).for_each(|at| to.insert(at + 1));
                to
            }
            Node::Seq(parts) => {
                // Nothing that cannot begin here is looked into: the same result, sooner.
                let from = match self.grammar.must_start(id) {
                    Some(class) => self.only(from, class),
                    None => *from,
                };
                parts.iter().fold(from, |set, &part| self.step(part, &set))
            }
            Node::Alt(parts) => {
                let mut to = self.nowhere();
                parts.iter().for_each(|&part| to.add(&self.step(part, from)));
                to
            }
            Node::Rule(rule) => self.step(self.grammar.body(*rule), from),
            Node::Repeat { inner, min, max } => {
                let from = (0..*min).fold(*from, |set, _| self.step(*inner, &set));
                let left = max.map_or(usize::MAX, |max| max - min);
                self.step_more(*inner, left, from)
            }
        }
    }

    fn nowhere(&self) -> Set {
        Set::empty(self.text.len() / 64 + 1)
    }

    fn one(&self, at: usize) -> Set {
        let mut set = self.nowhere();
        set.insert(at);
        set
    }

    /// Those places where a byte of the class is.
    fn only(&self, places: &Set, class: &[bool; 256]) -> Set {
        let mut some = self.nowhere();
        places.rising().filter(|&at| self.is_in(class, at)).for_each(|at| some.insert(at));
        some
    }

    fn is_in(&self, class: &[bool; 256], at: usize) -> bool {
        self.text.get(at).is_some_and(|&byte| class[usize::from(byte)])
    }

    /// `inner` up to `left` times.
    fn step_more(&self, inner: NodeId, left: usize, from: Set) -> Set {
        if let Some(class) = self.grammar.class(inner)
            && left == usize::MAX
        {
            return self.run(class, from);
        }
        let (mut all, mut fresh, mut left) = (from, from, left);
        while left > 0 && !fresh.is_empty() {
            fresh = self.step(inner, &fresh).without(&all);
            all.add(&fresh);
            left -= 1;
        }
        all
    }

    /// Bytes of a class, as many as there are: the same as one after another, in one pass.
    fn run(&self, class: &[bool; 256], from: Set) -> Set {
        let mut all = from;
        for start in from.rising() {
            let mut at = start;
            while self.is_in(class, at) && !(at > start && from.has(at)) {
                at += 1;
                all.insert(at);
            }
        }
        all
    }

    /// Ends of `id` from one start.
    fn ends(&mut self, id: NodeId, start: usize) -> Set {
        if let Some(set) = self.known.get(&(id, start)) {
            return *set;
        }
        let set = self.step(id, &self.one(start));
        self.known.insert((id, start), set);
        set
    }

    /// Looks for wanted rules in `start..end`, which is known to be what `id` says.
    fn derive(&mut self, id: NodeId, start: usize, end: usize, search: &mut Search<'a>) {
        if !self.holds_wanted(id, search) {
            return;
        }
        let grammar = self.grammar;
        match grammar.node(id) {
            Node::Class(_) => {}
            Node::Rule(rule) => {
                if search.wanted.contains(rule) {
                    search.found.push((grammar.name(*rule), start..end));
                }
                self.derive(grammar.body(*rule), start, end, search);
            }
            Node::Alt(parts) => {
                if let Some(&part) = parts.iter().find(|&&part| self.ends(part, start).has(end)) {
                    self.derive(part, start, end, search);
                }
            }
            Node::Seq(parts) => {
                let mut at = start;
                for (i, &part) in parts.iter().enumerate() {
                    let rest = &parts[i + 1..];
                    let ends = self.ends(part, at);
                    let fits = |&to: &usize| {
                        rest.iter().fold(self.one(to), |set, &next| self.step(next, &set)).has(end)
                    };
                    let Some(to) = ends.falling().filter(|&to| to <= end).find(fits) else { return };
                    self.derive(part, at, to, search);
                    at = to;
                }
            }
            Node::Repeat { inner, .. } => {
                let mut at = start;
                while at < end {
                    let ends = self.ends(*inner, at);
                    let fits = |&to: &usize| self.step_more(*inner, usize::MAX, self.one(to)).has(end);
                    let Some(to) = ends.falling().filter(|&to| to > at && to <= end).find(fits) else {
                        return;
                    };
                    self.derive(*inner, at, to, search);
                    at = to;
                }
            }
        }
    }

    /// Whether a wanted rule can be below `id`.
    fn holds_wanted(&self, id: NodeId, search: &mut Search<'_>) -> bool {
        if let Some(known) = search.holds[id] {
            return known;
        }
        // A rule that contains itself is not looked into twice.
        search.holds[id] = Some(false);
        let holds = match self.grammar.node(id) {
            Node::Class(_) => false,
            Node::Rule(rule) => {
                search.wanted.contains(rule) || self.holds_wanted(self.grammar.body(*rule), search)
            }
            Node::Seq(parts) | Node::Alt(parts) => parts.iter().any(|&part| self.holds_wanted(part, search)),
            Node::Repeat { inner, .. } => self.holds_wanted(*inner, search),
        };
        search.holds[id] = Some(holds);
        holds
    }
}

struct Search<'a> {
    wanted: Vec<usize>,
    /// By node: whether a wanted rule can be below it.
    holds: Vec<Option<bool>>,
    found: Vec<(&'a str, Range<usize>)>,
}
