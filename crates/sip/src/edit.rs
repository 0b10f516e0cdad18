//! Changes to a message, kept beside it and applied once when it is written (RFC 3261 §16.6, §16.7).
//!
//! Edits are sorted by where they apply. Of two edits where one lies inside the other, the outer wins; of two of the
//! same bytes, the later; of two that overlap otherwise, the one that starts first. Insertions at the edge of removed
//! bytes stay, insertions inside them go.

use crate::host::push_ip_bare;
use crate::index::Line;
use crate::message::{Header, Message};
use crate::span::Span;
use crate::token::{push_number, slice};
use crate::{HeaderName, name_addr, via};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Range;
use smallvec::SmallVec;

/// Most edits of one message. Beyond it edits are dropped and [`Edits::is_overflowed`] says so.
pub const MAX_EDITS: usize = 256;

/// Most bytes of text of all edits of one message. Beyond it edits are dropped and [`Edits::is_overflowed`] says so.
pub const MAX_EDIT_BYTES: usize = 256 * 1024;

/// Typed changes of one message. Reusable: it allocates while it grows, then never.
///
/// Every method that takes the message must be given the one that [`Edits::write`] will be given.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// In the order of `Edit::key`.
    edits: Vec<Edit>,
    text: Vec<u8>,
    next_seq: u32,
    overflowed: bool,
}

/// A point in the history of [`Edits`], to return to with [`Edits::rewind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    seq: u32,
    text: usize,
    overflowed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Edit {
    /// Position, class, then what orders edits of one class at one position.
    key: u128,
    at: Span,
    seq: u32,
    text: Span,
    tag: Tag,
}

/// What an edit does at its position, in the order in which edits at one position are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Class {
    /// Inserted before everything else; the latest comes first.
    Push,
    /// A parameter's value, right behind its name.
    Fill,
    /// Inserted; the latest comes last.
    Append,
    /// Replaces bytes (at least one).
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    None,
    /// Of insertions with the same mark only the last counts.
    Once(Once),
    /// Removes the value `nth` of the header line that starts at `line`.
    Value {
        line: u32,
        nth: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Once {
    Received,
    Rport,
    Body,
    Header(HeaderName),
}

impl Edits {
    /// No edits; allocates nothing yet.
    pub fn new() -> Edits {
        Edits::default()
    }

    /// Forgets all edits, keeps the memory.
    pub fn clear(&mut self) {
        self.edits.clear();
        self.text.clear();
        self.next_seq = 0;
        self.overflowed = false;
    }

    /// True if there are no edits.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// True if an edit was dropped because [`MAX_EDITS`] or [`MAX_EDIT_BYTES`] was reached. The message must not be
    /// sent then.
    pub fn is_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Remembers this point: what is added later can be undone.
    pub fn mark(&self) -> Mark {
        Mark { seq: self.next_seq, text: self.text.len(), overflowed: self.overflowed }
    }

    /// Undoes everything added since `mark` (of these edits, since the last [`Edits::clear`]).
    pub fn rewind(&mut self, mark: Mark) {
        self.edits.retain(|edit| edit.seq < mark.seq);
        self.text.truncate(mark.text);
        self.next_seq = mark.seq.min(self.next_seq);
        self.overflowed = mark.overflowed;
    }

    /// Replaces the Request-URI; the last one wins. Does nothing to a response.
    pub fn set_request_uri(&mut self, m: &Message<'_>, uri: &[u8]) {
        if m.is_request() {
            self.replace_span(m.request_uri_span().range(), uri);
        }
    }

    /// Puts a Via line before all others; `value` appends its value. The latest comes first (RFC 3261 §16.6 item 8).
    pub fn push_via(&mut self, m: &Message<'_>, value: impl FnOnce(&mut Vec<u8>)) {
        let at = first_line_start(m, HeaderName::Via);
        self.add(Span::new(at, at), Class::Push, Tag::None, |text| {
            text.extend_from_slice(b"Via: ");
            value(text);
            text.extend_from_slice(b"\r\n");
        });
    }

    /// Removes the topmost Via value that is left (RFC 3261 §16.7 item 3). Each call removes one more.
    pub fn pop_via(&mut self, m: &Message<'_>) {
        self.remove_value(m, HeaderName::Via, None);
    }

    /// Says in the topmost Via where the request came from (RFC 3261 §18.2.1, RFC 3581 §4).
    ///
    /// `received` is added or replaced; `rport` is filled in where the client asked for it, and else left out.
    pub fn set_received(&mut self, m: &Message<'_>, received: Option<IpAddr>, rport: Option<u16>) {
        for change in received_changes(m, received, rport).into_iter().flatten() {
            let (class, once) = match change.what {
                Source::Rport(_) => (Class::Fill, Once::Rport),
                Source::Received { .. } => (Class::Append, Once::Received),
            };
            if change.at.start == change.at.end {
                self.add(change.at, class, Tag::Once(once), |text| change.push(text));
            } else {
                self.add(change.at, Class::Replace, Tag::None, |text| change.push(text));
            }
        }
    }

    /// Removes the topmost Route value that is left (RFC 3261 §16.4). Each call removes one more.
    pub fn pop_route(&mut self, m: &Message<'_>) {
        self.remove_value(m, HeaderName::Route, None);
    }

    /// Removes the Route value number `nth` of the message as it arrived, the topmost being 0.
    pub fn remove_route(&mut self, m: &Message<'_>, nth: usize) {
        self.remove_value(m, HeaderName::Route, Some(nth));
    }

    /// Adds `<uri>` as the last Route value (RFC 3261 §16.6 item 6).
    pub fn append_route(&mut self, m: &Message<'_>, uri: &[u8]) {
        let at = m.headers(HeaderName::Route).last().map_or(m.headers_end(), |h| h.line.end as usize);
        self.add(Span::new(at, at), Class::Append, Tag::None, |text| push_route_line(text, uri));
    }

    /// Adds `<uri>` as the first Route value; the latest comes first.
    pub fn push_route(&mut self, m: &Message<'_>, uri: &[u8]) {
        let first = m.header(HeaderName::Route);
        let at = first.map_or(m.headers_end(), |h| h.line.start as usize);
        self.add(Span::new(at, at), Class::Push, Tag::None, |text| push_route_line(text, uri));
    }

    /// Adds `value` (angle brackets included) as the first Record-Route value; the latest comes first
    /// (RFC 3261 §16.6 item 4).
    pub fn insert_record_route(&mut self, m: &Message<'_>, value: &[u8]) {
        let at = first_line_start(m, HeaderName::RecordRoute);
        self.add(Span::new(at, at), Class::Push, Tag::None, |text| {
            text.extend_from_slice(b"Record-Route: ");
            text.extend_from_slice(value);
            text.extend_from_slice(b"\r\n");
        });
    }

    /// Replaces Max-Forwards, or adds it (RFC 3261 §16.6 item 3).
    pub fn set_max_forwards(&mut self, m: &Message<'_>, n: u32) {
        self.set_header(m, HeaderName::MaxForwards, |text| {
            text.extend_from_slice(b"Max-Forwards: ");
            push_number(text, n);
            text.extend_from_slice(b"\r\n");
        });
    }

    /// Adds whole header lines, CRLFs included, behind all others.
    pub fn append_header(&mut self, m: &Message<'_>, line: &[u8]) {
        let at = Span::new(m.headers_end(), m.headers_end());
        self.add(at, Class::Append, Tag::None, |text| text.extend_from_slice(line));
    }

    /// Adds whole header lines, CRLFs included, before all others; the latest comes first.
    pub fn insert_header(&mut self, m: &Message<'_>, line: &[u8]) {
        let at = m.index.start_line.end as usize;
        self.add(Span::new(at, at), Class::Push, Tag::None, |text| text.extend_from_slice(line));
    }

    /// Removes a header line with all its values.
    pub fn remove_header(&mut self, header: &Header<'_>) {
        self.replace_span(header.line.clone(), &[]);
    }

    /// Replaces any bytes of the message. An empty span inserts.
    pub fn replace_span(&mut self, span: Range<u32>, text: &[u8]) {
        let class = if span.start < span.end { Class::Replace } else { Class::Append };
        let at = Span { start: span.start, end: span.end.max(span.start) };
        self.add(at, class, Tag::None, |out| out.extend_from_slice(text));
    }

    /// Replaces the body and the headers that describe it; a Content-Encoding of the old body goes.
    pub fn set_body(&mut self, m: &Message<'_>, content_type: &[u8], body: &[u8]) {
        self.set_header(m, HeaderName::ContentType, |text| {
            text.extend_from_slice(b"Content-Type: ");
            text.extend_from_slice(content_type);
            text.extend_from_slice(b"\r\n");
        });
        self.replace_body(m, body);
        self.remove_headers(m, HeaderName::ContentEncoding);
    }

    /// Removes the body and the headers that describe it; Content-Length becomes 0.
    pub fn remove_body(&mut self, m: &Message<'_>) {
        self.set_header(m, HeaderName::ContentType, |_| {});
        self.replace_body(m, &[]);
        for name in [HeaderName::ContentEncoding, HeaderName::ContentDisposition, HeaderName::ContentLanguage]
        {
            self.remove_headers(m, name);
        }
    }

    fn replace_body(&mut self, m: &Message<'_>, body: &[u8]) {
        self.set_header(m, HeaderName::ContentLength, |text| {
            text.extend_from_slice(b"Content-Length: ");
            push_number(text, u32::try_from(body.len()).unwrap_or(u32::MAX));
            text.extend_from_slice(b"\r\n");
        });
        let at = Span::new(m.index.body_start as usize, m.end());
        let (class, tag) = match at.start == at.end {
            true => (Class::Append, Tag::Once(Once::Body)),
            false => (Class::Replace, Tag::None),
        };
        self.add(at, class, tag, |text| text.extend_from_slice(body));
    }

    /// Replaces the first line of `name` by what `line` appends and removes the others, or adds it at the end.
    fn set_header(&mut self, m: &Message<'_>, name: HeaderName, line: impl FnOnce(&mut Vec<u8>)) {
        let mut lines = m.headers(name);
        match lines.next() {
            Some(first) => {
                self.add(
                    Span { start: first.line.start, end: first.line.end },
                    Class::Replace,
                    Tag::None,
                    line,
                );
            }
            None => {
                let at = Span::new(m.headers_end(), m.headers_end());
                self.add(at, Class::Append, Tag::Once(Once::Header(name)), line);
            }
        }
        for other in lines {
            self.remove_header(&other);
        }
    }

    fn remove_headers(&mut self, m: &Message<'_>, name: HeaderName) {
        for header in m.headers(name) {
            self.remove_header(&header);
        }
    }

    /// Removes the value `nth` of `name`, or the first one left.
    fn remove_value(&mut self, m: &Message<'_>, name: HeaderName, nth: Option<usize>) {
        let mut number = 0;
        let first = m.index.first_at(name).unwrap_or(usize::MAX);
        for line in m.index.lines.get(first..).unwrap_or(&[]) {
            if line.name != name {
                continue;
            }
            let text = slice(m.bytes, line.value_start as usize, line.value_end as usize);
            if memchr::memchr(b',', text).is_none() {
                // The only value of its line, and the usual case.
                let gone = self.is_removed(line, 0);
                if nth.map_or(!gone, |nth| nth == number) {
                    if !gone {
                        let tag = Tag::Value { line: line.start, nth: 0 };
                        self.add(Span { start: line.start, end: line.end }, Class::Replace, tag, |_| {});
                    }
                    return;
                }
                number += 1;
                continue;
            }
            for (i, _) in (0u32..).zip(Values::new(m, line)) {
                let gone = self.is_removed(line, i);
                if nth.map_or(!gone, |nth| nth == number) {
                    if !gone {
                        self.remove_from_line(m, line, i);
                    }
                    return;
                }
                number += 1;
            }
        }
    }

    fn is_removed(&self, line: &Line, nth: u32) -> bool {
        self.edits.iter().any(|edit| edit.tag == Tag::Value { line: line.start, nth })
    }

    /// Removes value `nth` of `line`: with a comma if others stay, with the line if none does.
    fn remove_from_line(&mut self, m: &Message<'_>, line: &Line, nth: u32) {
        let tag = Tag::Value { line: line.start, nth };
        let stays = |edits: &Edits, i: u32| i != nth && !edits.is_removed(line, i);
        let indexed = || (0u32..).zip(Values::new(m, line));
        let removed_before = indexed().any(|(i, _)| self.is_removed(line, i));
        if !indexed().any(|(i, _)| stays(self, i)) {
            self.add(Span { start: line.start, end: line.end }, Class::Replace, tag, |_| {});
        } else if removed_before {
            // The values that stay are written anew; this edit covers those before it, and undoing it uncovers them.
            let kept: SmallVec<[Span; 16]> =
                indexed().filter(|&(i, _)| stays(self, i)).map(|(_, value)| value).collect();
            let at = Span { start: line.value_start, end: line.value_end };
            self.add(at, Class::Replace, tag, |text| {
                for (i, value) in kept.iter().enumerate() {
                    text.extend_from_slice(if i > 0 { b", " } else { b"" });
                    text.extend_from_slice(value.of(m.bytes));
                }
            });
        } else {
            let mut values = Values::new(m, line);
            let at = match nth.checked_sub(1) {
                None => {
                    let start = line.value_start;
                    Span { start, end: values.nth(1).map_or(line.value_end, |next| next.start) }
                }
                Some(before) => {
                    let start = values.nth(before as usize).map_or(line.value_start, |value| value.end);
                    Span { start, end: values.next().map_or(line.value_end, |value| value.end) }
                }
            };
            self.add(at, Class::Replace, tag, |_| {});
        }
    }

    fn add(&mut self, at: Span, class: Class, tag: Tag, write: impl FnOnce(&mut Vec<u8>)) {
        if self.edits.len() >= MAX_EDITS {
            self.overflowed = true;
            return;
        }
        let start = self.text.len();
        write(&mut self.text);
        if self.text.len() > MAX_EDIT_BYTES {
            self.text.truncate(start);
            self.overflowed = true;
            return;
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let (high, low) = match class {
            Class::Push => (!seq, 0),
            Class::Fill | Class::Append => (seq, 0),
            Class::Replace => (!at.end, !seq),
        };
        let key = u128::from(at.start) << 72
            | u128::from(class as u8) << 64
            | u128::from(high) << 32
            | u128::from(low);
        let edit = Edit { key, at, seq, text: Span::new(start, self.text.len()), tag };
        let place = self.edits.iter().rposition(|other| other.key < key).map_or(0, |before| before + 1);
        self.edits.insert(place, edit);
    }

    /// Appends the message with all edits applied to `out`: from the start line to the end of the body as
    /// Content-Length has it. One pass over message and edits.
    pub fn write(&self, m: &Message<'_>, out: &mut Vec<u8>) {
        let end = m.end();
        let mut cursor = m.index.start_line.start as usize;
        out.reserve(end.saturating_sub(cursor) + self.text.len());
        for (i, edit) in self.edits.iter().enumerate() {
            let start = edit.at.start as usize;
            if start < cursor || self.is_superseded(i, edit) {
                continue;
            }
            out.extend_from_slice(slice(m.bytes, cursor, start));
            out.extend_from_slice(edit.text.of(&self.text));
            cursor = (edit.at.end as usize).max(start);
        }
        out.extend_from_slice(slice(m.bytes, cursor, end));
    }

    /// True if a later insertion at the same place counts instead of this one.
    fn is_superseded(&self, i: usize, edit: &Edit) -> bool {
        let Tag::Once(_) = edit.tag else { return false };
        let later = self.edits.get(i + 1..).unwrap_or(&[]);
        later.iter().take_while(|other| other.at.start == edit.at.start).any(|other| other.tag == edit.tag)
    }
}

fn push_route_line(text: &mut Vec<u8>, uri: &[u8]) {
    text.extend_from_slice(b"Route: <");
    text.extend_from_slice(uri);
    text.extend_from_slice(b">\r\n");
}

/// Where the first line of `name` starts, or the first header line.
fn first_line_start(m: &Message<'_>, name: HeaderName) -> usize {
    m.index.first_line(name).map_or(m.index.start_line.end, |line| line.start) as usize
}

/// The values of one header line, by position. What cannot be read is one value to the line's end.
struct Values<'m> {
    bytes: &'m [u8],
    at: Option<usize>,
    name: HeaderName,
}

impl<'m> Values<'m> {
    fn new(m: &Message<'m>, line: &Line) -> Values<'m> {
        let bytes = slice(m.bytes, 0, line.value_end as usize);
        Values { bytes, at: Some(line.value_start as usize), name: line.name }
    }
}

impl Iterator for Values<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let at = self.at.take()?;
        let end = self.bytes.len();
        let (span, next) = match self.name {
            HeaderName::Via => via::read(self.bytes, at).map(|(parts, next)| (parts.value, next)),
            _ => name_addr::read(self.bytes, at).map(|(parts, next)| (parts.value, next)),
        }
        .unwrap_or((Span::new(at, end), end));
        if next < end {
            self.at = Some(next + 1);
        }
        Some(span)
    }
}

/// A change to the topmost Via that says where the request came from.
pub(crate) struct SourceChange {
    pub(crate) at: Span,
    what: Source,
    /// A comment follows at once (RFC 2543 §6.40), which without a space would become a part of the value.
    is_before_comment: bool,
}

enum Source {
    /// `=port` behind the name.
    Rport(u16),
    /// `;received=address`, or `=address` behind the name that is there.
    Received { ip: IpAddr, named: bool },
}

impl SourceChange {
    fn new(m: &Message<'_>, at: Span, what: Source) -> SourceChange {
        let is_before_comment = m.bytes.get(at.end as usize) == Some(&b'(');
        SourceChange { at, what, is_before_comment }
    }

    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        match self.what {
            Source::Rport(port) => {
                out.push(b'=');
                push_number(out, u32::from(port));
            }
            Source::Received { ip, named } => {
                out.extend_from_slice(if named { b"=" } else { b";received=" });
                push_ip_bare(out, ip);
            }
        }
        if self.is_before_comment {
            out.push(b' ');
        }
    }
}

/// The changes that `received` and `rport` need, in the order of their positions. None if the Via is malformed.
pub(crate) fn received_changes(
    m: &Message<'_>,
    received: Option<IpAddr>,
    rport: Option<u16>,
) -> [Option<SourceChange>; 2] {
    let Ok(via) = m.via_parts() else { return [None, None] };
    let rport = rport.and_then(|port| {
        let at = via.rport.behind_name()?;
        Some(SourceChange::new(m, at, Source::Rport(port)))
    });
    let received = received.map(|ip| match via.received.behind_name() {
        Some(at) => SourceChange::new(m, at, Source::Received { ip, named: true }),
        None => {
            let at = Span { start: via.value.end, end: via.value.end };
            SourceChange::new(m, at, Source::Received { ip, named: false })
        }
    });
    match (&rport, &received) {
        (Some(port), Some(ip)) if ip.at.start < port.at.start => [received, rport],
        _ => [rport, received],
    }
}

#[cfg(test)]
mod tests;
