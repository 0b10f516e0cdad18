//! Cases: the files of `tests/differential/`, and the torture messages.

use std::fs;
use std::path::{Path, PathBuf};

use super::draft::{Draft, Message};

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Caller,
    NextHop,
}

/// One message of a case.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) sender: Sender,
    pub(super) draft: Draft,
}

/// One exchange: a caller and the next hop behind the server, at an address that no other case has.
#[derive(Clone, Debug)]
pub struct Case {
    /// `FILE/NAME`.
    pub name: String,
    /// The profiles that it is played with; empty for all.
    pub(super) profiles: Vec<String>,
    /// Whether the caller comes by TCP.
    pub(super) stream: bool,
    /// Whether the next hop answers by itself what arrives.
    pub(super) answers: bool,
    pub(super) steps: Vec<Step>,
}

impl Case {
    /// Whether it is played with this profile.
    pub fn is_for(&self, profile: &str) -> bool {
        self.profiles.is_empty() || self.profiles.iter().any(|name| name == profile)
    }

    /// A token of SIP that no other case has.
    pub(super) fn id(&self) -> String {
        self.name.replace('/', "-")
    }

    pub(super) fn new(name: String) -> Self {
        Self { name, profiles: Vec::new(), stream: false, answers: true, steps: Vec::new() }
    }

    /// One line of a traffic file.
    fn line(&mut self, word: &str, rest: &str) {
        let step = |sender, message| Step { sender, draft: Draft::Message(message) };
        match word {
            "in" => self.profiles = rest.split_whitespace().map(str::to_owned).collect(),
            "tcp" => self.stream = true,
            "silent" => self.answers = false,
            "request" => self.steps.push(step(Sender::Caller, Message::request(rest))),
            "callback" => self.steps.push(step(Sender::NextHop, Message::request(rest))),
            "stray" => self.steps.push(step(Sender::NextHop, Message::stray(rest))),
            "answer" => {
                self.answers = false;
                self.steps.push(step(Sender::NextHop, Message::answer(rest)));
            }
            "bytes" => {
                self.steps.push(Step { sender: Sender::Caller, draft: Draft::Lines(Vec::new()) });
            }
            "again" => self.steps.push(Step { sender: Sender::Caller, draft: Draft::Again }),
            _ => self.edit(word, rest),
        }
    }

    /// A line that says more about the last step.
    fn edit(&mut self, word: &str, rest: &str) {
        let step = self.steps.last_mut();
        let done = match step.map(|step| &mut step.draft) {
            Some(Draft::Lines(lines)) if word == "|" => {
                lines.push(rest.to_owned());
                true
            }
            Some(Draft::Message(message)) => message.edit(word, rest),
            _ => false,
        };
        assert!(done, "{}: what is `{word} {rest}`?", self.name);
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The cases of `tests/differential/NAME.txt`.
///
/// # Panics
///
/// When there is no such file, or something in it means nothing.
pub fn traffic(name: &str) -> Vec<Case> {
    let path = directory().join("differential").join(format!("{name}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let line = line.trim_start_matches(' ');
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "case" {
            cases.push(Case::new(format!("{name}/{rest}")));
        } else {
            let case = cases.last_mut().unwrap_or_else(|| panic!("{name}.txt begins with no case"));
            case.line(word, rest);
        }
    }
    cases
}

/// The torture messages: each a datagram of the caller, or of the next hop if it is a response.
///
/// # Panics
///
/// When they are not there.
pub fn torture() -> Vec<Case> {
    let mut cases = Vec::new();
    for rfc in ["rfc4475", "rfc5118"] {
        let directory = directory().join("torture").join(rfc);
        let entries = fs::read_dir(&directory).expect("the torture messages are in the repository");
        for entry in entries {
            let path = entry.expect("a directory that can be read").path();
            let bytes = fs::read(&path).expect("a message that can be read");
            let name = path.file_stem().expect("invariant: an entry has a name").to_string_lossy();
            let mut case = Case::new(format!("{rfc}/{name}"));
            let sender = if bytes.starts_with(b"SIP/") { Sender::NextHop } else { Sender::Caller };
            if has_route(&bytes) {
                // It would go to a host of the RFC's, by a name that somebody must resolve.
                case.profiles = vec!["checks".to_owned(), "auth".to_owned()];
            }
            case.steps.push(Step { sender, draft: Draft::Bytes(bytes) });
            cases.push(case);
        }
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

fn has_route(message: &[u8]) -> bool {
    let text = String::from_utf8_lossy(message).to_ascii_lowercase();
    text.lines().any(|line| line.starts_with("route"))
}
