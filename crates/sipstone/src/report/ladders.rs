//! Examples of operations as ladder diagrams: who sent what to whom, for the page.

use super::model::Subject;
use crate::tally::{Direction, Example, Side, TracedMessage};
use serde::Serialize;

/// Examples of one subject that are drawn.
const LADDERS_MAX: usize = 8;

/// Messages of one example that are drawn, the first ones; the rest are in the JSON report.
const ARROWS_MAX: usize = 40;

/// Characters of an arrow's label.
const LABEL_MAX: usize = 30;

/// Bytes of a message that the page shows.
const TEXT_MAX: usize = 4096;

const CALLER_X: u32 = 100;
const SERVER_X: u32 = 310;
const CALLEE_X: u32 = 520;
const MARGIN_X: u32 = 24;
const FIRST_Y: u32 = 44;
const STEP_Y: u32 = 25;

/// One diagram, with its coordinates in user units of its SVG.
#[derive(Debug, Serialize)]
pub(super) struct Ladder {
    title: String,
    spoken: String,
    width: u32,
    height: u32,
    lanes: Vec<Lane>,
    arrows: Vec<Arrow>,
    messages: Vec<Message>,
    /// Messages that are not drawn.
    more: usize,
}

#[derive(Debug, Serialize)]
struct Lane {
    x: u32,
    name: &'static str,
}

#[derive(Debug, Serialize)]
struct Arrow {
    y: u32,
    x1: u32,
    x2: u32,
    middle: u32,
    /// The path of its head.
    head: String,
    label: String,
    when: String,
    again: bool,
}

#[derive(Debug, Serialize)]
struct Message {
    when: String,
    who: String,
    text: String,
}

/// A subject's diagrams: of each class the first traced operation and the first failure of each kind.
pub(super) fn of(subject: &Subject) -> Vec<Ladder> {
    let mut seen: Vec<(&str, Option<&str>)> = Vec::new();
    let mut ladders = Vec::new();
    for (number, trial) in subject.trials.iter().enumerate() {
        for example in &trial.examples {
            let kind = (example.class.as_str(), example.failure.as_deref());
            if !seen.contains(&kind) && !example.messages.is_empty() && ladders.len() < LADDERS_MAX {
                seen.push(kind);
                ladders.push(ladder(example, number));
            }
        }
    }
    ladders
}

fn ladder(example: &Example, trial: usize) -> Ladder {
    let drawn = || example.messages.iter().take(ARROWS_MAX);
    let begin = example.messages.first().map_or(0, |message| message.at_us);
    let arrows: Vec<Arrow> = drawn().zip(0_u32..).map(|(message, at)| arrow(message, at, begin)).collect();
    let title = match &example.failure {
        Some(cause) => format!("{}: the first {cause} of trial {trial}", example.class),
        None => format!("{}: an operation of trial {trial}", example.class),
    };
    let mut lanes = vec![Lane { x: CALLER_X, name: "caller" }, Lane { x: SERVER_X, name: "server" }];
    if example.messages.iter().any(|message| message.side == Side::Callee) {
        lanes.push(Lane { x: CALLEE_X, name: "callee" });
    }
    let said: Vec<String> =
        drawn().map(|message| format!("{}, {}", way(message), first_words(message))).collect();
    Ladder {
        spoken: format!("{title}: {}", said.join("; ")),
        title,
        width: lanes.last().map_or(CALLEE_X, |lane| lane.x) + MARGIN_X,
        height: FIRST_Y + STEP_Y * u32::try_from(arrows.len()).unwrap_or(0),
        lanes,
        arrows,
        messages: drawn().map(|message| full(message, begin)).collect(),
        more: example.messages.len().saturating_sub(ARROWS_MAX),
    }
}

fn arrow(message: &TracedMessage, at: u32, begin: u64) -> Arrow {
    let end = if message.side == Side::Caller { CALLER_X } else { CALLEE_X };
    let (x1, x2) = if message.direction == Direction::Sent { (end, SERVER_X) } else { (SERVER_X, end) };
    let y = FIRST_Y + STEP_Y * at;
    let back = if x2 > x1 { -8 } else { 8 };
    Arrow {
        y,
        x1,
        x2,
        middle: u32::midpoint(x1, x2),
        head: format!("M{x2} {y}l{back} -3.5v7z"),
        label: first_words(message),
        when: when(message, begin),
        again: message.repeated,
    }
}

/// `INVITE` or `200 OK`, with a mark if it was seen before.
fn first_words(message: &TracedMessage) -> String {
    let line = message.text.lines().next().unwrap_or("");
    let words = line.strip_prefix("SIP/2.0 ").unwrap_or_else(|| line.split(' ').next().unwrap_or(""));
    let cut: String = words.chars().take(LABEL_MAX).collect();
    let dots = if words.chars().count() > LABEL_MAX { "…" } else { "" };
    format!("{cut}{dots}{}", if message.repeated { " (again)" } else { "" })
}

fn when(message: &TracedMessage, begin: u64) -> String {
    format!("{:.3} ms", message.at_us.saturating_sub(begin) as f64 / 1000.0)
}

fn way(message: &TracedMessage) -> &'static str {
    match (message.side, message.direction) {
        (Side::Caller, Direction::Sent) => "caller to server",
        (Side::Caller, Direction::Received) => "server to caller",
        (Side::Callee, Direction::Sent) => "callee to server",
        (Side::Callee, Direction::Received) => "server to callee",
    }
}

fn full(message: &TracedMessage, begin: u64) -> Message {
    let mut end = message.text.len().min(TEXT_MAX);
    while !message.text.is_char_boundary(end) {
        end -= 1;
    }
    let dots = if end < message.text.len() { "…" } else { "" };
    Message {
        when: when(message, begin),
        who: way(message).into(),
        text: format!("{}{dots}", message.text[..end].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn each_kind_of_example_is_drawn_once() {
        let ladders = of(&sample::peak().subjects[0]);
        let titles: Vec<&str> = ladders.iter().map(|ladder| ladder.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "invite: an operation of trial 0",
                "invite: the first status-503 of trial 4",
                "invite: the first timeout of trial 4",
            ]
        );
        assert_eq!(ladders[0].arrows.len(), 13);
        assert_eq!((ladders[0].lanes.len(), ladders[1].lanes.len()), (3, 2));
    }

    #[test]
    fn arrows_go_from_the_sender_to_the_receiver() {
        let ladder = &of(&sample::peak().subjects[0])[0];
        let ways: Vec<(u32, u32, &str)> =
            ladder.arrows.iter().take(4).map(|arrow| (arrow.x1, arrow.x2, arrow.label.as_str())).collect();
        assert_eq!(
            ways,
            [
                (CALLER_X, SERVER_X, "INVITE"),
                (SERVER_X, CALLER_X, "100 Trying"),
                (SERVER_X, CALLEE_X, "INVITE"),
                (CALLEE_X, SERVER_X, "180 Ringing"),
            ]
        );
        assert_eq!(ladder.arrows[1].when, "0.120 ms");
    }

    #[test]
    fn long_examples_and_messages_are_cut() {
        let mut subject = sample::peak().subjects.remove(0);
        let example = &mut subject.trials[0].examples[0];
        let mut message = example.messages[0].clone();
        message.text = "é".repeat(TEXT_MAX);
        example.messages = vec![message; ARROWS_MAX + 5];
        let ladder = &of(&subject)[0];
        assert_eq!((ladder.arrows.len(), ladder.more), (ARROWS_MAX, 5));
        assert!(ladder.messages[0].text.len() <= TEXT_MAX + "…".len());
        assert!(ladder.arrows[0].label.chars().count() <= LABEL_MAX + 1);
    }
}
