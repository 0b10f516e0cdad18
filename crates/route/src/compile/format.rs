//! Formats: strings in which pseudo-variables are replaced.

use super::{Compiler, Type};
use crate::catalogue::InnerRule;
use crate::code::Op;
use crate::diagnostic::{Diagnostic, Span};
use crate::lexer::{variable_len, word_byte};
use crate::parser::variable as notation;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A piece of a format: bytes, or where a variable stands.
enum Piece {
    Text(Vec<u8>),
    Variable(core::ops::Range<usize>),
}

impl Compiler<'_> {
    /// Leaves the text on the stack, its variables replaced.
    pub(super) fn format(&mut self, text: &[u8], span: Span) {
        let pieces = self.pieces(text, span);
        match pieces.as_slice() {
            [] => self.emit_str(b""),
            [Piece::Text(text)] => self.emit_str(text),
            _ => {
                let count = u16::try_from(pieces.len()).unwrap_or(u16::MAX);
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => self.emit_str(&text),
                        Piece::Variable(range) => self.format_variable(text, range, span),
                    }
                }
                self.emit(Op::Format(count));
            }
        }
    }

    /// The value of a variable written inside other text.
    pub(super) fn format_variable(&mut self, text: &[u8], range: core::ops::Range<usize>, span: Span) {
        let place = inside(text, &range, span);
        match notation::parse(text.get(range).unwrap_or_default(), place) {
            Ok(variable) => {
                if self.nested(place) {
                    self.read(&variable);
                    self.breaks_nesting();
                }
            }
            Err(finding) => self.error(*finding),
        }
    }

    fn pieces(&mut self, text: &[u8], span: Span) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let rest = text.get(at..).unwrap_or_default();
            if byte != b'$' {
                plain.push(byte);
                at += 1;
            } else if rest.get(1) == Some(&b'$') {
                plain.push(b'$');
                at += 2;
            } else if let Some(len) = self.variable_in(rest) {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(core::mem::take(&mut plain)));
                }
                pieces.push(Piece::Variable(at..at + len));
                at += len;
            } else {
                let place = inside(text, &(at..at + 1), span);
                if rest.get(1) == Some(&b'(') {
                    let finding = Diagnostic::error("open-variable", "a `)` is missing", place);
                    self.error(finding.label("for this pseudo-variable"));
                } else {
                    let finding = Diagnostic::warning("dollar", "this `$` begins no pseudo-variable", place);
                    self.diagnostics.push(finding.help("write `$$` for a dollar sign"));
                }
                plain.push(b'$');
                at += 1;
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        pieces
    }

    /// How long the variable at the start of `text` is. Parentheses behind a variable that takes nothing
    /// belong to the text: `$rU(x)`.
    fn variable_in(&self, text: &[u8]) -> Option<usize> {
        let name_len = text.get(1..)?.iter().take_while(|byte| word_byte(**byte)).count();
        if name_len > 0 && text.get(1 + name_len) == Some(&b'(') {
            let name = String::from_utf8_lossy(text.get(1..1 + name_len)?).into_owned();
            let plain = self
                .catalogue
                .variables
                .iter()
                .any(|(_, decl)| decl.name == name && decl.inner == InnerRule::None);
            if plain {
                return Some(1 + name_len);
            }
        }
        variable_len(text)
    }

    /// A string that would hold variables, were it a format.
    pub(super) fn warn_variables(&mut self, text: &[u8], span: Span) {
        for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'$') {
            let rest = text.get(at..).unwrap_or_default();
            let Some(len) = variable_len(rest) else { continue };
            let Ok(variable) = notation::parse(rest.get(..len).unwrap_or_default(), span) else { continue };
            let known = super::variable::is_intrinsic(&variable.name)
                || self.catalogue.variables.iter().any(|(_, decl)| decl.name == variable.name);
            if known {
                let place = inside(text, &(at..at + len), span);
                let shown = String::from_utf8_lossy(rest.get(..len).unwrap_or_default()).into_owned();
                self.diagnostics.push(
                    Diagnostic::warning(
                        "no-format",
                        format!("`{shown}` is not replaced in this string"),
                        place,
                    )
                    .help("join strings with `+`, or write `$_s(...)` around the text"),
                );
                return;
            }
        }
    }

    /// A string that may hold variables, as an operand: constant when it holds none.
    pub(super) fn text_or_format(&mut self, text: &[u8], span: Span) -> Type {
        self.format(text, span);
        Type::Str
    }
}

/// The place of a part of a string literal: exact when the literal was written as it reads.
fn inside(text: &[u8], range: &core::ops::Range<usize>, span: Span) -> Span {
    let written = (span.end - span.start) as usize;
    if written == text.len() + 2 {
        span.part(range.start + 1, range.end + 1)
    } else if written == text.len() {
        span.part(range.start, range.end)
    } else {
        span
    }
}
