//! Who takes part: names and passwords of users, who is chosen next, and how long people take.
//!
//! Called for every message, so nothing here allocates or formats on the way.

use crate::spec::{Choice, Delay, Users};
use rand::Rng;
use rand_distr::{Distribution, Zipf};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Most users of a list (`--users-file`).
pub(crate) const LISTED_MAX: usize = 5_000_000;

/// Most bytes of a list.
pub(crate) const LIST_BYTES_MAX: u64 = 512 << 20;

/// Names and passwords by the number of the user.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Generated { name: Pattern, password: Pattern, first: u32 },
    Listed(List),
}

impl Names {
    /// The names of these users.
    pub(crate) fn new(users: &Users) -> Names {
        let source = if users.listed.is_empty() {
            let (name, password) = (Pattern::new(&users.name), Pattern::new(&users.password));
            Source::Generated { name, password, first: users.first }
        } else {
            Source::Listed(List::new(&users.listed))
        };
        Names { source }
    }

    /// Appends the user part of user `k`, counted from the first one.
    ///
    /// Past the last user there is nobody: generated numbers go on, and past a list the names are
    /// `nobody` and the number. Calls to users who do not exist use them.
    pub(crate) fn write_name(&self, k: u32, out: &mut Vec<u8>) {
        match &self.source {
            Source::Generated { name, first, .. } => name.write(u64::from(*first) + u64::from(k), out),
            Source::Listed(list) => match list.entry(k) {
                Some((name, _)) => out.extend_from_slice(name),
                None => {
                    out.extend_from_slice(b"nobody");
                    push_decimal(u64::from(k), out);
                }
            },
        }
    }

    /// Appends the password of user `k`; nothing for a user past the end of a list.
    pub(crate) fn password(&self, k: u32, out: &mut Vec<u8>) {
        match &self.source {
            Source::Generated { password, first, .. } => {
                password.write(u64::from(*first) + u64::from(k), out);
            }
            Source::Listed(list) => {
                out.extend_from_slice(list.entry(k).map_or(&[], |(_, password)| password));
            }
        }
    }
}

/// A text with places for a number: `user{}`.
#[derive(Clone, Debug)]
struct Pattern {
    /// What stands before, between and after the places; never empty.
    pieces: Vec<Vec<u8>>,
}

impl Pattern {
    fn new(text: &str) -> Pattern {
        Pattern { pieces: text.split("{}").map(|piece| piece.as_bytes().to_vec()).collect() }
    }

    fn write(&self, number: u64, out: &mut Vec<u8>) {
        for (place, piece) in self.pieces.iter().enumerate() {
            if place > 0 {
                push_decimal(number, out);
            }
            out.extend_from_slice(piece);
        }
    }
}

/// Listed names and passwords, one after the other in one piece of memory: every worker has its own copy, and a million
/// pairs of strings would cost four times the room.
#[derive(Clone, Debug)]
struct List {
    text: Vec<u8>,
    /// Where each name and each password ends, in turn.
    ends: Vec<usize>,
}

impl List {
    fn new(listed: &[(String, String)]) -> List {
        let mut list = List { text: Vec::new(), ends: Vec::with_capacity(2 * listed.len()) };
        for part in listed.iter().flat_map(|(name, password)| [name, password]) {
            list.text.extend_from_slice(part.as_bytes());
            list.ends.push(list.text.len());
        }
        list
    }

    fn entry(&self, k: u32) -> Option<(&[u8], &[u8])> {
        let place = 2 * usize::try_from(k).ok()?;
        let start = if place == 0 { 0 } else { *self.ends.get(place - 1)? };
        let (middle, end) = (*self.ends.get(place)?, *self.ends.get(place + 1)?);
        Some((self.text.get(start..middle)?, self.text.get(middle..end)?))
    }
}

/// Appends a number in decimal.
fn push_decimal(number: u64, out: &mut Vec<u8>) {
    if let Ok(small) = u32::try_from(number) {
        return sip::push_number(out, small);
    }
    push_decimal(number / 10, out);
    out.push(b'0' + (number % 10) as u8);
}

/// Chooses users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chooser {
    count: u32,
    zipf: Option<Zipf<f64>>,
}

impl Chooser {
    /// Chooses among `count` users. A Zipf exponent that is negative or no number means uniform; the command line
    /// refuses both.
    pub(crate) fn new(choice: Choice, count: u32) -> Chooser {
        let zipf = match choice {
            // Close to 1 the sampler's closed form divides nearly zero by nearly zero; at 1 itself it has another one.
            Choice::Zipf(s) if (s - 1.0).abs() < 1e-9 => Zipf::new(f64::from(count), 1.0).ok(),
            Choice::Zipf(s) if s.is_finite() => Zipf::new(f64::from(count), s).ok(),
            Choice::Zipf(_) | Choice::Uniform => None,
        };
        Chooser { count, zipf }
    }

    /// The next one, from 0 to `count - 1`; with Zipf 0 comes most often. 0 if there are none to choose from.
    pub(crate) fn choose(&self, rng: &mut impl Rng) -> u32 {
        match &self.zipf {
            // Samples are whole numbers from 1 to count, exactly in proportion to 1/k^s (rejection sampling); rounding
            // of the uppermost sample may pass the end by one.
            Some(zipf) => (zipf.sample(rng) as u32).clamp(1, self.count) - 1,
            None if self.count == 0 => 0,
            None => rng.random_range(0..self.count),
        }
    }
}

/// Draws how long something takes.
pub(crate) fn draw(delay: &Delay, rng: &mut impl Rng) -> Duration {
    match *delay {
        Delay::None => Duration::ZERO,
        Delay::Constant(duration) => duration,
        Delay::Exponential { mean, max } => {
            // Inversion of the cut distribution: the same as drawing again above `max`, without the loop, which would
            // be long where `max` is much less than the mean.
            let (mean_s, max_s) = (mean.as_secs_f64(), max.as_secs_f64());
            if mean_s == 0.0 {
                return Duration::ZERO;
            }
            let below_max = -(-max_s / mean_s).exp_m1();
            let uniform: f64 = rng.random();
            let seconds = -mean_s * (-uniform * below_max).ln_1p();
            Duration::try_from_secs_f64(seconds).unwrap_or(max).min(max)
        }
    }
}

/// Reads a list of users: CSV, `name,password` on each line, with or without a line of titles.
///
/// # Errors
/// A sentence that names the line: the file cannot be read, has no user or too many ([`LISTED_MAX`],
/// [`LIST_BYTES_MAX`]), a line has other than two fields, a name cannot stand in a SIP URI or stands twice.
pub(crate) fn read_list(path: &Path) -> Result<Vec<(String, String)>, String> {
    let shown = path.display();
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LIST_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    if text.len() as u64 > LIST_BYTES_MAX {
        return Err(format!("{shown} is longer than {LIST_BYTES_MAX} bytes; use a shorter list"));
    }
    read_csv(&text).map_err(|problem| format!("{shown}: {problem}"))
}

fn read_csv(text: &[u8]) -> Result<Vec<(String, String)>, String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
    let mut record = csv::ByteRecord::new();
    let mut listed = Vec::new();
    let mut places = HashMap::new();
    while reader.read_byte_record(&mut record).map_err(|error| error.to_string())? {
        let place = record.position().map_or(0, csv::Position::byte);
        if place == 0 && is_title(&record) {
            continue;
        }
        let told = |problem: String| format!("line {}: {problem}", line_of(text, place));
        let (name, password) = entry(&record).map_err(told)?;
        if listed.len() == LISTED_MAX {
            return Err(told(format!("more than {LISTED_MAX} users; use a shorter list")));
        }
        if let Some(earlier) = places.insert(name.clone(), place) {
            let earlier = line_of(text, earlier);
            return Err(told(format!("user {name:?} stands on line {earlier} already; remove one of them")));
        }
        listed.push((name, password));
    }
    if listed.is_empty() {
        return Err("no users in it; write one `name,password` on each line".into());
    }
    Ok(listed)
}

/// The line on which the first record at or after a byte begins. (The reader's own count leaves out empty lines.)
fn line_of(text: &[u8], place: u64) -> usize {
    let place = usize::try_from(place).unwrap_or(usize::MAX).min(text.len());
    let (before, rest) = text.split_at(place);
    let empty = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    1 + before.iter().chain(empty).filter(|&&byte| byte == b'\n').count()
}

fn is_title(record: &csv::ByteRecord) -> bool {
    let field = |place| without_mark(record.get(place).unwrap_or_default()).trim_ascii();
    let name =
        [b"name".as_slice(), b"user", b"username"].iter().any(|title| field(0).eq_ignore_ascii_case(title));
    name && field(1).eq_ignore_ascii_case(b"password")
}

fn entry(record: &csv::ByteRecord) -> Result<(String, String), String> {
    let (Some(name), Some(password), 2) = (record.get(0), record.get(1), record.len()) else {
        return Err(format!("{} fields instead of `name,password`", record.len()));
    };
    let name = String::from_utf8_lossy(without_mark(name).trim_ascii());
    if !is_user_part(name.as_bytes()) {
        return Err(format!(
            "{name:?} cannot be the user part of a SIP URI; escape special characters as %XX"
        ));
    }
    let password =
        std::str::from_utf8(password).map_err(|_| "the password is not UTF-8; save the file as UTF-8")?;
    Ok((name.into(), password.into()))
}

/// Without the byte order mark that some programs begin a file with.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)
}

/// Whether a text can stand before the `@` of a SIP URI as it is (RFC 3261 §25.1 `user`).
pub(crate) fn is_user_part(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => after,
            _ if byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/".contains(&byte) => after,
            _ => return false,
        };
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn users(name: &str, listed: &[(&str, &str)]) -> Users {
        Users {
            count: 100,
            first: 7,
            name: name.into(),
            password: "pass{}word".into(),
            listed: listed.iter().map(|&(name, password)| (name.into(), password.into())).collect(),
            choice: Choice::Uniform,
        }
    }

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn generated_names_carry_the_number() {
        let names = Names::new(&users("user{}", &[]));
        assert_eq!(written(|out| names.write_name(0, out)), "user7");
        assert_eq!(written(|out| names.password(93, out)), "pass100word");
        assert_eq!(written(|out| names.write_name(u32::MAX, out)), "user4294967302");
        let odd = Names::new(&users("{}-{}", &[]));
        assert_eq!(written(|out| odd.write_name(1, out)), "8-8");
        let fixed = Names::new(&users("alone", &[]));
        assert_eq!(written(|out| fixed.write_name(1, out)), "alone");
    }

    #[test]
    fn listed_names_are_taken_in_order_and_nobody_follows() {
        let names = Names::new(&users("user{}", &[("alice", "a b"), ("bob", "")]));
        assert_eq!(written(|out| names.write_name(0, out)), "alice");
        assert_eq!(written(|out| names.password(0, out)), "a b");
        assert_eq!(written(|out| names.write_name(1, out)), "bob");
        assert_eq!(written(|out| names.password(1, out)), "");
        assert_eq!(written(|out| names.write_name(2, out)), "nobody2");
        assert_eq!(written(|out| names.password(u32::MAX, out)), "");
    }

    fn counts(choice: Choice, count: u32, draws: u32) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        let chooser = Chooser::new(choice, count);
        let mut counts = vec![0.0; count as usize];
        for _ in 0..draws {
            counts[chooser.choose(&mut random) as usize] += 1.0;
        }
        counts
    }

    /// Pearson's statistic against probabilities in proportion to `weight` of the rank, from 1.
    fn chi_square(counts: &[f64], weight: impl Fn(f64) -> f64) -> f64 {
        let weights: Vec<f64> = (1..=counts.len()).map(|rank| weight(rank as f64)).collect();
        let (drawn, whole): (f64, f64) = (counts.iter().sum(), weights.iter().sum());
        counts
            .iter()
            .zip(&weights)
            .map(|(seen, weight)| (seen - drawn * weight / whole).powi(2) * whole / weight / drawn)
            .sum()
    }

    #[test]
    fn choices_have_their_exact_probabilities() {
        // 1 % critical value of chi-square with 19 degrees of freedom.
        let critical = 36.19;
        assert!(chi_square(&counts(Choice::Uniform, 20, 200_000), |_| 1.0) < critical);
        for s in [0.0, 0.5, 1.0, 1.0 + 1e-12, 1.2, 2.0] {
            let statistic = chi_square(&counts(Choice::Zipf(s), 20, 200_000), |rank| rank.powf(-s));
            assert!(statistic < critical, "s = {s}: {statistic}");
        }
        assert!(chi_square(&counts(Choice::Zipf(1.1), 20, 200_000), |rank| 1.0 / rank) > critical);
    }

    #[test]
    fn choosers_stay_in_range_whatever_they_are_given() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(12);
        for s in [0.0, 0.3, 1.0, 3.0, 1e300, f64::MAX, f64::NAN, f64::INFINITY, -1.0] {
            for count in [0, 1, 2, 1_000_000, u32::MAX] {
                let chooser = Chooser::new(Choice::Zipf(s), count);
                assert!(
                    (0..1000).all(|_| chooser.choose(&mut random) < count.max(1)),
                    "s = {s}, {count} users"
                );
            }
        }
        assert_eq!(Chooser::new(Choice::Uniform, 0).choose(&mut random), 0);
    }

    #[test]
    fn exponential_delays_are_cut_and_keep_the_distribution_below_the_cut() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(13);
        let (mean, max) = (Duration::from_millis(8500), Duration::from_secs(38));
        let delay = Delay::Exponential { mean, max };
        let drawn: Vec<f64> = (0..100_000).map(|_| draw(&delay, &mut random).as_secs_f64()).collect();
        assert!(drawn.iter().all(|&seconds| seconds <= 38.0));
        // The mean of an exponential cut at m: mean - m·e^(-m/mean) / (1 - e^(-m/mean)); its deviation is below `mean`.
        let tail = (-38.0_f64 / 8.5).exp();
        let expected = 8.5 - 38.0 * tail / (1.0 - tail);
        let seen = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!(
            (seen - expected).abs() < 3.0 * 8.5 / (drawn.len() as f64).sqrt(),
            "{seen} instead of {expected}"
        );
    }

    #[test]
    fn delays_at_the_edges_end() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(14);
        let second = Duration::from_secs(1);
        assert_eq!(draw(&Delay::None, &mut random), Duration::ZERO);
        assert_eq!(draw(&Delay::Constant(second), &mut random), second);
        let exponential = |mean, max| Delay::Exponential { mean, max };
        assert_eq!(draw(&exponential(Duration::ZERO, second), &mut random), Duration::ZERO);
        assert_eq!(draw(&exponential(second, Duration::ZERO), &mut random), Duration::ZERO);
        assert!(draw(&exponential(Duration::MAX, second), &mut random) <= second);
        assert!(draw(&exponential(second, Duration::MAX), &mut random) < 100 * second);
    }

    #[test]
    fn lists_are_read_with_and_without_titles() {
        let expected = vec![("alice".to_string(), "s,e\"c".to_string()), ("bob".to_string(), String::new())];
        for text in [
            "alice,\"s,e\"\"c\"\nbob,\n",
            "name,password\r\nalice,\"s,e\"\"c\"\r\n\r\nbob,",
            "\u{feff}Username,Password\n alice ,\"s,e\"\"c\"\nbob,\n",
        ] {
            assert_eq!(read_csv(text.as_bytes()), Ok(expected.clone()), "{text:?}");
        }
    }

    #[test]
    fn faults_of_lists_are_told_with_the_line() {
        for (text, told) in [
            ("alice,a\nbob\n", "line 2: 1 fields"),
            ("alice,a,b\n", "line 1: 3 fields"),
            ("name,password\nalice,a\n\nal ice,b\n", "line 4: \"al ice\" cannot"),
            ("name,password\r\n\r\nalice,a\r\n\r\nal ice,b\r\n", "line 5: \"al ice\" cannot"),
            ("\n\nalice,a\nbob,b\nalice,c", "line 5: user \"alice\" stands on line 3"),
            ("alice,\"a\nb\"\nbob\n", "line 3: 1 fields"),
            ("a@b,c\n", "line 1: \"a@b\" cannot"),
            ("\"a\r\nTo: x\",c\n", "line 1"),
            (",c\n", "line 1: \"\" cannot"),
            ("name,password\n", "no users"),
            ("", "no users"),
        ] {
            let problem = read_csv(text.as_bytes()).expect_err(text);
            assert!(problem.contains(told), "{text:?}: {problem}");
        }
        for text in [&b"alice,a\nb\xff,c\n"[..], b"alice,a\nbob,\xff\n"] {
            assert!(read_csv(text).expect_err("no UTF-8").starts_with("line 2: "));
        }
        assert!(read_list(Path::new("/nonexistent/users.csv")).expect_err("no file").contains("cannot read"));
    }

    #[test]
    fn user_parts_are_what_the_grammar_says() {
        for good in ["alice", "+49", "a%20b", "a;day=tuesday", "1-_.!~*'()&=+$,;?/"] {
            assert!(is_user_part(good.as_bytes()), "{good}");
        }
        for bad in ["", "a b", "a@b", "a:b", "a%2", "a%zz", "a\r\nb", "\"a\"", "ä", "<a>"] {
            assert!(!is_user_part(bad.as_bytes()), "{bad}");
        }
    }
}
