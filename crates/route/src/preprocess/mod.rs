//! The preprocessor: definitions, conditional parts, substitutions and included files.
//!
//! It drives the lexer and gives one list of tokens for the whole configuration. Text inside a condition
//! that is not met is skipped line by line and need not make sense.

mod condition;

use crate::code::Substitution;
use crate::diagnostic::{Diagnostic, Diagnostics, Sources, Span, nearest};
use crate::lexer::{Gap, Lexer, Token, TokenKind};
use crate::limits::{
    CONDITIONAL_DEPTH_MAX, DEFINE_DEPTH_MAX, DEFINES_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, REPLACEMENTS_MAX,
    SOURCE_BYTES_MAX, SUBSTITUTED_BYTES_MAX, TOKENS_MAX,
};
use crate::machine::Sink;
use crate::substitution;
use crate::transform;
use crate::value::ValueRef;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Why a file could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// There is no such file. `import_file` takes that as an empty one.
    Missing,
    /// Anything else, in words.
    Failed(String),
}

/// Gives the text of included files.
pub trait FileLoader {
    /// The text of `path`, as `include_file` in the file `from` names it.
    ///
    /// # Errors
    /// [`LoadError::Missing`] when there is no such file, otherwise what is wrong with it.
    fn load(&self, path: &str, from: &str) -> Result<String, LoadError>;
}

/// A loader that has no files: `include_file` fails, `import_file` does nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoFiles;

impl FileLoader for NoFiles {
    fn load(&self, _path: &str, _from: &str) -> Result<String, LoadError> {
        Err(LoadError::Missing)
    }
}

/// A definition: its text and its tokens.
#[derive(Debug, Clone)]
pub(crate) struct Define {
    pub(crate) tokens: Vec<Token>,
    span: Option<Span>,
}

/// The names that `#!define` and its relatives made.
pub(crate) type Defines = BTreeMap<String, Define>;

struct Conditional {
    span: Span,
    /// One of its parts was used.
    met: bool,
    in_else: bool,
}

/// What the preprocessor makes of a configuration.
pub(crate) struct Preprocessed {
    pub(crate) tokens: Vec<Token>,
    pub(crate) defines: Defines,
}

struct Preprocessor<'a> {
    files: &'a dyn FileLoader,
    sources: &'a mut Sources,
    diagnostics: &'a mut Diagnostics,
    defines: Defines,
    substitutions: Vec<Substitution>,
    conditionals: Vec<Conditional>,
    tokens: Vec<Token>,
    /// Bytes of strings that substitutions have read.
    substituted_bytes: usize,
    /// Matches that substitutions have replaced.
    replacements: usize,
    full: bool,
}

/// Defined in every configuration, so that one file can hold what only this server knows beside what others know:
/// `#!ifdef STROWGER`.
const PREDEFINED: &str = "STROWGER";

const DIRECTIVES: &[&str] = &[
    "define",
    "def",
    "trydefine",
    "trydef",
    "redefine",
    "redef",
    "ifdef",
    "ifndef",
    "ifexp",
    "else",
    "endif",
    "subst",
    "substdef",
    "substdefs",
    "include_file",
    "import_file",
    "defexp",
    "defexps",
    "defenv",
    "defenvs",
    "trydefenv",
    "trydefenvs",
];

/// Turns the first file of `sources` and all it includes into tokens; the last one is the end.
pub(crate) fn run(
    sources: &mut Sources,
    files: &dyn FileLoader,
    defines: &[(&str, &str)],
    diagnostics: &mut Diagnostics,
) -> Preprocessed {
    let mut this = Preprocessor {
        files,
        sources,
        diagnostics,
        defines: Defines::new(),
        substitutions: Vec::new(),
        conditionals: Vec::new(),
        tokens: Vec::new(),
        substituted_bytes: 0,
        replacements: 0,
        full: false,
    };
    for (name, value) in [(PREDEFINED, "")].iter().chain(defines) {
        let tokens = this.lex(value, Span::default());
        this.defines.insert((*name).to_string(), Define { tokens, span: None });
    }
    let end = this.file(0, 0);
    this.tokens.push(end);
    Preprocessed { tokens: this.tokens, defines: this.defines }
}

impl Preprocessor<'_> {
    /// Takes the tokens of one file; gives its end.
    fn file(&mut self, index: u16, depth: usize) -> Token {
        let text = self.sources.file(index).map(|file| file.text.clone()).unwrap_or_default();
        let mut lexer = Lexer::new(&text, index);
        let outer = self.conditionals.len();
        let end = loop {
            let token = self.next(&mut lexer);
            match &token.kind {
                TokenKind::End => break token,
                TokenKind::Directive(line) => {
                    let line = line.clone();
                    self.directive(&line, token.span, &mut lexer, depth, outer);
                }
                TokenKind::Word(word) if matches!(&**word, "include_file" | "import_file") => {
                    let import = &**word == "import_file";
                    let name = self.next(&mut lexer);
                    if let TokenKind::Str(path) = &name.kind {
                        let path = String::from_utf8_lossy(path).into_owned();
                        self.include(&path, name.span, import, depth);
                    } else {
                        self.diagnostics.push(
                            Diagnostic::error("include", "the name of a file must follow", token.span)
                                .help(format!("write `{word} \"file.cfg\"`")),
                        );
                        self.take(name, 0);
                    }
                }
                _ => self.take(token, 0),
            }
            if self.full {
                break Token { kind: TokenKind::End, span: Span::default(), gap: Gap::Line };
            }
        };
        for open in self.conditionals.drain(outer.min(self.conditionals.len())..) {
            self.diagnostics.push(
                Diagnostic::error("open-conditional", "this condition is never closed", open.span)
                    .label("it starts here")
                    .help("end it with `#!endif`"),
            );
        }
        end
    }

    fn next(&mut self, lexer: &mut Lexer<'_>) -> Token {
        let mut findings = Vec::new();
        let token = lexer.next(&mut findings);
        for finding in findings {
            self.diagnostics.push(finding);
        }
        token
    }

    /// Adds a token, its definition in its place if it has one.
    fn take(&mut self, token: Token, depth: usize) {
        if self.tokens.len() >= TOKENS_MAX {
            if !self.full {
                self.full = true;
                let message = format!("the configuration has more than {TOKENS_MAX} words and signs");
                self.diagnostics.push(
                    Diagnostic::error("too-long", message, token.span)
                        .help("definitions that use each other many times can do that"),
                );
            }
            return;
        }
        match &token.kind {
            TokenKind::Word(word) => {
                let define = self.defines.get(&**word).filter(|define| !define.tokens.is_empty());
                let Some(define) = define else { return self.tokens.push(token) };
                if depth >= DEFINE_DEPTH_MAX {
                    let message = format!("the definition of `{word}` uses itself, or nests too deep");
                    self.diagnostics.push(Diagnostic::error("define-depth", message, token.span));
                    return;
                }
                let tokens = define.tokens.clone();
                for (at, part) in tokens.into_iter().enumerate() {
                    let gap = if at == 0 { token.gap } else { part.gap };
                    let itself = part.kind == token.kind;
                    let part = Token { kind: part.kind, span: token.span, gap };
                    if itself {
                        self.tokens.push(part);
                    } else {
                        self.take(part, depth + 1);
                    }
                }
            }
            TokenKind::Str(text) if !self.substitutions.is_empty() => {
                let text = self.substituted(text, token.span);
                self.tokens.push(Token { kind: TokenKind::Str(text.into()), ..token });
            }
            _ => self.tokens.push(token),
        }
    }

    /// A string with all substitutions made. Each may make it longer for the next, so there is an end to that.
    fn substituted(&mut self, text: &[u8], span: Span) -> Vec<u8> {
        let mut text = text.to_vec();
        for substitution in &self.substitutions {
            if self.substituted_bytes > SUBSTITUTED_BYTES_MAX || self.replacements > REPLACEMENTS_MAX {
                self.too_many_substitutions(span);
                break;
            }
            self.substituted_bytes += text.len();
            let mut replaced = 0;
            let mut out = Vec::new();
            let fill = |sink: &mut Sink<'_>| replaced = transform::substitute(substitution, &text, sink);
            if let ValueRef::Str(bytes) = Sink::collect(&mut out, fill) {
                text = bytes.to_vec();
            }
            self.replacements += replaced;
        }
        text
    }

    /// Ends the configuration, and says why once.
    fn too_many_substitutions(&mut self, span: Span) {
        if self.full {
            return;
        }
        self.full = true;
        let message = format!(
            "substitutions replace more than {REPLACEMENTS_MAX} matches, or read more than \
             {SUBSTITUTED_BYTES_MAX} bytes of strings"
        );
        let help = "an expression that matches nothing at all matches between any two characters";
        self.diagnostics.push(Diagnostic::error("too-long", message, span).help(help));
    }

    /// The tokens of a definition's value.
    fn lex(&mut self, text: &str, span: Span) -> Vec<Token> {
        let mut lexer = Lexer::new(text, span.file);
        let mut findings = Vec::new();
        let mut tokens = Vec::new();
        loop {
            let token = lexer.next(&mut findings);
            if token.kind == TokenKind::End {
                break;
            }
            tokens.push(token);
        }
        for mut finding in findings {
            finding.primary = Some((span, "in the value of this definition".to_string()));
            self.diagnostics.push(finding);
        }
        tokens
    }

    fn directive(&mut self, line: &str, span: Span, lexer: &mut Lexer<'_>, depth: usize, outer: usize) {
        let (name, value) = split_word(line);
        match name {
            "KAMAILIO" | "SER" | "OPENSER" | "ALL" | "MAXCOMPAT" => {}
            "define" | "def" => self.define(value, span, Existing::Error, false),
            "trydefine" | "trydef" => self.define(value, span, Existing::Keep, false),
            "redefine" | "redef" => self.define(value, span, Existing::Replace, false),
            "subst" => self.subst(value, span),
            "substdef" => self.substdef(value, span, false),
            "substdefs" => self.substdef(value, span, true),
            "include_file" | "import_file" => {
                let path = value.trim().trim_matches('"');
                self.include(path, span, name == "import_file", depth);
            }
            "ifdef" | "ifndef" | "ifexp" => {
                let met = self.condition(name, value, span);
                if self.conditionals.len() >= CONDITIONAL_DEPTH_MAX {
                    let message = format!("conditions nest more than {CONDITIONAL_DEPTH_MAX} deep");
                    self.diagnostics.push(Diagnostic::error("conditional-depth", message, span));
                    self.full = true;
                    return;
                }
                self.conditionals.push(Conditional { span, met, in_else: false });
                if !met {
                    self.skip(lexer);
                }
            }
            "else" | "endif" if self.conditionals.len() <= outer => {
                let message = format!("`#!{name}` without a condition before it");
                self.diagnostics.push(
                    Diagnostic::error("stray-conditional", message, span)
                        .help("`#!ifdef`, `#!ifndef` or `#!ifexp` opens a condition"),
                );
            }
            "else" => {
                if let Some(open) = self.conditionals.last_mut() {
                    if open.in_else {
                        let first = open.span;
                        self.diagnostics.push(
                            Diagnostic::error("stray-conditional", "a second `#!else`", span)
                                .also(first, "of this condition"),
                        );
                    } else {
                        open.in_else = true;
                    }
                }
                self.skip(lexer);
            }
            "endif" => {
                self.conditionals.pop();
            }
            "defexp" | "defexps" | "defenv" | "defenvs" | "trydefenv" | "trydefenvs" => {
                self.diagnostics.push(
                    Diagnostic::error("unsupported-directive", format!("`#!{name}` is not supported"), span)
                        .help("use `#!define`, or give the definition on the command line"),
                );
            }
            _ => self.unknown_directive(name, span),
        }
    }

    fn unknown_directive(&mut self, name: &str, span: Span) {
        // The first line may name the program that runs the file.
        if span.start == 0 && name.starts_with('/') {
            return;
        }
        let message = format!("`#!{name}` is not a directive; the line is a comment");
        let mut finding = Diagnostic::warning("unknown-directive", message, span);
        if let Some(near) = nearest(name, DIRECTIVES.iter().copied()) {
            finding = finding.help(format!("did you mean `#!{near}`?"));
        }
        self.diagnostics.push(finding);
    }

    fn condition(&mut self, name: &str, value: &str, span: Span) -> bool {
        if name == "ifexp" {
            return match condition::evaluate(value, &self.defines) {
                Ok(met) => met,
                Err(error) => {
                    let message = format!("the condition does not make sense: {error}");
                    self.diagnostics.push(Diagnostic::error("ifexp", message, span));
                    false
                }
            };
        }
        let (word, rest) = split_word(value);
        if word.is_empty() || !(rest.trim().is_empty() || rest.trim().starts_with(['#', '/'])) {
            self.diagnostics.push(
                Diagnostic::error("conditional", format!("`#!{name}` takes one name"), span)
                    .help(format!("write `#!{name} WITH_FEATURE`")),
            );
        }
        self.defines.contains_key(word) == (name == "ifdef")
    }

    /// Skips lines up to the `#!else` or `#!endif` that belongs to the last condition.
    fn skip(&mut self, lexer: &mut Lexer<'_>) {
        let mut depth = 0usize;
        while !lexer.at_end() {
            let (line, span) = lexer.take_line();
            let line = line.trim_start();
            let Some(line) = line.strip_prefix("#!").or_else(|| line.strip_prefix("!!")) else { continue };
            match split_word(line).0 {
                "ifdef" | "ifndef" | "ifexp" => depth += 1,
                "endif" if depth == 0 => {
                    self.conditionals.pop();
                    return;
                }
                "endif" => depth -= 1,
                "else" if depth == 0 => {
                    let Some(open) = self.conditionals.last_mut() else { return };
                    if open.in_else {
                        let first = open.span;
                        self.diagnostics.push(
                            Diagnostic::error("stray-conditional", "a second `#!else`", span)
                                .also(first, "of this condition"),
                        );
                    } else {
                        open.in_else = true;
                        if !open.met {
                            open.met = true;
                            return;
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn define(&mut self, value: &str, span: Span, existing: Existing, quoted: bool) {
        let (name, value) = split_word(value);
        if !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            self.diagnostics.push(
                Diagnostic::error("define", "the name of the definition is missing", span)
                    .help("write `#!define NAME` or `#!define NAME value`"),
            );
            return;
        }
        if let Some(before) = self.defines.get(name) {
            match existing {
                Existing::Keep => return,
                Existing::Replace => {}
                // What the command line gave wins over the file.
                Existing::Error if before.span.is_none() => return,
                Existing::Error => {
                    let mut finding =
                        Diagnostic::error("define-twice", format!("`{name}` is already defined"), span)
                            .label("defined again");
                    if let Some(first) = before.span {
                        finding = finding.also(first, "first defined here");
                    }
                    let help = "`#!redefine` replaces a definition, `#!trydef` keeps the first";
                    self.diagnostics.push(finding.help(help));
                    return;
                }
            }
        }
        if self.defines.len() >= DEFINES_MAX {
            let message = format!("more than {DEFINES_MAX} definitions");
            self.diagnostics.push(Diagnostic::error("define", message, span));
            return;
        }
        let tokens = if quoted {
            let text = value.trim().as_bytes();
            alloc::vec![Token { kind: TokenKind::Str(text.into()), span, gap: Gap::Space }]
        } else {
            self.lex(value, span)
        };
        self.defines.insert(name.to_string(), Define { tokens, span: Some(span) });
    }

    fn subst(&mut self, value: &str, span: Span) {
        let rule = value.trim().trim_matches('"');
        match substitution::prepare(rule.as_bytes()) {
            Ok(substitution) => self.add_substitution(substitution, span),
            Err(error) => {
                let message = format!("this substitution cannot be used: {error}");
                self.diagnostics.push(Diagnostic::error("subst", message, span));
            }
        }
    }

    fn add_substitution(&mut self, substitution: Substitution, span: Span) {
        if self.substitutions.len() >= DEFINES_MAX {
            let message = format!("more than {DEFINES_MAX} substitutions");
            self.diagnostics.push(Diagnostic::error("subst", message, span));
            return;
        }
        self.substitutions.push(substitution);
    }

    /// Replaces a name inside strings, and defines it as a word.
    fn substdef(&mut self, value: &str, span: Span, quoted: bool) {
        let rule = value.trim().trim_matches('"');
        let parts = substitution::split(rule.as_bytes());
        let prepared = substitution::prepare(rule.as_bytes());
        match (parts, prepared) {
            (Ok((name, value, _)), Ok(mut substitution)) => {
                substitution.all = true;
                self.add_substitution(substitution, span);
                let define =
                    format!("{} {}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&value));
                self.define(&define, span, Existing::Error, quoted);
            }
            (Err(error), _) | (_, Err(error)) => {
                let message = format!("this substitution cannot be used: {error}");
                self.diagnostics.push(
                    Diagnostic::error("subst", message, span).help("write `#!substdef \"/NAME/value/\"`"),
                );
            }
        }
    }

    fn include(&mut self, path: &str, span: Span, import: bool, depth: usize) {
        let error = |message: String| Diagnostic::error("include", message, span);
        if depth + 1 >= INCLUDE_DEPTH_MAX || self.sources.files().len() >= FILES_MAX {
            let message =
                format!("files include each other more than {INCLUDE_DEPTH_MAX} deep or {FILES_MAX} times");
            self.diagnostics.push(error(message));
            return;
        }
        let from = self.sources.file(span.file).map(|file| file.name.clone()).unwrap_or_default();
        match self.files.load(path, &from) {
            Ok(text) if text.len() > SOURCE_BYTES_MAX => {
                self.diagnostics.push(error(format!("`{path}` is larger than {SOURCE_BYTES_MAX} bytes")));
            }
            Ok(text) => {
                let index = self.sources.add(path, text);
                let _ = self.file(index, depth + 1);
            }
            Err(LoadError::Missing) if import => {}
            Err(LoadError::Missing) => {
                self.diagnostics
                    .push(error(format!("there is no file `{path}`")).help(
                        "`import_file` instead of `include_file` takes a missing file as an empty one",
                    ));
            }
            Err(LoadError::Failed(why)) => {
                self.diagnostics.push(error(format!("`{path}` cannot be read: {why}")));
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Error,
    Keep,
    Replace,
}

/// The first word of a line, and what follows it.
fn split_word(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    let len = line.find(char::is_whitespace).unwrap_or(line.len());
    line.split_at_checked(len).unwrap_or((line, ""))
}
