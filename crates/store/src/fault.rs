//! A database's error with what the crate itself has to know about it.

use crate::StoreError;

/// What kind of trouble, as far as the crate acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The connection is of no use any more: another one may be.
    Lost,
    /// A row with this key is there already.
    Duplicate,
    /// A value does not fit its column; other rows may.
    Data,
    /// A column is not compared with a text by itself.
    Types,
    /// Anything else.
    Other,
}

/// An error and its cause.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) cause: Cause,
    pub(crate) error: StoreError,
    is_late: bool,
}

impl Fault {
    pub(crate) fn new(cause: Cause, error: StoreError) -> Fault {
        Fault { cause, error, is_late: false }
    }

    /// The same error, and the connection is of no use.
    pub(crate) fn and_lost(self) -> Fault {
        Fault { cause: Cause::Lost, ..self }
    }

    /// No answer in time: asking again would take as long once more.
    pub(crate) fn late(text: String) -> Fault {
        Fault { is_late: true, ..Fault::lost(text) }
    }

    /// Whether a row's values are to blame: other rows may be written.
    pub(crate) fn is_about_values(&self) -> bool {
        matches!(self.cause, Cause::Data | Cause::Duplicate)
    }

    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    pub(crate) fn other(error: StoreError) -> Fault {
        Fault::new(Cause::Other, error)
    }

    pub(crate) fn lost(text: String) -> Fault {
        Fault::new(Cause::Lost, StoreError::Away(text))
    }

    pub(crate) fn refused(text: String) -> Fault {
        Fault::other(StoreError::Refused(text))
    }

    pub(crate) fn data(text: String) -> Fault {
        Fault::new(Cause::Data, StoreError::Refused(text))
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        fault.error
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::other(error)
    }
}
