//! Included files, definitions from outside, and what a program tells about its configuration.
#![allow(clippy::unwrap_used)]

mod support;

use route::{Constant, FileLoader, LoadError, NoFiles, RouteKind};
use support::{catalogue, load};

/// Files by name; every other name is missing, and `broken.cfg` cannot be read.
struct Files(&'static [(&'static str, &'static str)]);

impl FileLoader for Files {
    fn load(&self, path: &str, _from: &str) -> Result<String, LoadError> {
        if path == "broken.cfg" {
            return Err(LoadError::Failed("no permission".to_string()));
        }
        let found = self.0.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| (*text).to_string()).ok_or(LoadError::Missing)
    }
}

fn errors(text: &str, files: &Files) -> String {
    match route::load(text, "main.cfg", &catalogue(), files, &[]) {
        Ok(_) => String::new(),
        Err(rejected) => rejected.render(route::Colour::Never),
    }
}

#[test]
fn included_files_are_read_in_their_place() {
    let files = Files(&[
        ("a.cfg", "#!define X 1\ninclude_file \"b.cfg\"\n"),
        ("b.cfg", "route[B] { setflag(X); }\n"),
    ]);
    let text = "#!include_file \"a.cfg\"\nimport_file \"none.cfg\"\nroute {\n route(B);\n import_file \"none.cfg\"\n}";
    assert_eq!(errors(text, &files), "");
}

#[test]
fn errors_point_into_the_file_where_they_are() {
    let files = Files(&[("sub.cfg", "\nroute[A] { nothing(); }\n")]);
    let shown = errors("include_file \"sub.cfg\"\nroute { route(A); }", &files);
    assert!(shown.contains("--> sub.cfg:2:12"), "{shown}");
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let files = Files(&[]);
    assert!(
        errors("include_file \"none.cfg\"\nroute { exit; }", &files).contains("there is no file `none.cfg`")
    );
    assert!(errors("import_file \"broken.cfg\"\nroute { exit; }", &files).contains("no permission"));
}

#[test]
fn files_that_include_themselves_stop() {
    let files = Files(&[("self.cfg", "include_file \"self.cfg\"\n")]);
    assert!(errors("include_file \"self.cfg\"\nroute { exit; }", &files).contains("include each other"));
}

#[test]
fn definitions_from_outside_win() {
    let text = "#!define PORT 1\n#!ifdef WITH_X\nport=PORT\n#!endif\nroute { exit; }";
    let defines = [("PORT", "5080"), ("WITH_X", "")];
    let loaded = route::load(text, "main.cfg", &catalogue(), &NoFiles, &defines).unwrap();
    let port = catalogue().setting_named("port").unwrap();
    assert_eq!(loaded.program.setting(port).unwrap().value, Constant::Int(5080));
}

#[test]
fn settings_keep_their_values_and_order() {
    let loaded = load(
        "debug=-3; log_stderror=yes\nlisten=udp:10.0.0.1:5060 advertise 192.0.2.1:5061 name \"lan\"\nlisten=tcp:[::1]\nalias=\"a.org\" \"b.org\"\nalias=c.org\nfifo=\"/tmp/x\"\nroute { exit; }",
    );
    let values: Vec<&Constant> = loaded.program.settings().iter().map(|setting| &setting.value).collect();
    assert_eq!(values[0].as_int(), Some(-3));
    assert_eq!(values[1].as_int(), Some(1));
    let socket = values[2].as_socket().unwrap();
    assert_eq!(socket.host, "10.0.0.1");
    assert_eq!(socket.advertise, Some(("192.0.2.1".to_string(), Some(5061))));
    assert_eq!(socket.name.as_deref(), Some("lan"));
    assert_eq!(values[3].as_socket().unwrap().host, "::1");
    let texts: Vec<_> = values[4..].iter().map(|value| value.as_str().unwrap()).collect();
    assert_eq!(texts, ["a.org", "b.org", "c.org", "/tmp/x"]);
}

#[test]
fn parameters_reach_each_module_that_is_named() {
    let catalogue = catalogue();
    let module = |name| catalogue.module(name).unwrap();
    let loaded = load(
        "loadmodule \"tm\"\nloadmodule \"x/rr.so\"\nmodparam(\"tm\", \"fr_timer\", 5)\nmodparam(\"tm\", \"fr_timer\", \"7\")\nmodparam(\"rr\", \"append_fromtag\", yes)\nroute { exit; }",
    );
    let fr_timer = catalogue.parameter_named(module("tm"), "fr_timer").unwrap();
    assert_eq!(loaded.program.modparam(fr_timer).unwrap().value, Constant::Int(7));
    assert!(loaded.program.loads(module("rr")));
    assert!(!loaded.program.loads(module("sl")));
    assert_eq!(loaded.program.modparams().len(), 3);
}

#[test]
fn names_of_variables_are_known_when_the_program_is_loaded() {
    let loaded = load("route { show($hdr(X-A)); show($(hdr(X-A)[1])); show($avp(X-A)); show($hdr(X-B)); }");
    let names: Vec<String> =
        loaded.program.names().iter().map(|name| String::from_utf8(name.text.to_vec()).unwrap()).collect();
    assert_eq!(names, ["X-A", "X-A", "X-B"]);
}

#[test]
fn entries_are_found_by_kind_and_name() {
    let loaded = load(
        "loadmodule \"tm.so\"\nrequest_route { t_on_reply(\"R\"); t_on_failure(\"F\"); }\nreply_route { drop; }\nonreply_route[R] { exit; }\nfailure_route[F] { exit; }",
    );
    let program = &loaded.program;
    assert!(program.entry(RouteKind::Request, None).is_some());
    assert!(program.entry(RouteKind::Reply, None).is_some());
    let named = program.entry(RouteKind::Reply, Some("R")).unwrap();
    assert_eq!(program.route(named).unwrap().name.as_deref(), Some("R"));
    assert!(program.entry(RouteKind::Failure, Some("F")).is_some());
    assert!(program.entry(RouteKind::Failure, Some("R")).is_none());
}

#[test]
fn the_reference_lists_everything_that_is_declared() {
    let text = catalogue().reference_markdown();
    for part in [
        "## tm",
        "#### `t_on_reply(route)`",
        "In: route, failure_route.",
        "`forward([text], [number])`",
        "| `fr_timer` | integer | `0` |",
        "Accepted, changes nothing: tables grow by themselves",
        "Refused: start the server as that user instead",
        "| `timeout` | integer | none | 1..60 |",
        "`$(hdr(name)[n])`",
        "`$msg(len\\|id)`",
        "| `{uri.user}` |",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
