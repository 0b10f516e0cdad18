//! The reusable scratch of a parsed message: where its lines are, and what has been parsed of them already.

use crate::header_name::{HeaderName, NAMES};
use crate::name_addr::NameAddrParts;
use crate::span::Span;
use crate::uri::{UriError, UriParts};
use crate::via::ViaParts;
use crate::{HeaderError, Method};
use alloc::vec::Vec;
use core::cell::OnceCell;

/// Most header lines of a message; one with more is refused (a 64 kB datagram could hold 16,000).
pub const MAX_HEADERS: usize = 250;

/// Longest message, in bytes: well over a UDP datagram, well under what offsets of 32 bits can say.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// One header line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// First byte of the name.
    pub(crate) start: u32,
    /// First byte of the trimmed value.
    pub(crate) value_start: u32,
    /// Behind the trimmed value.
    pub(crate) value_end: u32,
    /// Behind the CRLF that ends the line, folds included.
    pub(crate) end: u32,
    pub(crate) name_len: u16,
    pub(crate) name: HeaderName,
}

/// What makes a message a doubt that the framing cannot settle. The message can still be answered with a 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// A request line that is not `Method SP Request-URI SP SIP-Version` (RFC 3261 §7.1).
    RequestLine,
    /// A line without a name or colon, or a fold before the first header.
    HeaderLine,
    /// CR or LF alone: one element's text is another's line end.
    BareLineEnd,
    /// No empty line ends the headers (RFC 3261 §7).
    NoEmptyLine,
}

/// A value that may have been parsed already.
pub(crate) type Slot<T> = OnceCell<Result<T, HeaderError>>;

/// CSeq with positions instead of references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CSeqParts {
    pub(crate) number: u32,
    pub(crate) method: Method,
    pub(crate) method_span: Span,
}

/// The first line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartLine {
    /// Index of its first byte: empty lines before it are skipped (RFC 3261 §7.5).
    pub(crate) start: u32,
    /// Behind its CRLF.
    pub(crate) end: u32,
    /// Zero in a request.
    pub(crate) status: u16,
    /// `None` in a response.
    pub(crate) method: Option<Method>,
    /// The method, empty in a response.
    pub(crate) method_span: Span,
    /// The Request-URI, or the reason phrase.
    pub(crate) text: Span,
    pub(crate) version_ok: bool,
}

/// Reusable scratch of [`Message::parse`](crate::Message::parse): the header table and the values parsed so far.
///
/// It allocates while its table grows to the largest message seen (at most [`MAX_HEADERS`] lines), then never.
#[derive(Debug)]
pub struct Index {
    pub(crate) start_line: StartLine,
    pub(crate) lines: Vec<Line>,
    /// Names that occur.
    pub(crate) present: u64,
    /// Names that occur on more than one line.
    pub(crate) repeated: u64,
    /// First line of each name in `present`; the rest is left over from other messages.
    pub(crate) first: [u16; NAMES],
    pub(crate) headers_end: u32,
    pub(crate) body_start: u32,
    pub(crate) defect: Option<Defect>,
    pub(crate) request_uri: OnceCell<Result<UriParts, UriError>>,
    pub(crate) via_top: Slot<ViaParts>,
    pub(crate) from: Slot<NameAddrParts>,
    pub(crate) to: Slot<NameAddrParts>,
    pub(crate) cseq: Slot<CSeqParts>,
    pub(crate) call_id: Slot<Span>,
    pub(crate) content_length: Slot<Option<u32>>,
}

impl Default for Index {
    fn default() -> Index {
        Index::new()
    }
}

impl Index {
    /// Empty scratch; allocates nothing yet.
    pub fn new() -> Index {
        Index {
            start_line: StartLine::default(),
            lines: Vec::new(),
            present: 0,
            repeated: 0,
            first: [0; NAMES],
            headers_end: 0,
            body_start: 0,
            defect: None,
            request_uri: OnceCell::new(),
            via_top: Slot::new(),
            from: Slot::new(),
            to: Slot::new(),
            cseq: Slot::new(),
            call_id: Slot::new(),
            content_length: Slot::new(),
        }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.present = 0;
        self.repeated = 0;
        self.defect = None;
        self.request_uri = OnceCell::new();
        self.via_top = Slot::new();
        self.from = Slot::new();
        self.to = Slot::new();
        self.cseq = Slot::new();
        self.call_id = Slot::new();
        self.content_length = Slot::new();
    }

    /// Notes the first defect; later ones change nothing.
    pub(crate) fn note(&mut self, defect: Defect) {
        self.defect.get_or_insert(defect);
    }

    #[inline]
    pub(crate) fn push(&mut self, line: Line) {
        let bit = line.name.bit();
        if self.present & bit == 0 {
            self.present |= bit;
            if let Some(first) = self.first.get_mut(line.name as usize) {
                *first = self.lines.len() as u16;
            }
        } else {
            self.repeated |= bit;
        }
        self.lines.push(line);
    }

    /// The first line of `name`.
    #[inline]
    pub(crate) fn first_line(&self, name: HeaderName) -> Option<&Line> {
        self.lines.get(self.first_at(name)?)
    }

    /// The number of the first line of `name`.
    #[inline]
    pub(crate) fn first_at(&self, name: HeaderName) -> Option<usize> {
        if self.present & name.bit() == 0 {
            return None;
        }
        self.first.get(name as usize).map(|&at| usize::from(at))
    }
}
