//! Pseudo-variables: `$name`, `$name(inner)`, `$(name(inner)[index]{transformation,...})`.

use crate::ast::{Inner, Transformation, Variable, VariableIndex};
use crate::diagnostic::{Diagnostic, Span};
use crate::lexer::word_byte;
use crate::limits::VARIABLE_DEPTH_MAX;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Reads a whole pseudo-variable; `span` is its place.
pub(crate) fn parse(text: &[u8], span: Span) -> Result<Variable, Box<Diagnostic>> {
    Reader { text, at: 0, span, depth: 0 }.variable()
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    span: Span,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// A part of the text as a span; the whole when the text is not the source's own.
    fn part(&self, from: usize, to: usize) -> Span {
        let exact = (self.span.end - self.span.start) as usize == self.text.len();
        if exact { self.span.part(from, to) } else { self.span }
    }

    fn error(&self, message: impl Into<String>) -> Box<Diagnostic> {
        let at = self.part(self.at.min(self.text.len()), self.text.len());
        let place = if at.start == at.end { self.span } else { at };
        Box::new(Diagnostic::error("variable", message, place).help(
            "pseudo-variables are written `$name`, `$name(inner)` or `$(name(inner)[index]{transformation})`",
        ))
    }

    fn variable(mut self) -> Result<Variable, Box<Diagnostic>> {
        if self.byte() != Some(b'$') {
            return Err(self.error("a pseudo-variable starts with `$`"));
        }
        self.at += 1;
        let variable = if self.byte() == Some(b'(') {
            self.at += 1;
            let mut variable = self.named()?;
            variable.index = self.index()?;
            while self.byte() == Some(b'{') {
                variable.transforms.push(self.transformation()?);
            }
            if self.byte() != Some(b')') {
                return Err(self.error("expected `)` at the end of the pseudo-variable"));
            }
            self.at += 1;
            variable
        } else {
            self.named()?
        };
        if self.at < self.text.len() {
            return Err(self.error("something follows the pseudo-variable"));
        }
        Ok(variable)
    }

    fn named(&mut self) -> Result<Variable, Box<Diagnostic>> {
        let from = self.at;
        while self.byte().is_some_and(word_byte) {
            self.at += 1;
        }
        if self.at == from && self.byte() == Some(b'?') {
            self.at += 1;
        }
        if self.at == from {
            return Err(self.error("the name of the pseudo-variable is missing"));
        }
        let name = String::from_utf8_lossy(self.text.get(from..self.at).unwrap_or_default()).into_owned();
        let inner = if self.byte() == Some(b'(') { Some(self.inner()?) } else { None };
        Ok(Variable { name, inner, index: None, transforms: Vec::new(), span: self.span })
    }

    /// What stands between an opening sign here and the sign that closes it.
    fn between(&mut self, open: u8, close: u8) -> Result<(&'a [u8], Span), Box<Diagnostic>> {
        let from = self.at + 1;
        let mut depth = 0usize;
        while let Some(byte) = self.byte() {
            if byte == open {
                depth += 1;
            } else if byte == close {
                depth -= 1;
                if depth == 0 {
                    let text = self.text.get(from..self.at).unwrap_or_default();
                    let span = self.part(from, self.at);
                    self.at += 1;
                    return Ok((text, span));
                }
            }
            self.at += 1;
        }
        Err(self.error(format!("a `{}` is missing", char::from(close))))
    }

    fn inner(&mut self) -> Result<Inner, Box<Diagnostic>> {
        let (text, span) = self.between(b'(', b')')?;
        Ok(Inner { text: text.trim_ascii().to_vec(), span })
    }

    fn index(&mut self) -> Result<Option<VariableIndex>, Box<Diagnostic>> {
        if self.byte() != Some(b'[') {
            return Ok(None);
        }
        let (text, span) = self.between(b'[', b']')?;
        let text = text.trim_ascii();
        if text == b"*" {
            return Ok(Some(VariableIndex::All));
        }
        if text.first() == Some(&b'$') {
            if self.depth >= VARIABLE_DEPTH_MAX {
                return Err(self.error("pseudo-variables nest too deep"));
            }
            let inner = Reader { text, at: 0, span, depth: self.depth + 1 }.variable()?;
            return Ok(Some(VariableIndex::Variable(Box::new(inner))));
        }
        match crate::value::parse_int(text).and_then(|index| i32::try_from(index).ok()) {
            Some(index) => Ok(Some(VariableIndex::At(index))),
            None => Err(Box::new(
                Diagnostic::error("variable", "this is not an index", span)
                    .help("an index is an integer, `*`, or a pseudo-variable"),
            )),
        }
    }

    fn transformation(&mut self) -> Result<Transformation, Box<Diagnostic>> {
        let (text, span) = self.between(b'{', b'}')?;
        let mut parts = text.splitn(2, |byte| *byte == b',');
        let name = String::from_utf8_lossy(parts.next().unwrap_or_default().trim_ascii()).into_owned();
        let rest = parts.next();
        let args = rest.map_or_else(Vec::new, arguments);
        Ok(Transformation { name, rest: rest.unwrap_or_default().to_vec(), args, span })
    }
}

/// Arguments between commas; a comma inside parentheses belongs to a pseudo-variable, one behind a
/// backslash to the text.
fn arguments(text: &[u8]) -> Vec<Vec<u8>> {
    let mut args = Vec::new();
    let mut arg = Vec::new();
    let mut depth = 0usize;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if bytes.peek().is_some_and(|next| matches!(next, b',' | b'}' | b'\\')) => {
                arg.extend(bytes.next());
                continue;
            }
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                // `{s.select,1,,}` separates by a comma: the last argument may be one.
                if bytes.peek().is_none() && arg.is_empty() {
                    arg.push(byte);
                } else {
                    args.push(core::mem::take(&mut arg));
                }
                continue;
            }
            _ => {}
        }
        arg.push(byte);
    }
    args.push(arg);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Variable, Box<Diagnostic>> {
        let end = u32::try_from(text.len()).unwrap();
        parse(text.as_bytes(), Span { file: 0, start: 0, end })
    }

    #[test]
    fn all_parts_of_a_variable_are_found() {
        let variable = read("$(hdr(X-Y)[-1]{s.substr,1,2}{s.len})").unwrap();
        assert_eq!(variable.name, "hdr");
        assert_eq!(variable.inner.unwrap().text, b"X-Y");
        assert!(matches!(variable.index, Some(VariableIndex::At(-1))));
        assert_eq!(variable.transforms[0].name, "s.substr");
        assert_eq!(variable.transforms[0].args, [b"1".to_vec(), b"2".to_vec()]);
        assert_eq!(variable.transforms[1].name, "s.len");
    }

    #[test]
    fn separators_can_be_commas() {
        let variable = read("$(var(x){s.select,1,,})").unwrap();
        assert_eq!(variable.transforms[0].args, [b"1".to_vec(), b",".to_vec()]);
    }

    #[test]
    fn broken_variables_are_refused() {
        for text in ["$", "$(", "$()", "$(ru", "$(ru{s.len)", "$(hdr(x)[a])", "$ru)", "ru"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
