//! Pseudo-variables: reading, writing, transformations.

use super::{Compiler, Type};
use crate::ast::{Inner, Transformation, Variable, VariableIndex};
use crate::catalogue::{CORE, InnerRule, Thing, VariableDecl, VariableId, id_of};
use crate::code::{Constant, Op, Site, SiteIndex, SiteInner};
use crate::diagnostic::{Diagnostic, Span, nearest};
use crate::lexer::TokenKind;
use crate::limits::VARIABLE_DEPTH_MAX;
use crate::parser::variable as notation;
use crate::transform;
use crate::value::Value;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The variables of the language itself, which no module declares.
const INTRINSIC: &[&str] = &["var", "vn", "null", "rc", "retcode", "?", "_s", "def", "defn"];

/// Whether the language itself has this variable.
pub(super) fn is_intrinsic(name: &str) -> bool {
    INTRINSIC.contains(&name)
}

impl Compiler<'_> {
    /// Counts how deep variables nest in each other; false when it is too deep.
    pub(super) fn nested(&mut self, span: Span) -> bool {
        self.depth += 1;
        if self.depth <= VARIABLE_DEPTH_MAX {
            return true;
        }
        self.depth -= 1;
        let message = format!("pseudo-variables nest more than {VARIABLE_DEPTH_MAX} deep");
        self.error(Diagnostic::error("nesting", message, span));
        self.emit(Op::Null);
        false
    }

    pub(super) fn breaks_nesting(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Leaves the value of a variable on the stack, its transformations applied.
    pub(super) fn read(&mut self, variable: &Variable) -> Type {
        let mut of = if is_intrinsic(&variable.name) {
            self.read_intrinsic(variable)
        } else if let Some(value) = self.global(variable) {
            value
        } else {
            self.read_declared(variable);
            Type::Any
        };
        for transformation in &variable.transforms {
            self.transform(transformation);
            of = Type::Any;
        }
        of
    }

    fn read_intrinsic(&mut self, variable: &Variable) -> Type {
        if variable.index.is_some() {
            self.bad(variable, "takes no index");
        }
        match (variable.name.as_str(), &variable.inner) {
            ("null", None) => {
                self.emit(Op::Null);
                Type::Any
            }
            ("rc" | "retcode" | "?", None) => {
                self.emit(Op::Code);
                Type::Int
            }
            ("var" | "vn", Some(inner)) => {
                let at = self.local_of(&variable.name, inner, variable.span);
                self.emit(Op::Local(at));
                Type::Any
            }
            ("_s", Some(inner)) => {
                if self.nested(variable.span) {
                    self.format(&inner.text, inner.span);
                    self.breaks_nesting();
                }
                Type::Str
            }
            ("def" | "defn", Some(inner)) => self.definition(variable, inner),
            (_, Some(_)) => {
                self.bad(variable, "takes nothing in parentheses");
                Type::Any
            }
            (_, None) => {
                self.bad(variable, "needs a name in parentheses");
                Type::Any
            }
        }
    }

    fn bad(&mut self, variable: &Variable, why: &str) {
        let message = format!("`${}` {why}", variable.name);
        self.error(Diagnostic::error("variable", message, variable.span));
        self.emit(Op::Null);
    }

    fn local_of(&mut self, kind: &str, inner: &Inner, span: Span) -> u16 {
        let valid = !inner.text.is_empty()
            && inner
                .text
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':'));
        if !valid {
            let message = format!("`{}` is not a name for a `$var`", String::from_utf8_lossy(&inner.text));
            self.error(
                Diagnostic::error("variable", message, inner.span).help("names have letters, digits and `_`"),
            );
        }
        let name = format!("{kind}({})", String::from_utf8_lossy(&inner.text));
        let initial = if kind == "vn" { Value::Null } else { Value::Int(0) };
        self.local(&name, initial, span)
    }

    /// `$def(NAME)`: the value of a definition.
    fn definition(&mut self, variable: &Variable, inner: &Inner) -> Type {
        let name = String::from_utf8_lossy(&inner.text).into_owned();
        let Some(define) = self.defines.get(&name) else {
            let message = format!("`{name}` is not defined");
            let mut finding = Diagnostic::error("definition", message, variable.span);
            if let Some(near) = nearest(&name, self.defines.keys().map(String::as_str)) {
                finding = finding.help(format!("did you mean `{near}`?"));
            }
            self.error(finding);
            self.emit(Op::Null);
            return Type::Any;
        };
        let mut text: Vec<u8> = Vec::new();
        for token in &define.tokens {
            match &token.kind {
                TokenKind::Str(bytes) => text.extend_from_slice(bytes),
                TokenKind::Word(word) | TokenKind::Number(word) => text.extend_from_slice(word.as_bytes()),
                TokenKind::Sign(sign) => text.extend_from_slice(sign.as_bytes()),
                _ => {}
            }
        }
        if variable.name == "defn" {
            self.emit_int(crate::value::parse_int(&text).unwrap_or(0));
            return Type::Int;
        }
        self.emit_str(&text);
        Type::Str
    }

    /// `$sel(cfg_get.group.name)`: a global of the configuration.
    fn global(&mut self, variable: &Variable) -> Option<Type> {
        if variable.name != "sel" {
            return None;
        }
        let inner = variable.inner.as_ref()?;
        let text = core::str::from_utf8(&inner.text).ok()?;
        let name = text.strip_prefix("cfg_get.")?;
        match self.program.globals.iter().rev().find(|global| global.name == name) {
            Some(global) => match global.value.clone() {
                Constant::Int(value) => {
                    self.emit_int(value);
                    return Some(Type::Int);
                }
                Constant::Str(text) => self.emit_str(&text),
                Constant::Socket(_) => self.emit_str(b""),
            },
            None => {
                let message = format!("the configuration sets no `{name}`");
                let mut finding = Diagnostic::error("global", message, inner.span);
                let known = self.program.globals.iter().map(|global| global.name.as_str());
                if let Some(near) = nearest(name, known) {
                    finding = finding.help(format!("did you mean `{near}`?"));
                }
                self.error(finding);
                self.emit(Op::Null);
            }
        }
        Some(Type::Str)
    }

    /// The variable of the catalogue, or a diagnostic.
    pub(super) fn resolve_variable(&mut self, variable: &Variable) -> Option<(VariableId, VariableDecl)> {
        let named = self.catalogue.variables.iter().enumerate();
        let found: Vec<(usize, _)> = named.filter(|(_, (_, decl))| decl.name == variable.name).collect();
        let loaded = found.iter().find(|(_, (module, _))| self.program.modules.contains(module));
        match loaded.or(found.first()) {
            Some((at, (module, decl))) => {
                if loaded.is_none() {
                    let module = self.catalogue.module_name(*module);
                    let message =
                        format!("`${}` belongs to the module `{module}`, which is not loaded", variable.name);
                    self.error(
                        Diagnostic::error("module-not-loaded", message, variable.span)
                            .help(format!("add: loadmodule \"{module}.so\"")),
                    );
                }
                Some((VariableId(id_of(*at)), *decl))
            }
            None => {
                self.unknown_variable(variable);
                None
            }
        }
    }

    fn unknown_variable(&mut self, variable: &Variable) {
        let name = variable.name.as_str();
        if let Some(crate::catalogue::Class::Refused(why) | crate::catalogue::Class::Harmless(why)) =
            self.catalogue.absent(Thing::Variable, name)
        {
            let message = format!("the pseudo-variable `${name}` is not supported");
            self.error(Diagnostic::error("unsupported-variable", message, variable.span).help(why));
            return;
        }
        let message = format!("there is no pseudo-variable `${name}`");
        let mut finding = Diagnostic::error("unknown-variable", message, variable.span);
        let known = self.catalogue.variables.iter().map(|(_, decl)| decl.name);
        let same_case = |known: &&str| known.eq_ignore_ascii_case(name);
        if let Some(near) = known.clone().find(same_case) {
            finding = finding.help(format!("did you mean `${near}`? Upper and lower case differ"));
        } else if let Some(near) =
            nearest(name, known.chain(INTRINSIC.iter().copied()).filter(|_| name.len() > 2))
        {
            finding = finding.help(format!("did you mean `${near}`?"));
        } else {
            finding = finding.help(format!("a variable of your own is written `$var({name})`"));
        }
        self.error(finding);
    }

    fn read_declared(&mut self, variable: &Variable) {
        let Some((id, decl)) = self.resolve_variable(variable) else {
            self.emit(Op::Null);
            return;
        };
        self.check_use(variable, &decl);
        if variable.inner.is_none() && variable.index.is_none() {
            self.emit(Op::Read(id.0));
            return;
        }
        let site = self.subscript(id, variable);
        let site = self.site(site);
        self.emit(Op::ReadAt(site));
    }

    fn check_use(&mut self, variable: &Variable, decl: &VariableDecl) {
        let why = match (decl.inner, &variable.inner) {
            (InnerRule::None, Some(_)) => Some(String::from("takes nothing in parentheses")),
            (InnerRule::Required, None) => Some(format!("needs a name: `${}(name)`", decl.name)),
            (InnerRule::OneOf(words), None) => Some(format!("needs one of: {}", words.join(", "))),
            (InnerRule::OneOf(words), Some(inner)) => {
                let text = String::from_utf8_lossy(&inner.text).into_owned();
                let known = words.contains(&text.as_str());
                (!known).then(|| match nearest(&text, words.iter().copied()) {
                    Some(near) => format!("has no `{text}`; did you mean `{near}`?"),
                    None => format!("has no `{text}`; it has: {}", words.join(", ")),
                })
            }
            _ => None,
        };
        if let Some(why) = why {
            let message = format!("`${}` {why}", decl.name);
            self.error(Diagnostic::error("variable", message, variable.span));
        }
        if variable.index.is_some() && !decl.indexed {
            let message = format!("`${}` takes no index", decl.name);
            self.error(Diagnostic::error("variable", message, variable.span));
        }
        // What a named route may use depends on who calls it.
        let sub = self.program.routes.get(self.current).is_some_and(|route| route.name.is_some());
        let sub = sub && self.kind == crate::catalogue::RouteKind::Request;
        if !sub && !decl.contexts.allows(self.kind) {
            let message = format!("`${}` has no value in a `{}`", decl.name, self.kind.keyword());
            let help = format!("it can be used in: {}", decl.contexts);
            self.error(Diagnostic::error("context", message, variable.span).help(help));
        }
    }

    /// Puts computed names and indices on the stack and describes the place.
    fn subscript(&mut self, id: VariableId, variable: &Variable) -> Site {
        let inner = match &variable.inner {
            None => SiteInner::None,
            Some(inner) if inner.text.contains(&b'$') => {
                if self.nested(inner.span) {
                    self.format(&inner.text, inner.span);
                    self.breaks_nesting();
                }
                SiteInner::Dynamic
            }
            Some(inner) => {
                let name = self.name_id(id, &inner.text);
                SiteInner::Name(name, self.constant_text(&inner.text))
            }
        };
        let index = match &variable.index {
            None => SiteIndex::None,
            Some(VariableIndex::At(at)) => SiteIndex::At(*at),
            Some(VariableIndex::All) => SiteIndex::All,
            Some(VariableIndex::Variable(index)) => {
                if self.nested(variable.span) {
                    self.read(index);
                    self.breaks_nesting();
                }
                SiteIndex::Dynamic
            }
        };
        Site { variable: id, inner, index }
    }

    /// Pops the value on the stack into a variable.
    pub(super) fn write(&mut self, variable: &Variable) {
        if !variable.transforms.is_empty() {
            let message = "a transformed variable cannot be assigned to";
            self.error(Diagnostic::error("assignment", message, variable.span));
            return;
        }
        if let ("var" | "vn", Some(inner)) = (variable.name.as_str(), &variable.inner) {
            if variable.index.is_some() {
                self.bad(variable, "takes no index");
            }
            let at = self.local_of(&variable.name, inner, variable.span);
            self.emit(Op::SetLocal(at));
            return;
        }
        if is_intrinsic(&variable.name) {
            self.read_only(variable);
            return;
        }
        let Some((id, decl)) = self.resolve_variable(variable) else { return };
        self.check_use(variable, &decl);
        if !decl.writable {
            self.read_only(variable);
            return;
        }
        if variable.inner.is_none() && variable.index.is_none() {
            self.emit(Op::Write(id.0));
            return;
        }
        let site = self.subscript(id, variable);
        let site = self.site(site);
        self.emit(Op::WriteAt(site));
    }

    fn read_only(&mut self, variable: &Variable) {
        let message = format!("`${}` cannot be assigned to", variable.name);
        self.error(Diagnostic::error("assignment", message, variable.span).label("read only"));
    }

    fn transform(&mut self, transformation: &Transformation) {
        let name = transformation.name.as_str();
        if name == "re.subst" {
            match crate::substitution::prepare(&transformation.rest) {
                Ok(substitution) => match u16::try_from(self.program.substitutions.len()) {
                    Ok(at) => {
                        self.program.substitutions.push(substitution);
                        self.emit(Op::Subst(at));
                    }
                    Err(_) => {
                        self.too_many("substitutions");
                    }
                },
                Err(why) => {
                    let message = format!("this substitution cannot be used: {why}");
                    self.error(
                        Diagnostic::error("transformation", message, transformation.span)
                            .help("write `{re.subst,/expression/replacement/flags}`"),
                    );
                }
            }
            return;
        }
        let Some((id, decl)) = transform::find(name) else {
            return self.unknown_transformation(transformation);
        };
        let count = transformation.args.len();
        if count < usize::from(decl.min) || count > usize::from(decl.max) {
            let wanted = if decl.min == decl.max {
                format!("{}", decl.min)
            } else {
                format!("{} to {}", decl.min, decl.max)
            };
            let message = format!("`{name}` takes {wanted} arguments, here are {count}");
            self.error(Diagnostic::error("transformation", message, transformation.span));
            return;
        }
        for arg in &transformation.args {
            let whole = arg.first() == Some(&b'$') && crate::lexer::variable_len(arg) == Some(arg.len());
            if !whole {
                self.emit_str(arg);
                continue;
            }
            match notation::parse(arg, transformation.span) {
                Ok(variable) if self.nested(transformation.span) => {
                    self.read(&variable);
                    self.emit(Op::ToStr);
                    self.breaks_nesting();
                }
                Ok(_) => {}
                Err(finding) => self.error(*finding),
            }
        }
        self.emit(Op::Transform { id: id.0, argc: u8::try_from(count).unwrap_or(0) });
    }

    fn unknown_transformation(&mut self, transformation: &Transformation) {
        let name = &transformation.name;
        let message = format!("there is no transformation `{name}`");
        let mut finding = Diagnostic::error("transformation", message, transformation.span);
        let known = transform::TRANSFORMS.iter().map(|decl| decl.name).chain(["re.subst"]);
        if let Some(near) = nearest(name, known.clone()) {
            finding = finding.help(format!("did you mean `{near}`?"));
        } else {
            let class = name.split('.').next().unwrap_or_default();
            let same: Vec<&str> = known.filter(|known| known.split('.').next() == Some(class)).collect();
            if !same.is_empty() {
                finding = finding.help(format!("there are: {}", same.join(", ")));
            }
        }
        self.error(finding);
    }

    /// Whether the core of the catalogue is what a name belongs to.
    pub(super) fn is_core(&self, module: crate::catalogue::ModuleId) -> bool {
        self.catalogue.module_name(module) == CORE
    }
}
