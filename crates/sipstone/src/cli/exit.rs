//! How the program ends.

use std::fmt;
use std::process::ExitCode;

/// What the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// 0: measured, and every gate held.
    Fine,
    /// 1: usage or set-up: cannot bind, the target is wrong, the users were refused.
    SetUp,
    /// 2: a gate failed.
    GateFailed,
    /// 3: the measurement is invalid or was broken off.
    Invalid,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Fine => 0,
            Exit::SetUp => 1,
            Exit::GateFailed => 2,
            Exit::Invalid => 3,
        })
    }
}

/// Why a command was not carried out: a sentence for the user. The exit code is that of [`Exit::SetUp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Refusal {
        Refusal(sentence)
    }
}
