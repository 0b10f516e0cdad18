//! Results that functions put into variables: `$avp`s, and output parameters that name a variable in quotes.

use crate::run::Run;
use crate::settings::Reader;
use alloc::format;
use route::{Index, ValueRef};

/// A variable that a function can put its result into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output<'a> {
    /// `$avp(NAME)`.
    Avp(&'a [u8]),
    /// `$ru`.
    RequestUri,
}

impl<'a> Output<'a> {
    /// Reads `$avp(NAME)`, `$(avp(NAME))` or `$ru`.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Output<'a>> {
        let text = text.trim_ascii();
        let variable = text.strip_prefix(b"$")?;
        let bare = variable.strip_prefix(b"(").and_then(|inner| inner.strip_suffix(b")"));
        let variable = bare.unwrap_or(variable);
        if variable == b"ru" {
            return Some(Output::RequestUri);
        }
        let name = variable.strip_prefix(b"avp(")?.strip_suffix(b")")?;
        let plain = !name.is_empty() && !name.iter().any(|byte| b"$()[]{}".contains(byte));
        plain.then_some(Output::Avp(name))
    }

    /// Puts a result there; false if there is no room.
    pub(crate) fn put(self, run: &mut Run<'_, '_>, value: &[u8]) -> bool {
        match self {
            Output::Avp(name) => push_avp(run, name, ValueRef::Str(value)),
            Output::RequestUri => {
                run.set_request_uri(value);
                true
            }
        }
    }
}

/// Gives an `$avp` a further value; false, with a line of the log, if there is no room.
pub(crate) fn push_avp(run: &mut Run<'_, '_>, name: &[u8], value: ValueRef<'_>) -> bool {
    let lines = value.as_str().is_some_and(|text| !crate::text::is_line(text));
    run.state().avps_hold_lines |= lines;
    let done = run.state().avps.write(name, Index::None, value).is_ok();
    if !done {
        run.fail("$avp: 256 values and 65,536 bytes are kept with one transaction; this one is lost");
    }
    done
}

/// Refuses calls of these functions whose argument number `at` is no output.
pub(crate) fn check(reader: &mut Reader<'_>, functions: &[&str], at: usize) {
    for (text, span) in reader.call_places(functions, at) {
        if Output::parse(text.as_bytes()).is_none() {
            let message = format!("`{text}` is no variable that a result can be put into");
            reader.error(span, "bad-output", message, "write \"$avp(NAME)\" in quotes, or \"$ru\"");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_avps_and_the_request_uri() {
        for text in ["$avp(x)", "$(avp(x))", " $avp(x) "] {
            assert_eq!(Output::parse(text.as_bytes()), Some(Output::Avp(b"x")), "{text}");
        }
        assert_eq!(Output::parse(b"$avp(s:x)"), Some(Output::Avp(b"s:x")));
        assert_eq!(Output::parse(b"$ru"), Some(Output::RequestUri));
        for text in
            ["", "$", "x", "avp(x)", "$var(x)", "$avp()", "$avp(x", "$avp($var(x))", "$(avp(x)[0])", "$fu"]
        {
            assert_eq!(Output::parse(text.as_bytes()), None, "{text}");
        }
    }
}
