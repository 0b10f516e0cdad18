//! The virtual machine: a step function over an explicit stack.
//!
//! A run goes on until the route ends, the script stops, or a function suspends it. A suspended run is a
//! [`Frame`]: it waits with its transaction, at whatever depth of calls and expressions it was, and goes on
//! with the answer. The machine keeps its buffers between runs, so that a run allocates nothing.

mod frame;
mod host;
mod ops;

pub use frame::Frame;
pub use host::{Args, Host, Index, Inner, Outcome, Sink, Subject, Subscript};

use crate::catalogue::{FunctionId, RouteKind, VariableId};
use crate::code::{Op, Program, RouteId, SiteIndex, SiteInner};
use crate::diagnostic::Span;
use crate::limits::{
    ARENA_BYTES_MAX, ARENA_COLLECT_BYTES, CALL_DEPTH_MAX, REGEX_DYNAMIC_CACHE, STACK_MAX, STEPS_MAX,
};
use crate::regex::Regex;
use crate::value::{Text, Value, ValueRef};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// How a run ended, or that it waits.
#[derive(Debug)]
pub enum Step {
    /// The run is over.
    Done(Verdict),
    /// A function waits for an answer; resume the frame with it.
    Suspended(Frame),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The route ran to its end, or returned this code (1 when it said none).
    End(i64),
    /// `exit`, or a return code of 0.
    Exit,
    /// `drop`: what the route was run for is not sent.
    Drop,
    /// A limit was reached, and the script was stopped. [`Program::describe`] says where.
    Failed(RunError),
}

/// What stopped a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunError {
    /// Which limit.
    pub kind: RunErrorKind,
    /// The place in the configuration.
    pub span: Span,
}

/// The limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunErrorKind {
    /// More than [`STEPS_MAX`] instructions: a loop that does not end.
    Steps,
    /// Routes called each other more than [`CALL_DEPTH_MAX`] deep.
    Depth,
    /// Strings took more than [`ARENA_BYTES_MAX`] bytes, or one string more than
    /// [`STRING_BYTES_MAX`](crate::limits::STRING_BYTES_MAX).
    Memory,
    /// A frame or a route of another program was given.
    OtherProgram,
}

impl Program {
    /// A run error in words, with file and line.
    #[must_use]
    pub fn describe(&self, error: &RunError) -> String {
        let place = self.sources.position(error.span);
        let what = match error.kind {
            RunErrorKind::Steps => "the script took too many steps; is there a loop that does not end",
            RunErrorKind::Depth => "routes call each other too deep; does a route call itself",
            RunErrorKind::Memory => "the strings of the script take too much memory",
            RunErrorKind::OtherProgram => "the configuration changed while the script waited",
        };
        format!("{}:{}: {what}", place.file, place.line)
    }

    fn error(&self, kind: RunErrorKind, pc: u32) -> Verdict {
        let at = (pc as usize).saturating_sub(1);
        Verdict::Failed(RunError { kind, span: self.spans.get(at).copied().unwrap_or_default() })
    }
}

/// The caller of a route that runs.
#[derive(Debug, Clone, Copy)]
struct Caller {
    resume_at: u32,
    base: u32,
}

/// Runs programs, one run at a time. Keeps its buffers.
#[derive(Debug)]
pub struct Machine {
    stack: Vec<Value>,
    locals: Vec<Value>,
    callers: Vec<Caller>,
    arena: Vec<u8>,
    /// The other half of the arena when it is collected, and the scratch of transformations.
    spare: Vec<u8>,
    collect_at: usize,
    pc: u32,
    kind: RouteKind,
    code: i64,
    subject: Value,
    steps: u32,
    steps_max: u32,
    dynamic: Vec<(Box<[u8]>, Option<Regex>)>,
    dynamic_next: usize,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// A machine with empty buffers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            stack: Vec::with_capacity(64),
            locals: Vec::new(),
            callers: Vec::with_capacity(16),
            arena: Vec::with_capacity(4096),
            spare: Vec::new(),
            collect_at: ARENA_COLLECT_BYTES,
            pc: 0,
            kind: RouteKind::Request,
            code: 1,
            subject: Value::Null,
            steps: 0,
            steps_max: STEPS_MAX,
            dynamic: Vec::new(),
            dynamic_next: 0,
        }
    }

    /// Sets how many instructions a run may take; [`STEPS_MAX`] until set.
    pub fn set_steps_max(&mut self, steps: u32) {
        self.steps_max = steps;
    }

    /// Instructions that the last run has taken so far.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Runs a route from its start.
    pub fn run<H: Host>(&mut self, program: &Program, route: RouteId, host: &mut H) -> Step {
        let Some(route) = program.route(route) else {
            return Step::Done(program.error(RunErrorKind::OtherProgram, 0));
        };
        self.stack.clear();
        self.callers.clear();
        self.arena.clear();
        self.locals.clear();
        self.locals.extend_from_slice(&program.locals);
        self.collect_at = ARENA_COLLECT_BYTES;
        self.kind = route.kind;
        self.code = 1;
        self.steps = 0;
        self.execute(program, route.entry, host)
    }

    /// Goes on with a suspended run: `code` is the return code of the function that suspended it.
    pub fn resume<H: Host>(&mut self, program: &Program, frame: Frame, code: i32, host: &mut H) -> Step {
        if !self.restore(program, frame) {
            return Step::Done(program.error(RunErrorKind::OtherProgram, 0));
        }
        let pc = self.pc;
        if code == 0 {
            return Step::Done(Verdict::Exit);
        }
        self.code = i64::from(code);
        self.stack.push(Value::Int(self.code));
        self.execute(program, pc, host)
    }

    fn execute<H: Host>(&mut self, program: &Program, mut pc: u32, host: &mut H) -> Step {
        let code = program.code.as_slice();
        loop {
            let Some(&op) = code.get(pc as usize) else {
                return Step::Done(program.error(RunErrorKind::OtherProgram, pc));
            };
            pc += 1;
            self.steps += 1;
            if self.steps > self.steps_max {
                return Step::Done(program.error(RunErrorKind::Steps, pc));
            }
            match op {
                Op::Str { start, len } => self.stack.push(Value::Str(Text::constant(start, len.into()))),
                Op::Int(value) => self.stack.push(Value::Int(value.into())),
                Op::Call { function, argc, contexts } => {
                    match self.call(program, host, FunctionId(function), argc, contexts) {
                        Outcome::True => self.returned(1),
                        Outcome::False => self.returned(-1),
                        Outcome::Exit | Outcome::Code(0) => return Step::Done(Verdict::Exit),
                        Outcome::Code(code) => self.returned(i64::from(code)),
                        Outcome::Suspend => {
                            self.pc = pc;
                            return match self.suspend(program) {
                                Ok(frame) => Step::Suspended(frame),
                                Err(kind) => Step::Done(program.error(kind, pc)),
                            };
                        }
                    }
                }
                Op::Pop => {
                    self.stack.pop();
                }
                Op::Jump(to) | Op::Loop(to) => pc = to,
                Op::JumpOk(to) if self.pop_int(program) > 0 => pc = to,
                Op::JumpFailed(to) if self.pop_int(program) <= 0 => pc = to,
                Op::JumpIf(to) if self.pop_int(program) != 0 => pc = to,
                Op::JumpUnless(to) if self.pop_int(program) == 0 => pc = to,
                Op::JumpOk(_) | Op::JumpFailed(_) | Op::JumpIf(_) | Op::JumpUnless(_) => {}
                Op::CallRoute(route) => match self.enter(program, route, pc) {
                    Ok(entry) => pc = entry,
                    Err(kind) => return Step::Done(program.error(kind, pc)),
                },
                Op::CallNamed => match self.find_route(program) {
                    None => self.returned(-1),
                    Some(route) => match self.enter(program, route, pc) {
                        Ok(entry) => pc = entry,
                        Err(kind) => return Step::Done(program.error(kind, pc)),
                    },
                },
                Op::Return => {
                    let code = self.pop_int(program);
                    if code == 0 {
                        return Step::Done(Verdict::Exit);
                    }
                    let Some(caller) = self.callers.pop() else {
                        return Step::Done(Verdict::End(code));
                    };
                    self.stack.truncate(caller.base as usize);
                    self.returned(code);
                    pc = caller.resume_at;
                }
                Op::Exit => return Step::Done(Verdict::Exit),
                Op::Drop => return Step::Done(Verdict::Drop),
                Op::Read(variable) => {
                    let at = (Inner::None, SiteIndex::None);
                    if let Err(kind) = self.read(program, host, VariableId(variable), at) {
                        return Step::Done(program.error(kind, pc));
                    }
                }
                Op::ReadAt(_) | Op::Write(_) | Op::WriteAt(_) | Op::MyselfVariable(_) | Op::MyselfValue => {
                    if let Err(kind) = self.outside(program, host, op) {
                        return Step::Done(program.error(kind, pc));
                    }
                }
                _ => {
                    if let Err(kind) = self.inside(program, op) {
                        return Step::Done(program.error(kind, pc));
                    }
                }
            }
        }
    }

    #[inline]
    fn call<H: Host>(
        &mut self,
        program: &Program,
        host: &mut H,
        function: FunctionId,
        argc: u8,
        contexts: u8,
    ) -> Outcome {
        let at = self.stack.len().saturating_sub(usize::from(argc));
        let outcome = if contexts & (1 << self.kind as u8) == 0 {
            host.refused(function, self.kind);
            Outcome::False
        } else {
            let values = self.stack.get(at..).unwrap_or_default();
            host.call(function, &Args { values, arena: &self.arena, program, kind: self.kind })
        };
        self.stack.truncate(at);
        outcome
    }

    fn returned(&mut self, code: i64) {
        self.code = code;
        self.stack.push(Value::Int(code));
    }

    fn enter(&mut self, program: &Program, route: u16, resume_at: u32) -> Result<u32, RunErrorKind> {
        let entry = program.routes.get(usize::from(route)).ok_or(RunErrorKind::OtherProgram)?.entry;
        if self.callers.len() >= CALL_DEPTH_MAX || self.stack.len() > STACK_MAX {
            return Err(RunErrorKind::Depth);
        }
        let base = u32::try_from(self.stack.len()).unwrap_or(u32::MAX);
        self.callers.push(Caller { resume_at, base });
        Ok(entry)
    }

    /// The route whose name is on top of the stack.
    fn find_route(&mut self, program: &Program) -> Option<u16> {
        let value = self.pop();
        let mut digits = [0; 20];
        let name = match value {
            Value::Int(int) => {
                let decimal = crate::value::Decimal::new(int);
                let text = decimal.as_bytes();
                digits.get_mut(..text.len())?.copy_from_slice(text);
                digits.get(..text.len())?
            }
            value => self.bytes(program, value),
        };
        let found = program.routes.iter().position(|route| {
            route.kind == RouteKind::Request
                && route.name.as_deref().is_some_and(|known| known.as_bytes() == name)
        });
        found.and_then(|at| u16::try_from(at).ok())
    }

    /// The instructions that ask or tell the host.
    fn outside<H: Host>(&mut self, program: &Program, host: &mut H, op: Op) -> Result<(), RunErrorKind> {
        match op {
            Op::ReadAt(site) => {
                let site = *program.sites.get(usize::from(site)).ok_or(RunErrorKind::OtherProgram)?;
                let index = self.site_index(program, site.index);
                let (inner, scratch) = self.site_inner(program, site.inner);
                // A computed name lives in the arena, which the value is appended to: it is set aside.
                match scratch {
                    None => self.read(program, host, site.variable, (inner, index))?,
                    Some(text) => {
                        self.collect_if_full(program)?;
                        let name = text.get(&program.constants, &self.arena);
                        let mut spare = core::mem::take(&mut self.spare);
                        spare.clear();
                        spare.extend_from_slice(name);
                        let result = self.read(program, host, site.variable, (Inner::Dynamic(&spare), index));
                        self.spare = spare;
                        result?;
                    }
                }
            }
            Op::Write(variable) => {
                let value = self.pop();
                let value = self.value_ref(program, value);
                host.write(VariableId(variable), &Subscript::NONE, value);
            }
            Op::WriteAt(site) => {
                let site = *program.sites.get(usize::from(site)).ok_or(RunErrorKind::OtherProgram)?;
                let index = index_of(self.site_index(program, site.index));
                let (inner, scratch) = self.site_inner(program, site.inner);
                let value = self.pop();
                let value = self.value_ref(program, value);
                let inner = match scratch {
                    Some(text) => Inner::Dynamic(text.get(&program.constants, &self.arena)),
                    None => inner,
                };
                host.write(site.variable, &Subscript { inner, index }, value);
            }
            Op::MyselfVariable(variable) => {
                let yes = host.is_myself(Subject::Variable(VariableId(variable)));
                self.stack.push(Value::Int(yes.into()));
            }
            _ => {
                let value = self.pop();
                let yes = host.is_myself(Subject::Bytes(self.bytes(program, value)));
                self.stack.push(Value::Int(yes.into()));
            }
        }
        Ok(())
    }

    fn read<H: Host>(
        &mut self,
        program: &Program,
        host: &mut H,
        variable: VariableId,
        (inner, index): (Inner<'_>, SiteIndex),
    ) -> Result<(), RunErrorKind> {
        if !matches!(inner, Inner::Dynamic(_)) {
            self.collect_if_full(program)?;
        }
        let mut sink = Sink::new(&mut self.arena);
        host.read(variable, &Subscript { inner, index: index_of(index) }, &mut sink);
        let value = sink.finish().ok_or(RunErrorKind::Memory)?;
        self.stack.push(value);
        Ok(())
    }

    fn site_index(&mut self, program: &Program, index: SiteIndex) -> SiteIndex {
        match index {
            SiteIndex::Dynamic => SiteIndex::At(i32::try_from(self.pop_int(program)).unwrap_or(i32::MAX)),
            index => index,
        }
    }

    /// The constant name, or the place of a computed one.
    fn site_inner<'p>(&mut self, program: &'p Program, inner: SiteInner) -> (Inner<'p>, Option<Text>) {
        match inner {
            SiteInner::None => (Inner::None, None),
            SiteInner::Name(id, text) => (Inner::Name(id, text.get(&program.constants, &[])), None),
            SiteInner::Dynamic => match self.pop() {
                Value::Str(text) => (Inner::None, Some(text)),
                _ => (Inner::None, Some(Text::EMPTY)),
            },
        }
    }

    #[inline]
    fn pop(&mut self) -> Value {
        self.stack.pop().unwrap_or(Value::Null)
    }

    #[inline]
    fn pop_int(&mut self, program: &Program) -> i64 {
        match self.pop() {
            Value::Int(int) => int,
            value => self.value_ref(program, value).to_int(),
        }
    }

    fn value_ref<'a>(&'a self, program: &'a Program, value: Value) -> ValueRef<'a> {
        match value {
            Value::Int(int) => ValueRef::Int(int),
            Value::Str(text) => ValueRef::Str(text.get(&program.constants, &self.arena)),
            Value::Null | Value::Regex(_) | Value::Route(_) => ValueRef::Null,
        }
    }

    /// The bytes of a string; none for other values.
    fn bytes<'a>(&'a self, program: &'a Program, value: Value) -> &'a [u8] {
        self.value_ref(program, value).as_str().unwrap_or_default()
    }

    fn collect_if_full(&mut self, program: &Program) -> Result<(), RunErrorKind> {
        if self.arena.len() > self.collect_at { self.collect(program) } else { Ok(()) }
    }

    /// Keeps only the strings that the stack and the `$var`s still hold. Runs between instructions, when
    /// nothing else refers to the arena.
    fn collect(&mut self, program: &Program) -> Result<(), RunErrorKind> {
        self.spare.clear();
        let mut last: Option<(Text, Text)> = None;
        for value in self.stack.iter_mut().chain(&mut self.locals) {
            let Value::Str(text) = value else { continue };
            if text.is_constant() {
                continue;
            }
            if let Some((_, moved)) = last.filter(|(from, _)| from == text) {
                *text = moved;
                continue;
            }
            let start = self.spare.len();
            let bytes = text.get(&program.constants, &self.arena);
            if start + bytes.len() > ARENA_BYTES_MAX {
                return Err(RunErrorKind::Memory);
            }
            self.spare.extend_from_slice(bytes);
            let moved = Text::arena(start, bytes.len());
            last = Some((*text, moved));
            *text = moved;
        }
        core::mem::swap(&mut self.arena, &mut self.spare);
        self.subject = Value::Null;
        self.collect_at = (2 * self.arena.len()).max(ARENA_COLLECT_BYTES);
        Ok(())
    }

    /// The expression for a text that the script computed; `None` when it is not one.
    fn dynamic_regex(&mut self, text: &[u8]) -> Option<&Regex> {
        let found = self.dynamic.iter().position(|(known, _)| **known == *text);
        let at = match found {
            Some(at) => at,
            None => {
                let too_long = text.len() > crate::limits::REGEX_DYNAMIC_TEXT_MAX;
                let regex = if too_long { None } else { Regex::dynamic(text).ok() };
                let entry = (Box::from(text), regex);
                let at = self.dynamic_next % REGEX_DYNAMIC_CACHE;
                self.dynamic_next = at + 1;
                match self.dynamic.get_mut(at) {
                    Some(slot) => *slot = entry,
                    None => self.dynamic.push(entry),
                }
                at
            }
        };
        self.dynamic.get(at).and_then(|(_, regex)| regex.as_ref())
    }
}

fn index_of(index: SiteIndex) -> Index {
    match index {
        SiteIndex::None | SiteIndex::Dynamic => Index::None,
        SiteIndex::At(at) => Index::At(at),
        SiteIndex::All => Index::All,
    }
}
