//! `xlog`: lines of the log with variables in them.

use crate::log::Level;
use crate::run::Run;
use crate::table::{Function, Module, harmless_parameter};
use route::{Args, Contexts, Outcome, Param, ParamKind};

pub(crate) static MODULE: Module = Module {
    name: "xlog",
    doc: "Lines of the log with variables in them.",
    functions: FUNCTIONS,
    parameters: &[
        harmless_parameter("buf_size", "lines grow as needed."),
        harmless_parameter("force_color", "the log is coloured on a terminal."),
        harmless_parameter("long_format", "lines carry no place in the file."),
        harmless_parameter("prefix", "lines carry no prefix."),
        harmless_parameter("prefix_mode", "lines carry no prefix."),
        harmless_parameter("log_facility", "the log goes to the standard error stream."),
        harmless_parameter("log_colors", "the log is coloured on a terminal."),
        harmless_parameter("methods_filter", "`xlogm` is not there."),
    ],
    variables: &[],
};

const TEXT: Param = Param::new("text", ParamKind::Format);
const LEVEL: Param = Param::new("level", ParamKind::Encoded(level));
const XLOG: &str =
    "Writes a line with variables to the log, as an error or at LEVEL (`L_INFO`, `L_DBG`, ...).";

static FUNCTIONS: &[Function] = &[
    Function::new("xlog", &[TEXT], Contexts::ANY, xlog, XLOG),
    Function::new("xlog", &[LEVEL, TEXT], Contexts::ANY, xlog_level, XLOG),
    Function::new("xlogl", &[TEXT], Contexts::ANY, xlog, XLOG),
    Function::new("xlogl", &[LEVEL, TEXT], Contexts::ANY, xlog_level, XLOG),
    Function::new("xdbg", &[TEXT], Contexts::ANY, xdbg, "`xlog` at `L_DBG`."),
    Function::new("xdbgl", &[TEXT], Contexts::ANY, xdbg, "`xlog` at `L_DBG`."),
    Function::new("xinfo", &[TEXT], Contexts::ANY, xinfo, "`xlog` at `L_INFO`."),
    Function::new("xnotice", &[TEXT], Contexts::ANY, xnotice, "`xlog` at `L_NOTICE`."),
    Function::new("xwarn", &[TEXT], Contexts::ANY, xwarn, "`xlog` at `L_WARN`."),
    Function::new("xerr", &[TEXT], Contexts::ANY, xlog, "`xlog` at `L_ERR`."),
    Function::new("xbug", &[TEXT], Contexts::ANY, xbug, "`xlog` at `L_BUG`."),
    Function::new("xcrit", &[TEXT], Contexts::ANY, xcrit, "`xlog` at `L_CRIT`."),
    Function::new("xalert", &[TEXT], Contexts::ANY, xalert, "`xlog` at `L_ALERT`."),
];

fn level(name: &[u8]) -> Result<i64, &'static str> {
    Level::number(name)
        .ok_or("a level is L_ALERT, L_BUG, L_CRIT, L_ERR, L_WARN, L_NOTICE, L_INFO, L_DBG or a number")
}

fn write(run: &mut Run<'_, '_>, level: Level, text: &[u8]) -> Outcome {
    run.say(level, text.trim_ascii_end());
    Outcome::True
}

fn xlog(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::Error, args.str(0))
}

fn xlog_level(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::from_number(args.int(0)), args.str(1))
}

fn xdbg(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::Debug, args.str(0))
}

fn xinfo(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::Info, args.str(0))
}

fn xnotice(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::Notice, args.str(0))
}

fn xwarn(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::Warning, args.str(0))
}

fn xbug(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::Bug, args.str(0))
}

fn xcrit(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::Critical, args.str(0))
}

fn xalert(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    write(run, Level::Alert, args.str(0))
}
