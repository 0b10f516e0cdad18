//! What can go wrong with a database, and who is to blame.

use std::fmt;

/// Why something could not be done, in a sentence that says what to do. It never holds a password.
#[derive(Debug, Clone)]
pub enum StoreError {
    /// Nobody there, connection lost, or too late: trying again later may help.
    Away(String),
    /// The database answered that it cannot: full, read-only, no such table, no permission.
    Refused(String),
    /// What is stored is not what it should be: a schema that does not fit, a damaged file.
    Unfit(String),
    /// It was asked for something wrong: a URL that is none, a user that is there already.
    Wrong(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Away(text)
            | StoreError::Refused(text)
            | StoreError::Unfit(text)
            | StoreError::Wrong(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for StoreError {}
