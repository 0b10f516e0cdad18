//! Where the words of a script go: `xlog`, `log`, and what functions have to say about their failures.

/// How grave a line of the log is; the names are syslog's, as scripts write them (`L_ERR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `L_ALERT`, -5.
    Alert,
    /// `L_BUG`, -4.
    Bug,
    /// `L_CRIT`, -3 and -2.
    Critical,
    /// `L_ERR`, -1.
    Error,
    /// `L_WARN`, 0.
    Warning,
    /// `L_NOTICE`, 1.
    Notice,
    /// `L_INFO`, 2.
    Info,
    /// `L_DBG`, 3.
    Debug,
}

impl Level {
    /// The level of a number as `log(1, "...")` and `debug=3` have it.
    pub fn from_number(number: i64) -> Level {
        match number {
            ..=-5 => Level::Alert,
            -4 => Level::Bug,
            -3 | -2 => Level::Critical,
            -1 => Level::Error,
            0 => Level::Warning,
            1 => Level::Notice,
            2 => Level::Info,
            3.. => Level::Debug,
        }
    }

    /// The number of a name such as `L_ERR`, any case, or of digits.
    pub(crate) fn number(name: &[u8]) -> Option<i64> {
        const NAMES: [(&[u8], i64); 9] = [
            (b"L_ALERT", -5),
            (b"L_BUG", -4),
            (b"L_CRIT2", -3),
            (b"L_CRIT", -2),
            (b"L_ERR", -1),
            (b"L_WARN", 0),
            (b"L_NOTICE", 1),
            (b"L_INFO", 2),
            (b"L_DBG", 3),
        ];
        let named = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, number)| *number).or_else(|| crate::uri_parts::integer(name))
    }
}

/// Takes lines of the log. What limits their number per second is the taker's business.
pub trait Log {
    /// Whether a line of `level` would be kept; others need not be made.
    fn is_enabled(&self, level: Level) -> bool;

    /// Takes one line, without an end-of-line. It may hold anything, users' names included.
    fn log(&mut self, level: Level, line: &[u8]);
}

/// A log that keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog;

impl Log for NoLog {
    fn is_enabled(&self, _level: Level) -> bool {
        false
    }

    fn log(&mut self, _level: Level, _line: &[u8]) {}
}
