//! Calls of functions and routes.

use super::{Compiler, FunctionCall, RouteCall, Type};
use crate::ast::{Expr, ExprKind, Name};
use crate::catalogue::{Class, Encoder, FunctionDecl, FunctionId, Param, ParamKind, RouteKind, Thing, id_of};
use crate::check::title;
use crate::code::{Call, Op};
use crate::diagnostic::{Diagnostic, Span, nearest};
use crate::reference::signature;
use crate::value::{Decimal, parse_int};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Compiler<'_> {
    /// Calls a function; its return code is on the stack.
    pub(super) fn call(&mut self, name: &Name, args: &[Expr], span: Span) {
        let Some((id, decl)) = self.resolve_function(name, args, span) else {
            self.emit(Op::Null);
            return;
        };
        for (arg, param) in args.iter().zip(decl.params) {
            self.argument(arg, param.kind, &decl, param.name);
        }
        // Of a `Str` parameter a `$` is a dollar sign.
        let constant = |(arg, param): (&Expr, &Param)| {
            let is_constant =
                |text: &Cow<'_, [u8]>| matches!(param.kind, ParamKind::Str) || !text.contains(&b'$');
            literal(arg).filter(is_constant).map(|text| text.as_ref().into())
        };
        let texts = args.iter().zip(decl.params).map(constant).collect();
        self.program.calls.push(Call { function: id, texts, span });
        self.function_calls.push(FunctionCall { from: self.current, function: id, span: name.span });
        let argc = u8::try_from(args.len()).unwrap_or(u8::MAX);
        self.emit(Op::Call { function: id.0, argc, contexts: decl.contexts.0 });
    }

    fn resolve_function(
        &mut self,
        name: &Name,
        args: &[Expr],
        span: Span,
    ) -> Option<(FunctionId, FunctionDecl)> {
        let named = self.catalogue.functions.iter().enumerate();
        let found: Vec<(usize, _)> = named.filter(|(_, (_, decl))| decl.name == name.text).collect();
        if found.is_empty() {
            self.unknown_function(name);
            return None;
        }
        let loaded: Vec<_> =
            found.iter().filter(|(_, (module, _))| self.program.modules.contains(module)).collect();
        if loaded.is_empty() {
            let (_, (module, _)) = found.first()?;
            let module = self.catalogue.module_name(*module);
            let message = format!("`{}` belongs to the module `{module}`, which is not loaded", name.text);
            self.error(
                Diagnostic::error("module-not-loaded", message, name.span)
                    .help(format!("add: loadmodule \"{module}.so\"")),
            );
            return None;
        }
        let fits =
            |decl: &FunctionDecl| (usize::from(decl.required)..=decl.params.len()).contains(&args.len());
        if let Some((at, (_, decl))) = loaded.iter().find(|(_, (_, decl))| fits(decl)) {
            return Some((FunctionId(id_of(*at)), *decl));
        }
        let (_, (_, decl)) = loaded.first()?;
        self.wrong_count(name, decl, args.len(), span);
        None
    }

    fn wrong_count(&mut self, name: &Name, decl: &FunctionDecl, given: usize, span: Span) {
        let (low, high) = (usize::from(decl.required), decl.params.len());
        let wanted = match (low, high) {
            (0, 0) => String::from("no arguments"),
            (1, 1) => String::from("1 argument"),
            (low, high) if low == high => format!("{low} arguments"),
            (low, high) => format!("{low} to {high} arguments"),
        };
        let here = if given == 1 { String::from("here is 1") } else { format!("here are {given}") };
        let message = format!("`{}` takes {wanted}, {here}", name.text);
        self.error(
            Diagnostic::error("arguments", message, span).help(format!("write `{}`", signature(decl))),
        );
    }

    fn unknown_function(&mut self, name: &Name) {
        if let Some(Class::Refused(why) | Class::Harmless(why)) =
            self.catalogue.absent(Thing::Function, &name.text)
        {
            let message = format!("the function `{}` is not supported", name.text);
            self.error(Diagnostic::error("unsupported-function", message, name.span).help(why));
            return;
        }
        let message = format!("there is no function `{}`", name.text);
        let mut finding = Diagnostic::error("unknown-function", message, name.span);
        let routes = self.program.routes.iter().filter(|route| route.kind == RouteKind::Request);
        if routes.filter_map(|route| route.name.as_deref()).any(|route| route == name.text) {
            finding = finding.help(format!("there is a route of this name: `route({})`", name.text));
        } else if let Some((near, module)) = self.nearest_function(&name.text) {
            finding = finding.help(match module {
                None => format!("did you mean `{near}`?"),
                Some(module) => format!("did you mean `{near}`, of the module `{module}`?"),
            });
        }
        self.error(finding);
    }

    /// The nearest name, those of loaded modules first; with its module if that is not loaded.
    fn nearest_function(&self, name: &str) -> Option<(&'static str, Option<&'static str>)> {
        let functions = &self.catalogue.functions;
        let loaded = functions
            .iter()
            .filter(|(module, _)| self.program.modules.contains(module) || self.is_core(*module));
        if let Some(near) = nearest(name, loaded.map(|(_, decl)| decl.name)) {
            return Some((near, None));
        }
        let near = nearest(name, functions.iter().map(|(_, decl)| decl.name))?;
        let (module, _) = functions.iter().find(|(_, decl)| decl.name == near)?;
        Some((near, Some(self.catalogue.module_name(*module))))
    }

    fn argument(&mut self, arg: &Expr, kind: ParamKind, decl: &FunctionDecl, param: &str) {
        match kind {
            ParamKind::Int => self.int_argument(arg, decl, param),
            ParamKind::Str => match literal(arg) {
                Some(text) => {
                    self.emit_str(&text);
                }
                None => self.str_argument(arg),
            },
            ParamKind::Format => match &arg.kind {
                ExprKind::Str(text) => {
                    self.text_or_format(text, arg.span);
                }
                _ => match literal(arg) {
                    Some(text) => self.emit_str(&text),
                    None => self.str_argument(arg),
                },
            },
            ParamKind::Regex => match &arg.kind {
                ExprKind::Str(text) => {
                    let regex = self.regex(text, arg.span);
                    self.emit(Op::Regex(regex));
                }
                _ => self.wrong_kind(arg, decl, param, "a regular expression in quotes"),
            },
            ParamKind::Route(kind) => self.route_argument(arg, kind, decl, param),
            ParamKind::Encoded(encoder) => self.encoded_argument(arg, encoder, decl, param),
            ParamKind::Any => match literal(arg).filter(|_| !matches!(arg.kind, ExprKind::Int(_))) {
                Some(text) => self.emit_str(&text),
                None => {
                    self.value(arg);
                }
            },
        }
    }

    fn str_argument(&mut self, arg: &Expr) {
        if self.value(arg) != Type::Str {
            self.emit(Op::ToStr);
        }
    }

    fn wrong_kind(&mut self, arg: &Expr, decl: &FunctionDecl, param: &str, wanted: &str) {
        let message = format!("`{param}` of `{}` must be {wanted}", decl.name);
        self.error(
            Diagnostic::error("argument", message, arg.span).help(format!("write `{}`", signature(decl))),
        );
        self.emit(Op::Null);
    }

    fn int_argument(&mut self, arg: &Expr, decl: &FunctionDecl, param: &str) {
        match &arg.kind {
            ExprKind::Str(text) => match parse_int(text.trim_ascii()) {
                Some(value) => self.emit_int(value),
                None if text.contains(&b'$') => {
                    self.format(text, arg.span);
                    self.emit(Op::ToInt);
                }
                None => self.wrong_kind(arg, decl, param, "an integer"),
            },
            ExprKind::Word(_) => self.wrong_kind(arg, decl, param, "an integer"),
            _ => {
                if self.value(arg) != Type::Int {
                    self.emit(Op::ToInt);
                }
            }
        }
    }

    fn encoded_argument(&mut self, arg: &Expr, encoder: Encoder, decl: &FunctionDecl, param: &str) {
        let Some(text) = literal(arg) else {
            self.value(arg);
            let at = self.encoder(encoder);
            self.emit(Op::Encode(at));
            return;
        };
        match encoder(&text) {
            Ok(value) => self.emit_int(value),
            Err(_) if text.contains(&b'$') => {
                self.format(&text, arg.span);
                let at = self.encoder(encoder);
                self.emit(Op::Encode(at));
            }
            Err(why) => {
                let message = format!("`{param}` of `{}` cannot be this: {why}", decl.name);
                self.error(Diagnostic::error("argument", message, arg.span));
                self.emit(Op::Null);
            }
        }
    }

    fn route_argument(&mut self, arg: &Expr, kind: RouteKind, decl: &FunctionDecl, param: &str) {
        let Some(text) = literal(arg) else {
            return self.wrong_kind(arg, decl, param, "the name of a route in quotes");
        };
        let name = String::from_utf8_lossy(&text).into_owned();
        // An empty name, or 0 in the old language, takes back what was set.
        if name.is_empty() || name == "0" {
            self.emit(Op::Null);
            return;
        }
        match self.find_route(&name, kind) {
            Some(at) => {
                self.armed_routes.push(at);
                self.emit(Op::Route(id_of(at)));
            }
            None => {
                self.unknown_route(&name, kind, arg.span);
                self.emit(Op::Null);
            }
        }
    }

    fn find_route(&self, name: &str, kind: RouteKind) -> Option<usize> {
        let same = |route: &crate::code::Route| route.kind == kind && route.name.as_deref() == Some(name);
        self.program.routes.iter().position(same)
    }

    fn unknown_route(&mut self, name: &str, kind: RouteKind, span: Span) {
        let message = format!("there is no `{}`", title(kind, Some(name)));
        let mut finding = Diagnostic::error("unknown-route", message, span);
        let routes = &self.program.routes;
        let same_kind =
            routes.iter().filter(|route| route.kind == kind).filter_map(|route| route.name.as_deref());
        let other = routes.iter().find(|route| route.name.as_deref() == Some(name));
        if let Some(near) = nearest(name, same_kind) {
            finding = finding.help(format!("did you mean `{near}`?"));
        } else if let Some(other) = other {
            let there = title(other.kind, Some(name));
            finding = finding.also(other.span, format!("this is a `{there}`"));
        } else {
            finding = finding.help(format!("add: {} {{ ... }}", title(kind, Some(name))));
        }
        self.error(finding);
    }

    /// `route(NAME)`; its return code is on the stack.
    pub(super) fn route_call(&mut self, name: &Expr, span: Span) {
        let constant = literal(name).filter(|text| {
            let computed = matches!(name.kind, ExprKind::Str(_)) && text.contains(&b'$');
            !computed
        });
        let Some(text) = constant else {
            self.dynamic_calls = true;
            match &name.kind {
                ExprKind::Str(text) => self.format(text, name.span),
                _ => self.str_argument(name),
            }
            self.emit(Op::CallNamed);
            return;
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        match self.find_route(&text, RouteKind::Request) {
            Some(to) => {
                self.route_calls.push(RouteCall { from: self.current, to, span });
                self.emit(Op::CallRoute(id_of(to)));
            }
            None => {
                self.unknown_route(&text, RouteKind::Request, name.span);
                self.emit(Op::Null);
            }
        }
    }
}

/// The text of an argument that is a constant.
fn literal(arg: &Expr) -> Option<Cow<'_, [u8]>> {
    match &arg.kind {
        ExprKind::Str(text) => Some(Cow::Borrowed(text)),
        ExprKind::Word(text) => Some(Cow::Borrowed(text.as_bytes())),
        ExprKind::Int(value) => Some(Cow::Owned(Decimal::new(*value).as_bytes().to_vec())),
        ExprKind::Unary(crate::ast::Unary::Negate, inner) => match inner.kind {
            ExprKind::Int(value) => Some(Cow::Owned(Decimal::new(value.wrapping_neg()).as_bytes().to_vec())),
            _ => None,
        },
        _ => None,
    }
}
