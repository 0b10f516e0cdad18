//! Rows in the binary format of `COPY … TO STDOUT`, which is half the work of a query for both sides.

use crate::fault::Fault;
use crate::remote::Fields;

/// What the stream begins with, before the flags and the length of an extension.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// Cuts a stream into rows.
#[derive(Default)]
pub(super) struct Reader {
    /// What is not yet a whole row.
    rest: Vec<u8>,
    is_past_header: bool,
    is_done: bool,
}

impl Reader {
    /// Takes the next piece of the stream; `row` is called for each row that is whole, and returns false to
    /// stop.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        row: &mut dyn FnMut(&Fields<'_>) -> bool,
    ) -> Result<bool, Fault> {
        // Mostly a piece is a row: it is read where it lies.
        let joined;
        let bytes = if self.rest.is_empty() {
            piece
        } else {
            self.rest.extend_from_slice(piece);
            joined = std::mem::take(&mut self.rest);
            &joined
        };
        let mut at = 0;
        if !self.is_past_header {
            match header(bytes)? {
                Some(end) => at = end,
                None => {
                    self.rest = bytes.to_vec();
                    return Ok(true);
                }
            }
            self.is_past_header = true;
        }
        while !self.is_done && at < bytes.len() {
            let mut fields = Fields::default();
            match tuple(&bytes[at..], &mut fields)? {
                Parsed::Row(len) => {
                    at += len;
                    if !row(&fields) {
                        return Ok(false);
                    }
                }
                Parsed::End => self.is_done = true,
                Parsed::Short => {
                    self.rest = bytes[at..].to_vec();
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }
}

enum Parsed {
    Row(usize),
    Short,
    End,
}

fn broken() -> Fault {
    Fault::lost("PostgreSQL sent rows in a format that is not understood".to_string())
}

fn int32(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Where the first row begins; `None` if it has not come yet.
fn header(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let fixed = SIGNATURE.len() + 8;
    let Some(extension) = int32(bytes, SIGNATURE.len() + 4) else { return Ok(None) };
    if !bytes.starts_with(SIGNATURE) {
        return Err(broken());
    }
    let end = fixed + usize::try_from(extension).map_err(|_| broken())?;
    Ok((bytes.len() >= end).then_some(end))
}

fn tuple<'a>(bytes: &'a [u8], fields: &mut Fields<'a>) -> Result<Parsed, Fault> {
    let Some(count) = bytes.get(..2) else { return Ok(Parsed::Short) };
    let count = i16::from_be_bytes([count[0], count[1]]);
    if count == -1 {
        return Ok(Parsed::End);
    }
    let count = usize::try_from(count).ok().filter(|count| *count <= fields.len()).ok_or_else(broken)?;
    let mut at = 2;
    for field in &mut fields[..count] {
        let Some(len) = int32(bytes, at) else { return Ok(Parsed::Short) };
        at += 4;
        if len == -1 {
            continue;
        }
        let end = at + usize::try_from(len).map_err(|_| broken())?;
        let Some(value) = bytes.get(at..end) else { return Ok(Parsed::Short) };
        *field = Some(value);
        at = end;
    }
    Ok(Parsed::Row(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0; 8]);
        for row in [[Some("ab"), None], [Some(""), Some("xyz")]] {
            bytes.extend(2i16.to_be_bytes());
            for field in row {
                bytes.extend(field.map_or(-1, |field| field.len() as i32).to_be_bytes());
                bytes.extend(field.unwrap_or_default().as_bytes());
            }
        }
        bytes.extend((-1i16).to_be_bytes());
        bytes
    }

    type Pair = [Option<Vec<u8>>; 2];

    fn read(pieces: &mut dyn Iterator<Item = &[u8]>) -> Vec<Pair> {
        let mut reader = Reader::default();
        let mut rows = Vec::new();
        for piece in pieces {
            let mut row = |fields: &Fields<'_>| {
                rows.push([fields[0].map(Vec::from), fields[1].map(Vec::from)]);
                true
            };
            assert!(reader.feed(piece, &mut row).unwrap());
        }
        rows
    }

    #[test]
    fn any_pieces_give_the_same_rows() {
        let bytes = stream();
        let whole = read(&mut std::iter::once(&bytes[..]));
        assert_eq!(whole, [[Some(b"ab".to_vec()), None], [Some(vec![]), Some(b"xyz".to_vec())]]);
        for size in 1..bytes.len() {
            assert_eq!(read(&mut bytes.chunks(size)), whole, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_such_stream_is_an_error() {
        for bad in [&[0x41; 40][..], &[&stream()[..19], &[0, 99]].concat()] {
            assert!(Reader::default().feed(bad, &mut |_| true).is_err());
        }
        let mut negative = stream()[..19].to_vec();
        negative.extend([0, 1, 0xff, 0xff, 0xff, 0xf0]);
        assert!(Reader::default().feed(&negative, &mut |_| true).is_err());
    }
}
