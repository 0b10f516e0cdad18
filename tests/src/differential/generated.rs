//! Generated cases: every header field of a sound request in every form that one can be written in, or
//! miswritten.

use super::draft::{Draft, Message};
use super::traffic::{Case, Sender, Step};

/// Header fields: the name, its compact form if it has one, a sound value.
const FIELDS: [(&str, Option<&str>, &str); 12] = [
    ("Via", Some("v"), "SIP/2.0/UDP {caller};branch=z9hG4bK{id}"),
    ("Max-Forwards", None, "70"),
    ("From", Some("f"), "\"Alice\" <sip:alice@example.net>;tag=f{id}"),
    ("To", Some("t"), "<sip:bob@example.net>"),
    ("Call-ID", Some("i"), "{id}"),
    ("CSeq", None, "1 MESSAGE"),
    ("Contact", Some("m"), "<sip:alice@{caller}>;expires=60"),
    ("Content-Length", Some("l"), "0"),
    ("Record-Route", None, "<sip:192.0.2.1;lr>"),
    ("Supported", Some("k"), "timer, path"),
    ("Subject", Some("s"), "what there is to say"),
    ("X-Secret", None, "1"),
];

/// Forms: `$N` stands for the name, `$V` for the value, in the notation of the traffic files.
const FORMS: [(&str, &str); 20] = [
    ("no-space", "$N:$V"),
    ("space-before-colon", "$N : $V"),
    ("tabs", "$N\\t:\\t$V\\t"),
    ("spaces-behind", "$N: $V{50* }"),
    ("folded-before-value", "$N:\\r\\n $V"),
    ("folded-behind-value", "$N: $V\\r\\n \\t"),
    ("folded-twice", "$N:\\r\\n \\r\\n $V"),
    ("fold-before-colon", "$N\\r\\n : $V"),
    ("empty", "$N:"),
    ("no-colon", "$N $V"),
    ("two-colons", "$N:: $V"),
    ("twice", "$N: $V\\r\\n$N: $V"),
    ("comma-behind", "$N: $V,"),
    ("comma-before", "$N: ,$V"),
    ("semicolon-behind", "$N: $V;"),
    ("quote-behind", "$N: $V\""),
    ("nul-behind", "$N: $V\\0"),
    ("8-bit-behind", "$N: $V\\xe9"),
    ("line-feed-behind", "$N: $V\\nX-Other: 1"),
    ("carriage-return-behind", "$N: $V\\rX-Other: 1"),
];

/// All of them, for the configurations that forward.
pub fn generated() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, compact, value) in FIELDS {
        for (form, template) in FORMS {
            cases.push(case(name, form, &written(template, name, value)));
        }
        cases.push(case(name, "upper-case", &written("$N: $V", &name.to_uppercase(), value)));
        if let Some(compact) = compact {
            cases.push(case(name, "compact", &written("$N: $V", compact, value)));
            cases.push(case(
                name,
                "compact-beside-long",
                &format!("{name}: {value}\\r\\n{compact}: {value}"),
            ));
        }
    }
    cases
}

fn written(template: &str, name: &str, value: &str) -> String {
    template.replace("$N", name).replace("$V", value)
}

fn case(name: &str, form: &str, line: &str) -> Case {
    let mut case = Case::new(format!("generated/{}-{form}", name.to_ascii_lowercase()));
    case.profiles = vec!["stateful".to_owned(), "stateless".to_owned()];
    let mut message = Message::request("MESSAGE");
    message.set_or_add(name, line);
    case.steps.push(Step { sender: Sender::Caller, draft: Draft::Message(message) });
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_written_in_every_form() {
        let cases = generated();
        assert_eq!(cases.len(), FIELDS.len() * (FORMS.len() + 1) + 2 * 8);
        assert_eq!(written("$N : $V", "To", "<sip:a@b>"), "To : <sip:a@b>");
    }
}
