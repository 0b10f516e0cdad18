//! Suspended runs.

use super::{Caller, Machine, RunErrorKind};
use crate::catalogue::RouteKind;
use crate::code::Program;
use crate::diagnostic::Span;
use crate::value::Value;
use alloc::boxed::Box;

/// A suspended run: owned, one pointer wide, free to wait anywhere.
///
/// It holds only what the rest of the run needs: the operand stack, the callers, the `$var`s and the
/// strings that they refer to.
#[derive(Debug)]
pub struct Frame(Box<Suspended>);

#[derive(Debug)]
struct Suspended {
    program: u64,
    pc: u32,
    steps: u32,
    code: i64,
    kind: RouteKind,
    /// The `$var`s, then the operand stack.
    values: Box<[Value]>,
    callers: Box<[Caller]>,
    arena: Box<[u8]>,
}

impl Frame {
    /// Where in the configuration the run waits.
    #[must_use]
    pub fn span(&self, program: &Program) -> Span {
        let at = (self.0.pc as usize).saturating_sub(1);
        program.spans.get(at).copied().unwrap_or_default()
    }

    /// Bytes that the frame takes in memory.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Suspended>()
            + size_of_val(&*self.0.values)
            + size_of_val(&*self.0.callers)
            + self.0.arena.len()
    }
}

impl Machine {
    pub(super) fn suspend(&mut self, program: &Program) -> Result<Frame, RunErrorKind> {
        self.collect(program)?;
        let values = self.locals.iter().chain(&self.stack).copied().collect();
        Ok(Frame(Box::new(Suspended {
            program: program.id,
            pc: self.pc,
            steps: self.steps,
            code: self.code,
            kind: self.kind,
            values,
            callers: self.callers.as_slice().into(),
            arena: self.arena.as_slice().into(),
        })))
    }

    /// Takes the state of a frame; false when it belongs to another program.
    pub(super) fn restore(&mut self, program: &Program, frame: Frame) -> bool {
        let frame = *frame.0;
        if frame.program != program.id {
            return false;
        }
        let Some((locals, stack)) = frame.values.split_at_checked(program.locals.len()) else {
            return false;
        };
        self.locals.clear();
        self.locals.extend_from_slice(locals);
        self.stack.clear();
        self.stack.extend_from_slice(stack);
        self.callers.clear();
        self.callers.extend_from_slice(&frame.callers);
        self.arena.clear();
        self.arena.extend_from_slice(&frame.arena);
        self.collect_at = crate::limits::ARENA_COLLECT_BYTES.max(2 * self.arena.len());
        self.pc = frame.pc;
        self.steps = frame.steps;
        self.code = frame.code;
        self.kind = frame.kind;
        true
    }
}
