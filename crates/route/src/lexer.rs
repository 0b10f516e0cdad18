//! The lexer: one token at a time, with its place, from the text of one file.
//!
//! Comments and white space are skipped here; lines that start with `#!` or `!!` are handed to the
//! preprocessor as they are.

use crate::diagnostic::{Diagnostic, Span};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

/// What stands before a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gap {
    /// Nothing: it touches the token before it.
    None,
    /// White space or a comment.
    Space,
    /// A line break.
    Line,
}

/// A token.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Span,
    pub(crate) gap: Gap,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    /// A word: letters, digits, underscores; it starts with a letter or an underscore.
    Word(Box<str>),
    /// What starts with a digit, with the letters behind it.
    Number(Box<str>),
    /// A string without its quotes, its escapes resolved.
    Str(Box<[u8]>),
    /// A pseudo-variable as written, dollar sign included.
    Variable(Box<str>),
    /// A select of SER, `@` included.
    Select(Box<str>),
    /// A regular expression between slashes, after `case`.
    Regex(Box<[u8]>),
    /// A sign.
    Sign(&'static str),
    /// A line for the preprocessor, without `#!`.
    Directive(Box<str>),
    /// The end of the file.
    End,
}

/// Signs, the longest first.
const SIGNS: &[&str] = &[
    "<<=", ">>=", "==", "!=", "<=", ">=", "=~", "!~", "&&", "||", "<<", ">>", "+=", "-=", "*=", "/=", "%=",
    "|=", "&=", "^=", "=>", "{", "}", "(", ")", "[", "]", ";", ",", ":", "=", "<", ">", "!", "+", "-", "*",
    "/", "%", ".", "&", "|", "^", "~", "?",
];

/// Reads one file.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    file: u16,
    at: usize,
    /// Only white space since the line began.
    line_start: bool,
    after_case: bool,
    lines: Lines,
}

/// Whether strings of this file may go over lines. They may, unless taking one so leaves the last quote of
/// the file without its partner: then the first one that does is the one that was never closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lines {
    Unknown,
    Allowed,
    Refused,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str, file: u16) -> Self {
        Self { text, file, at: 0, line_start: true, after_case: false, lines: Lines::Unknown }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn span(&self, from: usize) -> Span {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { file: self.file, start: place(from), end: place(self.at) }
    }

    /// Goes to the next boundary between characters at or behind `at`.
    fn move_to(&mut self, at: usize) {
        self.at = at.min(self.text.len());
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
    }

    /// Skips the rest of the line and gives it, the line break excluded.
    pub(crate) fn take_line(&mut self) -> (&'a str, Span) {
        let from = self.at;
        let len = self.rest().find('\n').unwrap_or(self.rest().len());
        self.at += len;
        let span = self.span(from);
        let line = self.text.get(from..self.at).unwrap_or_default();
        if self.byte(0) == Some(b'\n') {
            self.at += 1;
        }
        self.line_start = true;
        (line.strip_suffix('\r').unwrap_or(line), span)
    }

    pub(crate) fn at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// The next token; [`TokenKind::End`] when there is none.
    pub(crate) fn next(&mut self, findings: &mut Vec<Diagnostic>) -> Token {
        // Behind a directive a new line begins, too.
        let mut gap = if self.line_start { Gap::Line } else { Gap::None };
        loop {
            gap = self.skip(gap, findings);
            let from = self.at;
            let Some(byte) = self.byte(0) else {
                return Token { kind: TokenKind::End, span: self.span(from), gap };
            };
            if self.line_start && matches!(self.rest().as_bytes(), [b'#' | b'!', b'!', ..]) {
                return self.directive(gap);
            }
            self.line_start = false;
            let after_case = core::mem::take(&mut self.after_case);
            let kind = match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(),
                b'0'..=b'9' => TokenKind::Number(self.run(word_byte).into()),
                b'"' | b'\'' => self.string(byte, findings),
                b'$' => self.variable(findings),
                b'@' => {
                    self.at += 1;
                    self.run(|byte| word_byte(byte) || byte == b'.');
                    TokenKind::Select(self.text.get(from..self.at).unwrap_or_default().into())
                }
                b'/' if after_case => self.regex(findings),
                _ => match SIGNS.iter().find(|sign| self.rest().starts_with(**sign)) {
                    Some(sign) => {
                        self.at += sign.len();
                        TokenKind::Sign(sign)
                    }
                    None => {
                        self.unknown(findings);
                        gap = Gap::Space;
                        continue;
                    }
                },
            };
            return Token { kind, span: self.span(from), gap };
        }
    }

    fn unknown(&mut self, findings: &mut Vec<Diagnostic>) {
        let from = self.at;
        self.move_to(from + 1);
        let what = self.text.get(from..self.at).unwrap_or_default().to_string();
        findings.push(
            Diagnostic::error(
                "unknown-character",
                alloc::format!("`{}` means nothing here", what.escape_debug()),
                self.span(from),
            )
            .label("not part of the language"),
        );
    }

    /// Skips white space and comments.
    fn skip(&mut self, mut gap: Gap, findings: &mut Vec<Diagnostic>) -> Gap {
        loop {
            match self.rest().as_bytes() {
                [b'\n', ..] => {
                    self.at += 1;
                    self.line_start = true;
                    gap = Gap::Line;
                }
                [b' ' | b'\t' | b'\r' | 0x0b | 0x0c, ..] => {
                    self.at += 1;
                    gap = if gap == Gap::Line { gap } else { Gap::Space };
                }
                [b'#', b'!', ..] if self.line_start => return gap,
                [b'#', ..] | [b'/', b'/', ..] => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                    gap = if gap == Gap::Line { gap } else { Gap::Space };
                }
                [b'/', b'*', ..] => {
                    let from = self.at;
                    match self.rest().get(2..).and_then(|rest| rest.find("*/")) {
                        Some(len) => self.at += len + 4,
                        None => {
                            self.at += 2;
                            let open = self.span(from);
                            self.at = self.text.len();
                            findings.push(
                                Diagnostic::error("open-comment", "this comment is never closed", open)
                                    .label("it starts here")
                                    .help("end it with `*/`"),
                            );
                        }
                    }
                    gap = if gap == Gap::Line { gap } else { Gap::Space };
                }
                _ => return gap,
            }
        }
    }

    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let from = self.at;
        while self.byte(0).is_some_and(&belongs) {
            self.at += 1;
        }
        self.text.get(from..self.at).unwrap_or_default()
    }

    fn word(&mut self) -> TokenKind {
        let word = self.run(word_byte);
        self.after_case = word == "case";
        TokenKind::Word(word.into())
    }

    /// A line of the preprocessor; a backslash at its end joins the next line to it.
    fn directive(&mut self, gap: Gap) -> Token {
        let from = self.at;
        self.at += 2;
        let mut text = alloc::string::String::new();
        loop {
            let (line, _) = self.take_line();
            match line.strip_suffix('\\') {
                Some(line) if !self.at_end() => {
                    text.push_str(line);
                    text.push('\n');
                }
                _ => {
                    text.push_str(line);
                    break;
                }
            }
        }
        let mut span = self.span(from);
        let raw = self.text.get(from..self.at).unwrap_or_default();
        span.end -= u32::try_from(raw.len() - raw.trim_end().len()).unwrap_or(0);
        Token { kind: TokenKind::Directive(text.as_str().into()), span, gap }
    }

    /// A string. Double quotes know escapes; single quotes do not.
    fn string(&mut self, quote: u8, findings: &mut Vec<Diagnostic>) -> TokenKind {
        let from = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        while let Some(byte) = self.byte(0) {
            self.at += 1;
            match byte {
                _ if byte == quote => {
                    if !bytes.contains(&b'\n') || self.may_span_lines() {
                        return TokenKind::Str(bytes.into());
                    }
                    break;
                }
                b'\\' if quote == b'"' => self.escape(&mut bytes),
                _ => bytes.push(byte),
            }
        }
        // The rest of the file is not one string: it goes on behind the line where the string began.
        self.at = from;
        let line = self.rest().split('\n').next().unwrap_or_default().trim_end().len();
        self.at = from + line;
        findings.push(
            Diagnostic::error("open-string", "this string is never closed", self.span(from))
                .label(alloc::format!("no `{}` ends it", char::from(quote))),
        );
        // What would end the statement is read as if it did.
        let text = self.text.get(from + 1..self.at).unwrap_or_default();
        let text = text.trim_end_matches([')', ';', '{', ' ']);
        self.at = from + 1 + text.len();
        TokenKind::Str(text.as_bytes().into())
    }

    /// Whether the string that just ended, and went over lines, was meant to.
    fn may_span_lines(&mut self) -> bool {
        if self.lines == Lines::Unknown {
            let mut trial = Self { lines: Lines::Allowed, ..self.clone() };
            let mut findings = Vec::new();
            while trial.next(&mut findings).kind != TokenKind::End {}
            let open = findings.iter().any(|finding| finding.code == "open-string");
            self.lines = if open { Lines::Refused } else { Lines::Allowed };
        }
        self.lines == Lines::Allowed
    }

    /// The escape behind a backslash. What is none stays as it is, backslash included.
    fn escape(&mut self, bytes: &mut Vec<u8>) {
        let Some(byte) = self.byte(0) else { return bytes.push(b'\\') };
        let digit = |byte: Option<u8>, radix: u32| byte.and_then(|byte| char::from(byte).to_digit(radix));
        self.at += 1;
        let plain = match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'"' | b'\\' => byte,
            b'\n' => return,
            b'x' => {
                let (Some(high), low) = (digit(self.byte(0), 16), digit(self.byte(1), 16)) else {
                    return bytes.extend_from_slice(b"\\x");
                };
                self.at += 1 + usize::from(low.is_some());
                let value = low.map_or(high, |low| high * 16 + low);
                u8::try_from(value).unwrap_or(0)
            }
            b'0'..=b'3' if digit(self.byte(0), 8).is_some() && digit(self.byte(1), 8).is_some() => {
                let second = digit(self.byte(0), 8).unwrap_or(0);
                let third = digit(self.byte(1), 8).unwrap_or(0);
                self.at += 2;
                u8::try_from(u32::from(byte - b'0') * 64 + second * 8 + third).unwrap_or(0)
            }
            _ => {
                bytes.push(b'\\');
                byte
            }
        };
        bytes.push(plain);
    }

    fn variable(&mut self, findings: &mut Vec<Diagnostic>) -> TokenKind {
        let from = self.at;
        let len = variable_len(self.rest().as_bytes());
        match len {
            Some(len) => self.move_to(from + len),
            None => {
                self.at += 1;
                self.run(word_byte);
                if self.byte(0) == Some(b'(') {
                    self.at += 1;
                }
                findings.push(
                    Diagnostic::error(
                        "open-variable",
                        "this pseudo-variable is not complete",
                        self.span(from),
                    )
                    .label("a name or a `)` is missing")
                    .help("write `$name`, `$name(inner)` or `$(name{transformation})`"),
                );
                let line = self.rest().split(['\n', ';']).next().unwrap_or_default().len();
                self.at += line;
                return TokenKind::Variable("$null".into());
            }
        }
        TokenKind::Variable(self.text.get(from..self.at).unwrap_or_default().into())
    }

    fn regex(&mut self, findings: &mut Vec<Diagnostic>) -> TokenKind {
        let from = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        while let Some(byte) = self.byte(0) {
            match byte {
                b'\n' => break,
                b'/' => {
                    self.at += 1;
                    return TokenKind::Regex(bytes.into());
                }
                b'\\' if self.byte(1) == Some(b'/') => {
                    bytes.push(b'/');
                    self.at += 2;
                }
                _ => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
        findings.push(
            Diagnostic::error("open-regex", "this regular expression is never closed", self.span(from))
                .label("no `/` ends it on this line"),
        );
        TokenKind::Regex(bytes.into())
    }
}

pub(crate) fn word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// How many bytes the pseudo-variable at the start of `text` takes; `None` when it is not complete.
pub(crate) fn variable_len(text: &[u8]) -> Option<usize> {
    let rest = text.strip_prefix(b"$")?;
    if rest.first() == Some(&b'(') {
        return Some(1 + balanced(rest)?);
    }
    let mut name = rest.iter().take_while(|byte| word_byte(**byte)).count();
    if name == 0 {
        // `$?` is the last return code.
        return (rest.first() == Some(&b'?')).then_some(2);
    }
    if rest.get(name) == Some(&b'(') {
        name += balanced(rest.get(name..)?)?;
    }
    Some(1 + name)
}

/// The length up to the `)` that closes the `(` at the start.
fn balanced(text: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b'\n' => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn kinds(text: &str) -> (Vec<TokenKind>, Vec<Diagnostic>) {
        let mut findings = Vec::new();
        let mut lexer = Lexer::new(text, 0);
        let mut out = Vec::new();
        loop {
            let token = lexer.next(&mut findings);
            if token.kind == TokenKind::End {
                return (out, findings);
            }
            out.push(token.kind);
        }
    }

    #[test]
    fn comments_and_directives_are_told_apart() {
        let (tokens, findings) = kinds("# no\n  #!define A 1\na # b\n// c\n/* d\n */ e");
        assert!(findings.is_empty());
        assert_eq!(
            tokens,
            [
                TokenKind::Directive("define A 1".into()),
                TokenKind::Word("a".into()),
                TokenKind::Word("e".into())
            ]
        );
    }

    #[test]
    fn strings_resolve_their_escapes() {
        let (tokens, _) = kinds(r#""a\r\n\"\\\+\x41\102" 'b\n'"#);
        assert_eq!(tokens, [TokenKind::Str((*b"a\r\n\"\\\\+AB").into()), TokenKind::Str((*b"b\\n").into())]);
    }

    #[test]
    fn variables_are_one_token() {
        let (tokens, findings) = kinds("$ru $(ru{uri.user}) $hdr(X-Y) $(hdr(Via)[-1]) $var(a)=1");
        assert!(findings.is_empty());
        let texts: Vec<String> = tokens
            .iter()
            .filter_map(
                |kind| if let TokenKind::Variable(text) = kind { Some(text.to_string()) } else { None },
            )
            .collect();
        assert_eq!(texts, ["$ru", "$(ru{uri.user})", "$hdr(X-Y)", "$(hdr(Via)[-1])", "$var(a)"]);
    }

    #[test]
    fn what_is_left_open_points_at_its_start() {
        for (text, code) in [
            ("a \"b\nc", "open-string"),
            ("a /* b", "open-comment"),
            ("$(ru", "open-variable"),
            ("$", "open-variable"),
            ("case /x\n", "open-regex"),
        ] {
            let (_, findings) = kinds(text);
            assert_eq!(findings.len(), 1, "{text}");
            assert_eq!(findings[0].code, code);
        }
    }
}
