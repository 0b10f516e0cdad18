//! What the machine needs from outside, and how values pass between the two.

use crate::catalogue::{FunctionId, RouteKind, VariableId};
use crate::code::{NameId, Program, RouteId};
use crate::limits::{ARENA_BYTES_MAX, STRING_BYTES_MAX};
use crate::regex::Regex;
use crate::value::{Decimal, Text, Value, ValueRef};
use alloc::vec::Vec;

/// What a function tells the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Return code 1.
    True,
    /// Return code -1.
    False,
    /// This return code: positive is true, negative false; 0 stops the script as [`Outcome::Exit`] does.
    Code(i32),
    /// The script stops here, as after `exit`.
    Exit,
    /// The answer comes later: the machine hands out a [`Frame`](crate::Frame), to be resumed with it.
    Suspend,
}

/// Whose name is asked about in `uri == myself`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The value of this variable: `$ru`, `$fu`, `$si`. The host can answer without building a string.
    Variable(VariableId),
    /// These bytes: a URI, a host or an address.
    Bytes(&'a [u8]),
}

/// The outside of the machine: messages, transactions and everything that modules do.
pub trait Host {
    /// Runs a function of the catalogue.
    fn call(&mut self, function: FunctionId, args: &Args<'_>) -> Outcome;

    /// Reads a pseudo-variable into `out`, which holds null until something is put there.
    fn read(&mut self, variable: VariableId, at: &Subscript<'_>, out: &mut Sink<'_>);

    /// Assigns to a pseudo-variable. Null removes.
    fn write(&mut self, variable: VariableId, at: &Subscript<'_>, value: ValueRef<'_>);

    /// Whether a URI or an address is this server's own.
    fn is_myself(&mut self, subject: Subject<'_>) -> bool;

    /// A function was reached, through other routes, in a kind of route that its declaration does not
    /// allow. It is not called; the script sees -1.
    fn refused(&mut self, function: FunctionId, kind: RouteKind) {
        let _ = (function, kind);
    }
}

/// Which part of a variable is meant: the name in parentheses and the index in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscript<'a> {
    /// The name in parentheses.
    pub inner: Inner<'a>,
    /// The index in brackets.
    pub index: Index,
}

impl Subscript<'_> {
    /// Neither name nor index.
    pub const NONE: Self = Subscript { inner: Inner::None, index: Index::None };
}

/// The name in parentheses of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner<'a> {
    /// There is none.
    None,
    /// A constant: the id can be looked up in what the host prepared from
    /// [`Program::names`](crate::Program::names).
    Name(NameId, &'a [u8]),
    /// A name that the script computed.
    Dynamic(&'a [u8]),
}

impl<'a> Inner<'a> {
    /// The name; empty when there is none.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::None => b"",
            Self::Name(_, bytes) | Self::Dynamic(bytes) => bytes,
        }
    }
}

/// The index in brackets of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// There is none.
    None,
    /// `[2]`, or from the end `[-1]`.
    At(i32),
    /// `[*]`.
    All,
}

/// The arguments of a call, already evaluated and of the declared kinds.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    pub(crate) values: &'a [Value],
    pub(crate) arena: &'a [u8],
    pub(crate) program: &'a Program,
    pub(crate) kind: RouteKind,
}

impl<'a> Args<'a> {
    /// How many arguments were given.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether none were given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The kind of the route block that the run started in.
    #[must_use]
    pub fn route_kind(&self) -> RouteKind {
        self.kind
    }

    fn at(&self, at: usize) -> Value {
        self.values.get(at).copied().unwrap_or(Value::Null)
    }

    /// The argument as it is; null when it was not given.
    #[must_use]
    pub fn value(&self, at: usize) -> ValueRef<'a> {
        match self.at(at) {
            Value::Int(int) => ValueRef::Int(int),
            Value::Str(text) => ValueRef::Str(text.get(&self.program.constants, self.arena)),
            Value::Null | Value::Regex(_) | Value::Route(_) => ValueRef::Null,
        }
    }

    /// The bytes of a string; empty when the argument was not given or is null.
    #[must_use]
    pub fn str(&self, at: usize) -> &'a [u8] {
        self.value(at).as_str().unwrap_or_default()
    }

    /// The argument as an integer; 0 when it was not given or is null.
    #[must_use]
    pub fn int(&self, at: usize) -> i64 {
        self.value(at).to_int()
    }

    /// The compiled expression of a `Regex` parameter.
    #[must_use]
    pub fn regex(&self, at: usize) -> Option<&'a Regex> {
        match self.at(at) {
            Value::Regex(id) => self.program.regexes.get(usize::from(id)),
            _ => None,
        }
    }

    /// The route of a `Route` parameter; `None` when the script gave an empty name.
    #[must_use]
    pub fn route(&self, at: usize) -> Option<RouteId> {
        match self.at(at) {
            Value::Route(id) => Some(RouteId(id)),
            _ => None,
        }
    }

    /// A number that stands for the text of a string constant within this program: equal texts have equal
    /// numbers. `None` for strings that the script computed.
    #[must_use]
    pub fn constant_id(&self, at: usize) -> Option<u32> {
        match self.at(at) {
            Value::Str(text) if text.is_constant() => Some(text.place()),
            _ => None,
        }
    }
}

/// Takes the value of a variable: null until something is put there.
#[derive(Debug)]
pub struct Sink<'a> {
    arena: &'a mut Vec<u8>,
    start: usize,
    scalar: Option<i64>,
    text: bool,
    overflow: bool,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(arena: &'a mut Vec<u8>) -> Self {
        let start = arena.len();
        Self { arena, start, scalar: None, text: false, overflow: false }
    }

    /// Runs `fill` on a sink that writes behind what `bytes` holds, and gives what it put there.
    pub fn collect<'b>(bytes: &'b mut Vec<u8>, fill: impl FnOnce(&mut Sink<'_>)) -> ValueRef<'b> {
        let mut sink = Sink::new(bytes);
        let start = sink.start;
        fill(&mut sink);
        let (scalar, text) = (sink.scalar, sink.text);
        match scalar {
            Some(int) => ValueRef::Int(int),
            None if text => ValueRef::Str(bytes.get(start..).unwrap_or_default()),
            None => ValueRef::Null,
        }
    }

    /// Puts null.
    pub fn null(&mut self) {
        self.arena.truncate(self.start);
        self.scalar = None;
        self.text = false;
    }

    /// Puts an integer.
    pub fn int(&mut self, value: i64) {
        self.null();
        self.scalar = Some(value);
    }

    /// Puts a string.
    pub fn str(&mut self, bytes: &[u8]) {
        self.null();
        self.push(bytes);
    }

    /// Puts any value.
    pub fn value(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.null(),
            ValueRef::Int(int) => self.int(int),
            ValueRef::Str(bytes) => self.str(bytes),
        }
    }

    /// Appends to the string; the first piece makes it one. A string longer than [`STRING_BYTES_MAX`], or
    /// one for which the run has no room any more, stops the script with an error.
    pub fn push(&mut self, bytes: &[u8]) {
        self.scalar = None;
        self.text = true;
        let len = self.arena.len() - self.start + bytes.len();
        if len > STRING_BYTES_MAX || self.start + len > ARENA_BYTES_MAX {
            self.overflow = true;
            return;
        }
        self.arena.extend_from_slice(bytes);
    }

    /// Appends an integer in decimal to the string.
    pub fn push_int(&mut self, value: i64) {
        self.push(Decimal::new(value).as_bytes());
    }

    /// The value, or `None` when it did not fit.
    pub(crate) fn finish(self) -> Option<Value> {
        if self.overflow {
            return None;
        }
        Some(match self.scalar {
            Some(int) => Value::Int(int),
            None if self.text => Value::Str(Text::arena(self.start, self.arena.len() - self.start)),
            None => Value::Null,
        })
    }
}
