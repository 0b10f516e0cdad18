//! Edits of a message and their serialising (RFC 3261 §16.6, §16.7).

use super::input::Input;
use super::meaning::{Meaning, is_sound, others};
use super::show;
use sip::{Edits, Index, Message};
use std::net::{IpAddr, Ipv4Addr};

/// Most edits of one input.
const EDITS_MAX: usize = 16;
/// Edits of these that surely fit: `sip::Edits` takes 256.
const LINES_OF_BODY: usize = 128;
/// Header fields that speak of the body, and go with it (RFC 3261 §7.4.1, §20).
const OF_BODY: [&[u8]; 6] =
    [b"content-type", b"c", b"content-encoding", b"e", b"content-disposition", b"content-language"];

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
    if edits.is_overflowed() {
        // Each line that speaks of a body is an edit of its own, each time that the body is another.
        let of_body = others(&message).filter(|header| is_of_body(header.name_bytes)).count();
        assert!(of_body * choices.len() > LINES_OF_BODY, "{choices:?} of {of_body} lines are too many");
        return;
    }
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
    /// The other header fields; those that are left.
    others: Vec<Option<(Vec<u8>, Vec<u8>)>>,
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
            others: meaning.others.iter().cloned().map(Some).collect(),
            meaning,
            first: Vec::new(),
            last: Vec::new(),
        }
    }

    fn apply(&mut self, m: &Message<'_>, choice: u8, turn: usize, edits: &mut Edits) {
        let uri = format!("sip:new{turn}").into_bytes();
        match choice % 16 {
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
                let nth = usize::from(choice / 16) % 6;
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
            11 => {
                edits.remove_body(m);
                self.meaning.body.clear();
                for (place, (name, _)) in self.meaning.others.iter().enumerate() {
                    if OF_BODY.contains(&name.as_slice()) {
                        self.others[place] = None;
                    }
                }
                self.last.retain(|(name, _)| name != b"content-type");
            }
            12 => {
                let (media, body) = (format!("t/{turn}").into_bytes(), vec![b'b'; turn + 1]);
                edits.set_body(m, &media, &body);
                self.set_body(media, body);
            }
            13 => {
                let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, turn as u8));
                // What is there already is replaced: whether that goes well, `response` asserts.
                let plain = |via: &[u8]| {
                    !via.windows(5).any(|part| {
                        part.eq_ignore_ascii_case(b"recei") || part.eq_ignore_ascii_case(b"rport")
                    }) && !via.contains(&b'(')
                };
                let Some(first) = self.meaning.vias.first().filter(|via| plain(via)) else { return };
                edits.set_received(m, Some(ip), None);
                if let Some(value) = &mut self.vias.own[0] {
                    *value = [first, format!(";received={ip}").as_bytes()].concat();
                }
            }
            which => {
                // One that is of no body, by its place.
                let place = usize::from(choice / 16) % self.others.len().max(1);
                let Some(header) = others(m).nth(place) else { return };
                if is_of_body(header.name_bytes) {
                    return;
                }
                self.others[place] = if which == 14 {
                    edits.remove_header(&header);
                    None
                } else {
                    edits.replace_span(header.line.clone(), format!("r-{turn}: v\r\n").as_bytes());
                    Some((format!("r-{turn}").into_bytes(), b"v".to_vec()))
                };
            }
        }
    }

    /// The first Content-Type is the new one, which comes last where there was none; a Content-Encoding goes.
    fn set_body(&mut self, media: Vec<u8>, body: Vec<u8>) {
        self.meaning.body = body;
        let mut new = Some((b"content-type".to_vec(), media));
        for (place, (name, _)) in self.meaning.others.iter().enumerate() {
            match name.as_slice() {
                b"content-type" | b"c" => self.others[place] = new.take(),
                b"content-encoding" | b"e" => self.others[place] = None,
                _ => {}
            }
        }
        if let Some(new) = new {
            self.last.retain(|(name, _)| name != b"content-type");
            self.last.push(new);
        }
    }

    fn end(self) -> Meaning {
        let mut meaning = self.meaning;
        meaning.vias = self.vias.values();
        meaning.routes = self.routes.values();
        meaning.record_routes = self.record_routes.values();
        let own = self.others.into_iter().flatten();
        meaning.others = self.first.into_iter().chain(own).chain(self.last).collect();
        meaning
    }
}

fn is_of_body(name: &[u8]) -> bool {
    OF_BODY.contains(&name.to_ascii_lowercase().as_slice())
}

fn bracketed(uri: &[u8]) -> Vec<u8> {
    [b"<", uri, b">"].concat()
}
