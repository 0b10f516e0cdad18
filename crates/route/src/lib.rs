//! The configuration language of Strowger: Kamailio's, and SER's before it.
//!
//! Source text becomes tokens (with a preprocessor), a syntax tree, a checked program, and compact code for
//! a small virtual machine. The crate knows nothing about SIP: what a configuration may name comes from a
//! [`Catalogue`] that the modules declare, and a running script talks to the outside through a [`Host`].
//!
//! ```text
//!  text ─lexer, preprocessor─▶ tokens ─parser─▶ tree ─checker, compiler─▶ Program ─Machine─▶ Verdict
//!                                                        ▲                            │
//!                                                    Catalogue                   Host, Frame
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod ast;
mod avp;
mod catalogue;
mod check;
mod code;
mod compile;
mod diagnostic;
mod lexer;
pub mod limits;
mod machine;
mod parser;
mod preprocess;
mod reference;
mod regex;
mod substitution;
mod transform;
mod value;

pub use avp::{Avps, AvpsFull};
pub use catalogue::{
    CORE, Catalogue, Class, Contexts, DefaultValue, Encoder, FunctionDecl, FunctionId, InnerRule, ModuleId,
    Param, ParamKind, ParameterDecl, ParameterId, RouteKind, SettingDecl, SettingId, Thing, ValueKind,
    VariableDecl, VariableId,
};
pub use check::{Loaded, Rejected, load};
pub use code::{
    Call, Constant, Global, ModParam, Name, NameId, Network, Program, Route, RouteId, Setting, Socket,
};
pub use diagnostic::{Colour, Diagnostic, Position, Severity, Source, Sources, Span, nearest, render};
pub use machine::{
    Args, Frame, Host, Index, Inner, Machine, Outcome, RunError, RunErrorKind, Sink, Step, Subject,
    Subscript, Verdict,
};
pub use preprocess::{FileLoader, LoadError, NoFiles};
pub use regex::{Case, Regex};
pub use value::{Decimal, ValueRef, parse_int};
