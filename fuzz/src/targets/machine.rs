//! The virtual machine: random programs under random answers halt within their limits.

use super::config::CATALOGUE;
use super::input::Input;
use route::{
    Args, FunctionId, Host, Machine, NoFiles, Outcome, RouteKind, Sink, Step, Subject, Subscript, ValueRef,
    VariableId, Verdict,
};

/// Instructions that one run may take here.
const STEPS_MAX: u32 = 5_000;
/// How often a run is resumed.
const RESUMES_MAX: usize = 50;
/// How deep generated statements and expressions nest.
const DEPTH_MAX: usize = 4;

const PREAMBLE: &str = "loadmodule \"pv\"\nloadmodule \"siputils\"\nloadmodule \"textops\"\n\
    loadmodule \"xlog\"\nloadmodule \"tm\"\nloadmodule \"sl\"\n";

/// See [`TARGETS`](crate::TARGETS). The bytes choose a program and what its functions answer.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let text = program(&mut input);
    let loaded = CATALOGUE.with(|catalogue| route::load(&text, "fuzz.cfg", catalogue, &NoFiles, &[]));
    let Ok(loaded) = loaded else { return };
    let program = &loaded.program;
    let Some(entry) = program.entry(RouteKind::Request, None) else { return };
    let mut machine = Machine::new();
    machine.set_steps_max(STEPS_MAX);
    let mut world = World { input, written: 0 };
    let mut step = machine.run(program, entry, &mut world);
    for _ in 0..RESUMES_MAX {
        assert!(machine.steps() <= STEPS_MAX + 1, "{} steps:\n{text}", machine.steps());
        match step {
            Step::Done(verdict) => return ended(verdict, program),
            Step::Suspended(frame) => {
                assert!(
                    frame.size() <= 4 * route::limits::ARENA_BYTES_MAX,
                    "{} bytes wait:\n{text}",
                    frame.size()
                );
                let span = frame.span(program);
                assert!(!program.sources().text(span).is_empty(), "a script waits at no place:\n{text}");
                let code = i32::from(world.input.byte()) - 3;
                step = machine.resume(program, frame, code, &mut world);
            }
        }
    }
}

fn ended(verdict: Verdict, program: &route::Program) {
    if let Verdict::Failed(error) = verdict {
        assert!(!program.describe(&error).is_empty());
    }
}

/// What functions and variables are to the machine: whatever the input says.
struct World<'a> {
    input: Input<'a>,
    written: usize,
}

impl Host for World<'_> {
    fn call(&mut self, _function: FunctionId, args: &Args<'_>) -> Outcome {
        for at in 0..args.len() {
            let _ = (args.value(at), args.str(at), args.int(at), args.route(at));
            if let Some(regex) = args.regex(at) {
                let _ = regex.is_match(b"sip:alice@example.com");
            }
        }
        match self.input.below(8) {
            0..=2 => Outcome::True,
            3 | 4 => Outcome::False,
            5 => Outcome::Code(i32::from(self.input.byte()) - 100),
            6 => Outcome::Suspend,
            _ => Outcome::Exit,
        }
    }

    fn read(&mut self, _variable: VariableId, at: &Subscript<'_>, out: &mut Sink<'_>) {
        match self.input.below(4) {
            0 => out.str(b"sip:alice@example.com;x=\"a,b\""),
            1 => out.str(at.inner.bytes()),
            2 => out.int(i64::from(self.input.number()) - i64::from(i32::MAX)),
            _ => out.null(),
        }
    }

    fn write(&mut self, _variable: VariableId, _at: &Subscript<'_>, value: ValueRef<'_>) {
        if let ValueRef::Str(bytes) = value {
            assert!(bytes.len() <= route::limits::STRING_BYTES_MAX);
        }
        self.written += 1;
    }

    fn is_myself(&mut self, _subject: Subject<'_>) -> bool {
        self.input.flag()
    }
}

/// A program: statements of a request route, and of a route that it may call.
fn program(input: &mut Input<'_>) -> String {
    let count = 1 + input.below(4);
    let main: Vec<String> = (0..count).map(|_| statement(input, 0)).collect();
    let sub: Vec<String> = (0..1 + input.below(2)).map(|_| statement(input, 1)).collect();
    format!("{PREAMBLE}request_route {{\n{}\n}}\nroute[A] {{\n{}\n}}\n", main.join("\n"), sub.join("\n"))
}

fn block(input: &mut Input<'_>, depth: usize) -> String {
    let count = 1 + input.below(3);
    (0..count).map(|_| statement(input, depth + 1)).collect::<Vec<_>>().join(" ")
}

fn statement(input: &mut Input<'_>, depth: usize) -> String {
    let choice = if depth >= DEPTH_MAX { input.below(7) } else { input.below(11) };
    match choice {
        0 | 1 => {
            let target = input.pick(&["$var(a)", "$var(b)", "$avp(x)", "$(avp(x)[*])", "$ru", "$rU"]);
            format!("{target} = {};", expression(input, depth))
        }
        2 => "route(A);".to_owned(),
        3 => {
            (*input.pick(&["return $var(a);", "return 1;", "exit;", "break;", "drop;", "return;"])).to_owned()
        }
        4 => (*input.pick(&[
            "xlog(\"$ru $avp(x) $var(a)\\n\");",
            "setflag(3);",
            "t_relay();",
            "sl_send_reply(\"404\", \"$rU\");",
        ]))
        .to_owned(),
        5 => format!("$var(a) = $var(a) . {};", expression(input, depth)),
        6 => format!("$var(b) = $var(b) + {};", expression(input, depth)),
        7 => format!("if (({}) == 1) {{ {} }}", expression(input, depth), block(input, depth)),
        8 => {
            let condition = expression(input, depth);
            format!(
                "if (({condition}) != 0) {{ {} }} else {{ {} }}",
                block(input, depth),
                block(input, depth)
            )
        }
        9 => format!("while (({}) != 0) {{ {} }}", expression(input, depth), block(input, depth)),
        _ => {
            let value = expression(input, depth);
            format!(
                "switch ({value}) {{ case 0: {} break; default: {} }}",
                block(input, depth),
                block(input, depth)
            )
        }
    }
}

const OPERATORS: [&str; 19] =
    ["+", "-", "*", "/", "%", ".", "==", "!=", "<", ">", "&&", "||", "&", "|", "^", "<<", ">>", "ieq", "=~"];
const LEAVES: [&str; 20] = [
    "$ru",
    "$rU",
    "$var(a)",
    "$var(b)",
    "$avp(x)",
    "$(avp(x)[*])",
    "$null",
    "$rc",
    "$(ru{s.len})",
    "$(ru{uri.user})",
    "$_s($rU-$var(a))",
    "$(ru{s.select,-1,@})",
    "$(var(a){s.substr,-2,9})",
    "is_method(\"INVITE\")",
    "has_totag()",
    "route(A)",
    "$(ru{s.replace,a,$var(a)})",
    "$(var(b){re.subst,/[a-z]*/<\\0>/g})",
    "\"a(b\"",
    "\"\"",
];

fn expression(input: &mut Input<'_>, depth: usize) -> String {
    if depth >= DEPTH_MAX {
        return (*input.pick(&LEAVES)).to_owned();
    }
    match input.below(8) {
        0 | 1 => {
            let left = expression(input, depth + 1);
            let operator = input.pick(&OPERATORS);
            format!("({left} {operator} {})", expression(input, depth + 1))
        }
        2 => format!(
            "({}{})",
            input.pick(&["!", "-", "~", "(int)", "(str)", "defined "]),
            expression(input, depth + 1)
        ),
        3 => format!("strlen({})", expression(input, depth + 1)),
        4 => i32::from_le_bytes(input.number().to_le_bytes()).to_string(),
        5 => input.byte().to_string(),
        _ => (*input.pick(&LEAVES)).to_owned(),
    }
}
