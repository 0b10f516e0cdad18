//! Values of the language: null, integers and byte strings, and how they convert into each other.
//!
//! Integers are 64 bits wide and wrap. Strings are bytes: what came from the network is not always UTF-8.

/// A value as a function or a variable sees it: borrowed, never allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// `$null`: there is no such thing.
    Null,
    /// An integer.
    Int(i64),
    /// A string of bytes.
    Str(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// The integer this value stands for: a string is read as decimal or `0x` hexadecimal; null and
    /// anything unreadable are 0.
    #[must_use]
    pub fn to_int(self) -> i64 {
        match self {
            Self::Null => 0,
            Self::Int(int) => int,
            Self::Str(bytes) => parse_int(bytes).unwrap_or(0),
        }
    }

    /// The bytes, when this value is a string.
    #[must_use]
    pub fn as_str(self) -> Option<&'a [u8]> {
        match self {
            Self::Str(bytes) => Some(bytes),
            Self::Null | Self::Int(_) => None,
        }
    }

    /// Whether this value is null.
    #[must_use]
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }
}

/// Reads a whole byte string as an integer: decimal with an optional sign, or hexadecimal after `0x`.
///
/// Returns `None` for an empty string, other bytes, or a number outside 64 bits.
#[must_use]
pub fn parse_int(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    };
    let (radix, digits) = match digits {
        [b'0', b'x' | b'X', rest @ ..] => (16, rest),
        _ => (10, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value: i64 = 0;
    for &byte in digits {
        let digit = i64::from(char::from(byte).to_digit(radix)?);
        value = value.checked_mul(i64::from(radix))?;
        value = if negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

/// An integer as decimal text, without allocating.
#[derive(Debug, Clone, Copy)]
pub struct Decimal {
    digits: [u8; 20],
    start: u8,
}

impl Decimal {
    /// Writes `value` as decimal digits, with a sign when it is negative.
    #[must_use]
    pub fn new(value: i64) -> Self {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = value.unsigned_abs();
        for (at, slot) in digits.iter_mut().enumerate().rev() {
            *slot = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            start = at;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 && start > 0 {
            start -= 1;
            if let Some(slot) = digits.get_mut(start) {
                *slot = b'-';
            }
        }
        Self { digits, start: u8::try_from(start).unwrap_or(0) }
    }

    /// The digits.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.digits.get(usize::from(self.start)..).unwrap_or_default()
    }
}

/// A value inside the machine: 16 bytes, strings by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Str(Text),
    /// A constant regular expression of the program, as an argument.
    Regex(u16),
    /// A route of the program, as an argument.
    Route(u16),
}

/// A string by its place: in the arena of the run, or (top bit of `start`) among the program's constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text {
    start: u32,
    len: u32,
}

const CONSTANT: u32 = 1 << 31;

impl Text {
    pub(crate) const EMPTY: Self = Self { start: CONSTANT, len: 0 };

    pub(crate) const fn constant(start: u32, len: u32) -> Self {
        Self { start: start | CONSTANT, len }
    }

    /// A range of the arena. The arena's limit keeps both numbers far below 31 bits.
    pub(crate) fn arena(start: usize, len: usize) -> Self {
        Self { start: u32::try_from(start).unwrap_or(0) & !CONSTANT, len: u32::try_from(len).unwrap_or(0) }
    }

    pub(crate) const fn is_constant(self) -> bool {
        self.start & CONSTANT != 0
    }

    /// Where it starts, without the mark of constants.
    pub(crate) const fn place(self) -> u32 {
        self.start & !CONSTANT
    }

    pub(crate) const fn len(self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) fn get<'a>(self, constants: &'a [u8], arena: &'a [u8]) -> &'a [u8] {
        let start = (self.start & !CONSTANT) as usize;
        let bytes = if self.is_constant() { constants } else { arena };
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_decimal_and_hexadecimal() {
        assert_eq!(parse_int(b"10"), Some(10));
        assert_eq!(parse_int(b"-7"), Some(-7));
        assert_eq!(parse_int(b"0x1F"), Some(31));
        assert_eq!(parse_int(b""), None);
        assert_eq!(parse_int(b"-"), None);
        assert_eq!(parse_int(b"12a"), None);
        assert_eq!(parse_int(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_int(b"9223372036854775808"), None);
    }

    #[test]
    fn integers_are_written_with_all_their_digits() {
        for value in [0, 1, -1, 42, i64::MAX, i64::MIN] {
            assert_eq!(Decimal::new(value).as_bytes(), std::format!("{value}").as_bytes());
        }
    }
}
