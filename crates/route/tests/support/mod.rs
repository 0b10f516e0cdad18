//! A catalogue and a host for tests: functions that are recorded, variables that are set by the test.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use route::{
    Args, Avps, Catalogue, Class, Contexts, DefaultValue, FunctionDecl, FunctionId, Host, Index, InnerRule,
    Loaded, Machine, NoFiles, Outcome, Param, ParamKind, ParameterDecl, RouteKind, SettingDecl, Sink, Step,
    Subject, Subscript, Thing, ValueKind, ValueRef, VariableDecl, VariableId, Verdict,
};
use std::collections::BTreeMap;

fn methods(text: &[u8]) -> Result<i64, &'static str> {
    let known = ["INVITE", "ACK", "BYE", "CANCEL", "REGISTER", "OPTIONS", "SUBSCRIBE"];
    let text = std::str::from_utf8(text).map_err(|_| "not text")?;
    let mut mask = 0;
    for word in text.split('|') {
        let at = known.iter().position(|method| *method == word).ok_or("methods are separated by `|`")?;
        mask |= 1 << at;
    }
    Ok(mask)
}

const fn function(
    name: &'static str,
    params: &'static [Param],
    required: u8,
    contexts: Contexts,
) -> FunctionDecl {
    FunctionDecl { name, doc: "A function of the tests.", params, required, contexts }
}

const ANY: Contexts = Contexts::ANY;
const REQUEST: Contexts = Contexts::REQUEST.or(Contexts::FAILURE);

const INT: Param = Param::new("number", ParamKind::Int);
const STR: Param = Param::new("text", ParamKind::Str);
const FORMAT: Param = Param::new("format", ParamKind::Format);

const CORE: &[FunctionDecl] = &[
    function("forward", &[STR, INT], 0, REQUEST),
    function("log", &[Param::new("level", ParamKind::Any), FORMAT], 1, ANY),
    function("setflag", &[INT], 1, ANY),
    function("force_rport", &[], 0, Contexts::REQUEST),
    function("len_gt", &[INT], 1, ANY),
    // What the tests want to see evaluated.
    function("show", &[Param::new("value", ParamKind::Any)], 1, ANY),
    function("code", &[INT], 1, ANY),
    function("ask", &[FORMAT], 0, ANY),
    function("stop", &[], 0, ANY),
    function("matches", &[FORMAT, Param::new("expression", ParamKind::Regex)], 2, ANY),
];
const SL: &[FunctionDecl] =
    &[function("sl_send_reply", &[INT, FORMAT], 2, REQUEST), function("sl_reply_error", &[], 0, REQUEST)];
const TM: &[FunctionDecl] = &[
    function("t_relay", &[], 0, REQUEST),
    function("t_check_trans", &[], 0, REQUEST),
    function("t_on_reply", &[Param::new("route", ParamKind::Route(RouteKind::Reply))], 1, REQUEST),
    function("t_on_failure", &[Param::new("route", ParamKind::Route(RouteKind::Failure))], 1, REQUEST),
];
const RR: &[FunctionDecl] =
    &[function("record_route", &[], 0, REQUEST), function("loose_route", &[], 0, REQUEST)];
const REGISTRAR: &[FunctionDecl] =
    &[function("save", &[STR, INT], 1, REQUEST), function("lookup", &[STR, FORMAT], 1, REQUEST)];
const SIPUTILS: &[FunctionDecl] = &[function("has_totag", &[], 0, ANY)];
const TEXTOPS: &[FunctionDecl] =
    &[function("is_method", &[Param::new("methods", ParamKind::Encoded(methods))], 1, ANY)];
const MAXFWD: &[FunctionDecl] = &[function("mf_process_maxfwd_header", &[INT], 1, REQUEST)];
const XLOG: &[FunctionDecl] =
    &[function("xlog", &[FORMAT], 1, ANY), function("xlog", &[STR, FORMAT], 2, ANY)];

const fn variable(name: &'static str, inner: InnerRule, indexed: bool, writable: bool) -> VariableDecl {
    VariableDecl { name, doc: "A variable of the tests.", inner, indexed, writable, contexts: ANY }
}

const VARIABLES: &[VariableDecl] = &[
    variable("ru", InnerRule::None, false, true),
    variable("rU", InnerRule::None, false, true),
    variable("rm", InnerRule::None, false, false),
    variable("fu", InnerRule::None, false, false),
    variable("si", InnerRule::None, false, false),
    variable("sp", InnerRule::None, false, false),
    variable("proto", InnerRule::None, false, false),
    variable("rs", InnerRule::None, false, false),
    variable("ml", InnerRule::None, false, false),
    variable("max_len", InnerRule::None, false, false),
    variable("hdr", InnerRule::Required, true, false),
    variable("avp", InnerRule::Required, true, true),
    variable("msg", InnerRule::OneOf(&["len", "id"]), false, false),
];
const PV: &[VariableDecl] = &[variable("ci", InnerRule::None, false, false)];

const fn parameter(name: &'static str, kind: ValueKind, class: Class) -> ParameterDecl {
    ParameterDecl {
        name,
        kind,
        range: None,
        default: DefaultValue::Int(0),
        unit: "",
        doc: "A parameter.",
        class,
    }
}

const fn setting(name: &'static str, kind: ValueKind, class: Class) -> SettingDecl {
    SettingDecl { name, kind, range: None, default: DefaultValue::None, unit: "", doc: "A setting.", class }
}

const SETTINGS: &[SettingDecl] = &[
    setting("debug", ValueKind::Int, Class::Honoured),
    setting("fork", ValueKind::Bool, Class::Harmless("the server does not fork")),
    setting("log_stderr", ValueKind::Bool, Class::Honoured),
    setting("log_stderror", ValueKind::Bool, Class::Honoured),
    setting("check_via", ValueKind::Bool, Class::Harmless("responses are matched by branch")),
    setting("dns", ValueKind::Bool, Class::Harmless("names are resolved when they are needed")),
    setting("rev_dns", ValueKind::Bool, Class::Harmless("names are resolved when they are needed")),
    setting("port", ValueKind::Int, Class::Honoured),
    setting("children", ValueKind::Int, Class::Harmless("one thread serves each core")),
    setting("fifo", ValueKind::Str, Class::Honoured),
    setting("auto_aliases", ValueKind::Bool, Class::Honoured),
    setting("disable_tcp", ValueKind::Bool, Class::Honoured),
    setting("listen", ValueKind::Socket, Class::Honoured),
    setting("alias", ValueKind::Str, Class::Honoured),
    setting("user", ValueKind::Str, Class::Refused("start the server as that user instead")),
    SettingDecl { range: Some((1, 60)), ..setting("timeout", ValueKind::Int, Class::Honoured) },
];

pub fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::new();
    catalogue.set_runnable(Contexts::REQUEST | Contexts::REPLY | Contexts::FAILURE | Contexts::BRANCH);
    catalogue.add_settings(SETTINGS);
    catalogue.add_module("core", "What is always there.", CORE, &[], VARIABLES);
    catalogue.add_module("sl", "Stateless replies.", SL, &[], &[]);
    catalogue.add_module(
        "tm",
        "Transactions.",
        TM,
        &[parameter("fr_timer", ValueKind::Int, Class::Honoured)],
        &[],
    );
    let append = parameter("append_fromtag", ValueKind::Bool, Class::Honoured);
    catalogue.add_module("rr", "Record routing.", RR, &[append], &[]);
    catalogue.add_module("maxfwd", "Hops.", MAXFWD, &[], &[]);
    let hash_size = parameter("hash_size", ValueKind::Int, Class::Harmless("tables grow by themselves"));
    let db_mode = parameter("db_mode", ValueKind::Int, Class::Honoured);
    catalogue.add_module("usrloc", "Bindings.", &[], &[db_mode, hash_size], &[]);
    let contacts = parameter("max_contacts", ValueKind::Int, Class::Honoured);
    catalogue.add_module("registrar", "Registrations.", REGISTRAR, &[contacts], &[]);
    catalogue.add_module("textops", "Text.", TEXTOPS, &[], &[]);
    catalogue.add_module("siputils", "Utilities.", SIPUTILS, &[], &[]);
    catalogue.add_module("pv", "Variables.", &[], &[], PV);
    catalogue.add_module("xlog", "Logs.", XLOG, &[], &[]);
    catalogue.add_absent(Thing::Module, "kex", Class::Harmless("it is part of the core here"));
    catalogue.add_absent(Thing::Module, "db_mysql", Class::Refused("there are no databases yet"));
    catalogue.add_absent(Thing::Function, "fix_nated_contact", Class::Refused("use force_rport() instead"));
    catalogue
}

/// Loads with the catalogue of the tests; a rejected text fails the test with its diagnostics.
pub fn load(text: &str) -> Loaded {
    match route::load(text, "test.cfg", &catalogue(), &NoFiles, &[]) {
        Ok(loaded) => loaded,
        Err(rejected) => panic!("{}", rejected.render(route::Colour::Never)),
    }
}

/// The diagnostics of a text, rejected or not.
pub fn diagnose(text: &str) -> String {
    match route::load(text, "test.cfg", &catalogue(), &NoFiles, &[]) {
        Ok(loaded) => loaded.render(route::Colour::Never),
        Err(rejected) => rejected.render(route::Colour::Never),
    }
}

/// Records what a script does.
pub struct FakeHost {
    pub catalogue: Catalogue,
    /// `name(arg, arg)` for every call.
    pub calls: Vec<String>,
    /// What functions return; -1 and 1 are false and true. Those not here return 1.
    pub codes: BTreeMap<&'static str, i32>,
    pub variables: BTreeMap<&'static str, String>,
    pub headers: Vec<(&'static str, &'static str)>,
    pub avps: Avps,
    pub writes: Vec<String>,
    pub myself: Vec<&'static str>,
}

impl FakeHost {
    pub fn new() -> Self {
        Self {
            catalogue: catalogue(),
            calls: Vec::new(),
            codes: BTreeMap::new(),
            variables: [
                ("ru", "sip:alice@example.com"),
                ("rU", "alice"),
                ("rm", "INVITE"),
                ("si", "10.1.2.3"),
                ("sp", "5060"),
            ]
            .into_iter()
            .map(|(name, value)| (name, value.to_string()))
            .collect(),
            headers: Vec::new(),
            avps: Avps::new(),
            writes: Vec::new(),
            myself: vec!["ru"],
        }
    }

    fn name(&self, id: FunctionId) -> &'static str {
        self.catalogue.function(id).unwrap().name
    }
}

pub fn show(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_string(),
        ValueRef::Int(int) => int.to_string(),
        ValueRef::Str(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
    }
}

impl Host for FakeHost {
    fn call(&mut self, function: FunctionId, args: &Args<'_>) -> Outcome {
        let name = self.name(function);
        let shown: Vec<String> = (0..args.len())
            .map(|at| match (args.regex(at), args.route(at)) {
                (Some(_), _) => "regex".to_string(),
                (_, Some(route)) => format!("route {}", route.0),
                _ => show(args.value(at)),
            })
            .collect();
        self.calls.push(format!("{name}({})", shown.join(", ")));
        match name {
            "ask" => Outcome::Suspend,
            "stop" => Outcome::Exit,
            "code" => Outcome::Code(i32::try_from(args.int(0)).unwrap()),
            "matches" if args.regex(1).is_some_and(|regex| regex.is_match(args.str(0))) => Outcome::True,
            "matches" => Outcome::False,
            _ => Outcome::Code(self.codes.get(name).copied().unwrap_or(1)),
        }
    }

    fn read(&mut self, variable: VariableId, at: &Subscript<'_>, out: &mut Sink<'_>) {
        let name = self.catalogue.variable(variable).unwrap().name;
        match name {
            "avp" => self.avps.read(at.inner.bytes(), at.index, out),
            "hdr" => {
                let wanted = at.inner.bytes();
                let mut values = self.headers.iter().filter(|(name, _)| name.as_bytes() == wanted);
                let value = match at.index {
                    Index::At(index) if index < 0 => values.rev().nth(usize::try_from(-index - 1).unwrap()),
                    Index::At(index) => values.nth(usize::try_from(index).unwrap()),
                    _ => values.next(),
                };
                if let Some((_, value)) = value {
                    out.str(value.as_bytes());
                }
            }
            "ml" | "max_len" | "sp" => {
                out.int(self.variables.get(name).map_or(0, |text| text.parse().unwrap()));
            }
            _ => {
                if let Some(value) = self.variables.get(name) {
                    out.str(value.as_bytes());
                }
            }
        }
    }

    fn write(&mut self, variable: VariableId, at: &Subscript<'_>, value: ValueRef<'_>) {
        let name = self.catalogue.variable(variable).unwrap().name;
        if name == "avp" {
            if self.avps.write(at.inner.bytes(), at.index, value).is_err() {
                self.writes.push("the store is full".to_string());
            }
        } else {
            self.writes.push(format!("{name} = {}", show(value)));
            self.variables
                .insert(name, String::from_utf8_lossy(value.as_str().unwrap_or_default()).into_owned());
        }
    }

    fn is_myself(&mut self, subject: Subject<'_>) -> bool {
        match subject {
            Subject::Variable(id) => self.myself.contains(&self.catalogue.variable(id).unwrap().name),
            Subject::Bytes(bytes) => self.myself.iter().any(|name| name.as_bytes() == bytes),
        }
    }

    fn refused(&mut self, function: FunctionId, kind: RouteKind) {
        let name = self.name(function);
        self.calls.push(format!("{name} refused in {}", kind.keyword()));
    }
}

/// Runs the request route of `text`; gives how it ended. The run must not suspend.
pub fn run(text: &str, host: &mut FakeHost) -> Verdict {
    let loaded = load(text);
    let route = loaded.program.entry(RouteKind::Request, None).unwrap();
    match Machine::new().run(&loaded.program, route, host) {
        Step::Done(verdict) => verdict,
        Step::Suspended(_) => panic!("the script suspended"),
    }
}

/// The calls that a body of the request route makes.
pub fn calls(body: &str) -> Vec<String> {
    let mut host = FakeHost::new();
    run(&format!("request_route {{\n{body}\n}}"), &mut host);
    host.calls
}

/// The value of an expression.
pub fn eval(expression: &str) -> String {
    eval_with(expression, &mut FakeHost::new())
}

pub fn eval_with(expression: &str, host: &mut FakeHost) -> String {
    run(&format!("request_route {{ $var(result) = {expression}; show($var(result)); }}"), host);
    let shown = host.calls.pop().unwrap();
    shown.strip_prefix("show(").and_then(|rest| rest.strip_suffix(')')).unwrap().to_string()
}
