//! The parser: tokens to syntax tree. It goes on behind an error, so that one reading finds them all.

mod expression;
mod items;
mod statement;
pub(crate) mod variable;

use crate::ast::Item;
use crate::diagnostic::{Diagnostic, Diagnostics, Sources, Span};
use crate::lexer::{Gap, Token, TokenKind};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Reads tokens.
pub(crate) struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    /// How deep statements nest here.
    depth: usize,
    /// How deep expressions nest here.
    expression_depth: usize,
    /// A block whose `}` stands further left than the line of its `{`: it may not be its own.
    suspect: Option<Span>,
    sources: &'a Sources,
    diagnostics: &'a mut Diagnostics,
}

/// The whole configuration.
pub(crate) fn parse(tokens: Vec<Token>, sources: &Sources, diagnostics: &mut Diagnostics) -> Vec<Item> {
    let mut parser =
        Parser { tokens, at: 0, depth: 0, expression_depth: 0, suspect: None, sources, diagnostics };
    parser.items()
}

const END: Token = Token { kind: TokenKind::End, span: Span { file: 0, start: 0, end: 0 }, gap: Gap::Line };

impl Parser<'_> {
    fn token(&self, ahead: usize) -> &Token {
        self.tokens.get(self.at + ahead).or(self.tokens.last()).unwrap_or(&END)
    }

    fn kind(&self) -> &TokenKind {
        &self.token(0).kind
    }

    fn span(&self) -> Span {
        self.token(0).span
    }

    /// The place of the token before this one.
    fn before(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(self.span(), |token| token.span)
    }

    fn at_end(&self) -> bool {
        *self.kind() == TokenKind::End
    }

    fn next(&mut self) -> Token {
        let token = self.token(0).clone();
        if self.at < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.kind(), TokenKind::Sign(found) if *found == sign)
    }

    fn sign_ahead(&self, ahead: usize, sign: &str) -> bool {
        matches!(self.token(ahead).kind, TokenKind::Sign(found) if found == sign)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        if found {
            self.at += 1;
        }
        found
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.kind(), TokenKind::Word(found) if &**found == word)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.at += 1;
        }
        found
    }

    fn word(&self) -> Option<&str> {
        match self.kind() {
            TokenKind::Word(word) => Some(word),
            _ => None,
        }
    }

    fn error(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// The token here in words, for messages.
    fn found(&self) -> String {
        match self.kind() {
            TokenKind::End => "the end of the file".to_string(),
            TokenKind::Str(_) => "a string".to_string(),
            TokenKind::Directive(line) => format!("`#!{line}`"),
            kind => format!("`{}`", text_of(kind)),
        }
    }

    /// Takes a sign, or says that it is missing.
    fn expect(&mut self, sign: &str, after: &str) -> bool {
        if self.take_sign(sign) {
            return true;
        }
        let message = format!("expected `{sign}` {after}, found {}", self.found());
        let span = self.span();
        self.error(Diagnostic::error("syntax", message, span).label(format!("expected `{sign}`")));
        false
    }

    /// Takes a closing sign; when it is missing, points at the opening one.
    fn close(&mut self, sign: &str, open: Span) -> bool {
        if self.take_sign(sign) {
            return true;
        }
        let message = format!("expected `{sign}`, found {}", self.found());
        let span = self.span();
        let finding = Diagnostic::error("unclosed", message, span).label(format!("expected `{sign}`"));
        self.error(finding.also(open, "to close this"));
        false
    }

    /// Goes to the end of a broken statement: behind its `;`, or before a brace or the next block.
    fn recover(&mut self) {
        let mut depth = 0usize;
        while !self.at_end() {
            match self.kind() {
                TokenKind::Sign(";") if depth == 0 => {
                    self.at += 1;
                    return;
                }
                TokenKind::Sign("{" | "}") => return,
                TokenKind::Sign("(") => depth += 1,
                TokenKind::Sign(")") => depth = depth.saturating_sub(1),
                // A statement that starts on a new line is better read than skipped.
                TokenKind::Word(word) if self.token(0).gap == Gap::Line && statement::opens(word) => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Skips a block in braces, the opening one included.
    fn skip_block(&mut self) {
        let mut depth = 0usize;
        while !self.at_end() {
            match self.kind() {
                TokenKind::Sign("{") => depth += 1,
                TokenKind::Sign("}") => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        self.at += 1;
                        return;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Words, numbers and signs that touch each other, as one text: `udp:10.0.0.1:5060`, `xhttp:request`.
    fn glued(&mut self, stop: &[&str]) -> Option<(String, Span)> {
        let mut text = String::new();
        let mut span = self.span();
        loop {
            let token = self.token(0);
            let first = text.is_empty();
            if !first && token.gap != Gap::None {
                break;
            }
            let part = match &token.kind {
                TokenKind::Word(_) | TokenKind::Number(_) => text_of(&token.kind),
                TokenKind::Sign(sign @ (":" | "." | "-" | "/" | "*" | "[" | "]" | "+" | "%" | "_"))
                    if !stop.contains(sign) =>
                {
                    (*sign).to_string()
                }
                _ => break,
            };
            text.push_str(&part);
            span = span.to(token.span);
            self.at += 1;
        }
        (!text.is_empty()).then_some((text, span))
    }

    /// Strings that follow each other, as one.
    fn strings(&mut self) -> Option<(Vec<u8>, Span)> {
        let mut text: Option<Vec<u8>> = None;
        let mut span = self.span();
        while let TokenKind::Str(part) = self.kind() {
            text.get_or_insert_with(Vec::new).extend_from_slice(part);
            span = span.to(self.span());
            self.at += 1;
        }
        text.map(|text| (text, span))
    }
}

/// A token as it was written, about.
fn text_of(kind: &TokenKind) -> String {
    match kind {
        TokenKind::Word(text)
        | TokenKind::Number(text)
        | TokenKind::Variable(text)
        | TokenKind::Select(text) => text.to_string(),
        TokenKind::Sign(sign) => (*sign).to_string(),
        TokenKind::Str(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
        TokenKind::Regex(text) => format!("/{}/", String::from_utf8_lossy(text)),
        TokenKind::Directive(line) => format!("#!{line}"),
        TokenKind::End => String::new(),
    }
}
