//! The checker: from a syntax tree to a program, or to everything that is wrong with it.

mod flow;
mod settings;

use crate::ast::{Item, RouteBlock};
use crate::catalogue::{CORE, Catalogue, RouteKind, id_of};
use crate::code::{Program, Route};
use crate::compile::Compiler;
use crate::diagnostic::{Colour, Diagnostic, Diagnostics, Severity, Sources, Span, render};
use crate::limits::{ROUTES_MAX, SOURCE_BYTES_MAX};
use crate::parser;
use crate::preprocess::{self, FileLoader};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A configuration that can run.
#[derive(Debug)]
pub struct Loaded {
    /// The program.
    pub program: Program,
    /// Warnings and notes, in the order of their places.
    pub diagnostics: Vec<Diagnostic>,
}

/// A configuration that cannot run.
#[derive(Debug)]
pub struct Rejected {
    /// Everything that was found, in the order of the places; at least one is an error.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts that the diagnostics point into.
    pub sources: Sources,
}

impl Loaded {
    /// The diagnostics as text for people.
    #[must_use]
    pub fn render(&self, colour: Colour) -> String {
        render_all(&self.diagnostics, self.program.sources(), colour)
    }
}

impl Rejected {
    /// How many of the diagnostics are errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count()
    }

    /// The diagnostics as text for people.
    #[must_use]
    pub fn render(&self, colour: Colour) -> String {
        render_all(&self.diagnostics, &self.sources, colour)
    }
}

fn render_all(diagnostics: &[Diagnostic], sources: &Sources, colour: Colour) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        out.push_str(&render(diagnostic, sources, colour));
        out.push_str("\n\n");
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Reads, checks and compiles a configuration.
///
/// `file_name` is what diagnostics call the text. `defines` are names that count as defined before the first
/// line, with their values; the file cannot change them by `#!define`.
///
/// # Errors
/// [`Rejected`] with every error found, when there is one.
pub fn load(
    source: &str,
    file_name: &str,
    catalogue: &Catalogue,
    files: &dyn FileLoader,
    defines: &[(&str, &str)],
) -> Result<Loaded, Rejected> {
    let mut sources = Sources::default();
    let mut diagnostics = Diagnostics::default();
    if source.len() > SOURCE_BYTES_MAX {
        sources.add(file_name, String::new());
        let message = format!("`{file_name}` is larger than {SOURCE_BYTES_MAX} bytes");
        diagnostics.push(Diagnostic::error("too-long", message, Span::default()));
        return Err(Rejected { diagnostics: diagnostics.finish(), sources });
    }
    sources.add(file_name, source.to_string());
    let preprocessed = preprocess::run(&mut sources, files, defines, &mut diagnostics);
    let items = parser::parse(preprocessed.tokens, &sources, &mut diagnostics);
    // An error in the grammar hides what follows it: routes that seem to be missing may be there.
    let readable = !diagnostics.has_errors();
    let mut compiler = Compiler::new(catalogue, &preprocessed.defines, &mut diagnostics);
    compiler.program.id = fingerprint(&sources, defines);
    settings::modules(&mut compiler, &items);
    settings::settings(&mut compiler, &items);
    let routes = declare_routes(&mut compiler, &items, readable);
    for (at, block) in &routes {
        compiler.route(*at, block);
    }
    flow::check(&mut compiler, readable);
    let mut program = compiler.finish();
    if diagnostics.has_errors() {
        return Err(Rejected { diagnostics: diagnostics.finish(), sources });
    }
    program.sources = sources;
    Ok(Loaded { program, diagnostics: diagnostics.finish() })
}

/// Tells programs apart: FNV-1a over all that they were made of.
fn fingerprint(sources: &Sources, defines: &[(&str, &str)]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let texts = sources.files().iter().flat_map(|file| [file.name.as_str(), file.text.as_str()]);
    let texts = texts.chain(defines.iter().flat_map(|(name, value)| [*name, *value]));
    for text in texts {
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

/// Gives every route block its id; the blocks come back with them.
fn declare_routes<'i>(
    compiler: &mut Compiler<'_>,
    items: &'i [Item],
    readable: bool,
) -> Vec<(usize, &'i RouteBlock)> {
    let mut blocks = Vec::new();
    for item in items {
        let Item::Route(block) = item else { continue };
        check_kind(compiler, block);
        let name = block.name.as_ref().map(|name| name.text.clone());
        let same = |route: &Route| route.kind == block.kind && route.name == name;
        if let Some(first) = compiler.program.routes.iter().find(|route| same(route)) {
            let first = first.span;
            let what = title(block.kind, name.as_deref());
            compiler.diagnostics.push(
                Diagnostic::error("duplicate-route", format!("there are two `{what}` blocks"), block.span)
                    .label("the second one")
                    .also(first, "the first one")
                    .help("give one of them another name, or join them"),
            );
        }
        if compiler.program.routes.len() >= ROUTES_MAX {
            let message = format!("more than {ROUTES_MAX} routes");
            compiler.diagnostics.push(Diagnostic::error("too-long", message, block.span));
            break;
        }
        let at = compiler.program.routes.len();
        compiler.program.routes.push(Route { kind: block.kind, name, span: block.span, entry: 0 });
        blocks.push((at, block));
    }
    let main = |route: &Route| route.kind == RouteKind::Request && route.name.is_none();
    if readable && !compiler.program.routes.iter().any(main) {
        compiler.diagnostics.push(Diagnostic {
            severity: Severity::Error,
            code: "no-main-route",
            message: "there is no `request_route`".to_string(),
            primary: None,
            secondary: Vec::new(),
            help: alloc::vec!["requests begin in it: write `request_route { ... }`".to_string()],
        });
    }
    blocks
}

fn check_kind(compiler: &mut Compiler<'_>, block: &RouteBlock) {
    let keyword = block.kind.keyword();
    if !compiler.catalogue.runnable.allows(block.kind) {
        let kinds = compiler.catalogue.runnable;
        compiler.diagnostics.push(
            Diagnostic::error(
                "route-kind",
                format!("this server does not run `{keyword}` blocks"),
                block.span,
            )
            .label("would never run")
            .help(format!("it runs: {kinds}")),
        );
    }
    let named = matches!(block.kind, RouteKind::Failure | RouteKind::Branch | RouteKind::Event);
    if named && block.name.is_none() {
        compiler.diagnostics.push(
            Diagnostic::error("route-name", format!("a `{keyword}` needs a name"), block.span)
                .help(format!("write `{keyword}[NAME]`")),
        );
    }
    if block.kind == RouteKind::OnSend && block.name.is_some() {
        compiler.diagnostics.push(Diagnostic::error(
            "route-name",
            "an `onsend_route` has no name",
            block.span,
        ));
    }
}

/// A route as its block is titled.
pub(crate) fn title(kind: RouteKind, name: Option<&str>) -> String {
    match (kind, name) {
        (RouteKind::Request, None) => "request_route".to_string(),
        (_, None) => kind.keyword().to_string(),
        (_, Some(name)) => format!("{}[{name}]", kind.keyword()),
    }
}

/// Loads the core, which every configuration has.
pub(crate) fn load_core(catalogue: &Catalogue, program: &mut Program) {
    for (at, module) in catalogue.modules.iter().enumerate() {
        if module.name == CORE {
            program.modules.push(crate::catalogue::ModuleId(id_of(at)));
        }
    }
}
