#![no_std]
#![forbid(unsafe_code)]
//! SIP messages (RFC 3261 §7, §18-§20, §25): lazy views over received bytes, URIs, edits, serialising.
//!
//! [`Message::parse`] finds lines; values are parsed when they are asked for and remembered in the [`Index`].
//! [`validate`] says whether a message may be acted on. A message is never modified: [`Edits`] are kept beside it and
//! applied once when it is written.

extern crate alloc;

mod clock;
pub mod derived;
pub mod digest;
mod edit;
mod error;
mod framing;
mod header_name;
pub mod host;
mod index;
mod message;
mod method;
mod name_addr;
mod params;
pub mod response;
mod span;
mod start_line;
pub mod stream;
mod token;
pub mod uri;
pub mod validate;
mod values;
mod via;

pub use clock::Instant;
pub use edit::{Edits, MAX_EDIT_BYTES, MAX_EDITS, Mark};
pub use error::{HeaderError, ParseError, ParseErrorKind, Problem};
pub use header_name::HeaderName;
pub use host::Host;
pub use index::{Index, MAX_HEADERS, MAX_MESSAGE_BYTES};
pub use message::{CSeq, Header, Headers, HeadersNamed, Message};
pub use method::Method;
pub use name_addr::{NameAddr, Q};
pub use params::{MAX_PARAMS, Params, is_token, unquote};
pub use response::{ResponseSpec, reason_phrase, write_response};
pub use token::push_number;
pub use uri::{SipUri, TelUri, Uri, UriError, canonical_aor};
pub use validate::Reject;
pub use values::{Contacts, NameAddrs, Vias};
pub use via::{Transport, Via};
