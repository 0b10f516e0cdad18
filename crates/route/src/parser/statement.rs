//! Statements.

use super::Parser;
use crate::ast::{Binary, Block, Case, Expr, ExprKind, Label, LabelKind, Name, Statement, StatementKind};
use crate::diagnostic::{Diagnostic, Span};
use crate::lexer::{Gap, TokenKind};
use crate::limits::STATEMENT_DEPTH_MAX;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Whether a statement can begin with this word and nothing else can.
pub(super) fn opens(word: &str) -> bool {
    matches!(word, "if" | "while" | "switch" | "break" | "return" | "exit" | "drop")
}

impl Parser<'_> {
    /// A block in braces. `None` when the file ends inside it or blocks nest too deep.
    pub(super) fn block(&mut self) -> Option<Block> {
        let open = self.span();
        if self.depth >= STATEMENT_DEPTH_MAX {
            let message = format!("blocks nest more than {STATEMENT_DEPTH_MAX} deep");
            self.error(
                Diagnostic::error("nesting", message, open)
                    .help("put the inner part into a route of its own"),
            );
            self.skip_block();
            return None;
        }
        self.at += 1;
        self.depth += 1;
        let statements = self.statements(&[]);
        self.depth -= 1;
        let end = self.span();
        let on_its_own = self.token(0).gap == Gap::Line;
        if !self.take_sign("}") {
            self.never_closed(open, end);
        } else if on_its_own && self.suspect.is_none() && self.indent(end) < self.indent(open) {
            self.suspect = Some(open);
        }
        Some(Block { statements, end })
    }

    fn never_closed(&mut self, open: Span, end: Span) {
        let mut finding =
            Diagnostic::error("unclosed", "this block is never closed", open).label("no `}` closes this `{`");
        if let Some(suspect) = self.suspect.take() {
            finding = finding.also(suspect, "is its `}` missing? The next one stands further left");
        }
        let there = if self.at_end() { "the file ends here" } else { "another block begins here" };
        self.error(finding.also(end, there));
    }

    /// How far the line of this place is indented.
    fn indent(&self, span: Span) -> usize {
        let Some(file) = self.sources.file(span.file) else { return 0 };
        let before = file.text.get(..span.start as usize).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        let text = file.text.get(line..).unwrap_or_default();
        text.len() - text.trim_start_matches([' ', '\t']).len()
    }

    /// Statements up to a `}`, the end, or one of these words.
    fn statements(&mut self, until: &[&str]) -> Vec<Statement> {
        let mut statements = Vec::new();
        while !self.at_end() && !self.is_sign("}") && !until.iter().any(|word| self.is_word(word)) {
            if self.begins_item() {
                break;
            }
            let at = self.at;
            if let Some(statement) = self.statement() {
                statements.push(statement);
            }
            if self.at == at {
                self.at += 1;
            }
        }
        statements
    }

    /// Whether a route block begins here, so that the block before it lacks its `}`.
    fn begins_item(&self) -> bool {
        let word = self.word().is_some_and(|word| word == "route" || word.ends_with("_route"));
        word && self.token(0).gap == Gap::Line && (self.sign_ahead(1, "{") || self.sign_ahead(1, "["))
    }

    fn statement(&mut self) -> Option<Statement> {
        let span = self.span();
        let kind = match self.kind().clone() {
            TokenKind::Sign(";") => {
                self.at += 1;
                return None;
            }
            TokenKind::Sign("{") => StatementKind::Block(self.block()?),
            TokenKind::Variable(text) => self.assignment(&text, span)?,
            TokenKind::Word(word) => self.worded(&word, span)?,
            _ => {
                let message = format!("expected a statement, found {}", self.found());
                self.error(Diagnostic::error("syntax", message, span));
                self.recover();
                return None;
            }
        };
        Some(Statement { kind, span: span.to(self.before()) })
    }

    fn worded(&mut self, word: &str, span: Span) -> Option<StatementKind> {
        match word {
            "if" => {
                self.at += 1;
                self.if_statement()
            }
            "while" => {
                self.at += 1;
                let condition = self.condition("while")?;
                let body = self.body()?;
                Some(StatementKind::While { condition, body })
            }
            "switch" => {
                self.at += 1;
                self.switch()
            }
            "break" => {
                self.at += 1;
                self.empty_parentheses();
                self.semicolon();
                Some(StatementKind::Break)
            }
            "exit" | "drop" => {
                self.at += 1;
                self.stop_code();
                self.semicolon();
                Some(if word == "exit" { StatementKind::Exit } else { StatementKind::Drop })
            }
            "return" => {
                self.at += 1;
                let ends = self.is_sign(";") || self.is_sign("}") || self.at_end();
                let empty = self.is_sign("(") && self.sign_ahead(1, ")");
                let value = if ends || empty || self.token(0).gap == Gap::Line {
                    self.empty_parentheses();
                    None
                } else {
                    Some(self.expression())
                };
                self.semicolon();
                Some(StatementKind::Return(value))
            }
            "else" => {
                let finding = Diagnostic::error("syntax", "this `else` belongs to no `if`", span)
                    .help("there is no `;` between the `}` of an `if` and its `else`");
                self.error(finding);
                self.at += 1;
                let body = self.body()?;
                Some(StatementKind::Block(body))
            }
            "case" | "default" => {
                let message = format!("`{word}` outside of a `switch`");
                self.error(Diagnostic::error("syntax", message, span));
                self.recover();
                None
            }
            _ => self.call_statement(word, span),
        }
    }

    fn call_statement(&mut self, word: &str, span: Span) -> Option<StatementKind> {
        if self.sign_ahead(1, "(") {
            let call = self.expression();
            self.semicolon();
            return match call.kind {
                ExprKind::Error => None,
                _ => Some(StatementKind::Call(call)),
            };
        }
        // The old language calls some functions without parentheses: `force_rport;`.
        if self.sign_ahead(1, ";") {
            self.at += 2;
            let name = Name { text: word.to_string(), span };
            let kind = ExprKind::Call { name, args: Vec::new() };
            return Some(StatementKind::Call(Expr { kind, span, depth: 1 }));
        }
        let mut finding = Diagnostic::error("syntax", format!("`{word}` does not begin a statement"), span);
        if self.sign_ahead(1, "=") {
            finding =
                finding.help("settings stand outside of routes; inside, assign to a variable like `$var(x)`");
        } else if let Some(near) = crate::diagnostic::nearest(
            word,
            ["if", "while", "switch", "return", "exit", "break", "drop", "else"],
        ) {
            finding = finding.help(format!("did you mean `{near}`?"));
        }
        self.error(finding);
        self.at += 1;
        self.recover();
        None
    }

    fn if_statement(&mut self) -> Option<StatementKind> {
        let mut arms = Vec::new();
        let mut otherwise = None;
        let condition = self.condition("if")?;
        arms.push((condition, self.body()?));
        loop {
            if self.is_sign(";") && matches!(&self.token(1).kind, TokenKind::Word(word) if &**word == "else")
            {
                let span = self.span();
                self.error(
                    Diagnostic::error("syntax", "a `;` separates this `else` from its `if`", span)
                        .help("remove this `;`"),
                );
                self.at += 1;
            }
            if !self.take_word("else") {
                break;
            }
            if self.take_word("if") {
                let condition = self.condition("if")?;
                arms.push((condition, self.body()?));
            } else {
                otherwise = Some(self.body()?);
                break;
            }
        }
        Some(StatementKind::If { arms, otherwise })
    }

    fn condition(&mut self, word: &str) -> Option<Expr> {
        if self.is_sign("{") || self.is_sign(";") || self.at_end() {
            let message = format!("the condition of `{word}` is missing");
            let span = self.span();
            self.error(
                Diagnostic::error("syntax", message, span)
                    .help(format!("write `{word} (condition) {{ ... }}`")),
            );
            return None;
        }
        let condition = self.expression();
        if matches!(condition.kind, ExprKind::Error) {
            // Go to the body, if it is near.
            while !self.at_end() && !self.is_sign("{") && !self.is_sign("}") && !self.is_sign(";") {
                self.at += 1;
            }
        }
        Some(condition)
    }

    /// A block, or one statement in its place.
    fn body(&mut self) -> Option<Block> {
        if self.is_sign("{") {
            return self.block();
        }
        if self.is_sign("}") || self.at_end() {
            let message = format!("expected a statement or a block, found {}", self.found());
            let span = self.span();
            self.error(Diagnostic::error("syntax", message, span));
            return None;
        }
        if self.depth >= STATEMENT_DEPTH_MAX {
            let message = format!("statements nest more than {STATEMENT_DEPTH_MAX} deep");
            let span = self.span();
            self.error(
                Diagnostic::error("nesting", message, span)
                    .help("put the inner part into a route of its own"),
            );
            self.recover();
            return None;
        }
        self.depth += 1;
        let statement = self.statement();
        self.depth -= 1;
        let end = self.before();
        Some(Block { statements: statement.into_iter().collect(), end })
    }

    fn switch(&mut self) -> Option<StatementKind> {
        let subject = self.condition("switch")?;
        let open = self.span();
        if !self.expect("{", "after the value of `switch`") {
            self.recover();
            return None;
        }
        if self.depth >= STATEMENT_DEPTH_MAX {
            let message = format!("blocks nest more than {STATEMENT_DEPTH_MAX} deep");
            self.error(Diagnostic::error("nesting", message, open));
            self.at -= 1;
            self.skip_block();
            return None;
        }
        let mut cases: Vec<Case> = Vec::new();
        while !self.at_end() && !self.is_sign("}") {
            let mut labels = Vec::new();
            while self.is_word("case") || self.is_word("default") {
                labels.extend(self.label());
            }
            if labels.is_empty() {
                let message = format!("expected `case` or `default`, found {}", self.found());
                let span = self.span();
                self.error(Diagnostic::error("syntax", message, span));
                self.at += 1;
                self.recover();
                if self.is_sign("{") {
                    self.skip_block();
                }
                continue;
            }
            self.depth += 1;
            let statements = self.statements(&["case", "default"]);
            self.depth -= 1;
            let body = Block { statements, end: self.span() };
            cases.push(Case { labels, body });
            if self.begins_item() {
                break;
            }
        }
        self.close("}", open);
        Some(StatementKind::Switch { subject, cases })
    }

    fn label(&mut self) -> Option<Label> {
        let span = self.span();
        let word = self.next();
        let kind = if matches!(&word.kind, TokenKind::Word(word) if &**word == "default") {
            Some(LabelKind::Default)
        } else {
            self.label_value()
        };
        let span = span.to(self.before());
        if kind.is_none() {
            let message = format!("{} cannot be a case", self.found());
            let place = self.span();
            self.error(
                Diagnostic::error("syntax", message, place)
                    .help("a case is an integer, a string, or a regular expression between slashes"),
            );
            while !self.at_end() && !self.is_sign(":") && self.token(0).gap != Gap::Line && !self.is_sign("}")
            {
                self.at += 1;
            }
        }
        if !self.take_sign(":") {
            let place = self.before().after();
            self.error(
                Diagnostic::error("syntax", "a `:` is missing after the case", place).label("add `:`"),
            );
        }
        Some(Label { kind: kind?, span })
    }

    fn label_value(&mut self) -> Option<LabelKind> {
        if let Some((text, _)) = self.strings() {
            return Some(LabelKind::Str(text));
        }
        let negative = self.is_sign("-") && matches!(self.token(1).kind, TokenKind::Number(_));
        if negative {
            self.at += 1;
        }
        match self.kind().clone() {
            TokenKind::Number(number) => {
                let value = crate::value::parse_int(number.as_bytes())?;
                self.at += 1;
                Some(LabelKind::Int(if negative { value.wrapping_neg() } else { value }))
            }
            TokenKind::Regex(text) => {
                self.at += 1;
                Some(LabelKind::Regex(text.into_vec()))
            }
            TokenKind::Word(word) => {
                self.at += 1;
                Some(LabelKind::Str(word.as_bytes().to_vec()))
            }
            _ => None,
        }
    }

    fn assignment(&mut self, text: &str, span: Span) -> Option<StatementKind> {
        self.at += 1;
        let target = match super::variable::parse(text.as_bytes(), span) {
            Ok(target) => Some(target),
            Err(finding) => {
                self.error(*finding);
                None
            }
        };
        let operator = match self.kind() {
            TokenKind::Sign("=") => None,
            TokenKind::Sign("+=") => Some(Binary::Add),
            TokenKind::Sign("-=") => Some(Binary::Sub),
            TokenKind::Sign("*=") => Some(Binary::Mul),
            TokenKind::Sign("/=") => Some(Binary::Div),
            TokenKind::Sign("%=") => Some(Binary::Mod),
            TokenKind::Sign("|=") => Some(Binary::BitOr),
            TokenKind::Sign("&=") => Some(Binary::BitAnd),
            TokenKind::Sign("^=") => Some(Binary::BitXor),
            TokenKind::Sign("<<=") => Some(Binary::Left),
            TokenKind::Sign(">>=") => Some(Binary::Right),
            _ => {
                let message = format!("expected `=` after `{text}`, found {}", self.found());
                let mut finding = Diagnostic::error("syntax", message, self.span());
                if self.is_sign("==") {
                    finding = finding.help("`==` compares; an assignment has one `=`");
                }
                self.error(finding);
                self.recover();
                return None;
            }
        };
        self.at += 1;
        let value = self.expression();
        if matches!(value.kind, ExprKind::Error) {
            self.recover();
            return None;
        }
        self.semicolon();
        Some(StatementKind::Assign { target: Box::new(target?), operator, value })
    }

    /// `()` behind a word that takes nothing.
    fn empty_parentheses(&mut self) {
        if self.is_sign("(") && self.sign_ahead(1, ")") {
            self.at += 2;
        }
    }

    /// `exit(0)` and `drop(0)` of the old language: the number says nothing.
    fn stop_code(&mut self) {
        if self.is_sign("(") && matches!(self.token(1).kind, TokenKind::Number(_)) && self.sign_ahead(2, ")")
        {
            self.at += 3;
        } else {
            self.empty_parentheses();
        }
    }

    fn semicolon(&mut self) {
        if self.take_sign(";") {
            return;
        }
        // Something unreadable was reported already.
        let place = self.before().after();
        let next_line = self.token(0).gap == Gap::Line || self.is_sign("}") || self.at_end();
        let finding = Diagnostic::error("semicolon", "a `;` is missing at the end of this statement", place)
            .label("add `;` here");
        if next_line {
            self.error(finding);
        } else {
            let found = self.found();
            self.error(finding.also(self.span(), format!("found {found}")));
            self.recover();
        }
    }
}
