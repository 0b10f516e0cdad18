//! What a program tells about the calls that it makes, and the name that every configuration finds defined.
#![allow(clippy::unwrap_used)]

mod support;

use support::{catalogue, load};

#[test]
fn calls_are_listed_with_what_is_constant_in_them() {
    let text = "#!define TABLE \"people\"
loadmodule \"registrar.so\"
loadmodule \"xlog.so\"
route { save(TABLE); save(\"location\", 2); xlog(\"$ru\"); if (!lookup(\"location\", \"a$rU\")) route(X); }
route[X] { save(\"$avp(x)\"); }";
    let program = load(text).program;
    let catalogue = catalogue();
    let name = |id| catalogue.function(id).unwrap().name;
    let texts = |texts: &[Option<Box<[u8]>>]| -> Vec<String> {
        let text = |text: &Option<Box<[u8]>>| {
            text.as_ref().map_or_else(|| "?".to_string(), |text| String::from_utf8_lossy(text).into_owned())
        };
        texts.iter().map(text).collect()
    };
    let calls: Vec<_> =
        program.calls().iter().map(|call| (name(call.function), texts(&call.texts))).collect();
    let expected: [(&str, &[&str]); 5] = [
        ("save", &["people"]),
        ("save", &["location", "2"]),
        ("xlog", &["?"]),
        ("lookup", &["location", "?"]),
        // A text that is taken as written is constant whatever is in it.
        ("save", &["$avp(x)"]),
    ];
    assert_eq!(calls.len(), expected.len());
    for ((name, texts), (expected_name, expected_texts)) in calls.iter().zip(expected) {
        assert_eq!(
            (*name, texts.as_slice()),
            (expected_name, expected_texts.iter().map(|it| (*it).to_string()).collect::<Vec<_>>().as_slice())
        );
    }
}

#[test]
fn a_configuration_can_tell_this_server_from_others() {
    let text = "#!ifdef STROWGER\nroute { setflag(1); }\n#!else\nthis is no text of ours\n#!endif\n";
    assert_eq!(load(text).program.calls().len(), 1);
}
