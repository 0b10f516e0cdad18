//! Kamailio's `tls.cfg`: profiles in sections.
//!
//! ```text
//! [server:default]                  # or ; before a comment
//! certificate = example.com.pem
//! private_key = "example.com-key.pem"
//!
//! [client:192.0.2.1:5061]
//! verify_certificate = yes
//! ```
//!
//! A section is for connections that others open (`server`) or that this server opens (`client`): to or from an address,
//! for `any` address with a `server_name`, or for all that no other is for (`default`). What a section does not say it
//! has from the `default` of its side.

use super::draft::{Draft, KEYS, Side};
use super::{TlsProfiles, Written, client_default, finding};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use route::{Diagnostic, Severity, Span};

/// Sections of one file; a further one is an error.
const SECTIONS_MAX: usize = 1_024;
/// Findings that are told; of more than these the errors.
const FINDINGS_MAX: usize = 100;

/// What a section is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// What no other is for.
    Default,
    /// Every address, with a name.
    Any,
    /// This address.
    Address(SocketAddr),
}

struct Section {
    side: Side,
    place: Place,
    head: Span,
    draft: Draft,
    /// Whether every line of it could be read.
    sound: bool,
}

impl TlsProfiles {
    /// Reads the text of a `tls.cfg`; `file` is its index in the [`route::Sources`] that the findings are shown with.
    ///
    /// If one of the findings is an error, the profiles are not to be used.
    #[must_use]
    pub fn read(text: &str, file: u16) -> (TlsProfiles, Vec<Diagnostic>) {
        let mut reader = Reader { text, file, sections: Vec::new(), found: Vec::new() };
        reader.lines();
        let profiles = reader.profiles();
        let mut found = reader.found;
        found.sort_by_key(|finding| finding.span().map_or(u32::MAX, |span| span.start));
        if found.len() > FINDINGS_MAX {
            // Errors first: they are what keeps the file from being used.
            found.sort_by_key(|finding| !finding.is_error());
            found.truncate(FINDINGS_MAX);
        }
        (profiles, found)
    }
}

struct Reader<'t> {
    text: &'t str,
    file: u16,
    sections: Vec<Section>,
    found: Vec<Diagnostic>,
}

impl<'t> Reader<'t> {
    fn error(&mut self, part: &'t str, code: &'static str, message: String, help: &str) {
        let span = self.span(part);
        self.found.push(finding(Severity::Error, span, code, message, help));
    }

    /// Where a part of the text stands.
    fn span(&self, part: &str) -> Span {
        let start = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let at = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Span { file: self.file, start: at(start), end: at(start.saturating_add(part.len())) }
    }

    fn lines(&mut self) {
        let text = self.text.strip_prefix('\u{feff}').unwrap_or(self.text);
        // A head that cannot be read hides what its lines are for; they are checked all the same.
        let mut lost = Draft::default();
        let mut inside = false;
        let mut readable = true;
        for line in text.lines() {
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            if line.starts_with('[') {
                if self.sections.len() >= SECTIONS_MAX {
                    let message = format!("more than {SECTIONS_MAX} sections");
                    return self.error(line, "too-long", message, "join sections that say the same");
                }
                readable = self.head(line);
                inside = true;
                lost = Draft::default();
                continue;
            }
            if !inside {
                self.error(
                    line,
                    "no-section",
                    "this stands before the first section".to_owned(),
                    "write [server:default] above it",
                );
                inside = true;
                readable = false;
            }
            let told = self.found.len();
            self.entry(line, if readable { None } else { Some(&mut lost) });
            let wrong = self.found.iter().skip(told).any(Diagnostic::is_error);
            if let Some(section) = self.sections.last_mut().filter(|_| wrong && readable) {
                section.sound = false;
            }
        }
    }

    /// `[side:place]`; whether it can be read.
    fn head(&mut self, line: &'t str) -> bool {
        const FORMS: &str =
            "[server:default], [server:any], [server:IP:PORT], [client:default] or [client:IP:PORT]";
        let inner = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        let Some((side, place)) = inner.and_then(|inner| inner.split_once(':')) else {
            self.error(line, "bad-section", "this is no head of a section".to_owned(), FORMS);
            return false;
        };
        let (side_text, place_text) = (side.trim(), place.trim());
        let side = match side_text.to_ascii_lowercase().as_str() {
            "server" => Side::Server,
            "client" => Side::Client,
            other => {
                let help = route::nearest(other, ["server", "client"]).map_or(FORMS.to_owned(), did_you_mean);
                self.error(side_text, "bad-section", format!("there are no profiles for `{other}`"), &help);
                return false;
            }
        };
        match place_of(place_text) {
            Ok(Place::Any) if side == Side::Client => {
                let help = "write [client:IP:PORT] with the next hop's address, or [client:default]";
                self.error(
                    place_text,
                    "bad-section",
                    "a client profile is chosen by the next hop's address".to_owned(),
                    help,
                );
                false
            }
            Ok(place) => {
                let head = self.span(line);
                self.sections.push(Section { side, place, head, draft: Draft::default(), sound: true });
                true
            }
            Err((message, help)) => {
                self.error(place_text, "bad-section", message, help);
                false
            }
        }
    }

    /// `key = value`, of the last section or of one that cannot be read.
    fn entry(&mut self, line: &'t str, lost: Option<&mut Draft>) {
        let Some((key, value)) = line.split_once('=') else {
            return self.error(line, "syntax", "`key = value` is expected".to_owned(), "certificate = FILE");
        };
        let (key, value) = (key.trim(), value.trim());
        let known = KEYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        let Some((name, kind)) = known else {
            let near = route::nearest(key, KEYS.iter().map(|(name, _)| *name));
            let help =
                near.map_or_else(|| "the guide to TLS lists what a section can say".to_owned(), did_you_mean);
            return self.error(key, "unknown-key", format!("a section does not say `{key}`"), &help);
        };
        let text = match unquoted(value) {
            Ok(text) => text,
            Err((message, help)) => {
                let place = if value.is_empty() { key } else { value };
                return self.error(place, "syntax", message.to_owned(), help);
            }
        };
        let value = Written { text, span: self.span(value) };
        let draft = match lost {
            Some(draft) => draft,
            None => match self.sections.last_mut() {
                Some(section) => &mut section.draft,
                None => return,
            },
        };
        draft.set(*kind, name, value, &mut self.found);
    }

    /// The profiles that the sections make.
    fn profiles(&mut self) -> TlsProfiles {
        self.check_places();
        let default = |side: Side| {
            let mine = |section: &&Section| section.side == side && section.place == Place::Default;
            self.sections.iter().find(mine).map(|section| section.draft.clone()).unwrap_or_default()
        };
        let (servers, clients) = (default(Side::Server), default(Side::Client));
        // What is missing where a line is wrong was perhaps meant by that line; the wrong line is told already.
        let unsound = |side: Side| {
            self.sections
                .iter()
                .any(|section| section.side == side && section.place == Place::Default && !section.sound)
        };
        let doubtful = [(Side::Server, unsound(Side::Server)), (Side::Client, unsound(Side::Client))];
        let mut aside = Vec::new();
        let mut profiles = TlsProfiles::default();
        for section in &mut self.sections {
            let address = match section.place {
                Place::Default | Place::Any => None,
                Place::Address(address) => Some(address),
            };
            let (inherited, list) = match section.side {
                Side::Server => (&servers, &mut profiles.servers),
                Side::Client => (&clients, &mut profiles.clients),
            };
            section.draft.inherit(inherited);
            let sound = section.sound && !doubtful.contains(&(section.side, true));
            if section.side == Side::Server && sound && !section.draft.has_certificate() {
                let help =
                    "certificate = FILE, private_key = FILE; `strowger cert --help` says how to make them";
                let message = "this profile has no certificate".to_owned();
                self.found.push(finding(Severity::Error, section.head, "no-certificate", message, help));
            }
            let mut draft = section.draft.clone();
            if (section.side, section.place) == (Side::Server, Place::Default)
                && let Some(name) = section.draft.name()
            {
                let message = "the default is for every name that no other section has".to_owned();
                let help = "write [server:any] for one name";
                self.found.push(finding(Severity::Note, name.span, "harmless", message, help));
                draft = draft.nameless();
            }
            let found = if sound { &mut self.found } else { &mut aside };
            list.push(draft.profile(section.side, address, section.head, found));
        }
        if !profiles.clients.iter().any(|profile| profile.address.is_none()) {
            profiles.clients.push(client_default());
        }
        profiles
    }

    /// No two sections may be for the same connections.
    fn check_places(&mut self) {
        let mut twice = Vec::new();
        for (at, section) in self.sections.iter().enumerate() {
            let name = |section: &Section| section.draft.name().map(|name| name.text.clone());
            if section.place == Place::Any && section.draft.name().is_none() {
                let message = "a section for `any` address needs a name".to_owned();
                let help = "server_name = NAME; a section for all that no other is for is [server:default]";
                twice.push(finding(Severity::Error, section.head, "no-name", message, help));
            }
            let same = |other: &&Section| {
                (other.side, other.place) == (section.side, section.place)
                    && (section.place == Place::Default
                        || section.side == Side::Client
                        || name(other) == name(section))
            };
            let Some(first) = self.sections.iter().take(at).find(same) else { continue };
            let message = "there are two sections for the same connections".to_owned();
            let help = "give them different server_name, or join them";
            let mut found = finding(Severity::Error, section.head, "twice", message, help);
            found.secondary.push((first.head, "the first one".to_owned()));
            twice.push(found);
        }
        self.found.extend(twice);
        let server = |section: &&Section| section.side == Side::Server;
        let any = self.sections.iter().filter(server).find(|section| section.place == Place::Any);
        let fallback = self.sections.iter().filter(server).any(|section| section.place != Place::Any);
        if let Some(any) = any.filter(|_| !fallback) {
            let message = "who asks for no name, or for another, finds no certificate".to_owned();
            self.found.push(finding(
                Severity::Warning,
                any.head,
                "no-default",
                message,
                "write a [server:default] too",
            ));
        }
    }
}

fn did_you_mean(name: &str) -> String {
    format!("did you mean `{name}`?")
}

fn place_of(text: &str) -> Result<Place, (String, &'static str)> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(Place::Default);
    }
    if text.eq_ignore_ascii_case("any") {
        return Ok(Place::Any);
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => Ok(Place::Address(address)),
        _ if text.parse::<IpAddr>().is_ok() => {
            Err(("a port is missing".to_owned(), "[server:192.0.2.1:5061], [server:[2001:db8::1]:5061]"))
        }
        _ => {
            let message = format!("`{text}` is neither `default`, `any` nor an address with a port");
            Err((message, "[server:192.0.2.1:5061]; names belong into server_name, under [server:any]"))
        }
    }
}

/// A line up to its comment.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'#' | b';' if !quoted => return line.get(..at).unwrap_or(line),
            _ => {}
        }
    }
    line
}

/// A value without its quotes.
fn unquoted(value: &str) -> Result<String, (&'static str, &'static str)> {
    let Some(rest) = value.strip_prefix('"') else {
        return match value {
            "" => Err(("a value is missing", "key = value")),
            _ if value.contains(char::is_whitespace) => {
                Err(("a value is one word", "write it in quotes: \"...\""))
            }
            _ if value.contains('"') => {
                Err(("a quote inside of a word", "write the whole value in quotes: \"...\""))
            }
            _ => Ok(value.to_owned()),
        };
    };
    let mut text = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next() {
            Some('"') => break,
            Some('\\') => text.extend(characters.next()),
            Some(character) => text.push(character),
            None => return Err(("the closing quote is missing", "write it in quotes: \"...\"")),
        }
    }
    if !characters.as_str().trim().is_empty() {
        return Err(("something follows the closing quote", "write one value"));
    }
    if text.is_empty() {
        Err(("the value is empty", "leave the line out, or give a value"))
    } else {
        Ok(text)
    }
}
