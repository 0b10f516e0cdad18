//! What every element checks before it acts on a message (RFC 3261 §8.2, §16.3 item 1, §18.3).
//!
//! Strict where framing, routing or identity is decided: a doubt is refused, never guessed. Everything else passes.

use crate::error::{HeaderError, Problem};
use crate::index::Defect;
use crate::uri::{Uri, UriError};
use crate::{HeaderName, Message, Method};

/// The answer to a message that cannot be acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The status code: 400, 501 or 505.
    pub status: u16,
    /// The reason phrase; it says what is wrong.
    pub reason: &'static str,
}

impl Reject {
    const fn bad(reason: &'static str) -> Reject {
        Reject { status: 400, reason }
    }
}

/// Checks a request.
///
/// In this order: the version (505 before anything that a newer version may write otherwise), the framing, the
/// Request-URI, the mandatory headers (RFC 3261 §8.1.1; Max-Forwards and tags may be missing, for clients of RFC 2543
/// send none), CSeq's method, and Content-Length, which must not promise more than the datagram holds (§18.3).
///
/// # Errors
/// [`Reject`] with the status and reason phrase of the response to send. A response handed in by mistake is refused.
pub fn request(message: &Message<'_>) -> Result<(), Reject> {
    if !message.is_request() {
        return Err(Reject::bad("Not A Request"));
    }
    if !message.version_ok() {
        return Err(Reject { status: 505, reason: "Version Not Supported" });
    }
    framing(message)?;
    request_uri(message)?;
    identity(message)?;
    let cseq = message.cseq().map_err(reject)?;
    let same = match message.method() {
        Method::Other => cseq.method_bytes == message.method_bytes(),
        known => cseq.method == known,
    };
    if !same && message.method() == Method::Other {
        // What an unknown method may demand of CSeq is unknown too (RFC 4475 §3.1.2.18).
        return Err(Reject { status: 501, reason: "Not Implemented" });
    }
    if !same {
        // RFC 3261 §8.1.1.5.
        return Err(Reject::bad("CSeq Method Does Not Match"));
    }
    message.max_forwards().map_err(reject)?;
    content_length(message)
}

/// Checks a response. A bad one is dropped; the status is only for the counter.
///
/// # Errors
/// What is wrong with it.
pub fn response(message: &Message<'_>) -> Result<(), Reject> {
    if message.is_request() {
        return Err(Reject::bad("Not A Response"));
    }
    if !message.version_ok() {
        return Err(Reject { status: 505, reason: "Version Not Supported" });
    }
    framing(message)?;
    identity(message)?;
    message.cseq().map_err(reject)?;
    content_length(message)
}

fn framing(message: &Message<'_>) -> Result<(), Reject> {
    match message.index.defect {
        None => Ok(()),
        Some(Defect::RequestLine) => Err(Reject::bad("Bad Request Line")),
        Some(Defect::HeaderLine) => Err(Reject::bad("Bad Header Line")),
        Some(Defect::BareLineEnd) => Err(Reject::bad("Bare CR Or LF")),
        Some(Defect::NoEmptyLine) => Err(Reject::bad("Headers Not Ended")),
    }
}

/// A sip, sips or tel URI must be sound, and without header components (RFC 3261 §19.1.1, Table 1). Other schemes
/// are the router's to refuse (416).
fn request_uri(message: &Message<'_>) -> Result<(), Reject> {
    match message.parsed_request_uri() {
        Ok(Uri::Sip(uri)) if uri.headers.is_some() => Err(Reject::bad("Headers In Request-URI")),
        Ok(_) => Ok(()),
        Err(UriError::Host) => Err(Reject::bad("Bad Host In Request-URI")),
        Err(UriError::Port) => Err(Reject::bad("Bad Port In Request-URI")),
        Err(_) => Err(Reject::bad("Bad Request-URI")),
    }
}

/// Via, From, To, Call-ID: what a transaction and a dialog are known by.
fn identity(message: &Message<'_>) -> Result<(), Reject> {
    message.via_parts().map_err(reject)?;
    if message.is_top_via_joined() {
        // What is taken from a line must leave a line that the next hop can read.
        message.vias().try_for_each(|via| via.map(|_| ())).map_err(reject)?;
    }
    message.from().map_err(reject)?;
    message.to().map_err(reject)?;
    message.call_id().map_err(reject)?;
    Ok(())
}

fn content_length(message: &Message<'_>) -> Result<(), Reject> {
    match message.content_length().map_err(reject)? {
        Some(length) if length as usize > message.bytes_after_headers() => {
            Err(Reject::bad("Content-Length Too Large"))
        }
        _ => Ok(()),
    }
}

/// The answer to a header without a usable value.
pub fn reject(error: HeaderError) -> Reject {
    use HeaderName as N;
    Reject::bad(match (error.name, error.problem) {
        (N::Via, Problem::Missing) => "Missing Via",
        (N::From, Problem::Missing) => "Missing From",
        (N::To, Problem::Missing) => "Missing To",
        (N::CallId, Problem::Missing) => "Missing Call-ID",
        (N::CSeq, Problem::Missing) => "Missing CSeq",
        (_, Problem::Missing) => "Missing Header",
        (N::From, Problem::Repeated) => "Repeated From",
        (N::To, Problem::Repeated) => "Repeated To",
        (N::CallId, Problem::Repeated) => "Repeated Call-ID",
        (N::CSeq, Problem::Repeated) => "Repeated CSeq",
        (N::MaxForwards, Problem::Repeated) => "Repeated Max-Forwards",
        (N::ContentLength, Problem::Repeated) => "Repeated Content-Length",
        (_, Problem::Repeated) => "Repeated Header",
        (N::Via, _) => "Bad Via",
        (N::From, _) => "Bad From",
        (N::To, _) => "Bad To",
        (N::CallId, _) => "Bad Call-ID",
        (N::CSeq, _) => "Bad CSeq",
        (N::MaxForwards, _) => "Bad Max-Forwards",
        (N::ContentLength, _) => "Bad Content-Length",
        (N::Expires, _) => "Bad Expires",
        (N::Contact, _) => "Bad Contact",
        (N::Route, _) => "Bad Route",
        (N::RecordRoute, _) => "Bad Record-Route",
        (N::Path, _) => "Bad Path",
        _ => "Bad Header",
    })
}

#[cfg(test)]
mod tests;
