//! How modules say what scripts can call: one table per module, with the function behind each name.
//!
//! The checker, the reference manual and the machine all read these tables; nothing is named twice.

use crate::run::Run;
use route::{
    Args, Class, Contexts, DefaultValue, FunctionDecl, InnerRule, Outcome, Param, ParameterDecl, SettingDecl,
    Sink, Subscript, ValueKind, ValueRef, VariableDecl,
};

/// What runs when a script calls a function.
pub(crate) type Handler = for<'r, 'm> fn(&mut Run<'r, 'm>, &Args<'_>) -> Outcome;
/// What runs when a script reads a variable.
pub(crate) type Reader = for<'r, 'm> fn(&mut Run<'r, 'm>, &Subscript<'_>, &mut Sink<'_>);
/// What runs when a script assigns to a variable.
pub(crate) type Writer = for<'r, 'm> fn(&mut Run<'r, 'm>, &Subscript<'_>, ValueRef<'_>);

/// Routes that hold a request: request, failure and branch routes.
pub(crate) const REQUESTS: Contexts = Contexts::REQUEST.or(Contexts::FAILURE).or(Contexts::BRANCH);
/// Routes in which the targets of a request can still be changed.
pub(crate) const TARGETS: Contexts = Contexts::REQUEST.or(Contexts::FAILURE);
/// Every route that has a message.
pub(crate) const MESSAGES: Contexts = REQUESTS.or(Contexts::REPLY);

/// One module: what it is called and what it offers.
#[derive(Debug)]
pub struct Module {
    /// The name in `loadmodule`, without path and `.so`.
    pub name: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// Its functions.
    pub functions: &'static [Function],
    /// Its parameters.
    pub parameters: &'static [ParameterDecl],
    /// Its pseudo-variables.
    pub variables: &'static [Variable],
}

/// A function: its declaration and what runs.
#[derive(Debug)]
pub struct Function {
    /// What scripts see of it.
    pub decl: FunctionDecl,
    pub(crate) handler: Handler,
}

impl Function {
    /// A function whose parameters must all be given.
    pub(crate) const fn new(
        name: &'static str,
        params: &'static [Param],
        contexts: Contexts,
        handler: Handler,
        doc: &'static str,
    ) -> Function {
        Function::optional(name, params, params.len() as u8, contexts, handler, doc)
    }

    /// A function that needs only the first `required` parameters.
    pub(crate) const fn optional(
        name: &'static str,
        params: &'static [Param],
        required: u8,
        contexts: Contexts,
        handler: Handler,
        doc: &'static str,
    ) -> Function {
        Function { decl: FunctionDecl { name, doc, params, required, contexts }, handler }
    }
}

/// A pseudo-variable: its declaration and what reads and writes it.
#[derive(Debug)]
pub struct Variable {
    /// What scripts see of it.
    pub decl: VariableDecl,
    pub(crate) read: Reader,
    pub(crate) write: Option<Writer>,
}

impl Variable {
    /// A variable that can only be read, without name or index.
    pub(crate) const fn read_only(
        name: &'static str,
        contexts: Contexts,
        read: Reader,
        doc: &'static str,
    ) -> Variable {
        Variable {
            decl: VariableDecl {
                name,
                doc,
                inner: InnerRule::None,
                indexed: false,
                writable: false,
                contexts,
            },
            read,
            write: None,
        }
    }

    /// The same, and scripts may assign to it.
    pub(crate) const fn writable(
        name: &'static str,
        contexts: Contexts,
        read: Reader,
        write: Writer,
        doc: &'static str,
    ) -> Variable {
        Variable {
            decl: VariableDecl {
                name,
                doc,
                inner: InnerRule::None,
                indexed: false,
                writable: true,
                contexts,
            },
            read,
            write: Some(write),
        }
    }

    /// The same with a name in parentheses, and perhaps an index.
    pub(crate) const fn inner(mut self, inner: InnerRule, indexed: bool) -> Variable {
        self.decl.inner = inner;
        self.decl.indexed = indexed;
        self
    }
}

/// An integer parameter of a module that is honoured.
pub(crate) const fn int_parameter(
    name: &'static str,
    range: (i64, i64),
    default: i64,
    unit: &'static str,
    doc: &'static str,
) -> ParameterDecl {
    ParameterDecl {
        name,
        kind: ValueKind::Int,
        range: Some(range),
        default: DefaultValue::Int(default),
        unit,
        doc,
        class: Class::Honoured,
    }
}

/// A string parameter of a module that is honoured.
pub(crate) const fn str_parameter(
    name: &'static str,
    default: &'static str,
    doc: &'static str,
) -> ParameterDecl {
    ParameterDecl {
        name,
        kind: ValueKind::Str,
        range: None,
        default: DefaultValue::Str(default),
        unit: "",
        doc,
        class: Class::Honoured,
    }
}

/// A parameter of a module that means nothing here.
pub(crate) const fn harmless_parameter(name: &'static str, why: &'static str) -> ParameterDecl {
    ParameterDecl {
        name,
        kind: ValueKind::Any,
        range: None,
        default: DefaultValue::None,
        unit: "",
        doc: why,
        class: Class::Harmless(why),
    }
}

/// A parameter of a module that cannot be honoured.
pub(crate) const fn refused_parameter(name: &'static str, why: &'static str) -> ParameterDecl {
    ParameterDecl {
        name,
        kind: ValueKind::Any,
        range: None,
        default: DefaultValue::None,
        unit: "",
        doc: why,
        class: Class::Refused(why),
    }
}

/// The type of a setting and what belongs to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The type.
    pub(crate) kind: ValueKind,
    /// The integers that it accepts.
    pub(crate) range: Option<(i64, i64)>,
    /// Its value when it is not set.
    pub(crate) default: DefaultValue,
    /// The unit of an integer.
    pub(crate) unit: &'static str,
}

impl Shape {
    /// Any value of a type.
    pub(crate) const fn of(kind: ValueKind) -> Shape {
        Shape { kind, range: None, default: DefaultValue::None, unit: "" }
    }
}

/// A core setting.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) decl: SettingDecl,
    /// Whether it can be honoured only when it is off.
    pub(crate) only_off: bool,
}

impl Setting {
    /// A setting that has its effect.
    pub(crate) const fn honoured(name: &'static str, shape: Shape, doc: &'static str) -> Setting {
        Setting { decl: decl(name, shape, doc, Class::Honoured), only_off: false }
    }

    /// A setting that means nothing here.
    pub(crate) const fn harmless(name: &'static str, shape: Shape, why: &'static str) -> Setting {
        Setting { decl: decl(name, shape, why, Class::Harmless(why)), only_off: false }
    }

    /// A setting that cannot be honoured.
    pub(crate) const fn refused(name: &'static str, shape: Shape, why: &'static str) -> Setting {
        Setting { decl: decl(name, shape, why, Class::Refused(why)), only_off: false }
    }

    /// A setting that can be honoured only when it is off.
    pub(crate) const fn only_off(name: &'static str, shape: Shape, why: &'static str) -> Setting {
        Setting { decl: decl(name, shape, why, Class::Honoured), only_off: true }
    }
}

const fn decl(name: &'static str, shape: Shape, doc: &'static str, class: Class) -> SettingDecl {
    let Shape { kind, range, default, unit } = shape;
    SettingDecl { name, kind, range, default, unit, doc, class }
}
