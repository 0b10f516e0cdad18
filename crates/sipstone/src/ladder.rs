//! The messages of one operation as a ladder, for a terminal (message flows as in RFC 3665).
//!
//! What is drawn came from the network: [`visible`] makes control characters seen instead of obeyed.

use crate::tally::{Direction, Example, Side, TracedMessage};
use sip::{HeaderName, Index, Message, Method};
use std::fmt::Write;

/// Narrowest and widest ladder, in columns; other widths count as the nearer of these.
pub const WIDTH_MIN: usize = 60;
/// See [`WIDTH_MIN`].
pub const WIDTH_MAX: usize = 160;

/// Most messages that are drawn or printed; the others are counted.
pub const MESSAGES_MAX: usize = 200;

/// Longest text of one message that is printed, in characters; the rest is counted.
const TEXT_CHARS_MAX: usize = 65_536;

/// Columns of the time and the space behind it.
const TIME_COLUMNS: usize = 12;

/// Text with its control characters made visible: as their pictures (`␛`), or as `\u{…}` where there is none.
///
/// That includes the C1 controls and the characters that reorder or hide text. Line ends are control characters too.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\0'..='\u{1f}' => out.push(char::from_u32(0x2400 + u32::from(character)).unwrap_or('\u{fffd}')),
            '\u{7f}' => out.push('\u{2421}'),
            _ if character.is_control() || is_invisible(character) => {
                let _ = write!(out, "{}", character.escape_unicode());
            }
            _ => out.push(character),
        }
    }
    out
}

/// Characters that change how others are shown: marks of direction, separators, of no width, tags, of private use.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}'
    )
}

/// Draws the ladder: Caller, Server and, if it took part, Callee; an arrow per message with its time since the first.
///
/// `width` is that of the terminal in columns, between [`WIDTH_MIN`] and [`WIDTH_MAX`]. No line is longer.
#[must_use]
pub fn render(example: &Example, width: usize) -> String {
    let messages = in_order(example);
    let two_legs = messages.iter().any(|message| message.side == Side::Callee);
    let legs = if two_legs { 2 } else { 1 };
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    // A name stands over each line and needs room to its right; a ladder of one leg need not be as wide as the screen.
    let leg = ((width - TIME_COLUMNS - "Callee".len()) / legs).min(48);
    let mut out = headline(example, width);
    let names: &[&str] = if two_legs { &["Caller", "Server", "Callee"] } else { &["Caller", "Server"] };
    let names: String = names.iter().map(|name| format!("{name:<leg$}")).collect();
    let _ = writeln!(out, "{:>10}  {}", "ms", names.trim_end());
    let start_us = messages.first().map_or(0, |message| message.at_us);
    for message in messages.iter().take(MESSAGES_MAX) {
        let _ = writeln!(out, "{}{}", time(message, start_us), rung(message, leg, two_legs));
    }
    if messages.is_empty() {
        let _ = writeln!(out, "  no message was recorded");
    }
    cut_note(&mut out, messages.len());
    out
}

/// The ladder, and below it every message as it was, header line by header line.
#[must_use]
pub fn render_full(example: &Example, width: usize) -> String {
    let mut out = render(example, width);
    let messages = in_order(example);
    let start_us = messages.first().map_or(0, |message| message.at_us);
    for message in messages.iter().take(MESSAGES_MAX) {
        let (from, to) = ends(message);
        let again = if message.repeated { ", again" } else { "" };
        let _ = writeln!(out, "\n{} {from} to {to}{again}", time(message, start_us).trim());
        text_of(&mut out, &message.text);
    }
    cut_note(&mut out, messages.len());
    out
}

/// The two ends trace separately; here they are one sequence.
fn in_order(example: &Example) -> Vec<&TracedMessage> {
    let mut messages: Vec<&TracedMessage> = example.messages.iter().collect();
    messages.sort_by_key(|message| message.at_us);
    messages
}

fn headline(example: &Example, width: usize) -> String {
    let class = visible(&example.class);
    let text = match &example.failure {
        None => format!("{class}: one operation"),
        Some(failure) => format!("{class}: the first failure of the kind {}", visible(failure)),
    };
    let mut line: String = text.chars().take(width).collect();
    line.push('\n');
    line
}

fn cut_note(out: &mut String, messages: usize) {
    if messages > MESSAGES_MAX {
        let _ = writeln!(out, "  … and {} more messages", messages - MESSAGES_MAX);
    }
}

fn time(message: &TracedMessage, start_us: u64) -> String {
    let us = message.at_us.saturating_sub(start_us);
    format!("{:>10}  ", format!("{}.{:03}", us / 1000, us % 1000))
}

fn ends(message: &TracedMessage) -> (&'static str, &'static str) {
    match (message.side, message.direction) {
        (Side::Caller, Direction::Sent) => ("Caller", "Server"),
        (Side::Caller, Direction::Received) => ("Server", "Caller"),
        (Side::Callee, Direction::Received) => ("Server", "Callee"),
        (Side::Callee, Direction::Sent) => ("Callee", "Server"),
    }
}

/// One line of the ladder, `leg` columns from one upright to the next.
fn rung(message: &TracedMessage, leg: usize, two_legs: bool) -> String {
    let to_the_right = matches!(
        (message.side, message.direction),
        (Side::Caller, Direction::Sent) | (Side::Callee, Direction::Received)
    );
    let arrow = arrow(&label(message), leg - 1, to_the_right);
    let gap = " ".repeat(leg - 1);
    match (message.side, two_legs) {
        (Side::Caller, false) => format!("│{arrow}│"),
        (Side::Caller, true) => format!("│{arrow}│{gap}│"),
        (Side::Callee, _) => format!("│{gap}│{arrow}│"),
    }
}

fn arrow(label: &str, columns: usize, to_the_right: bool) -> String {
    // Two dashes and a space before the label, a space, a dash and the head behind it.
    let label = shortened(label, columns.saturating_sub(6));
    let dashes = "─".repeat(columns.saturating_sub(label.chars().count() + 5));
    if to_the_right { format!("── {label} {dashes}▶") } else { format!("◀─ {label} {dashes}─") }
}

fn shortened(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.into();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// What the arrow says: the method, or the status with the method that it answers; and whether it is a repetition.
fn label(message: &TracedMessage) -> String {
    let mut index = Index::new();
    let text = match Message::parse(message.text.as_bytes(), &mut index) {
        Err(error) => format!("no SIP: {error}"),
        Ok(parsed) => match parsed.status() {
            None => request_label(&parsed),
            Some(status) => response_label(&parsed, status),
        },
    };
    let again = if message.repeated { " (again)" } else { "" };
    // Only characters of one column each, so that the uprights stay where they are.
    let plain = |character: char| if matches!(character, ' '..='~') { character } else { '·' };
    text.chars().map(plain).chain(again.chars()).collect()
}

fn request_label(message: &Message<'_>) -> String {
    let method = String::from_utf8_lossy(message.method_bytes()).into_owned();
    let with_credentials = [HeaderName::Authorization, HeaderName::ProxyAuthorization]
        .into_iter()
        .any(|name| message.header(name).is_some());
    let expires_now =
        message.method() == Method::Register && message.expires().is_ok_and(|time| time == Some(0));
    match (with_credentials, expires_now) {
        (false, false) => method,
        (true, false) => format!("{method} with credentials"),
        (false, true) => format!("{method} Expires: 0"),
        (true, true) => format!("{method} Expires: 0 with credentials"),
    }
}

fn response_label(message: &Message<'_>, status: u16) -> String {
    let reason = String::from_utf8_lossy(message.reason());
    let method = String::from_utf8_lossy(message.method_bytes());
    let space = if reason.is_empty() { "" } else { " " };
    if method.is_empty() {
        format!("{status}{space}{reason}")
    } else {
        format!("{status}{space}{reason} ({method})")
    }
}

/// The text of a message, each line indented and made visible.
fn text_of(out: &mut String, text: &str) {
    let shown: String = text.chars().take(TEXT_CHARS_MAX).collect();
    for line in shown.split_inclusive('\n') {
        let line = line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
        let _ = writeln!(out, "{}", format!("    {}", visible(line)).trim_end());
    }
    if shown.len() < text.len() {
        let _ = writeln!(out, "    … and {} bytes more", text.len() - shown.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(at_us: u64, side: Side, direction: Direction, text: &str) -> TracedMessage {
        TracedMessage { at_us, side, direction, repeated: false, text: text.into() }
    }

    fn sip(first_line: &str, cseq: &str, more: &str) -> String {
        let via = "Via: SIP/2.0/UDP 127.0.0.1:4000;branch=z9hG4bK1;rport";
        format!("{first_line}\r\n{via}\r\nCSeq: {cseq}\r\n{more}Content-Length: 0\r\n\r\n")
    }

    fn call() -> Example {
        use Direction::{Received, Sent};
        use Side::{Callee, Caller};
        let invite = sip("INVITE sip:user2@127.0.0.1 SIP/2.0", "1 INVITE", "");
        let ringing = sip("SIP/2.0 180 Ringing", "1 INVITE", "");
        let ok = sip("SIP/2.0 200 OK", "1 INVITE", "");
        let ack = sip("ACK sip:user2@127.0.0.1:4001 SIP/2.0", "1 ACK", "");
        let bye = sip("BYE sip:user2@127.0.0.1:4001 SIP/2.0", "2 BYE", "");
        let bye_ok = sip("SIP/2.0 200 OK", "2 BYE", "");
        let mut again = message(500_930, Caller, Sent, &invite);
        again.repeated = true;
        // The callee's record comes behind the caller's, as two workers give them.
        let messages = vec![
            message(930, Caller, Sent, &invite),
            again,
            message(501_100, Caller, Received, &sip("SIP/2.0 100 Trying", "1 INVITE", "")),
            message(501_420, Caller, Received, &ringing),
            message(501_477, Caller, Received, &ok),
            message(501_500, Caller, Sent, &ack),
            message(501_502, Caller, Sent, &bye),
            message(501_900, Caller, Received, &bye_ok),
            message(501_230, Callee, Received, &invite),
            message(501_250, Callee, Sent, &ringing),
            message(501_251, Callee, Sent, &ok),
            message(501_610, Callee, Received, &ack),
            message(501_620, Callee, Received, &bye),
            message(501_640, Callee, Sent, &bye_ok),
        ];
        Example { class: "invite".into(), failure: None, messages }
    }

    fn challenged() -> Example {
        use Direction::{Received, Sent};
        let register = "REGISTER sip:127.0.0.1 SIP/2.0";
        let credentials = "Authorization: Digest username=\"user1\"\r\n";
        let messages = vec![
            message(10, Side::Caller, Sent, &sip(register, "1 REGISTER", "")),
            message(260, Side::Caller, Received, &sip("SIP/2.0 401 Unauthorized", "1 REGISTER", "")),
            message(300, Side::Caller, Sent, &sip(register, "2 REGISTER", credentials)),
            message(512, Side::Caller, Received, &sip("SIP/2.0 200 OK", "2 REGISTER", "")),
        ];
        Example { class: "register".into(), failure: None, messages }
    }

    #[test]
    fn a_call_has_three_uprights_and_is_in_order_of_time() {
        insta::assert_snapshot!(render(&call(), 80), @r"
        invite: one operation
                ms  Caller                         Server                         Callee
             0.000  │── INVITE ───────────────────▶│                              │
           500.000  │── INVITE (again) ───────────▶│                              │
           500.170  │◀─ 100 Trying (INVITE) ───────│                              │
           500.300  │                              │── INVITE ───────────────────▶│
           500.320  │                              │◀─ 180 Ringing (INVITE) ──────│
           500.321  │                              │◀─ 200 OK (INVITE) ───────────│
           500.490  │◀─ 180 Ringing (INVITE) ──────│                              │
           500.547  │◀─ 200 OK (INVITE) ───────────│                              │
           500.570  │── ACK ──────────────────────▶│                              │
           500.572  │── BYE ──────────────────────▶│                              │
           500.680  │                              │── ACK ──────────────────────▶│
           500.690  │                              │── BYE ──────────────────────▶│
           500.710  │                              │◀─ 200 OK (BYE) ──────────────│
           500.970  │◀─ 200 OK (BYE) ──────────────│                              │
        ");
    }

    #[test]
    fn a_challenged_register_has_two_uprights_and_shows_the_credentials() {
        insta::assert_snapshot!(render(&challenged(), 80), @r"
        register: one operation
                ms  Caller                                          Server
             0.000  │── REGISTER ──────────────────────────────────▶│
             0.250  │◀─ 401 Unauthorized (REGISTER) ────────────────│
             0.290  │── REGISTER with credentials ─────────────────▶│
             0.502  │◀─ 200 OK (REGISTER) ──────────────────────────│
        ");
    }

    #[test]
    fn a_failure_is_named_and_its_messages_follow() {
        let text = sip("SIP/2.0 503 \u{1b}[31mNo\u{9b}way", "1 OPTIONS", "Reason: \u{202e}\tover\r\n");
        let messages = vec![
            message(5, Side::Caller, Direction::Sent, &sip("OPTIONS sip:127.0.0.1 SIP/2.0", "1 OPTIONS", "")),
            message(1_000_005, Side::Caller, Direction::Received, &text),
            message(1_000_006, Side::Caller, Direction::Received, "\0\u{1b}]0;title\u{7}"),
        ];
        let example = Example { class: "options".into(), failure: Some("status-503".into()), messages };
        insta::assert_snapshot!(render_full(&example, 80), @r"
        options: the first failure of the kind status-503
                ms  Caller                                          Server
             0.000  │── OPTIONS ───────────────────────────────────▶│
          1000.000  │◀─ 503 ·[31mNo·way (OPTIONS) ──────────────────│
          1000.001  │◀─ no SIP: the first line has no end (at by… ──│

        0.000 Caller to Server
            OPTIONS sip:127.0.0.1 SIP/2.0
            Via: SIP/2.0/UDP 127.0.0.1:4000;branch=z9hG4bK1;rport
            CSeq: 1 OPTIONS
            Content-Length: 0


        1000.000 Server to Caller
            SIP/2.0 503 ␛[31mNo\u{9b}way
            Via: SIP/2.0/UDP 127.0.0.1:4000;branch=z9hG4bK1;rport
            CSeq: 1 OPTIONS
            Reason: \u{202e}␉over
            Content-Length: 0


        1000.001 Server to Caller
            ␀␛]0;title␇
        ");
    }

    #[test]
    fn nothing_recorded_is_said() {
        let example =
            Example { class: "message".into(), failure: Some("timeout".into()), messages: Vec::new() };
        insta::assert_snapshot!(render(&example, 80), @r"
        message: the first failure of the kind timeout
                ms  Caller                                          Server
          no message was recorded
        ");
    }

    #[test]
    fn a_storm_of_repetitions_is_cut_and_counted() {
        let mut example = challenged();
        let first = example.messages[0].clone();
        example.messages.resize(MESSAGES_MAX + 3, first);
        let drawn = render(&example, 80);
        assert_eq!(drawn.lines().count(), 2 + MESSAGES_MAX + 1);
        assert!(drawn.ends_with("  … and 3 more messages\n"), "{drawn}");
    }

    #[test]
    fn times_may_run_backwards_or_be_the_largest() {
        let mut example = challenged();
        example.messages[3].at_us = u64::MAX;
        assert!(render(&example, 0).contains("18446744073709551.605"));
    }

    proptest! {
        /// Whatever the network said, and however narrow the terminal.
        #[test]
        fn no_control_character_reaches_the_terminal(
            texts in proptest::collection::vec(any::<String>(), 0..5), class in any::<String>(),
            width in 0_usize..300, callee in any::<bool>(),
        ) {
            let side = if callee { Side::Callee } else { Side::Caller };
            let messages = texts.iter().map(|text| message(1, side, Direction::Sent, text)).collect();
            let example = Example { class: class.clone(), failure: Some(class), messages };
            let drawn = render(&example, width);
            for line in drawn.lines() {
                prop_assert!(line.chars().count() <= width.clamp(WIDTH_MIN, WIDTH_MAX), "{line}");
            }
            let shown = render_full(&example, width);
            prop_assert!(!shown.chars().any(|character| character != '\n' && character.is_control()), "{shown:?}");
        }
    }
}
