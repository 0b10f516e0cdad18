//! The Date of a 200 to a REGISTER (RFC 3261 §10.3 step 8, §20.17): phones without a clock set theirs by it.

use crate::run::Clock;
use alloc::vec::Vec;
use sip::Instant;

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAY_SECS: u64 = 86_400;
/// Days of 400 years of the Gregorian calendar.
const ERA_DAYS: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;

/// Appends the line; nothing where there is no clock.
pub(super) fn push(clock: Clock, now: Instant, out: &mut Vec<u8>) {
    if clock != Clock::default() {
        out.extend_from_slice(b"Date: ");
        push_sip_date(clock.unix_micros(now) / 1_000_000, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends a SIP-date (RFC 3261 §25.1): `Sat, 13 Nov 2010 23:29:00 GMT`.
fn push_sip_date(unix_secs: u64, out: &mut Vec<u8>) {
    let (days, secs) = (unix_secs / DAY_SECS, unix_secs % DAY_SECS);
    let (year, month, day) = civil(days);
    out.extend_from_slice(DAYS[(days % 7) as usize]);
    out.extend_from_slice(b", ");
    push_digits(day, 2, out);
    out.push(b' ');
    out.extend_from_slice(MONTHS[(month % 12) as usize]);
    out.push(b' ');
    push_digits(year, 4, out);
    for (mark, part) in [(b' ', secs / 3_600), (b':', secs / 60 % 60), (b':', secs % 60)] {
        out.push(mark);
        push_digits(part, 2, out);
    }
    out.extend_from_slice(b" GMT");
}

/// Year, month (0 for January) and day of a number of days since 1970-01-01. The year begins in March here, so that the
/// leap day is its last; months of 31 and 30 days alternate in fives of 153 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAYS;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let year = era * 400 + year + u64::from(month >= 10);
    (year, (month + 2) % 12, day - first + 1)
}

fn push_digits(number: u64, width: u32, out: &mut Vec<u8>) {
    for place in (0..width).rev() {
        out.push(b'0' + (number / 10u64.pow(place) % 10) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (secs, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            // The example of RFC 3261 §20.17.
            (1_289_690_940, "Sat, 13 Nov 2010 23:29:00 GMT"),
            (1_704_067_199, "Sun, 31 Dec 2023 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            let mut out = Vec::new();
            push_sip_date(secs, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    #[test]
    fn without_a_clock_there_is_no_date() {
        let mut out = Vec::new();
        push(Clock::default(), Instant::from_micros(5), &mut out);
        assert!(out.is_empty());
    }
}
