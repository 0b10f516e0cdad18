//! `maxfwd`: counting hops (RFC 3261 §16.3 item 3, §16.6 item 3).

use crate::core::outcome;
use crate::run::Run;
use crate::table::{Function, Module, REQUESTS, harmless_parameter};
use engine::MaxForwards;
use route::{Args, Contexts, Outcome, Param, ParamKind};

pub(crate) static MODULE: Module = Module {
    name: "maxfwd",
    doc: "Counting hops.",
    functions: FUNCTIONS,
    parameters: &[harmless_parameter(
        "max_limit",
        "a Max-Forwards that was received is only ever counted down.",
    )],
    variables: &[],
};

const MAX: Param = Param::new("max", ParamKind::Int);
const PROCESS: &str = "Counts Max-Forwards down by one, or adds one of MAX. Returns 1 if it was counted down, 2 if it was added, -1 if it was 0 already: answer 483 then.";
const IS_LT: &str = "Whether Max-Forwards, as it would be sent, is lower than MAX. Returns 1, -1 if it is not, -2 if there is none.";

static FUNCTIONS: &[Function] = &[
    Function::new("mf_process_maxfwd_header", &[MAX], Contexts::REQUEST, process, PROCESS),
    Function::new("maxfwd_process", &[MAX], Contexts::REQUEST, process, PROCESS),
    Function::new("process_maxfwd", &[MAX], Contexts::REQUEST, process, PROCESS),
    Function::new("is_maxfwd_lt", &[MAX], REQUESTS, is_lt, IS_LT),
    Function::new("maxfwd_at_least", &[MAX], REQUESTS, is_lt, IS_LT),
    Function::new("mf_lowlimit", &[MAX], REQUESTS, is_lt, IS_LT),
];

fn process(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Ok(max) = u32::try_from(args.int(0)) else { return Outcome::Code(-2) };
    let Some(cx) = run.request() else { return Outcome::Code(-2) };
    match cx.decrement_max_forwards(max) {
        MaxForwards::Ok(left) => {
            run.prepared.max_forwards = Some(left);
            Outcome::True
        }
        MaxForwards::Added => {
            run.prepared.max_forwards = Some(max);
            Outcome::Code(2)
        }
        MaxForwards::Zero => Outcome::False,
    }
}

fn is_lt(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let now = run.prepared.max_forwards.or_else(|| run.message().max_forwards().ok().flatten());
    match now {
        Some(hops) => outcome(i64::from(hops) < args.int(0)),
        None => Outcome::Code(-2),
    }
}
