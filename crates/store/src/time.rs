//! Times as databases keep them: local time without a zone, as Kamailio's drivers write it.
//!
//! Inside, a time is microseconds since 1970 in UTC. A *civil* time is the same count for what a wall clock
//! shows. In the hour that a change to winter time repeats, a civil time has two meanings; the earlier one is
//! taken, so a binding may then end an hour early, but never an hour late. A server whose zone is UTC has no
//! such hour.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

/// The last time that is written as itself: what ends later, never ends (the end of the year 9999).
pub(crate) const LAST_MICROS: u64 = 253_402_300_799_000_000;

/// Zones change their offset at full quarters of an hour; one look-up holds for as long.
const QUARTER_MICROS: i64 = 900_000_000;

/// The system's zone, with the last look-ups in both directions.
pub(crate) struct Zone {
    zone: TimeZone,
    to_civil: (i64, i64),
    to_unix: (i64, i64),
}

impl Zone {
    /// The zone of `TZ` or `/etc/localtime`.
    pub(crate) fn system() -> Zone {
        Zone::new(TimeZone::system())
    }

    fn new(zone: TimeZone) -> Zone {
        Zone { zone, to_civil: (i64::MIN, 0), to_unix: (i64::MIN, 0) }
    }

    /// What a wall clock shows.
    pub(crate) fn civil(&mut self, unix_micros: u64) -> i64 {
        let unix = unix_micros.min(LAST_MICROS) as i64;
        let quarter = unix.div_euclid(QUARTER_MICROS);
        if self.to_civil.0 != quarter {
            let offset = Timestamp::from_microsecond(quarter * QUARTER_MICROS)
                .map_or(0, |at| i64::from(self.zone.to_offset(at).seconds()));
            self.to_civil = (quarter, offset * 1_000_000);
        }
        unix + self.to_civil.1
    }

    /// When a wall clock shows this; times before 1970 are 1970.
    pub(crate) fn unix(&mut self, civil_micros: i64) -> u64 {
        let quarter = civil_micros.div_euclid(QUARTER_MICROS);
        if self.to_unix.0 != quarter {
            self.to_unix = (quarter, self.offset_of(quarter * QUARTER_MICROS));
        }
        u64::try_from(civil_micros.saturating_sub(self.to_unix.1)).unwrap_or(0).min(LAST_MICROS)
    }

    fn offset_of(&self, civil_micros: i64) -> i64 {
        let Ok(shown) = Timestamp::from_microsecond(civil_micros) else { return 0 };
        let meant = self.zone.to_ambiguous_timestamp(Offset::UTC.to_datetime(shown)).compatible();
        meant.map_or(0, |meant| civil_micros - meant.as_microsecond())
    }
}

/// `YYYY-MM-DD HH:MM:SS` with as many digits of the fraction as asked for (0 to 6); the rest is cut off.
pub(crate) fn civil_text(civil_micros: i64, digits: u8) -> String {
    use std::fmt::Write as _;
    let (year, month, day) = date_of(civil_micros.div_euclid(86_400_000_000));
    let of_day = civil_micros.rem_euclid(86_400_000_000);
    let seconds = of_day / 1_000_000;
    let mut text = String::with_capacity(26);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    // Writing to a String does not fail.
    let _ = write!(text, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    if digits > 0 {
        let _ = write!(text, ".{:06}", of_day % 1_000_000);
        text.truncate(20 + usize::from(digits.min(6)));
    }
    text
}

/// Reads what [`civil_text`] writes, with `T` or a blank in the middle and any number of digits of the
/// fraction.
pub(crate) fn parse_civil(text: &[u8]) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        text.get(range)?
            .iter()
            .try_fold(0i64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let separators = [(4, b"--"), (7, b"--"), (10, b" T"), (13, b"::"), (16, b"::")];
    if !separators.iter().all(|&(at, any)| text.get(at).is_some_and(|byte| any.contains(byte))) {
        return None;
    }
    let (month, day) = (number(5..7)?, number(8..10)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?;
    let mut micros = 0;
    if text.get(19) == Some(&b'.') {
        let mut scale = 100_000;
        for digit in text.get(20..)?.iter().take_while(|digit| digit.is_ascii_digit()) {
            micros += i64::from(digit - b'0') * scale;
            scale /= 10;
        }
    }
    Some((days_of(number(0..4)?, month, day) * 86_400 + seconds) * 1_000_000 + micros)
}

/// Days since 1970 of a date of the Gregorian calendar. Years begin in March here, so that the leap day is
/// the last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = (shifted + 2) % 12 + 1;
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// The day number of astronomers (UTC), as Kamailio's driver for SQLite keeps times. Its resolution is 40
/// microseconds.
pub(crate) fn julian_day(unix_micros: u64) -> f64 {
    unix_micros as f64 / 86_400e6 + 2_440_587.5
}

/// The reverse of [`julian_day`].
pub(crate) fn from_julian_day(day: f64) -> u64 {
    // A conversion of a negative or of no number gives 0.
    ((day - 2_440_587.5) * 86_400e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn civil_times_are_written_and_read() {
        for (micros, text) in [
            (0, "1970-01-01 00:00:00.000000"),
            (951_827_696_789_012, "2000-02-29 12:34:56.789012"),
            (1_795_323_828_000_001, "2026-11-22 05:03:48.000001"),
            (LAST_MICROS as i64, "9999-12-31 23:59:59.000000"),
        ] {
            assert_eq!(civil_text(micros, 6), text);
            assert_eq!(parse_civil(text.as_bytes()), Some(micros), "{text}");
        }
        assert_eq!(civil_text(1_795_323_828_999_999, 0), "2026-11-22 05:03:48");
        assert_eq!(parse_civil(b"2026-11-22T05:03:48"), Some(1_795_323_828_000_000));
        for bad in
            ["", "now", "2026-11-22", "2026-13-22 05:03:48", "2026/11/22 05:03:48", "2026-11-22 05:03:4x"]
        {
            assert_eq!(parse_civil(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for days in 0..146_097 {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
        }
    }

    #[test]
    fn local_times_follow_summer_and_winter() {
        let rule = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
        let mut zone = Zone::new(rule);
        let winter = 1_795_323_828_000_001;
        assert_eq!(civil_text(zone.civil(winter), 6), "2026-11-22 00:03:48.000001");
        let summer = 1_782_000_000_000_000;
        for at in [winter, summer, winter + 1] {
            let civil = zone.civil(at);
            assert_eq!(zone.unix(civil), at);
        }
        // 2026-11-01 01:30 is shown twice; the earlier one (summer time, 05:30 UTC) is meant.
        let twice = parse_civil(b"2026-11-01 01:30:00").unwrap();
        assert_eq!(zone.unix(twice), 1_793_511_000_000_000);
    }

    #[test]
    fn julian_days_are_kamailios() {
        // Kamailio 5.6.3 with db_sqlite wrote 2461366.71096644 at 2026-11-22 05:03:47.5 UTC.
        let at = from_julian_day(2_461_366.710_966_44);
        assert_eq!(at / 1_000_000, 1_795_323_827);
        for micros in [0u64, 1_795_323_827_123_456, LAST_MICROS] {
            assert!(from_julian_day(julian_day(micros)).abs_diff(micros) <= 60, "{micros}");
        }
        assert_eq!(from_julian_day(f64::NAN), 0);
        assert_eq!(from_julian_day(-1.0), 0);
    }
}
