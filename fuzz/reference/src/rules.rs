//! What no grammar can say: numbers in range, names that are repeated, limits. Each with its reason.

/// Most parameters of one value: the server's limit (`sip::MAX_PARAMS`), which bounds its search for repeated
/// names.
const PARAMETERS_MAX: usize = 64;

/// A port is 1 to 65535: others cannot be sent to.
pub(super) fn is_port(digits: &[u8]) -> bool {
    number(digits).is_some_and(|n| (1..=65_535).contains(&n))
}

/// The value of `1*DIGIT`; very large ones are all the same. `None` if it is something else.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0u64, |n, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

/// A parameter that is there twice has two meanings, one for us and maybe another for the next hop (RFC 3261
/// §7.3.1 "MUST NOT appear more than once").
pub(super) fn are_sound(names: &[&[u8]], fold: impl Fn(&[u8]) -> Vec<u8>) -> bool {
    let mut folded: Vec<Vec<u8>> = names.iter().map(|name| fold(name)).collect();
    folded.sort();
    names.len() <= PARAMETERS_MAX && folded.windows(2).all(|pair| pair[0] != pair[1])
}

/// Names of header parameters are the same but for case.
pub(super) fn header_name(name: &[u8]) -> Vec<u8> {
    name.to_ascii_lowercase()
}

/// Names of URI parameters are the same but for case and escapes; an escaped reserved character is another
/// one than the character itself (RFC 3261 §19.1.4).
pub(super) fn uri_name(name: &[u8]) -> Vec<u8> {
    const RESERVED: &[u8] = b";/?:@&=+$,%";
    let mut folded = Vec::new();
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        let escape =
            tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match escape.filter(|_| first == b'%') {
            Some(byte) => {
                if RESERVED.contains(&byte) {
                    folded.push(b'%');
                }
                folded.push(byte.to_ascii_lowercase());
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                folded.push(first.to_ascii_lowercase());
                rest = tail;
            }
        }
    }
    folded
}
