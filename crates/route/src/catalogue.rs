//! The catalogue: what a configuration may name. Modules declare it as plain data; this crate checks
//! against it and knows nothing else about them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::BitOr;

/// The kind of a route block: what kind of event runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RouteKind {
    /// `route`, `request_route`, `route[NAME]`: a request, or a part called by other routes.
    Request,
    /// `reply_route`, `onreply_route`, `onreply_route[NAME]`: a response.
    Reply,
    /// `failure_route[NAME]`: all branches of a request failed.
    Failure,
    /// `branch_route[NAME]`: one branch of a request is about to be sent.
    Branch,
    /// `onsend_route`: a message is about to be sent.
    OnSend,
    /// `event_route[MODULE:EVENT]`: something happened in a module.
    Event,
}

impl RouteKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Request, Self::Reply, Self::Failure, Self::Branch, Self::OnSend, Self::Event];

    /// The word that opens a block of this kind.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Request => "route",
            Self::Reply => "onreply_route",
            Self::Failure => "failure_route",
            Self::Branch => "branch_route",
            Self::OnSend => "onsend_route",
            Self::Event => "event_route",
        }
    }

    /// The set that holds only this kind.
    #[must_use]
    pub const fn context(self) -> Contexts {
        Contexts(1 << self as u8)
    }
}

/// A set of route kinds: where something may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contexts(pub(crate) u8);

impl Contexts {
    /// Request routes.
    pub const REQUEST: Self = RouteKind::Request.context();
    /// Reply routes.
    pub const REPLY: Self = RouteKind::Reply.context();
    /// Failure routes.
    pub const FAILURE: Self = RouteKind::Failure.context();
    /// Branch routes.
    pub const BRANCH: Self = RouteKind::Branch.context();
    /// The onsend route.
    pub const ONSEND: Self = RouteKind::OnSend.context();
    /// Event routes.
    pub const EVENT: Self = RouteKind::Event.context();
    /// No route.
    pub const NONE: Self = Self(0);
    /// Every route.
    pub const ANY: Self = Self(0b11_1111);

    /// Both sets together; usable in constants.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every kind of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether routes of `kind` are in this set.
    #[must_use]
    pub const fn allows(self, kind: RouteKind) -> bool {
        self.contains(kind.context())
    }
}

impl BitOr for Contexts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}

impl fmt::Display for Contexts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANY {
            return out.write_str("any route");
        }
        let mut first = true;
        for kind in RouteKind::ALL.into_iter().filter(|kind| self.allows(*kind)) {
            if !first {
                out.write_str(", ")?;
            }
            first = false;
            out.write_str(kind.keyword())?;
        }
        Ok(())
    }
}

/// Turns the text of an argument into an integer: a mask of methods, a log level, a set of flags.
///
/// # Errors
/// What is wrong with the text and what to write, in one line.
pub type Encoder = fn(&[u8]) -> Result<i64, &'static str>;

/// What a function expects at one place of its argument list.
#[derive(Debug, Clone, Copy)]
pub enum ParamKind {
    /// An integer; a string constant must read as one. `Args::int`.
    Int,
    /// A string, taken as written, or an expression. `Args::str`.
    Str,
    /// A string in which pseudo-variables are replaced by their values. `Args::str`.
    Format,
    /// A constant regular expression (POSIX extended), compiled at load. `Args::regex`.
    Regex,
    /// The name of a route of this kind, resolved at load. An empty string means none. `Args::route`.
    Route(RouteKind),
    /// A text that means an integer: constants are turned at load, expressions when they run (`-1` when
    /// the text makes no sense). `Args::int`.
    Encoded(Encoder),
    /// Anything: a constant or an expression, as it is. `Args::value`.
    Any,
}

impl ParamKind {
    /// The word for this kind in messages and in the reference.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "integer",
            Self::Str | Self::Encoded(_) => "string",
            Self::Format => "format",
            Self::Regex => "regex",
            Self::Route(_) => "route name",
            Self::Any => "any",
        }
    }
}

/// One parameter of a function.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// Its name in the reference.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParamKind,
}

impl Param {
    /// A parameter called `name` of this kind.
    #[must_use]
    pub const fn new(name: &'static str, kind: ParamKind) -> Self {
        Self { name, kind }
    }
}

/// A function that scripts can call.
///
/// Two declarations of one module may share a name when they differ in the number of arguments.
#[derive(Debug, Clone, Copy)]
pub struct FunctionDecl {
    /// Its name in scripts.
    pub name: &'static str,
    /// What it does and what its return codes mean; Markdown, first sentence first.
    pub doc: &'static str,
    /// Its parameters, in order.
    pub params: &'static [Param],
    /// How many of them must be given.
    pub required: u8,
    /// The kinds of routes that may call it.
    pub contexts: Contexts,
}

/// The type of a module parameter or of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// An integer. `yes`/`on`/`true` are 1 and `no`/`off`/`false` are 0.
    Int,
    /// `yes`/`no` and the like, or an integer that is 0 or not.
    Bool,
    /// A string, or a bare word.
    Str,
    /// A socket: `udp:10.0.0.1:5060 advertise 192.0.2.1:5060`.
    Socket,
    /// An integer or a string, whichever is written.
    Any,
}

impl ValueKind {
    /// The word for this kind in messages and in the reference.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "integer",
            Self::Bool => "yes or no",
            Self::Str => "string",
            Self::Socket => "socket",
            Self::Any => "integer or string",
        }
    }
}

/// Whether something that Kamailio knows does anything here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It does what its documentation says.
    Honoured,
    /// It is accepted and changes nothing; the text says why it means nothing here.
    Harmless(&'static str),
    /// It cannot be honoured and is an error; the text says why and what to do.
    Refused(&'static str),
}

/// The value of something that the configuration does not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// There is none.
    None,
    /// An integer.
    Int(i64),
    /// A string.
    Str(&'static str),
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("none"),
            Self::Int(value) => write!(out, "`{value}`"),
            Self::Str(value) => write!(out, "`\"{value}\"`"),
        }
    }
}

/// A module parameter, set by `modparam`.
#[derive(Debug, Clone, Copy)]
pub struct ParameterDecl {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ValueKind,
    /// The integers it accepts, bounds included; `None` for all and for strings.
    pub range: Option<(i64, i64)>,
    /// Its value when no `modparam` sets it.
    pub default: DefaultValue,
    /// The unit of an integer (`"s"`, `"ms"`, `"bytes"`), or an empty string.
    pub unit: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Whether it does anything.
    pub class: Class,
}

/// What a pseudo-variable takes in parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InnerRule {
    /// Nothing: `$ru`.
    None,
    /// A name or nothing.
    Optional,
    /// A name: `$hdr(Call-ID)`.
    Required,
    /// One of these words: `$msg(len)`.
    OneOf(&'static [&'static str]),
}

/// A pseudo-variable.
#[derive(Debug, Clone, Copy)]
pub struct VariableDecl {
    /// Its name, without the dollar sign.
    pub name: &'static str,
    /// What it holds.
    pub doc: &'static str,
    /// What it takes in parentheses.
    pub inner: InnerRule,
    /// Whether it takes an index: `$(hdr(Via)[1])`.
    pub indexed: bool,
    /// Whether scripts may assign to it.
    pub writable: bool,
    /// The kinds of routes in which it can be read or written.
    pub contexts: Contexts,
}

/// A core setting: `name = value` outside of routes.
#[derive(Debug, Clone, Copy)]
pub struct SettingDecl {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ValueKind,
    /// The integers it accepts, bounds included; `None` for all and for strings.
    pub range: Option<(i64, i64)>,
    /// Its value when the configuration does not set it.
    pub default: DefaultValue,
    /// The unit of an integer, or an empty string.
    pub unit: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Whether it does anything.
    pub class: Class,
}

/// What kind of thing a name would be that this server does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// A module, by `loadmodule`.
    Module,
    /// A function.
    Function,
    /// A pseudo-variable, without the dollar sign.
    Variable,
}

/// A module of the [`Catalogue`], in order of insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u16);

/// A function of the [`Catalogue`]: all functions of all modules, in order of insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u16);

/// A pseudo-variable of the [`Catalogue`]: all of all modules, in order of insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableId(pub u16);

/// A module parameter of the [`Catalogue`]: all of all modules, in order of insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterId(pub u16);

/// A core setting of the [`Catalogue`], in order of insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SettingId(pub u16);

#[derive(Debug, Clone)]
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Absent {
    pub(crate) thing: Thing,
    pub(crate) name: &'static str,
    pub(crate) class: Class,
}

/// Everything a configuration may name: modules with their functions, parameters and variables, and
/// the core's settings.
///
/// The module called `core` is always loaded; all others by `loadmodule`.
#[derive(Debug, Clone)]
pub struct Catalogue {
    pub(crate) modules: Vec<Module>,
    pub(crate) functions: Vec<(ModuleId, FunctionDecl)>,
    pub(crate) parameters: Vec<(ModuleId, ParameterDecl)>,
    pub(crate) variables: Vec<(ModuleId, VariableDecl)>,
    pub(crate) settings: Vec<SettingDecl>,
    pub(crate) absent: Vec<Absent>,
    pub(crate) runnable: Contexts,
}

/// The name of the module that is always loaded.
pub const CORE: &str = "core";

impl core::default::Default for Catalogue {
    fn default() -> Self {
        Self::new()
    }
}

impl Catalogue {
    /// An empty catalogue that runs request and reply routes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            modules: Vec::new(),
            functions: Vec::new(),
            parameters: Vec::new(),
            variables: Vec::new(),
            settings: Vec::new(),
            absent: Vec::new(),
            runnable: Contexts::REQUEST | Contexts::REPLY,
        }
    }

    /// Says which kinds of routes the server runs; blocks of other kinds are errors.
    pub fn set_runnable(&mut self, kinds: Contexts) {
        self.runnable = kinds;
    }

    /// Declares a module. Its functions, parameters and variables get the next free ids.
    ///
    /// # Panics
    /// When the catalogue would hold more than 65,536 things of one kind.
    pub fn add_module(
        &mut self,
        name: &'static str,
        doc: &'static str,
        functions: &[FunctionDecl],
        parameters: &[ParameterDecl],
        variables: &[VariableDecl],
    ) -> ModuleId {
        let id = ModuleId(id_of(self.modules.len()));
        self.modules.push(Module { name, doc });
        self.functions.extend(functions.iter().map(|decl| (id, *decl)));
        self.parameters.extend(parameters.iter().map(|decl| (id, *decl)));
        self.variables.extend(variables.iter().map(|decl| (id, *decl)));
        let largest = self.functions.len().max(self.parameters.len()).max(self.variables.len());
        let _ = id_of(largest);
        id
    }

    /// Declares core settings. They get the next free ids.
    pub fn add_settings(&mut self, settings: &[SettingDecl]) {
        self.settings.extend_from_slice(settings);
    }

    /// Declares something that Kamailio has and this server has not: a harmless module is accepted with a
    /// note, anything refused is an error with these words. Harmless functions and variables are errors too.
    pub fn add_absent(&mut self, thing: Thing, name: &'static str, class: Class) {
        self.absent.push(Absent { thing, name, class });
    }

    /// The functions with their modules, in the order of their ids.
    pub fn functions(&self) -> impl Iterator<Item = (ModuleId, &FunctionDecl)> {
        self.functions.iter().map(|(module, decl)| (*module, decl))
    }

    /// The module parameters with their modules, in the order of their ids.
    pub fn parameters(&self) -> impl Iterator<Item = (ModuleId, &ParameterDecl)> {
        self.parameters.iter().map(|(module, decl)| (*module, decl))
    }

    /// The pseudo-variables with their modules, in the order of their ids.
    pub fn variables(&self) -> impl Iterator<Item = (ModuleId, &VariableDecl)> {
        self.variables.iter().map(|(module, decl)| (*module, decl))
    }

    /// The core settings, in the order of their ids.
    #[must_use]
    pub fn settings(&self) -> &[SettingDecl] {
        &self.settings
    }

    /// The name of a module.
    #[must_use]
    pub fn module_name(&self, id: ModuleId) -> &'static str {
        self.modules.get(usize::from(id.0)).map_or("", |module| module.name)
    }

    /// The module called `name`.
    #[must_use]
    pub fn module(&self, name: &str) -> Option<ModuleId> {
        self.modules.iter().position(|module| module.name == name).map(|at| ModuleId(id_of(at)))
    }

    /// The declaration of a function.
    #[must_use]
    pub fn function(&self, id: FunctionId) -> Option<&FunctionDecl> {
        self.functions.get(usize::from(id.0)).map(|(_, decl)| decl)
    }

    /// The declaration of a pseudo-variable.
    #[must_use]
    pub fn variable(&self, id: VariableId) -> Option<&VariableDecl> {
        self.variables.get(usize::from(id.0)).map(|(_, decl)| decl)
    }

    /// The declaration of a module parameter.
    #[must_use]
    pub fn parameter(&self, id: ParameterId) -> Option<&ParameterDecl> {
        self.parameters.get(usize::from(id.0)).map(|(_, decl)| decl)
    }

    /// The pseudo-variable called `name` (without the dollar sign).
    #[must_use]
    pub fn variable_named(&self, name: &str) -> Option<VariableId> {
        let at = self.variables.iter().position(|(_, decl)| decl.name == name)?;
        Some(VariableId(id_of(at)))
    }

    /// The core setting called `name`.
    #[must_use]
    pub fn setting_named(&self, name: &str) -> Option<SettingId> {
        self.settings.iter().position(|decl| decl.name == name).map(|at| SettingId(id_of(at)))
    }

    /// The parameter called `name` of a module.
    #[must_use]
    pub fn parameter_named(&self, module: ModuleId, name: &str) -> Option<ParameterId> {
        let same = |(of, decl): &(ModuleId, ParameterDecl)| *of == module && decl.name == name;
        self.parameters.iter().position(same).map(|at| ParameterId(id_of(at)))
    }

    pub(crate) fn absent(&self, thing: Thing, name: &str) -> Option<Class> {
        self.absent.iter().find(|absent| absent.thing == thing && absent.name == name).map(|it| it.class)
    }

    /// The reference of everything declared here, as Markdown.
    #[must_use]
    pub fn reference_markdown(&self) -> String {
        crate::reference::markdown(self)
    }
}

/// An index as an id.
pub(crate) fn id_of(index: usize) -> u16 {
    u16::try_from(index).expect("invariant: a catalogue or program holds fewer than 65,536 of a kind")
}
