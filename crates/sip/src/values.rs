//! Headers with many values: joined by commas on one line or scattered over many, one meaning (RFC 3261 §7.3.1).

use crate::message::{Headers, Message};
use crate::name_addr::{self, NameAddr};
use crate::via::{self, Via};
use crate::{HeaderError, HeaderName, Problem};

/// Walks over the values of a header: where the next value starts, and where its line's value ends.
#[derive(Clone, Copy, Debug)]
struct Walk<'a> {
    message: Message<'a>,
    headers: Headers<'a>,
    /// Start of the next value and end of the line's value.
    current: Option<(usize, usize)>,
    name: HeaderName,
}

impl<'a> Walk<'a> {
    fn new(message: &Message<'a>, name: HeaderName) -> Walk<'a> {
        Walk { message: *message, headers: message.headers(name), current: None, name }
    }

    /// Reads the next value; `read` gives it and the comma behind it. The first failure ends the walk.
    #[inline]
    fn next<T>(
        &mut self,
        read: impl FnOnce(&'a [u8], usize) -> Option<(T, usize)>,
    ) -> Option<Result<T, HeaderError>> {
        let (at, end) = match self.current.take() {
            Some(current) => current,
            None => {
                let header = self.headers.next()?;
                let start = header.value_start as usize;
                (start, start + header.value.len())
            }
        };
        let bytes = self.message.bytes.get(..end).unwrap_or(&[]);
        match read(bytes, at) {
            Some((value, next)) => {
                if next < end {
                    self.current = Some((next + 1, end));
                }
                Some(Ok(value))
            }
            None => {
                self.headers = Headers::none(self.message);
                Some(Err(HeaderError { name: self.name, problem: Problem::Malformed }))
            }
        }
    }
}

/// All Via values of a message.
#[derive(Clone, Copy, Debug)]
pub struct Vias<'a>(Walk<'a>);

impl<'a> Vias<'a> {
    pub(crate) fn new(message: &Message<'a>) -> Vias<'a> {
        Vias(Walk::new(message, HeaderName::Via))
    }
}

impl<'a> Iterator for Vias<'a> {
    type Item = Result<Via<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(|bytes, at| via::read(bytes, at).map(|(parts, next)| (parts.view(bytes), next)))
    }
}

/// All values of a header made of `name-addr`s.
#[derive(Clone, Copy, Debug)]
pub struct NameAddrs<'a>(Walk<'a>);

impl<'a> NameAddrs<'a> {
    pub(crate) fn new(message: &Message<'a>, name: HeaderName) -> NameAddrs<'a> {
        NameAddrs(Walk::new(message, name))
    }
}

impl<'a> Iterator for NameAddrs<'a> {
    type Item = Result<NameAddr<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(|bytes, at| name_addr::read(bytes, at).map(|(parts, next)| (parts.view(bytes), next)))
    }
}

/// The Contact values of a message: `*`, or an iterator over addresses.
#[derive(Clone, Copy, Debug)]
pub struct Contacts<'a> {
    values: NameAddrs<'a>,
    star: bool,
}

impl<'a> Contacts<'a> {
    pub(crate) fn new(message: &Message<'a>) -> Contacts<'a> {
        let mut lines = message.headers(HeaderName::Contact);
        let star = lines.next().is_some_and(|header| header.value == b"*") && lines.next().is_none();
        Contacts { values: NameAddrs::new(message, HeaderName::Contact), star }
    }

    /// True for `Contact: *` and nothing else; iterating then gives nothing. A star among addresses is malformed
    /// (RFC 3261 §10.3 step 6).
    pub fn is_star(&self) -> bool {
        self.star
    }
}

impl<'a> Iterator for Contacts<'a> {
    type Item = Result<NameAddr<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.star { None } else { self.values.next() }
    }
}
