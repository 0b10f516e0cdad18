//! The compiled program: compact instructions, constants, routes, and what the configuration set.

use crate::catalogue::{Encoder, FunctionId, ModuleId, ParameterId, RouteKind, SettingId, VariableId};
use crate::diagnostic::{Sources, Span};
use crate::regex::Regex;
use crate::value::{Text, Value};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// One instruction: eight bytes. Operands are on the stack, the last one on top.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Op {
    Null,
    Int(i32),
    /// An integer too large for [`Op::Int`].
    Long(u16),
    Str {
        start: u32,
        len: u16,
    },
    Regex(u16),
    Route(u16),
    /// Reads a `$var`.
    Local(u16),
    /// Pops into a `$var`; null becomes what the `$var` had at the start.
    SetLocal(u16),
    /// The return code of the last call.
    Code,
    /// Reads a variable without name or index.
    Read(u16),
    /// Reads through a [`Site`]: pops a dynamic index, then a dynamic name.
    ReadAt(u16),
    Write(u16),
    /// Writes through a [`Site`]: pops a dynamic index, then a dynamic name, then the value.
    WriteAt(u16),
    Call {
        function: u16,
        argc: u8,
        /// The contexts that allow the call, as bits.
        contexts: u8,
    },
    ToInt,
    ToStr,
    /// Turns a text into an integer by an encoder of the program.
    Encode(u16),
    /// Joins this many pieces; null becomes `<null>`.
    Format(u16),
    Concat,
    Add,
    Arithmetic(Arithmetic),
    Negate,
    Complement,
    Not,
    Compare(Relation),
    Match(u16),
    MatchDynamic,
    InNetwork(u16),
    /// Whether a variable names this server.
    MyselfVariable(u16),
    /// Whether a value names this server.
    MyselfValue,
    Strlen,
    Strempty,
    Defined,
    Transform {
        id: u8,
        argc: u8,
    },
    /// Transforms by a constant `re.subst`.
    Subst(u16),
    Jump(u32),
    /// A jump backwards.
    Loop(u32),
    /// Pops and jumps when the value is true (a nonzero integer).
    JumpIf(u32),
    JumpUnless(u32),
    /// Pops a return code and jumps when it is positive.
    JumpOk(u32),
    JumpFailed(u32),
    CallRoute(u16),
    /// Pops the name of a route and calls it.
    CallNamed,
    /// Pops the return code and leaves the route.
    Return,
    Exit,
    Drop,
    Pop,
    /// Pops into the register that the `Case` instructions look at.
    SwitchOn,
    CaseInt(i32),
    CaseStr {
        start: u32,
        len: u16,
    },
    CaseRegex(u16),
}

/// Operations on two integers. `+` is not here: it also joins strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    Left,
    Right,
}

/// Comparisons. The type of the left side decides `Equal` and `Differ`; the others say their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Differ,
    IntEqual,
    IntDiffer,
    StrEqual,
    StrDiffer,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Where and how a script names a variable with a name or an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) variable: VariableId,
    pub(crate) inner: SiteInner,
    pub(crate) index: SiteIndex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiteInner {
    None,
    Name(NameId, Text),
    Dynamic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiteIndex {
    None,
    At(i32),
    All,
    Dynamic,
}

/// A constant name in parentheses of a variable, `Call-ID` in `$hdr(Call-ID)`: equal names of one variable
/// have one id. Hosts can prepare what they need for each when the program is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u16);

/// See [`NameId`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The variable.
    pub variable: VariableId,
    /// The text in parentheses.
    pub text: Box<[u8]>,
}

/// A route of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u16);

/// A route block.
#[derive(Debug, Clone)]
pub struct Route {
    /// Its kind.
    pub kind: RouteKind,
    /// Its name; `None` for the main block of its kind.
    pub name: Option<String>,
    /// Where it is.
    pub span: Span,
    pub(crate) entry: u32,
}

/// A range of addresses: `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The addresses that share the first `prefix` bits with `address`; `None` when it has fewer bits.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some(Self { address, prefix })
    }

    /// Whether `address` is one of them. An IPv4 address mapped into IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(mine), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.prefix);
                (mine.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(mine), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.prefix);
                (mine.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// What a configuration gave as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constant {
    /// An integer; `yes` is 1 and `no` is 0.
    Int(i64),
    /// A string or a bare word.
    Str(Vec<u8>),
    /// A socket.
    Socket(Socket),
}

impl Constant {
    /// The integer.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    /// The string, when it is UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(value) = self { core::str::from_utf8(value).ok() } else { None }
    }

    /// The socket.
    #[must_use]
    pub fn as_socket(&self) -> Option<&Socket> {
        if let Self::Socket(value) = self { Some(value) } else { None }
    }
}

/// A socket as `listen` writes it: `udp:10.0.0.1:5060 advertise 192.0.2.1:5060 name "lan"`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Socket {
    /// `udp`, `tcp`, `tls`, `sctp`, in lower case; `None` when not written.
    pub protocol: Option<String>,
    /// An address, a host name, an interface, or `*`; IPv6 addresses without brackets.
    pub host: String,
    /// The port; `None` when not written.
    pub port: Option<u16>,
    /// The host and port to write into messages instead.
    pub advertise: Option<(String, Option<u16>)>,
    /// The socket's name.
    pub name: Option<String>,
}

/// A core setting of the configuration.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Which setting.
    pub id: SettingId,
    /// Its value.
    pub value: Constant,
    /// Where it was set.
    pub span: Span,
}

/// A module parameter of the configuration.
#[derive(Debug, Clone)]
pub struct ModParam {
    /// The module.
    pub module: ModuleId,
    /// Which parameter.
    pub id: ParameterId,
    /// Its value.
    pub value: Constant,
    /// Where it was set.
    pub span: Span,
}

/// A global of the configuration's own: `group.name = value`.
#[derive(Debug, Clone)]
pub struct Global {
    /// `group.name`.
    pub name: String,
    /// Its value: an integer or a string.
    pub value: Constant,
    /// Where it was set.
    pub span: Span,
}

/// A prepared `{re.subst,...}`.
#[derive(Debug, Clone)]
pub(crate) struct Substitution {
    pub(crate) regex: Regex,
    pub(crate) pieces: Vec<SubstPiece>,
    pub(crate) all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubstPiece {
    Bytes(Box<[u8]>),
    Group(usize),
}

/// A call of a function of the catalogue, as the configuration writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: FunctionId,
    /// Its arguments: the texts of those that are constant, `None` for those that are computed.
    pub texts: Box<[Option<Box<[u8]>>]>,
    /// Where it is.
    pub span: Span,
}

/// A configuration that has been checked and compiled.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub(crate) id: u64,
    pub(crate) code: Vec<Op>,
    pub(crate) spans: Vec<Span>,
    pub(crate) constants: Vec<u8>,
    pub(crate) longs: Vec<i64>,
    pub(crate) regexes: Vec<Regex>,
    pub(crate) substitutions: Vec<Substitution>,
    pub(crate) networks: Vec<Network>,
    pub(crate) sites: Vec<Site>,
    pub(crate) names: Vec<Name>,
    pub(crate) encoders: Vec<Encoder>,
    /// What each `$var` holds when a run starts.
    pub(crate) locals: Vec<Value>,
    pub(crate) routes: Vec<Route>,
    pub(crate) modules: Vec<ModuleId>,
    pub(crate) settings: Vec<Setting>,
    pub(crate) modparams: Vec<ModParam>,
    pub(crate) globals: Vec<Global>,
    pub(crate) calls: Vec<Call>,
    pub(crate) sources: Sources,
}

impl Program {
    /// The block that a message or an event of `kind` runs: `name` is `None` for the main block.
    #[must_use]
    pub fn entry(&self, kind: RouteKind, name: Option<&str>) -> Option<RouteId> {
        let found = |route: &Route| route.kind == kind && route.name.as_deref() == name;
        self.routes.iter().position(found).map(|at| RouteId(crate::catalogue::id_of(at)))
    }

    /// The route with this id.
    #[must_use]
    pub fn route(&self, id: RouteId) -> Option<&Route> {
        self.routes.get(usize::from(id.0))
    }

    /// All routes, in the order of their ids.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The core settings in the order of the file; one that is set twice is here twice.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The last value that the file gave to a setting.
    #[must_use]
    pub fn setting(&self, id: SettingId) -> Option<&Setting> {
        self.settings.iter().rev().find(|setting| setting.id == id)
    }

    /// The module parameters in the order of the file; one that is set twice is here twice.
    #[must_use]
    pub fn modparams(&self) -> &[ModParam] {
        &self.modparams
    }

    /// The last value that the file gave to a parameter.
    #[must_use]
    pub fn modparam(&self, id: ParameterId) -> Option<&ModParam> {
        self.modparams.iter().rev().find(|param| param.id == id)
    }

    /// The loaded modules; the core is the first.
    #[must_use]
    pub fn modules(&self) -> &[ModuleId] {
        &self.modules
    }

    /// Whether the configuration loads this module.
    #[must_use]
    pub fn loads(&self, module: ModuleId) -> bool {
        self.modules.contains(&module)
    }

    /// The globals that the configuration declares.
    #[must_use]
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// The calls of functions, in the order of the file: what their constant arguments name can be looked for at load.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The constant names in parentheses of variables, in the order of their [`NameId`]s.
    #[must_use]
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// The texts that the program was made of.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Instructions in the whole program.
    #[must_use]
    pub fn code_len(&self) -> usize {
        self.code.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_takes_eight_bytes() {
        assert_eq!(size_of::<Op>(), 8);
        assert_eq!(size_of::<Value>(), 16);
    }

    #[test]
    fn networks_contain_what_shares_their_prefix() {
        let net = Network::new("10.0.0.0".parse().unwrap(), 8).unwrap();
        assert!(net.contains("10.1.2.3".parse().unwrap()));
        assert!(net.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!net.contains("11.1.2.3".parse().unwrap()));
        let all = Network::new("0.0.0.0".parse().unwrap(), 0).unwrap();
        assert!(all.contains("11.1.2.3".parse().unwrap()));
        assert!(Network::new("::".parse().unwrap(), 129).is_none());
    }
}
