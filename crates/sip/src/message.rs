//! A message as it arrived: a view that finds lines at once and parses values when asked (RFC 3261 §7, §18.3).

use crate::error::{HeaderError, ParseError, ParseErrorKind, Problem};
use crate::header_name::HeaderName;
use crate::index::{CSeqParts, Index, Line, MAX_MESSAGE_BYTES, Slot};
use crate::name_addr::{self, NameAddr, NameAddrParts};
use crate::span::Span;
use crate::token::{self, Number, slice};
use crate::uri::{Uri, UriError, UriParts};
use crate::values::{Contacts, NameAddrs, Vias};
use crate::via::{self, Via, ViaParts};
use crate::{Method, framing, params, start_line};
use core::ops::Range;

/// Largest CSeq number: RFC 3261 §8.1.1.5 has it less than 2^31.
const CSEQ_MAX: u32 = (1 << 31) - 1;
/// Largest Max-Forwards (RFC 3261 §20.22).
const MAX_FORWARDS_MAX: u32 = 255;

/// A parsed message: a copyable view of its bytes and its [`Index`].
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) index: &'a Index,
}

/// One header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// What it is.
    pub name: HeaderName,
    /// The name as written.
    pub name_bytes: &'a [u8],
    /// The value without white space at its ends; folds inside it are kept.
    pub value: &'a [u8],
    /// The whole line in the message, folds and the CRLF included.
    pub line: Range<u32>,
    /// Index of the value's first byte in the message.
    pub value_start: u32,
}

/// The value of CSeq (RFC 3261 §20.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CSeq<'a> {
    /// The sequence number, less than 2^31.
    pub number: u32,
    /// The method.
    pub method: Method,
    /// The method as written.
    pub method_bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Finds the start line and the header lines of a datagram; values are parsed when asked for.
    ///
    /// # Errors
    /// [`ParseError`] if the bytes are no SIP message, or beyond a limit. Doubts that a sender can be told about are
    /// left to [`validate`](crate::validate).
    pub fn parse(bytes: &'a [u8], index: &'a mut Index) -> Result<Message<'a>, ParseError> {
        index.clear();
        let error = |kind, offset: usize| ParseError { kind, offset: offset as u32 };
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(error(ParseErrorKind::TooLong, MAX_MESSAGE_BYTES));
        }
        let start = framing::skip_empty_lines(bytes);
        if start == bytes.len() {
            return Err(error(ParseErrorKind::Empty, start));
        }
        let mut bare = false;
        let ends = framing::LineEnds::new();
        let end = framing::find_crlf(bytes, start, &ends, &mut bare)
            .ok_or(error(ParseErrorKind::NoLineEnd, start))?;
        let (line, defect) = start_line::read(bytes, start, end).map_err(|kind| error(kind, start))?;
        index.start_line = line;
        index.start_line.end = (end + 2) as u32;
        index.defect = defect;
        framing::read_headers(bytes, end + 2, &ends, bare, index)?;
        Ok(Message { bytes, index })
    }

    /// All bytes that were parsed.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// True for a request, false for a response.
    pub fn is_request(&self) -> bool {
        self.index.start_line.method.is_some()
    }

    /// The method of the request line, or of CSeq in a response ([`Method::Other`] if that is malformed).
    pub fn method(&self) -> Method {
        match self.index.start_line.method {
            Some(method) => method,
            None => self.cseq().map_or(Method::Other, |cseq| cseq.method),
        }
    }

    /// The method's bytes, from where [`Message::method`] has it.
    pub fn method_bytes(&self) -> &'a [u8] {
        if self.is_request() {
            return self.index.start_line.method_span.of(self.bytes);
        }
        self.cseq().map_or(&[], |cseq| cseq.method_bytes)
    }

    /// The Request-URI; empty in a response.
    pub fn request_uri(&self) -> &'a [u8] {
        self.request_uri_span().of(self.bytes)
    }

    /// The Request-URI, parsed. Parsed once.
    ///
    /// # Errors
    /// What is wrong with it; in a response there is none ([`UriError::Scheme`]).
    #[inline(always)]
    pub fn parsed_request_uri(&self) -> Result<Uri<'a>, UriError> {
        let text = self.request_uri();
        let slot = &self.index.request_uri;
        match slot.get() {
            Some(Ok(parts)) => Ok(parts.view(text)),
            Some(Err(error)) => Err(*error),
            None => self.read_request_uri(),
        }
    }

    #[inline(never)]
    fn read_request_uri(&self) -> Result<Uri<'a>, UriError> {
        let text = self.request_uri();
        let parts = UriParts::read(text);
        let _ = self.index.request_uri.set(parts);
        parts.map(|parts| parts.view(text))
    }

    pub(crate) fn request_uri_span(&self) -> Span {
        if self.is_request() { self.index.start_line.text } else { Span::default() }
    }

    /// The status code, 100 to 699; `None` in a request.
    pub fn status(&self) -> Option<u16> {
        (!self.is_request()).then_some(self.index.start_line.status)
    }

    /// The reason phrase; empty in a request.
    pub fn reason(&self) -> &'a [u8] {
        if self.is_request() { &[] } else { self.index.start_line.text.of(self.bytes) }
    }

    /// True if the version is SIP/2.0.
    pub fn version_ok(&self) -> bool {
        self.index.start_line.version_ok
    }

    /// The first header line of this name.
    #[inline]
    pub fn header(&self, name: HeaderName) -> Option<Header<'a>> {
        self.index.first_line(name).map(|line| self.view(line))
    }

    /// All header lines of this name, in order.
    #[inline]
    pub fn headers(&self, name: HeaderName) -> Headers<'a> {
        Headers { message: *self, name: Some(name), at: self.index.first_at(name).unwrap_or(usize::MAX) }
    }

    /// All header lines, in order.
    pub fn all_headers(&self) -> Headers<'a> {
        Headers { message: *self, name: None, at: 0 }
    }

    /// All header lines of a name given as text: long or compact, any case, all mean the same.
    pub fn headers_named<'n>(&self, name: &'n [u8]) -> HeadersNamed<'a, 'n> {
        let known = HeaderName::of(name);
        HeadersNamed { headers: self.headers(known), name, known }
    }

    #[inline]
    fn view(&self, line: &Line) -> Header<'a> {
        let start = line.start as usize;
        Header {
            name: line.name,
            name_bytes: slice(self.bytes, start, start + usize::from(line.name_len)),
            value: slice(self.bytes, line.value_start as usize, line.value_end as usize),
            line: line.start..line.end,
            value_start: line.value_start,
        }
    }

    /// The body: what follows the empty line, cut to Content-Length if that is smaller (RFC 3261 §18.3).
    pub fn body(&self) -> &'a [u8] {
        slice(self.bytes, self.index.body_start as usize, self.end())
    }

    /// Bytes behind the empty line, before Content-Length cuts them.
    pub(crate) fn bytes_after_headers(&self) -> usize {
        self.bytes.len().saturating_sub(self.index.body_start as usize)
    }

    /// Index behind the body.
    pub(crate) fn end(&self) -> usize {
        let start = self.index.body_start as usize;
        match self.content_length() {
            Ok(Some(length)) => self.bytes.len().min(start.saturating_add(length as usize)),
            _ => self.bytes.len(),
        }
    }

    /// Index of the empty line that ends the headers.
    pub fn headers_end(&self) -> usize {
        self.index.headers_end as usize
    }

    /// The topmost Via value. Parsed once.
    ///
    /// # Errors
    /// If there is none, or it is malformed.
    #[inline(always)]
    pub fn via_top(&self) -> Result<Via<'a>, HeaderError> {
        Ok(self.via_parts()?.view(self.bytes))
    }

    #[inline(always)]
    pub(crate) fn via_parts(&self) -> Result<&'a ViaParts, HeaderError> {
        remember(&self.index.via_top, || self.read_via())
    }

    #[inline(never)]
    fn read_via(&self) -> Result<ViaParts, HeaderError> {
        let value = self.value_bytes(HeaderName::Via, Once::No)?;
        via::read(value.bytes, value.at).map(|(parts, _)| parts).ok_or(malformed(HeaderName::Via))
    }

    /// Whether the topmost Via shares its line with others; a comment behind it (RFC 2543 §6.40) is none.
    pub(crate) fn is_top_via_joined(&self) -> bool {
        let end = self.index.first_line(HeaderName::Via).map(|line| line.value_end);
        if self.via_parts().is_ok_and(|top| Some(top.value.end) == end) {
            return false;
        }
        let Ok(value) = self.value_bytes(HeaderName::Via, Once::No) else { return false };
        via::read(value.bytes, value.at).is_some_and(|(_, next)| next < value.bytes.len())
    }

    /// The Via value below the topmost (RFC 3261 §16.7 item 3); `None` if there is no other, or if one of the two is
    /// malformed.
    pub fn via_below(&self) -> Option<Via<'a>> {
        let top = self.via_parts().ok()?;
        let first = self.index.first_line(HeaderName::Via)?;
        if top.value.end != first.value_end {
            return self.vias().nth(1)?.ok();
        }
        let value = self.headers(HeaderName::Via).nth(1)?;
        let start = value.value_start as usize;
        let bytes = slice(self.bytes, 0, start + value.value.len());
        via::read(bytes, start).map(|(parts, _)| parts.view(bytes))
    }

    /// All Via values, joined or scattered, in order. It ends after the first malformed one.
    pub fn vias(&self) -> Vias<'a> {
        Vias::new(self)
    }

    /// From. Parsed once.
    ///
    /// # Errors
    /// If there is none, or more than one, or it is malformed.
    #[inline(always)]
    pub fn from(&self) -> Result<NameAddr<'a>, HeaderError> {
        Ok(self.address(HeaderName::From, &self.index.from)?.view(self.bytes))
    }

    /// To. Parsed once.
    ///
    /// # Errors
    /// If there is none, or more than one, or it is malformed.
    #[inline(always)]
    pub fn to(&self) -> Result<NameAddr<'a>, HeaderError> {
        Ok(self.address(HeaderName::To, &self.index.to)?.view(self.bytes))
    }

    /// The tag of From, if From is sound and has one.
    #[inline(always)]
    pub fn from_tag(&self) -> Option<&'a [u8]> {
        Some(self.address(HeaderName::From, &self.index.from).ok()?.tag?.of(self.bytes))
    }

    /// The tag of To, if To is sound and has one.
    #[inline(always)]
    pub fn to_tag(&self) -> Option<&'a [u8]> {
        Some(self.address(HeaderName::To, &self.index.to).ok()?.tag?.of(self.bytes))
    }

    #[inline(always)]
    fn address(
        &self,
        name: HeaderName,
        slot: &'a Slot<NameAddrParts>,
    ) -> Result<&'a NameAddrParts, HeaderError> {
        remember(slot, || self.read_address(name))
    }

    #[inline(never)]
    fn read_address(&self, name: HeaderName) -> Result<NameAddrParts, HeaderError> {
        let value = self.value_bytes(name, Once::Yes)?;
        match name_addr::read(value.bytes, value.at) {
            // A tag without a value would be no tag to us and maybe one to others.
            Some((NameAddrParts { tag: Some(tag), .. }, _)) if tag.start == tag.end => Err(malformed(name)),
            Some((parts, next)) if next == value.bytes.len() => Ok(parts),
            _ => Err(malformed(name)),
        }
    }

    /// Call-ID. Parsed once.
    ///
    /// # Errors
    /// If there is none, or more than one, or it is empty or has white space or controls inside.
    #[inline(always)]
    pub fn call_id(&self) -> Result<&'a [u8], HeaderError> {
        Ok(remember(&self.index.call_id, || self.read_call_id())?.of(self.bytes))
    }

    #[inline(never)]
    fn read_call_id(&self) -> Result<Span, HeaderError> {
        let value = self.value_bytes(HeaderName::CallId, Once::Yes)?;
        let text = value.text();
        // Without a way out of the loop, so that it becomes vector instructions.
        let sound = text.iter().fold(true, |sound, &b| sound & (b > b' ') & (b != 0x7f));
        if text.is_empty() || !sound {
            return Err(malformed(HeaderName::CallId));
        }
        Ok(Span::new(value.at, value.bytes.len()))
    }

    /// CSeq. Parsed once.
    ///
    /// # Errors
    /// If there is none, or more than one, or its number is no number below 2^31 (RFC 3261 §8.1.1.5), or its method is
    /// no token.
    #[inline]
    pub fn cseq(&self) -> Result<CSeq<'a>, HeaderError> {
        let parts = remember(&self.index.cseq, || self.read_cseq())?;
        let method_bytes = parts.method_span.of(self.bytes);
        Ok(CSeq { number: parts.number, method: parts.method, method_bytes })
    }

    #[inline(never)]
    fn read_cseq(&self) -> Result<CSeqParts, HeaderError> {
        let value = self.value_bytes(HeaderName::CSeq, Once::Yes)?;
        read_cseq(value.bytes, value.at)
    }

    /// Max-Forwards, `None` if there is none.
    ///
    /// # Errors
    /// If there is more than one, or it is no number from 0 to 255 (RFC 3261 §20.22).
    pub fn max_forwards(&self) -> Result<Option<u32>, HeaderError> {
        match self.number(HeaderName::MaxForwards)? {
            Some(Number::Fits(n)) if n <= MAX_FORWARDS_MAX => Ok(Some(n)),
            Some(_) => Err(HeaderError { name: HeaderName::MaxForwards, problem: Problem::OutOfRange }),
            None => Ok(None),
        }
    }

    /// Expires in seconds, `None` if there is none; saturates (RFC 4475 §3.1.2.4).
    ///
    /// # Errors
    /// If there is more than one, or it is no number.
    pub fn expires(&self) -> Result<Option<u32>, HeaderError> {
        Ok(self.number(HeaderName::Expires)?.map(|number| match number {
            Number::Fits(n) => n,
            _ => u32::MAX,
        }))
    }

    /// Content-Length in bytes, `None` if there is none. Parsed once.
    ///
    /// # Errors
    /// If there is more than one, or it is no number below 2^32.
    #[inline]
    pub fn content_length(&self) -> Result<Option<u32>, HeaderError> {
        remember(&self.index.content_length, || self.read_content_length()).copied()
    }

    #[inline(never)]
    fn read_content_length(&self) -> Result<Option<u32>, HeaderError> {
        match self.number(HeaderName::ContentLength)? {
            Some(Number::Fits(n)) => Ok(Some(n)),
            Some(_) => Err(HeaderError { name: HeaderName::ContentLength, problem: Problem::OutOfRange }),
            None => Ok(None),
        }
    }

    /// A singleton of digits; `NotDigits` is turned into an error.
    fn number(&self, name: HeaderName) -> Result<Option<Number>, HeaderError> {
        match self.value_bytes(name, Once::Yes) {
            Ok(value) => match token::number(value.text()) {
                Number::NotDigits => Err(malformed(name)),
                number => Ok(Some(number)),
            },
            Err(HeaderError { problem: Problem::Missing, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The Contact values.
    pub fn contacts(&self) -> Contacts<'a> {
        Contacts::new(self)
    }

    /// The Route values, in order. It ends after the first malformed one.
    pub fn routes(&self) -> NameAddrs<'a> {
        NameAddrs::new(self, HeaderName::Route)
    }

    /// The Record-Route values, in order. It ends after the first malformed one.
    pub fn record_routes(&self) -> NameAddrs<'a> {
        NameAddrs::new(self, HeaderName::RecordRoute)
    }

    /// The Path values (RFC 3327), in order. It ends after the first malformed one.
    pub fn paths(&self) -> NameAddrs<'a> {
        NameAddrs::new(self, HeaderName::Path)
    }

    /// The values of any header made of `name-addr`s, in order. It ends after the first malformed one.
    pub fn addresses(&self, name: HeaderName) -> NameAddrs<'a> {
        NameAddrs::new(self, name)
    }

    /// The tokens of Require, Proxy-Require, Supported, Unsupported, Allow and their like; empty ones are left out.
    pub fn option_tags(&self, name: HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.headers(name).flat_map(|header| params::split_tokens(header.value))
    }

    /// The first line's value of `name`, as the message's bytes up to the value's end.
    #[inline]
    fn value_bytes(&self, name: HeaderName, once: Once) -> Result<Value<'a>, HeaderError> {
        let line = self.index.first_line(name).ok_or(HeaderError { name, problem: Problem::Missing })?;
        if once == Once::Yes && self.index.repeated & name.bit() != 0 {
            return Err(HeaderError { name, problem: Problem::Repeated });
        }
        let bytes = self.bytes.get(..line.value_end as usize).unwrap_or(&[]);
        Ok(Value { bytes, at: line.value_start as usize })
    }
}

/// Whether a header may occur on one line only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Once {
    Yes,
    No,
}

/// A header value: what stands in `bytes` from `at` to the end, so that positions are those of the message.
#[derive(Clone, Copy)]
struct Value<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Value<'a> {
    fn text(self) -> &'a [u8] {
        slice(self.bytes, self.at, self.bytes.len())
    }
}

#[inline(always)]
fn remember<T: Copy>(
    slot: &Slot<T>,
    parse: impl FnOnce() -> Result<T, HeaderError>,
) -> Result<&T, HeaderError> {
    let known = match slot.get() {
        Some(known) => known,
        None => {
            // Outside of `get_or_init`, which calls its closure as a cold path.
            let value = parse();
            slot.get_or_init(|| value)
        }
    };
    known.as_ref().map_err(|error| *error)
}

const fn malformed(name: HeaderName) -> HeaderError {
    HeaderError { name, problem: Problem::Malformed }
}

/// `1*DIGIT LWS Method` (RFC 3261 §25.1 `CSeq`).
#[inline]
fn read_cseq(bytes: &[u8], at: usize) -> Result<CSeqParts, HeaderError> {
    let mut digits_end = at;
    while matches!(bytes.get(digits_end), Some(b'0'..=b'9')) {
        digits_end += 1;
    }
    let number = match token::number(slice(bytes, at, digits_end)) {
        Number::Fits(n) if n <= CSEQ_MAX => n,
        Number::NotDigits => return Err(malformed(HeaderName::CSeq)),
        _ => return Err(HeaderError { name: HeaderName::CSeq, problem: Problem::OutOfRange }),
    };
    let method_at = token::skip_lws(bytes, digits_end);
    let method = slice(bytes, method_at, bytes.len());
    if method_at == digits_end || !token::is_token(method) {
        return Err(malformed(HeaderName::CSeq));
    }
    Ok(CSeqParts { number, method: Method::of(method), method_span: Span::new(method_at, bytes.len()) })
}

/// The header lines of a message, all or of one name.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    message: Message<'a>,
    name: Option<HeaderName>,
    at: usize,
}

impl<'a> Headers<'a> {
    /// No lines.
    pub(crate) fn none(message: Message<'a>) -> Headers<'a> {
        Headers { message, name: None, at: usize::MAX }
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    #[inline]
    fn next(&mut self) -> Option<Header<'a>> {
        loop {
            let line = self.message.index.lines.get(self.at)?;
            self.at += 1;
            match self.name {
                Some(name) if name != line.name => {}
                Some(name) => {
                    if self.message.index.repeated & name.bit() == 0 {
                        self.at = usize::MAX;
                    }
                    return Some(self.message.view(line));
                }
                None => return Some(self.message.view(line)),
            }
        }
    }
}

/// The header lines of a name given as text.
#[derive(Clone, Copy, Debug)]
pub struct HeadersNamed<'a, 'n> {
    headers: Headers<'a>,
    name: &'n [u8],
    known: HeaderName,
}

impl<'a> Iterator for HeadersNamed<'a, '_> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        let (known, name) = (self.known, self.name);
        self.headers.find(|h| known != HeaderName::Other || h.name_bytes.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests;
