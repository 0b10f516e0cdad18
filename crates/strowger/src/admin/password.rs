//! Passwords: asked for without echo, twice, or read from standard input; never an argument, which others can see.

use std::io::{self, BufRead, IsTerminal as _};

use super::AdminError;

/// The longest password, in bytes.
const BYTES_MAX: u64 = 1_024;

/// A password. It is never printed.
pub(super) struct Password(pub(super) String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Where a password comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Whoever sits at the terminal.
    Terminal,
    /// The first line of standard input.
    StandardInput,
}

/// Gets a password for `user`.
///
/// # Errors
///
/// A sentence: the two differ, it is empty, there is no terminal.
pub(super) fn ask(source: Source, user: &str) -> Result<Password, AdminError> {
    match source {
        Source::StandardInput => first_line(io::stdin().lock()),
        Source::Terminal => {
            if !io::stdin().is_terminal() {
                return Err(AdminError::line("there is no terminal to ask at: give --password-stdin"));
            }
            let ask = |prompt: String| rpassword::prompt_password(prompt).map_err(|e| failed(&e));
            let first = ask(format!("Password for {user}: "))?;
            let again = ask("Again: ".to_owned())?;
            if first != again {
                return Err(AdminError::line("the two passwords differ; nothing was changed"));
            }
            checked(first)
        }
    }
}

fn first_line(input: impl BufRead) -> Result<Password, AdminError> {
    let mut line = String::new();
    input.take(BYTES_MAX + 2).read_line(&mut line).map_err(|error| failed(&error))?;
    checked(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn checked(password: String) -> Result<Password, AdminError> {
    if password.is_empty() {
        return Err(AdminError::line("an empty password protects nobody; nothing was changed"));
    }
    if password.len() as u64 > BYTES_MAX || password.chars().any(char::is_control) {
        return Err(AdminError::Line(format!(
            "a password has {BYTES_MAX} bytes at most and no control characters; nothing was changed"
        )));
    }
    Ok(Password(password))
}

fn failed(error: &io::Error) -> AdminError {
    AdminError::Line(format!("cannot read the password: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_password() {
        for (input, expected) in [("secret\nmore\n", "secret"), ("pass word \r\n", "pass word "), ("ü", "ü")]
        {
            assert_eq!(first_line(input.as_bytes()).unwrap().0, expected);
        }
    }

    #[test]
    fn odd_ones_are_refused() {
        for odd in ["", "\n", "a\tb\n", &"x".repeat(2_000)] {
            assert!(first_line(odd.as_bytes()).is_err());
        }
        assert!(first_line(&b"\xff\xfe\n"[..]).is_err());
    }

    #[test]
    fn it_is_not_in_debug_output() {
        assert_eq!(format!("{:?}", Password("hidden".into())), "Password(..)");
    }
}
