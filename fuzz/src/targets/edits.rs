//! Edits of a message and their serialising (RFC 3261 §16.6, §16.7).

use super::input::Input;
use super::meaning::{Meaning, is_sound};
use super::show;
use sip::{Edits, Index, Message};

/// Most edits of one input.
const EDITS_MAX: usize = 16;

/// See [`TARGETS`](crate::TARGETS). The first byte counts the edits, a byte each, and the rest is the message.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let count = input.below(EDITS_MAX + 1);
    let choices: Vec<u8> = (0..count).map(|_| input.byte()).collect();
    let bytes = input.rest();
    let mut index = Index::new();
    let Ok(message) = Message::parse(bytes, &mut index) else { return };
    let Some(before) = Meaning::of(&message).filter(|_| is_sound(&message)) else { return };
    let (mut edits, mut changes) = (Edits::new(), Changes::new(before));
    for (turn, choice) in choices.iter().enumerate() {
        changes.apply(&message, *choice, turn, &mut edits);
    }
    assert!(!edits.is_overflowed());
    let mut out = Vec::new();
    edits.write(&message, &mut out);
    let mut index = Index::new();
    let written = Message::parse(&out, &mut index).unwrap_or_else(|e| panic!("{e}: {}", show(&out)));
    assert_eq!(Meaning::of(&written), Some(changes.end()), "{choices:?} made {}", show(&out));
    undone(&message, &choices, &mut edits);
}

/// What is undone was never there.
fn undone(message: &Message<'_>, choices: &[u8], edits: &mut Edits) {
    let (mut wanted, mut out) = (Vec::new(), Vec::new());
    edits.write(message, &mut wanted);
    let mark = edits.mark();
    let before = Meaning::of(message).expect("it was judged");
    let mut changes = Changes::new(before);
    for (turn, choice) in choices.iter().rev().enumerate() {
        changes.apply(message, *choice, 100 + turn, edits);
    }
    edits.rewind(mark);
    edits.write(message, &mut out);
    assert_eq!(show(&out), show(&wanted), "what was undone is still there");
}

/// A list of values: its own, some of them removed, and others around them.
#[derive(Default)]
struct List {
    before: Vec<Vec<u8>>,
    own: Vec<Option<Vec<u8>>>,
    after: Vec<Vec<u8>>,
}

impl List {
    fn of(values: &[Vec<u8>]) -> List {
        List { own: values.iter().cloned().map(Some).collect(), ..List::default() }
    }

    fn pop(&mut self) {
        if let Some(first) = self.own.iter_mut().find(|value| value.is_some()) {
            *first = None;
        }
    }

    fn values(self) -> Vec<Vec<u8>> {
        let own = self.own.into_iter().flatten();
        self.before.into_iter().rev().chain(own).chain(self.after).collect()
    }
}

/// What the message means after edits, told without looking at bytes.
struct Changes {
    meaning: Meaning,
    vias: List,
    routes: List,
    record_routes: List,
    /// Header lines before and behind the others.
    first: Vec<(Vec<u8>, Vec<u8>)>,
    last: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Changes {
    fn new(meaning: Meaning) -> Changes {
        Changes {
            vias: List::of(&meaning.vias),
            routes: List::of(&meaning.routes),
            record_routes: List::of(&meaning.record_routes),
            meaning,
            first: Vec::new(),
            last: Vec::new(),
        }
    }

    fn apply(&mut self, m: &Message<'_>, choice: u8, turn: usize, edits: &mut Edits) {
        let uri = format!("sip:new{turn}").into_bytes();
        match choice % 12 {
            0 => {
                edits.set_request_uri(m, &uri);
                if m.is_request() {
                    self.meaning.start.2 = uri;
                }
            }
            1 => {
                let value = format!("SIP/2.0/UDP h{turn};branch=z9").into_bytes();
                edits.push_via(m, |out| out.extend_from_slice(&value));
                self.vias.before.push(value);
            }
            2 => {
                edits.pop_via(m);
                self.vias.pop();
            }
            3 => {
                edits.pop_route(m);
                self.routes.pop();
            }
            4 => {
                let nth = usize::from(choice / 12) % 6;
                edits.remove_route(m, nth);
                if let Some(value) = self.routes.own.get_mut(nth) {
                    *value = None;
                }
            }
            5 => {
                edits.append_route(m, &uri);
                self.routes.after.push(bracketed(&uri));
            }
            6 => {
                edits.push_route(m, &uri);
                self.routes.before.push(bracketed(&uri));
            }
            7 => {
                edits.insert_record_route(m, &bracketed(&uri));
                self.record_routes.before.push(bracketed(&uri));
            }
            8 => {
                edits.set_max_forwards(m, u32::from(choice));
                self.meaning.max_forwards = Some(u32::from(choice));
            }
            9 => {
                edits.append_header(m, format!("y-{turn}: v\r\n").as_bytes());
                self.last.push((format!("y-{turn}").into_bytes(), b"v".to_vec()));
            }
            10 => {
                edits.insert_header(m, format!("z-{turn}: v\r\n").as_bytes());
                self.first.insert(0, (format!("z-{turn}").into_bytes(), b"v".to_vec()));
            }
            _ => {
                edits.remove_body(m);
                self.meaning.body.clear();
                let of_body: [&[u8]; 6] = [
                    b"content-type",
                    b"c",
                    b"content-encoding",
                    b"e",
                    b"content-disposition",
                    b"content-language",
                ];
                self.meaning.others.retain(|(name, _)| !of_body.contains(&name.as_slice()));
            }
        }
    }

    fn end(self) -> Meaning {
        let mut meaning = self.meaning;
        meaning.vias = self.vias.values();
        meaning.routes = self.routes.values();
        meaning.record_routes = self.record_routes.values();
        meaning.others = self.first.into_iter().chain(meaning.others).chain(self.last).collect();
        meaning
    }
}

fn bracketed(uri: &[u8]) -> Vec<u8> {
    [b"<", uri, b">"].concat()
}
