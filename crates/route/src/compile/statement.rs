//! Statements.

use super::{Compiler, diverges};
use crate::ast::{Binary, Block, Case, Expr, ExprKind, Label, LabelKind, Statement, StatementKind, Variable};
use crate::code::Op;
use crate::diagnostic::{Diagnostic, Span};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

impl Compiler<'_> {
    pub(super) fn block(&mut self, block: &Block) {
        let mut ended: Option<Span> = None;
        let mut reported = false;
        for statement in &block.statements {
            if let Some(end) = ended.filter(|_| !reported) {
                reported = true;
                self.diagnostics.push(
                    Diagnostic::warning("unreachable", "this is never reached", statement.span)
                        .also(end, "nothing behind this runs"),
                );
            }
            self.statement(statement);
            if ended.is_none() && diverges(statement) {
                ended = Some(statement.span);
            }
        }
    }

    fn statement(&mut self, statement: &Statement) {
        self.span = statement.span;
        match &statement.kind {
            StatementKind::Block(block) => self.block(block),
            StatementKind::If { arms, otherwise } => self.if_statement(arms, otherwise.as_ref()),
            StatementKind::While { condition, body } => self.while_statement(condition, body),
            StatementKind::Switch { subject, cases } => self.switch(subject, cases),
            StatementKind::Break => {
                if self.breaks.is_empty() {
                    // Outside of loops, the old language leaves the route.
                    self.emit(Op::Int(1));
                    self.emit(Op::Return);
                } else {
                    let at = self.emit(Op::Jump(0));
                    if let Some(breaks) = self.breaks.last_mut() {
                        breaks.push(at);
                    }
                }
            }
            StatementKind::Return(value) => {
                match value {
                    Some(value) => {
                        self.value(value);
                    }
                    None => {
                        self.emit(Op::Int(1));
                    }
                }
                self.emit(Op::Return);
            }
            StatementKind::Exit => {
                self.emit(Op::Exit);
            }
            StatementKind::Drop => {
                self.emit(Op::Drop);
            }
            StatementKind::Assign { target, operator, value } => self.assign(target, *operator, value),
            StatementKind::Call(call) => {
                if !matches!(call.kind, ExprKind::Call { .. } | ExprKind::Route(_) | ExprKind::Binary(..)) {
                    let message = "the value of this expression is not used";
                    self.diagnostics.push(Diagnostic::warning("unused-value", message, call.span));
                }
                self.value(call);
                self.emit(Op::Pop);
            }
        }
    }

    fn if_statement(&mut self, arms: &[(Expr, Block)], otherwise: Option<&Block>) {
        let mut ends = Vec::new();
        for (at, (condition, body)) in arms.iter().enumerate() {
            self.span = condition.span;
            let skip = self.jump(condition, false);
            self.block(body);
            let last = at + 1 == arms.len() && otherwise.is_none();
            if !last {
                ends.push(self.emit(Op::Jump(0)));
            }
            self.patch_all(skip);
        }
        if let Some(body) = otherwise {
            self.block(body);
        }
        self.patch_all(ends);
    }

    fn while_statement(&mut self, condition: &Expr, body: &Block) {
        let top = u32::try_from(self.here()).unwrap_or(u32::MAX);
        self.span = condition.span;
        let skip = self.jump(condition, false);
        self.breaks.push(Vec::new());
        self.block(body);
        self.span = condition.span;
        self.emit(Op::Loop(top));
        self.patch_all(skip);
        let breaks = self.breaks.pop().unwrap_or_default();
        self.patch_all(breaks);
    }

    /// First all tests in order, then the bodies in order: one runs into the next, as in C.
    fn switch(&mut self, subject: &Expr, cases: &[Case]) {
        self.span = subject.span;
        self.value(subject);
        self.emit(Op::SwitchOn);
        self.duplicate_labels(cases);
        let mut entries: Vec<Vec<usize>> = Vec::new();
        let mut default = None;
        for (at, case) in cases.iter().enumerate() {
            let mut entry = Vec::new();
            for label in &case.labels {
                self.span = label.span;
                match &label.kind {
                    LabelKind::Default => {
                        default = Some(at);
                        continue;
                    }
                    LabelKind::Int(value) => match i32::try_from(*value) {
                        Ok(value) => {
                            self.emit(Op::CaseInt(value));
                        }
                        Err(_) => {
                            let message = "a case is an integer of at most 32 bits";
                            self.error(Diagnostic::error("number", message, label.span));
                        }
                    },
                    LabelKind::Str(text) => {
                        let (start, len) = self.constant(text);
                        self.emit(Op::CaseStr { start, len });
                    }
                    LabelKind::Regex(text) => {
                        let regex = self.regex(text, label.span);
                        self.emit(Op::CaseRegex(regex));
                    }
                }
                entry.push(self.emit(Op::JumpIf(0)));
            }
            entries.push(entry);
        }
        let miss = self.emit(Op::Jump(0));
        self.breaks.push(Vec::new());
        for (at, (case, entry)) in cases.iter().zip(entries).enumerate() {
            self.patch_all(entry);
            if default == Some(at) {
                self.patch(miss);
            }
            self.block(&case.body);
        }
        if default.is_none() {
            self.patch(miss);
        }
        let breaks = self.breaks.pop().unwrap_or_default();
        self.patch_all(breaks);
    }

    fn duplicate_labels(&mut self, cases: &[Case]) {
        let mut seen: BTreeMap<Vec<u8>, Span> = BTreeMap::new();
        let key = |label: &Label| match &label.kind {
            LabelKind::Default => b"default".to_vec(),
            LabelKind::Int(value) => format!("{value}").into_bytes(),
            LabelKind::Str(text) => [b"\"", text.as_slice()].concat(),
            LabelKind::Regex(text) => [b"/", text.as_slice()].concat(),
        };
        for label in cases.iter().flat_map(|case| &case.labels) {
            if let Some(first) = seen.insert(key(label), label.span) {
                let finding = match label.kind {
                    LabelKind::Default => {
                        Diagnostic::error("duplicate-case", "a second `default`", label.span)
                    }
                    _ => Diagnostic::warning("duplicate-case", "this case is never taken", label.span),
                };
                self.diagnostics.push(finding.also(first, "the first one"));
            }
        }
    }

    fn assign(&mut self, target: &Variable, operator: Option<Binary>, value: &Expr) {
        match operator {
            None => {
                self.value(value);
            }
            Some(operator) => {
                let left = self.read(target);
                let right = self.value(value);
                self.apply(operator, left, right, value);
            }
        }
        self.write(target);
    }
}
