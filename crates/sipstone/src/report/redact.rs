//! What must not be written: passwords.
//!
//! Whoever fills in a report is asked to leave them out already; every output goes through here again, so that a slip
//! there is not published.

use super::model::Report;
use std::borrow::Cow;

/// Options whose value is a password, or a pattern of passwords.
const SECRET_OPTIONS: [&str; 3] = ["--password-format", "--password", "--agent-token"];

/// What stands in a secret's place.
const HIDDEN: &str = "(hidden)";

/// The command line without the values of options that are secrets, and without passwords in URIs
/// (`sip:user:password@host`, RFC 3261 §19.1.1).
#[must_use]
pub fn command_line(arguments: &[String]) -> Vec<String> {
    let mut hide_next = false;
    let mut hidden = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let option = argument.split_once('=').map_or(argument.as_str(), |(option, _)| option);
        let secret = SECRET_OPTIONS.contains(&option);
        hidden.push(match (hide_next, secret) {
            (true, _) => HIDDEN.into(),
            (false, true) if argument.contains('=') => format!("{option}={HIDDEN}"),
            _ => uri(argument).into_owned(),
        });
        hide_next = !hide_next && secret && !argument.contains('=');
    }
    hidden
}

/// A text without the password of the URI in it.
fn uri(text: &str) -> Cow<'_, str> {
    let Some((before, host)) = text.rsplit_once('@') else { return Cow::Borrowed(text) };
    let scheme = ["://", "sip:", "sips:"].iter().find_map(|scheme| Some(before.find(scheme)? + scheme.len()));
    let Some((scheme, user)) = scheme.and_then(|end| before.split_at_checked(end)) else {
        return Cow::Borrowed(text);
    };
    match user.split_once(':') {
        Some((user, _)) => Cow::Owned(format!("{scheme}{user}:{HIDDEN}@{host}")),
        None => Cow::Borrowed(text),
    }
}

/// The report with what it says of command lines cleaned.
#[must_use]
pub fn report(report: &Report) -> Cow<'_, Report> {
    let cleaned = command_line(&report.command_line);
    let server = report.server.as_ref().and_then(|server| server.command.as_deref());
    let server_cleaned = server.map(uri);
    if cleaned == report.command_line && server == server_cleaned.as_deref() {
        return Cow::Borrowed(report);
    }
    let server_cleaned = server_cleaned.map(Cow::into_owned);
    let mut copy = report.clone();
    copy.command_line = cleaned;
    if let Some(server) = &mut copy.server {
        server.command = server_cleaned;
    }
    Cow::Owned(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(arguments: &[&str]) -> Vec<String> {
        command_line(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn passwords_are_hidden_however_they_are_given() {
        let line = ["sipstone", "run", "--password-format", "s3cret{}", "--password=s3cret", "--seed", "7"];
        assert_eq!(
            cleaned(&line),
            ["sipstone", "run", "--password-format", HIDDEN, "--password=(hidden)", "--seed", "7"]
        );
        assert_eq!(cleaned(&["--password-format", "--password"]), ["--password-format", HIDDEN]);
        assert_eq!(cleaned(&["sip:bob:s3cret@10.0.0.1"]), ["sip:bob:(hidden)@10.0.0.1"]);
        assert_eq!(cleaned(&["--target=sip:bob:s3:cr@et@h:5060"]), ["--target=sip:bob:(hidden)@h:5060"]);
    }

    #[test]
    fn what_is_no_secret_stays() {
        let line = [
            "sipstone",
            "peak",
            "invite",
            "--target",
            "sip:10.0.0.1:5060",
            "--users-file",
            "u.csv",
            "sip:a@b",
            "a: b@c",
            "",
        ];
        assert_eq!(cleaned(&line), line);
    }

    #[test]
    fn server_command_is_cleaned_too() {
        let server = super::super::model::ServerFacts {
            command: Some("strowger --db postgres://sip:s3cret@db/sip".into()),
            ..Default::default()
        };
        let dirty = Report { server: Some(server), ..Report::default() };
        let cleaned = report(&dirty).server.clone().unwrap().command.unwrap();
        assert_eq!(cleaned, "strowger --db postgres://sip:(hidden)@db/sip");
    }

    #[test]
    fn cleaning_twice_changes_nothing_more() {
        let once = cleaned(&["--password", "x", "--password-format=y", "sip:a:b@c"]);
        assert_eq!(command_line(&once), once);
    }
}
