//! What stands outside of routes: settings, modules, parameters, and the route blocks themselves.

use super::{Parser, statement};
use crate::ast::{Atom, AtomKind, Item, Name, RouteBlock};
use crate::catalogue::RouteKind;
use crate::diagnostic::{Diagnostic, Span, nearest};
use crate::lexer::{Gap, TokenKind};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

const WORDS: &[&str] = &[
    "route",
    "request_route",
    "reply_route",
    "onreply_route",
    "failure_route",
    "branch_route",
    "onsend_route",
    "event_route",
    "loadmodule",
    "modparam",
];

impl Parser<'_> {
    pub(super) fn items(&mut self) -> Vec<Item> {
        let mut items = Vec::new();
        while !self.at_end() {
            let at = self.at;
            if let Some(item) = self.item() {
                items.push(item);
            }
            if self.at == at {
                self.at += 1;
            }
        }
        items
    }

    fn item(&mut self) -> Option<Item> {
        if self.take_sign(";") {
            return None;
        }
        let span = self.span();
        let Some(word) = self.word().map(ToString::to_string) else {
            self.stray_item();
            return None;
        };
        let kind = match word.as_str() {
            "route" | "request_route" | "main_route" => Some(RouteKind::Request),
            "reply_route" | "onreply_route" => Some(RouteKind::Reply),
            "failure_route" => Some(RouteKind::Failure),
            "branch_route" => Some(RouteKind::Branch),
            "onsend_route" => Some(RouteKind::OnSend),
            "event_route" => Some(RouteKind::Event),
            _ => None,
        };
        if let Some(kind) = kind {
            self.at += 1;
            return self.route_block(kind, &word, span);
        }
        match word.as_str() {
            "loadmodule" | "loadmodulex" => {
                self.at += 1;
                self.load_module(span)
            }
            "loadpath" | "mpath" => {
                self.at += 1;
                self.take_sign("=");
                if self.strings().is_none() {
                    let finding = Diagnostic::error("syntax", "expected a path in quotes", self.span());
                    self.error(finding.label("a string belongs here"));
                }
                self.take_sign(";");
                None
            }
            "modparam" | "modparamx" => {
                self.at += 1;
                self.modparam(span)
            }
            _ => self.setting(word, span),
        }
    }

    fn stray_item(&mut self) {
        let span = self.span();
        if self.take_sign("}") {
            let finding = Diagnostic::error("syntax", "this `}` closes nothing", span);
            self.error(
                finding
                    .label("no block is open here")
                    .help("is there a `{` missing, or one `}` too many, above?"),
            );
            return;
        }
        let message =
            format!("expected a setting, `loadmodule`, `modparam` or a route, found {}", self.found());
        self.error(Diagnostic::error("syntax", message, span));
        if self.is_sign("{") {
            self.skip_block();
        } else {
            self.skip_line();
        }
    }

    fn skip_line(&mut self) {
        self.next();
        while !self.at_end() && self.token(0).gap != Gap::Line && !self.is_sign("{") {
            self.at += 1;
        }
    }

    fn route_block(&mut self, kind: RouteKind, word: &str, span: Span) -> Option<Item> {
        let mut whole = span;
        let mut name = None;
        if self.is_sign("[") {
            let open = self.span();
            self.at += 1;
            name = match self.strings() {
                Some((text, span)) => Some(Name { text: String::from_utf8_lossy(&text).into_owned(), span }),
                None => self.glued(&["]", "["]).map(|(text, span)| Name { text, span }),
            };
            if name.is_none() {
                let finding = Diagnostic::error("syntax", "the name of the route is missing", self.span());
                self.error(finding.help(format!("write `{word}[NAME] {{ ... }}`")));
            }
            self.close("]", open);
            whole = span.to(self.before());
        }
        // `route[0]` is the main route in the old language.
        if kind == RouteKind::Request && name.as_ref().is_some_and(|name| name.text == "0") {
            name = None;
        }
        if !self.is_sign("{") {
            self.expect("{", &format!("after `{word}`"));
            self.recover();
            if !self.is_sign("{") {
                return None;
            }
        }
        let body = self.block()?;
        Some(Item::Route(RouteBlock { kind, name, span: whole, body }))
    }

    fn load_module(&mut self, span: Span) -> Option<Item> {
        let parenthesised = self.take_sign("(");
        let name = match self.strings() {
            Some((text, span)) => Name { text: String::from_utf8_lossy(&text).into_owned(), span },
            None => match self.glued(&[]).filter(|_| self.before().start >= span.end) {
                Some((text, span)) => Name { text, span },
                None => {
                    let finding = Diagnostic::error("syntax", "the name of the module is missing", span);
                    self.error(finding.help("write `loadmodule \"tm.so\"`"));
                    return None;
                }
            },
        };
        if parenthesised {
            while !self.at_end() && !self.is_sign(")") && self.token(0).gap != Gap::Line {
                self.at += 1;
            }
            self.take_sign(")");
        }
        self.take_sign(";");
        let path = name.text.replace('\\', "/");
        let file = path.rsplit('/').next().unwrap_or_default();
        let text = file.strip_suffix(".so").unwrap_or(file).to_string();
        Some(Item::LoadModule(Name { text, span: name.span }))
    }

    fn modparam(&mut self, span: Span) -> Option<Item> {
        let open = self.span();
        if !self.expect("(", "after `modparam`") {
            self.skip_line();
            return None;
        }
        let mut parts = Vec::new();
        loop {
            let Some(atom) = self.atom() else {
                let message = format!("expected a value, found {}", self.found());
                let place = self.span();
                self.error(Diagnostic::error("syntax", message, place));
                self.skip_line();
                return None;
            };
            parts.push(atom);
            if !self.take_sign(",") {
                break;
            }
        }
        self.close(")", open);
        let whole = span.to(self.before());
        self.take_sign(";");
        let count = parts.len();
        let mut parts = parts.into_iter();
        let (Some(modules), Some(name), Some(value), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            let message = format!("`modparam` takes three values, here are {count}");
            let finding = Diagnostic::error("modparam", message, whole);
            self.error(finding.help("write `modparam(\"module\", \"parameter\", value)`"));
            return None;
        };
        Some(Item::ModParam { modules: name_of(modules), name: name_of(name), value, span: whole })
    }

    /// One value: strings that follow each other, or a bare word.
    fn atom(&mut self) -> Option<Atom> {
        if let Some((text, span)) = self.strings() {
            return Some(Atom { kind: AtomKind::Str(text), span });
        }
        if let TokenKind::Variable(text) = self.kind() {
            let atom = Atom { kind: AtomKind::Str(text.as_bytes().to_vec()), span: self.span() };
            self.at += 1;
            return Some(atom);
        }
        let (text, span) = self.glued(&[])?;
        Some(Atom { kind: AtomKind::Word(text), span })
    }

    /// One value of a setting: here strings that follow each other are values of their own.
    fn setting_atom(&mut self) -> Option<Atom> {
        if let TokenKind::Str(text) = self.kind() {
            let atom = Atom { kind: AtomKind::Str(text.to_vec()), span: self.span() };
            self.at += 1;
            return Some(atom);
        }
        self.atom()
    }

    fn setting(&mut self, word: String, span: Span) -> Option<Item> {
        self.at += 1;
        let mut name = Name { text: word, span };
        while self.is_sign(".") && self.token(0).gap == Gap::None {
            let TokenKind::Word(part) = &self.token(1).kind else { break };
            name.text = format!("{}.{part}", name.text);
            name.span = name.span.to(self.token(1).span);
            self.at += 2;
        }
        if !self.take_sign("=") {
            self.not_a_setting(&name);
            return None;
        }
        let mut values = Vec::new();
        while let Some(atom) = self.setting_atom() {
            values.push(atom);
            self.take_sign(",");
            // The value may go on in this line; a new line is a new setting.
            if self.token(0).gap == Gap::Line || self.sign_ahead(1, "=") {
                break;
            }
        }
        if values.is_empty() {
            let message = format!("`{}` has no value", name.text);
            let finding = Diagnostic::error("syntax", message, name.span).label("a value must follow `=`");
            self.error(finding);
            if self.is_sign("{") {
                self.skip_block();
            } else if self.token(0).gap != Gap::Line {
                self.skip_line();
            }
        }
        let span = name.span.to(self.before());
        if !self.take_sign(";")
            && self.token(0).gap != Gap::Line
            && !self.at_end()
            && !self.sign_ahead(1, "=")
        {
            let message = format!("{} does not belong to the value of `{}`", self.found(), name.text);
            let place = self.span();
            let finding = Diagnostic::error("syntax", message, place);
            self.error(finding.help("values with other signs than `:`, `.` and `/` need quotes"));
            self.skip_line();
        }
        Some(Item::Setting { name, values, span })
    }

    fn not_a_setting(&mut self, name: &Name) {
        let what = &name.text;
        if statement::opens(what) || self.is_sign("(") {
            let message = format!("`{what}` belongs inside a route");
            let finding =
                Diagnostic::error("outside-route", message, name.span).label("no route is open here");
            self.error(finding.help("is there one `}` too many above?"));
            self.recover();
            if self.is_sign("{") {
                self.skip_block();
            }
            return;
        }
        let mut finding = Diagnostic::error("syntax", format!("`{what}` is not known here"), name.span)
            .label("expected a setting, `loadmodule`, `modparam` or a route");
        if let Some(near) = nearest(what, WORDS.iter().copied()) {
            finding = finding.help(format!("did you mean `{near}`?"));
        } else if self.token(0).gap != Gap::Line && !self.at_end() {
            finding = finding.help(format!("settings are written `{what} = value`"));
        }
        self.error(finding);
        if self.is_sign("[") {
            while !self.at_end() && !self.is_sign("{") && self.token(0).gap != Gap::Line {
                self.at += 1;
            }
        }
        if self.is_sign("{") {
            self.skip_block();
        } else if self.token(0).gap != Gap::Line {
            self.skip_line();
        }
    }
}

fn name_of(atom: Atom) -> Name {
    let text = match atom.kind {
        AtomKind::Str(text) => String::from_utf8_lossy(&text).into_owned(),
        AtomKind::Word(text) => text,
    };
    Name { text, span: atom.span }
}
