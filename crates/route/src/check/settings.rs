//! Settings, modules and their parameters.

use crate::ast::{Atom, AtomKind, Item, Name};
use crate::catalogue::{Class, ModuleId, ParameterDecl, ParameterId, SettingId, Thing, ValueKind, id_of};
use crate::code::{Constant, Global, ModParam, Setting, Socket};
use crate::compile::Compiler;
use crate::diagnostic::{Diagnostic, Span, nearest};
use crate::value::{Decimal, parse_int};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Loads modules.
pub(super) fn modules(compiler: &mut Compiler<'_>, items: &[Item]) {
    super::load_core(compiler.catalogue, &mut compiler.program);
    for item in items {
        let Item::LoadModule(name) = item else { continue };
        if let Some(id) = compiler.catalogue.module(&name.text) {
            if !compiler.program.modules.contains(&id) {
                compiler.program.modules.push(id);
            }
            continue;
        }
        compiler.absent_modules.push(name.text.clone());
        match compiler.catalogue.absent(Thing::Module, &name.text) {
            Some(Class::Harmless(why)) => compiler.harmless(&name.text, name.span, why),
            Some(Class::Refused(why)) => {
                let message = format!("the module `{}` is not supported", name.text);
                let finding = Diagnostic::error("unsupported-module", message, name.span);
                compiler.diagnostics.push(finding.help(why));
            }
            Some(Class::Honoured) | None => unknown_module(compiler, name),
        }
    }
}

fn unknown_module(compiler: &mut Compiler<'_>, name: &Name) {
    let message = format!("there is no module `{}`", name.text);
    let mut finding = Diagnostic::error("unknown-module", message, name.span);
    let known = compiler.catalogue.modules.iter().map(|module| module.name);
    if let Some(near) = nearest(&name.text, known) {
        finding = finding.help(format!("did you mean `{near}.so`?"));
    } else {
        finding = finding.label("this server does not have it");
    }
    compiler.diagnostics.push(finding);
}

/// Checks settings and parameters, and keeps their values.
pub(super) fn settings(compiler: &mut Compiler<'_>, items: &[Item]) {
    for item in items {
        match item {
            Item::Setting { name, values, span } => setting(compiler, name, values, *span),
            Item::ModParam { modules, name, value, span } => modparam(compiler, modules, name, value, *span),
            Item::LoadModule(_) | Item::Route(_) => {}
        }
    }
}

fn setting(compiler: &mut Compiler<'_>, name: &Name, values: &[Atom], span: Span) {
    let Some(first) = values.first() else { return };
    if name.text.contains('.') {
        let value = match &first.kind {
            AtomKind::Str(text) => Constant::Str(text.clone()),
            AtomKind::Word(word) => match parse_int(word.as_bytes()) {
                Some(value) => Constant::Int(value),
                None => Constant::Str(word.as_bytes().to_vec()),
            },
        };
        compiler.program.globals.push(Global { name: name.text.clone(), value, span });
        return;
    }
    let found = compiler.catalogue.settings.iter().position(|decl| decl.name == name.text);
    let Some((at, decl)) = found.and_then(|at| Some((at, compiler.catalogue.settings.get(at)?))) else {
        return unknown_setting(compiler, name);
    };
    match decl.class {
        Class::Harmless(why) => return compiler.harmless(&name.text, name.span, why),
        Class::Refused(why) => {
            let message = format!("the setting `{}` is not supported", name.text);
            let finding = Diagnostic::error("unsupported-setting", message, span);
            return compiler.diagnostics.push(finding.help(why));
        }
        Class::Honoured => {}
    }
    let id = SettingId(id_of(at));
    if decl.kind == ValueKind::Socket {
        match socket(values) {
            Ok(value) => compiler.program.settings.push(Setting { id, value: Constant::Socket(value), span }),
            Err((message, place)) => {
                let finding = Diagnostic::error("socket", message, place)
                    .help("write `udp:10.0.0.1:5060`, with IPv6 addresses in brackets, and `advertise host:port` behind it");
                compiler.diagnostics.push(finding);
            }
        }
        return;
    }
    // `alias = a b` sets the same thing twice; nothing else takes more than one value.
    if values.len() > 1 && decl.kind != ValueKind::Str {
        let place = values.get(1).map_or(span, |atom| atom.span);
        let message = format!("`{}` takes one value", name.text);
        compiler.diagnostics.push(Diagnostic::error("value", message, place));
        return;
    }
    for atom in values {
        match value(atom, decl.kind, decl.range) {
            Ok(value) => compiler.program.settings.push(Setting { id, value, span }),
            Err(why) => {
                let message = format!("`{}` {why}", name.text);
                compiler.diagnostics.push(Diagnostic::error("value", message, atom.span));
            }
        }
    }
}

fn unknown_setting(compiler: &mut Compiler<'_>, name: &Name) {
    let message = format!("there is no setting `{}`", name.text);
    let mut finding = Diagnostic::error("unknown-setting", message, name.span);
    let known = compiler.catalogue.settings.iter().map(|decl| decl.name);
    if let Some(near) = nearest(&name.text, known) {
        finding = finding.help(format!("did you mean `{near}`?"));
    } else {
        finding = finding.help("settings of your own have a group: `group.name = value`");
    }
    compiler.diagnostics.push(finding);
}

/// The value as its declaration wants it, or what is wrong with it (`... is not an integer`).
fn value(atom: &Atom, kind: ValueKind, range: Option<(i64, i64)>) -> Result<Constant, String> {
    let (text, word) = match &atom.kind {
        AtomKind::Str(text) => (text.as_slice(), false),
        AtomKind::Word(text) => (text.as_bytes(), true),
    };
    let flag = match text {
        b"yes" | b"on" | b"true" | b"enable" | b"enabled" => Some(1),
        b"no" | b"off" | b"false" | b"disable" | b"disabled" => Some(0),
        _ => None,
    };
    let number = parse_int(text);
    let shown = || String::from_utf8_lossy(text).into_owned();
    match kind {
        ValueKind::Int => {
            let value = number.or(flag.filter(|_| word));
            let value = value.ok_or_else(|| format!("takes an integer, not `{}`", shown()))?;
            match range {
                Some((low, high)) if !(low..=high).contains(&value) => {
                    Err(format!("takes an integer from {low} to {high}, not {value}"))
                }
                _ => Ok(Constant::Int(value)),
            }
        }
        ValueKind::Bool => match flag.or(number) {
            Some(value) => Ok(Constant::Int(i64::from(value != 0))),
            None => Err(format!("takes `yes` or `no`, not `{}`", shown())),
        },
        ValueKind::Any if word => match number.or(flag) {
            Some(value) => Ok(Constant::Int(value)),
            None => Ok(Constant::Str(text.to_vec())),
        },
        ValueKind::Str | ValueKind::Any => Ok(match number.filter(|_| word) {
            Some(value) => Constant::Str(Decimal::new(value).as_bytes().to_vec()),
            None => Constant::Str(text.to_vec()),
        }),
        ValueKind::Socket => match parse_socket(&shown()) {
            Some(socket) => Ok(Constant::Socket(socket)),
            None => Err(format!("takes a socket, not `{}`", shown())),
        },
    }
}

/// A `listen` line: the socket, then `advertise` and `name`.
fn socket(values: &[Atom]) -> Result<Socket, (String, Span)> {
    let text = |atom: &Atom| match &atom.kind {
        AtomKind::Str(text) => String::from_utf8_lossy(text).into_owned(),
        AtomKind::Word(text) => text.clone(),
    };
    let mut values = values.iter();
    let Some(first) = values.next() else { return Ok(Socket::default()) };
    let mut socket = parse_socket(&text(first))
        .ok_or_else(|| (format!("`{}` is not a socket", text(first)), first.span))?;
    while let Some(word) = values.next() {
        let argument = values.next();
        match (text(word).as_str(), argument) {
            ("advertise" | "ADVERTISE", Some(atom)) => {
                let other = parse_socket(&text(atom))
                    .ok_or_else(|| (format!("`{}` is not a host and port", text(atom)), atom.span))?;
                socket.advertise = Some((other.host, other.port));
            }
            ("name" | "NAME", Some(atom)) => socket.name = Some(text(atom)),
            ("advertise" | "name", None) => {
                return Err((format!("a value is missing behind `{}`", text(word)), word.span));
            }
            (other, _) => return Err((format!("`{other}` is not known behind a socket"), word.span)),
        }
    }
    Ok(socket)
}

/// `[protocol:]host[:port]`.
fn parse_socket(text: &str) -> Option<Socket> {
    let mut socket = Socket::default();
    let mut rest = text;
    if let Some((first, behind)) = text.split_once(':') {
        let protocol = first.to_ascii_lowercase();
        if matches!(protocol.as_str(), "udp" | "tcp" | "tls" | "sctp" | "ws" | "wss") {
            socket.protocol = Some(protocol);
            rest = behind;
        }
    }
    let port = if let Some(inside) = rest.strip_prefix('[') {
        let (host, behind) = inside.split_once(']')?;
        host.parse::<core::net::Ipv6Addr>().ok()?;
        socket.host = host.to_string();
        match behind.strip_prefix(':') {
            Some(port) => Some(port),
            None if behind.is_empty() => None,
            None => return None,
        }
    } else {
        let (host, port) = match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if host != "*" && (host.is_empty() || !host.bytes().all(plain)) {
            return None;
        }
        socket.host = host.to_string();
        port
    };
    if let Some(port) = port {
        socket.port = Some(port.parse().ok()?);
    }
    Some(socket)
}

fn modparam(compiler: &mut Compiler<'_>, modules: &Name, name: &Name, atom: &Atom, span: Span) {
    for module in modules.text.split('|').map(str::trim) {
        if compiler.absent_modules.iter().any(|absent| absent == module) {
            continue;
        }
        let Some(id) = compiler.catalogue.module(module) else {
            let unknown = Name { text: module.to_string(), span: modules.span };
            unknown_module(compiler, &unknown);
            continue;
        };
        if !compiler.program.modules.contains(&id) {
            let message = format!("the module `{module}` is not loaded");
            let finding = Diagnostic::error("module-not-loaded", message, modules.span);
            compiler.diagnostics.push(finding.help(format!("add: loadmodule \"{module}.so\"")));
            continue;
        }
        parameter(compiler, id, name, atom, span);
    }
}

fn parameter(compiler: &mut Compiler<'_>, module: ModuleId, name: &Name, atom: &Atom, span: Span) {
    let found = compiler.catalogue.parameters.iter().enumerate();
    let mine: Vec<(usize, &ParameterDecl)> =
        found.filter(|(_, (of, _))| *of == module).map(|(at, (_, decl))| (at, decl)).collect();
    let title = compiler.catalogue.module_name(module);
    let Some((at, decl)) = mine.iter().find(|(_, decl)| decl.name == name.text) else {
        let message = format!("the module `{title}` has no parameter `{}`", name.text);
        let mut finding = Diagnostic::error("unknown-parameter", message, name.span);
        if let Some(near) = nearest(&name.text, mine.iter().map(|(_, decl)| decl.name)) {
            finding = finding.help(format!("did you mean `{near}`?"));
        } else if !mine.is_empty() {
            let names: Vec<&str> = mine.iter().map(|(_, decl)| decl.name).take(12).collect();
            finding = finding.help(format!("it has: {}", names.join(", ")));
        }
        compiler.diagnostics.push(finding);
        return;
    };
    match decl.class {
        Class::Harmless(why) => compiler.harmless(&format!("{title}: {}", name.text), name.span, why),
        Class::Refused(why) => {
            let message = format!("the parameter `{}` of `{title}` is not supported", name.text);
            let finding = Diagnostic::error("unsupported-parameter", message, name.span);
            compiler.diagnostics.push(finding.help(why));
        }
        Class::Honoured => match value(atom, decl.kind, decl.range) {
            Ok(value) => {
                let id = ParameterId(id_of(*at));
                compiler.program.modparams.push(ModParam { module, id, value, span });
            }
            Err(why) => {
                let message = format!("`{}` of `{title}` {why}", name.text);
                compiler.diagnostics.push(Diagnostic::error("value", message, atom.span));
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_read_in_all_their_forms() {
        let socket = |text| parse_socket(text).unwrap();
        let v4 = socket("udp:127.0.0.1:5060");
        assert_eq!(
            (v4.protocol.as_deref(), v4.host.as_str(), v4.port),
            (Some("udp"), "127.0.0.1", Some(5060))
        );
        let v6 = socket("TLS:[::1]:5061");
        assert_eq!((v6.protocol.as_deref(), v6.host.as_str(), v6.port), (Some("tls"), "::1", Some(5061)));
        assert_eq!(socket("eth0").host, "eth0");
        assert_eq!(socket("udp:eth0:5060").port, Some(5060));
        assert_eq!(socket("tcp:*").host, "*");
        for text in ["", "udp:", "udp:[::1", "udp:[x]:1", "udp:a:b", "udp:a:99999", "a b"] {
            assert!(parse_socket(text).is_none(), "{text}");
        }
    }
}
