//! The module reference: Markdown generated from the declarations of a [`Catalogue`].

use crate::catalogue::{Catalogue, Class, Contexts, FunctionDecl, InnerRule, ModuleId, VariableDecl};
use crate::transform::TRANSFORMS;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// Writes the whole reference.
pub(crate) fn markdown(catalogue: &Catalogue) -> String {
    let mut out = String::from("# Module reference\n");
    settings(catalogue, &mut out);
    for (at, module) in catalogue.modules.iter().enumerate() {
        let id = ModuleId(crate::catalogue::id_of(at));
        let _ = write!(out, "\n## {}\n\n{}\n", module.name, module.doc.trim());
        functions(catalogue, id, &mut out);
        parameters(catalogue, id, &mut out);
        variables(catalogue, id, &mut out);
    }
    out.push_str("\n## Transformations\n\n| transformation | gives |\n|---|---|\n");
    for transform in TRANSFORMS {
        let _ = writeln!(out, "| `{{{}}}` | {} |", transform.name, transform.doc);
    }
    out.push_str("| `{re.subst,/expression/replacement/flags}` | matches replaced; flags `g` and `i` |\n");
    out
}

/// A text as one cell of a table.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

fn with_class(doc: &str, class: Class) -> String {
    match class {
        Class::Honoured => cell(doc),
        Class::Harmless(why) => cell(&alloc::format!("{doc} *Accepted, changes nothing: {why}*")),
        Class::Refused(why) => cell(&alloc::format!("{doc} *Refused: {why}*")),
    }
}

fn unit_of(unit: &str, range: Option<(i64, i64)>) -> String {
    match range {
        Some((low, high)) => alloc::format!("{unit} {low}..{high}").trim().into(),
        None => unit.into(),
    }
}

fn settings(catalogue: &Catalogue, out: &mut String) {
    if catalogue.settings.is_empty() {
        return;
    }
    out.push_str("\n## Settings\n\n| setting | type | default | unit | |\n|---|---|---|---|---|\n");
    for decl in &catalogue.settings {
        let doc = with_class(decl.doc, decl.class);
        let unit = unit_of(decl.unit, decl.range);
        let _ =
            writeln!(out, "| `{}` | {} | {} | {unit} | {doc} |", decl.name, decl.kind.name(), decl.default);
    }
}

fn functions(catalogue: &Catalogue, module: ModuleId, out: &mut String) {
    let mut mine = catalogue.functions().filter(|(id, _)| *id == module).peekable();
    if mine.peek().is_some() {
        out.push_str("\n### Functions\n");
    }
    for (_, decl) in mine {
        let _ =
            write!(out, "\n#### `{}`\n\n{}\n\nIn: {}.\n", signature(decl), decl.doc.trim(), decl.contexts);
    }
}

/// `name(a, b, [c])`: optional parameters in brackets.
pub(crate) fn signature(decl: &FunctionDecl) -> String {
    let mut out = String::from(decl.name);
    out.push('(');
    for (at, param) in decl.params.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        if at >= usize::from(decl.required) {
            let _ = write!(out, "[{}]", param.name);
        } else {
            out.push_str(param.name);
        }
    }
    out.push(')');
    out
}

fn parameters(catalogue: &Catalogue, module: ModuleId, out: &mut String) {
    let mut mine = catalogue.parameters().filter(|(id, _)| *id == module).peekable();
    if mine.peek().is_some() {
        out.push_str("\n### Parameters\n\n| parameter | type | default | unit | |\n|---|---|---|---|---|\n");
    }
    for (_, decl) in mine {
        let doc = with_class(decl.doc, decl.class);
        let unit = unit_of(decl.unit, decl.range);
        let _ =
            writeln!(out, "| `{}` | {} | {} | {unit} | {doc} |", decl.name, decl.kind.name(), decl.default);
    }
}

fn variables(catalogue: &Catalogue, module: ModuleId, out: &mut String) {
    let mut mine = catalogue.variables().filter(|(id, _)| *id == module).peekable();
    if mine.peek().is_some() {
        out.push_str("\n### Variables\n\n| variable | | written | in |\n|---|---|---|---|\n");
    }
    for (_, decl) in mine {
        let written = if decl.writable { "yes" } else { "no" };
        let place = if decl.contexts == Contexts::ANY {
            String::from("any route")
        } else {
            alloc::format!("{}", decl.contexts)
        };
        let _ = writeln!(out, "| `{}` | {} | {written} | {place} |", usage(decl), cell(decl.doc));
    }
}

fn usage(decl: &VariableDecl) -> String {
    let inner = match decl.inner {
        InnerRule::None => String::new(),
        InnerRule::Optional => "[(name)]".into(),
        InnerRule::Required => "(name)".into(),
        InnerRule::OneOf(words) => alloc::format!("({})", words.join("\\|")),
    };
    if decl.indexed {
        alloc::format!("$({}{inner}[n])", decl.name)
    } else {
        alloc::format!("${}{inner}", decl.name)
    }
}
