//! How careless next hops might read the header section of a message: what a server takes out must be gone for
//! all of them.

/// What ends a line for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    /// CRLF alone (RFC 3261 §7).
    CrLf,
    /// Every LF; a CR before it is white space.
    Lf,
    /// Every CR and every LF.
    CrOrLf,
}

/// One way to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    /// What it is called in a failure.
    pub(super) name: &'static str,
    line_end: LineEnd,
    /// Whether a NUL ends what it reads of a line.
    stops_at_nul: bool,
    /// Whether any control character or white space may stand around a name.
    trims_controls: bool,
    /// Whether a line that begins with white space goes on with the one before it.
    unfolds: bool,
}

/// All of them.
pub(super) const READERS: [Reader; 6] = [
    Reader { name: "as RFC 3261 has it", ..STRICT },
    Reader { name: "LF ends a line", line_end: LineEnd::Lf, ..STRICT },
    Reader { name: "CR or LF ends a line", line_end: LineEnd::CrOrLf, ..STRICT },
    Reader { name: "NUL ends a line", stops_at_nul: true, ..STRICT },
    Reader { name: "control characters around names", trims_controls: true, line_end: LineEnd::Lf, ..STRICT },
    Reader { name: DOES_NOT_UNFOLD, unfolds: false, ..STRICT },
];

/// The reader that knows no folds (RFC 3261 §7.3.1): for it whatever stands in one is a header field of its own.
pub const DOES_NOT_UNFOLD: &str = "a fold is a line";

const STRICT: Reader =
    Reader { name: "", line_end: LineEnd::CrLf, stops_at_nul: false, trims_controls: false, unfolds: true };

/// The header fields that this reader sees: names in lower case, and values.
pub(super) fn header_fields(message: &[u8], reader: Reader) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines(message, reader.line_end).into_iter().skip(1) {
        let is_fold = reader.unfolds && line.first().is_some_and(|first| b" \t".contains(first));
        if let Some((_, value)) = fields.last_mut().filter(|_| is_fold) {
            value.push_str(&String::from_utf8_lossy(line));
            continue;
        }
        let line =
            if reader.stops_at_nul { line.split(|byte| *byte == 0).next().unwrap_or_default() } else { line };
        let text = String::from_utf8_lossy(line);
        let Some((name, value)) = text.split_once(':') else { continue };
        let name = if reader.trims_controls {
            name.trim_matches(|character: char| character.is_whitespace() || character.is_control())
        } else {
            name.trim_matches([' ', '\t'])
        };
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    fields
}

/// The lines up to the empty one.
fn lines(message: &[u8], end: LineEnd) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = message;
    loop {
        let at = match end {
            LineEnd::CrLf => rest.windows(2).position(|pair| pair == b"\r\n").map(|at| (at, at + 2)),
            LineEnd::Lf => rest.iter().position(|byte| *byte == b'\n').map(|at| (at, at + 1)),
            LineEnd::CrOrLf => rest.iter().position(|byte| b"\r\n".contains(byte)).map(|at| {
                let is_pair = rest[at..].starts_with(b"\r\n");
                (at, at + 1 + usize::from(is_pair))
            }),
        };
        let (line, next) = at.map_or((rest, rest.len()), |(line, next)| (&rest[..line], next));
        let line = if end == LineEnd::Lf { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        if line.is_empty() {
            return lines;
        }
        lines.push(line);
        rest = &rest[next..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_read_as_their_names_say() {
        let message =
            b"A b C\r\nX-One : 1\r\n more: of it\r\nX-Two: 2\nX-Three: 3\r\nX-Four: 4\rX-Five: 5\r\n\
            X-Six\0: 6\r\n\x01X-Seven: 7\r\n\r\nX-Body: 8\r\n";
        let names = |reader: &Reader| -> Vec<String> {
            header_fields(message, *reader).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&READERS[0]), ["x-one", "x-two", "x-four", "x-six\0", "\u{1}x-seven"]);
        assert!(names(&READERS[1]).contains(&"x-three".to_owned()));
        assert!(!names(&READERS[1]).contains(&"x-five".to_owned()));
        assert!(names(&READERS[2]).contains(&"x-five".to_owned()));
        assert!(names(&READERS[4]).contains(&"x-seven".to_owned()));
        assert!(names(&READERS[5]).contains(&"more".to_owned()));
        for reader in &READERS {
            assert!(!names(reader).contains(&"x-body".to_owned()), "{}", reader.name);
        }
    }
}
