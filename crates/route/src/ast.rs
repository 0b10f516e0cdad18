//! The syntax tree: what was written, with the place of every part.

use crate::catalogue::RouteKind;
use crate::diagnostic::Span;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A name with its place.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// One thing at the top of a configuration.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// `name = value ...`.
    Setting { name: Name, values: Vec<Atom>, span: Span },
    /// `loadmodule "x.so"`.
    LoadModule(Name),
    /// `modparam("a|b", "name", value)`.
    ModParam { modules: Name, name: Name, value: Atom, span: Span },
    /// A route block.
    Route(RouteBlock),
}

/// A value of a setting or parameter.
#[derive(Debug, Clone)]
pub(crate) struct Atom {
    pub(crate) kind: AtomKind,
    pub(crate) span: Span,
}

#[derive(Debug, Clone)]
pub(crate) enum AtomKind {
    /// A string in quotes.
    Str(Vec<u8>),
    /// A bare word: a number, a name, a socket.
    Word(String),
}

/// A route block.
#[derive(Debug, Clone)]
pub(crate) struct RouteBlock {
    pub(crate) kind: RouteKind,
    pub(crate) name: Option<Name>,
    /// The keyword and the name.
    pub(crate) span: Span,
    pub(crate) body: Block,
}

/// Statements between braces.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) statements: Vec<Statement>,
    /// The closing brace.
    pub(crate) end: Span,
}

/// A statement.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: Span,
}

#[derive(Debug, Clone)]
pub(crate) enum StatementKind {
    Block(Block),
    /// `if`, its `else if`s, and the `else`.
    If {
        arms: Vec<(Expr, Block)>,
        otherwise: Option<Block>,
    },
    While {
        condition: Expr,
        body: Block,
    },
    Switch {
        subject: Expr,
        cases: Vec<Case>,
    },
    Break,
    Return(Option<Expr>),
    Exit,
    Drop,
    Assign {
        target: Box<Variable>,
        operator: Option<Binary>,
        value: Expr,
    },
    /// A call.
    Call(Expr),
}

/// One part of a `switch`.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) labels: Vec<Label>,
    pub(crate) body: Block,
}

#[derive(Debug, Clone)]
pub(crate) struct Label {
    pub(crate) kind: LabelKind,
    pub(crate) span: Span,
}

#[derive(Debug, Clone)]
pub(crate) enum LabelKind {
    Default,
    Int(i64),
    Str(Vec<u8>),
    Regex(Vec<u8>),
}

/// An expression.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
    /// How deep the tree below is.
    pub(crate) depth: u16,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    Int(i64),
    Str(Vec<u8>),
    /// A bare word, an address or a socket: `INVITE`, `10.0.0.0/8`, `udp:host`.
    Word(String),
    Variable(Box<Variable>),
    Keyword(&'static Keyword),
    Myself,
    /// A call of a function.
    Call {
        name: Name,
        args: Vec<Expr>,
    },
    /// `route(NAME)`.
    Route(Box<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// What could not be read; a diagnostic says why.
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Negate,
    Complement,
    Defined,
    ToInt,
    ToStr,
    Strlen,
    Strempty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Or,
    And,
    BitOr,
    BitAnd,
    BitXor,
    Left,
    Right,
    Equal,
    Differ,
    IntEqual,
    IntDiffer,
    StrEqual,
    StrDiffer,
    Match,
    NoMatch,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Concat,
    /// `=` where a comparison belongs; already reported.
    Assigned,
}

/// A pseudo-variable as written.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) inner: Option<Inner>,
    pub(crate) index: Option<VariableIndex>,
    pub(crate) transforms: Vec<Transformation>,
    pub(crate) span: Span,
}

/// The text in parentheses.
#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub(crate) text: Vec<u8>,
    pub(crate) span: Span,
}

#[derive(Debug, Clone)]
pub(crate) enum VariableIndex {
    At(i32),
    All,
    Variable(Box<Variable>),
}

/// `{name,argument,...}`.
#[derive(Debug, Clone)]
pub(crate) struct Transformation {
    pub(crate) name: String,
    /// Everything behind the first comma, and split at commas.
    pub(crate) rest: Vec<u8>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) span: Span,
}

/// A word of the old language that stands for a pseudo-variable or a constant.
#[derive(Debug)]
pub(crate) struct Keyword {
    pub(crate) word: &'static str,
    pub(crate) meaning: Meaning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The value of this variable of the catalogue.
    Variable(&'static str),
    /// The return code of the last call.
    ReturnCode,
    /// A constant.
    Text(&'static str),
}

/// The words of the old language. A catalogue declares the variables that it wants them to mean.
pub(crate) static KEYWORDS: &[Keyword] = &[
    Keyword { word: "method", meaning: Meaning::Variable("rm") },
    Keyword { word: "uri", meaning: Meaning::Variable("ru") },
    Keyword { word: "from_uri", meaning: Meaning::Variable("fu") },
    Keyword { word: "to_uri", meaning: Meaning::Variable("tu") },
    Keyword { word: "src_ip", meaning: Meaning::Variable("si") },
    Keyword { word: "src_port", meaning: Meaning::Variable("sp") },
    Keyword { word: "dst_ip", meaning: Meaning::Variable("Ri") },
    Keyword { word: "dst_port", meaning: Meaning::Variable("Rp") },
    Keyword { word: "proto", meaning: Meaning::Variable("proto") },
    Keyword { word: "af", meaning: Meaning::Variable("af") },
    Keyword { word: "status", meaning: Meaning::Variable("rs") },
    Keyword { word: "msg:len", meaning: Meaning::Variable("ml") },
    Keyword { word: "max_len", meaning: Meaning::Variable("max_len") },
    Keyword { word: "retcode", meaning: Meaning::ReturnCode },
    Keyword { word: "INET", meaning: Meaning::Text("IPv4") },
    Keyword { word: "INET6", meaning: Meaning::Text("IPv6") },
    Keyword { word: "UDP", meaning: Meaning::Text("udp") },
    Keyword { word: "TCP", meaning: Meaning::Text("tcp") },
    Keyword { word: "TLS", meaning: Meaning::Text("tls") },
    Keyword { word: "SCTP", meaning: Meaning::Text("sctp") },
    Keyword { word: "WS", meaning: Meaning::Text("ws") },
    Keyword { word: "WSS", meaning: Meaning::Text("wss") },
];
