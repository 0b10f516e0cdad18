//! The compiler: checks names, kinds and contexts as it turns statements into instructions.
//!
//! It goes on behind an error, so that one run finds them all; a program with errors is thrown away.

mod call;
mod expression;
mod format;
mod statement;
mod variable;

use crate::ast::{Block, RouteBlock, Statement, StatementKind};
use crate::catalogue::{Catalogue, Encoder, FunctionId, RouteKind, VariableId, id_of};
use crate::code::{Name, NameId, Op, Program, Site};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::limits::{CODE_MAX, CONSTANT_BYTES_MAX, LOCALS_MAX};
use crate::preprocess::Defines;
use crate::regex::{Case, Regex};
use crate::value::{Text, Value};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A `route(...)` with a constant name.
pub(crate) struct RouteCall {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) span: Span,
}

/// A call of a function.
pub(crate) struct FunctionCall {
    pub(crate) from: usize,
    pub(crate) function: FunctionId,
    pub(crate) span: Span,
}

/// What is known about the type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Int,
    Str,
    Any,
}

pub(crate) struct Compiler<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) diagnostics: &'a mut Diagnostics,
    pub(crate) program: Program,
    /// Modules that the configuration loads and this server does not have.
    pub(crate) absent_modules: Vec<String>,
    pub(crate) route_calls: Vec<RouteCall>,
    pub(crate) function_calls: Vec<FunctionCall>,
    /// Routes that are given to functions by name.
    pub(crate) armed_routes: Vec<usize>,
    /// Whether a route is called by a computed name.
    pub(crate) dynamic_calls: bool,
    defines: &'a Defines,
    harmless: Vec<(String, Span, &'static str)>,
    strings: BTreeMap<Box<[u8]>, (u32, u16)>,
    regexes: BTreeMap<Box<[u8]>, u16>,
    locals: BTreeMap<String, u16>,
    names: BTreeMap<(VariableId, Box<[u8]>), NameId>,
    /// The route that is compiled.
    current: usize,
    kind: RouteKind,
    /// Jumps out of each loop or switch around this place.
    breaks: Vec<Vec<usize>>,
    span: Span,
    /// How deep variables nest in each other here.
    depth: usize,
    full: bool,
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(
        catalogue: &'a Catalogue,
        defines: &'a Defines,
        diagnostics: &'a mut Diagnostics,
    ) -> Self {
        Self {
            catalogue,
            diagnostics,
            program: Program::default(),
            absent_modules: Vec::new(),
            route_calls: Vec::new(),
            function_calls: Vec::new(),
            armed_routes: Vec::new(),
            dynamic_calls: false,
            defines,
            harmless: Vec::new(),
            strings: BTreeMap::new(),
            regexes: BTreeMap::new(),
            locals: BTreeMap::new(),
            names: BTreeMap::new(),
            current: 0,
            kind: RouteKind::Request,
            breaks: Vec::new(),
            span: Span::default(),
            depth: 0,
            full: false,
        }
    }

    pub(crate) fn finish(self) -> Program {
        self.program
    }

    /// Notes something that is accepted and means nothing here.
    pub(crate) fn harmless(&mut self, name: &str, span: Span, why: &'static str) {
        self.harmless.push((name.to_owned(), span, why));
    }

    /// One note for all that means nothing here.
    pub(crate) fn report_harmless(&mut self) {
        self.harmless.sort_by_key(|(_, span, _)| *span);
        let Some((first, span, _)) = self.harmless.first() else { return };
        let message = match self.harmless.len() {
            1 => format!("`{first}` is accepted and means nothing here"),
            count => format!("{count} settings are accepted and mean nothing here"),
        };
        let mut note = Diagnostic::note("harmless", message, *span);
        let mut seen: Vec<&str> = Vec::new();
        for (name, _, why) in &self.harmless {
            if !seen.contains(&name.as_str()) {
                seen.push(name);
                note = note.help(format!("`{name}`: {why}"));
            }
        }
        self.diagnostics.push(note);
    }

    /// Compiles one block; its route has been declared.
    pub(crate) fn route(&mut self, at: usize, block: &RouteBlock) {
        self.current = at;
        self.kind = block.kind;
        self.breaks.clear();
        let entry = self.here();
        if let Some(route) = self.program.routes.get_mut(at) {
            route.entry = u32::try_from(entry).unwrap_or(u32::MAX);
        }
        self.block(&block.body);
        self.span = block.body.end;
        self.emit(Op::Int(1));
        self.emit(Op::Return);
    }

    fn here(&self) -> usize {
        self.program.code.len()
    }

    fn emit(&mut self, op: Op) -> usize {
        let at = self.here();
        if at >= CODE_MAX {
            if !self.full {
                self.full = true;
                let message = format!("the program has more than {CODE_MAX} instructions");
                self.diagnostics.push(Diagnostic::error("too-long", message, self.span));
            }
            return 0;
        }
        self.program.code.push(op);
        self.program.spans.push(self.span);
        at
    }

    /// Makes the jump at `at` lead here.
    fn patch(&mut self, at: usize) {
        let here = u32::try_from(self.here()).unwrap_or(u32::MAX);
        match self.program.code.get_mut(at) {
            Some(
                Op::Jump(to)
                | Op::JumpIf(to)
                | Op::JumpUnless(to)
                | Op::JumpOk(to)
                | Op::JumpFailed(to)
                | Op::Loop(to),
            ) => *to = here,
            _ => debug_assert!(self.full, "only jumps are patched"),
        }
    }

    fn patch_all(&mut self, jumps: Vec<usize>) {
        for at in jumps {
            self.patch(at);
        }
    }

    fn error(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    fn emit_int(&mut self, value: i64) {
        match i32::try_from(value) {
            Ok(small) => self.emit(Op::Int(small)),
            Err(_) => {
                let at = self.program.longs.len();
                match u16::try_from(at) {
                    Ok(at) => {
                        self.program.longs.push(value);
                        self.emit(Op::Long(at))
                    }
                    Err(_) => self.too_many("large integers"),
                }
            }
        };
    }

    fn too_many(&mut self, what: &str) -> usize {
        if !self.full {
            self.full = true;
            let message = format!("the program has too many {what}");
            self.diagnostics.push(Diagnostic::error("too-long", message, self.span));
        }
        self.emit(Op::Null)
    }

    /// A string among the constants; equal strings are kept once.
    fn constant(&mut self, text: &[u8]) -> (u32, u16) {
        if let Some(place) = self.strings.get(text) {
            return *place;
        }
        let Ok(len) = u16::try_from(text.len()) else {
            let message = format!("a string is longer than {CONSTANT_BYTES_MAX} bytes");
            self.error(Diagnostic::error("too-long", message, self.span));
            return (0, 0);
        };
        let start = u32::try_from(self.program.constants.len()).unwrap_or(u32::MAX);
        // An empty string needs a place of its own, so that places tell strings apart.
        self.program.constants.extend_from_slice(text);
        self.program.constants.push(0);
        self.strings.insert(text.into(), (start, len));
        (start, len)
    }

    fn constant_text(&mut self, text: &[u8]) -> Text {
        let (start, len) = self.constant(text);
        Text::constant(start, len.into())
    }

    fn emit_str(&mut self, text: &[u8]) {
        let (start, len) = self.constant(text);
        self.emit(Op::Str { start, len });
    }

    /// A compiled regular expression; equal ones are kept once.
    fn regex(&mut self, text: &[u8], span: Span) -> u16 {
        if let Some(at) = self.regexes.get(text) {
            return *at;
        }
        match (Regex::new(text, Case::Insensitive), u16::try_from(self.program.regexes.len())) {
            (Ok(regex), Ok(at)) => {
                self.program.regexes.push(regex);
                self.regexes.insert(text.into(), at);
                at
            }
            (Err(why), _) => {
                let message = format!("this regular expression cannot be used: {why}");
                self.error(Diagnostic::error("regex", message, span));
                0
            }
            (Ok(_), Err(_)) => {
                self.too_many("regular expressions");
                0
            }
        }
    }

    /// The slot of a `$var`, which starts as `initial`.
    fn local(&mut self, name: &str, initial: Value, span: Span) -> u16 {
        if let Some(at) = self.locals.get(name) {
            return *at;
        }
        let at = self.program.locals.len();
        if at >= LOCALS_MAX {
            let message = format!("the program has more than {LOCALS_MAX} `$var`s");
            self.error(Diagnostic::error("too-long", message, span));
            return 0;
        }
        self.program.locals.push(initial);
        self.locals.insert(name.to_string(), id_of(at));
        id_of(at)
    }

    fn name_id(&mut self, variable: VariableId, text: &[u8]) -> NameId {
        if let Some(id) = self.names.get(&(variable, text.into())) {
            return *id;
        }
        let Ok(at) = u16::try_from(self.program.names.len()) else {
            self.too_many("names of variables");
            return NameId(0);
        };
        self.program.names.push(Name { variable, text: text.into() });
        self.names.insert((variable, text.into()), NameId(at));
        NameId(at)
    }

    fn site(&mut self, site: Site) -> u16 {
        if let Some(at) = self.program.sites.iter().rev().take(64).position(|known| *known == site) {
            return id_of(self.program.sites.len() - 1 - at);
        }
        let Ok(at) = u16::try_from(self.program.sites.len()) else {
            self.too_many("variables");
            return 0;
        };
        self.program.sites.push(site);
        at
    }

    fn encoder(&mut self, encoder: Encoder) -> u16 {
        let Ok(at) = u16::try_from(self.program.encoders.len()) else {
            self.too_many("computed arguments");
            return 0;
        };
        self.program.encoders.push(encoder);
        at
    }
}

/// Whether nothing behind this statement runs.
fn diverges(statement: &Statement) -> bool {
    match &statement.kind {
        StatementKind::Exit | StatementKind::Drop | StatementKind::Return(_) | StatementKind::Break => true,
        StatementKind::Block(block) => block_diverges(block),
        StatementKind::If { arms, otherwise } => {
            otherwise.as_ref().is_some_and(block_diverges)
                && arms.iter().all(|(_, block)| block_diverges(block))
        }
        _ => false,
    }
}

fn block_diverges(block: &Block) -> bool {
    block.statements.iter().any(diverges)
}
