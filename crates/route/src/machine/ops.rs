//! The instructions that only touch the machine itself.
//!
//! The rules are those of the language: the type of the left side decides what `==` and `+` mean; where an
//! integer is wanted, a string is read as a number and anything unreadable is 0; where a string is wanted,
//! null is empty. A division by zero gives null.

use super::{Machine, RunErrorKind, Sink};
use crate::code::{Arithmetic, Op, Program, Relation};
use crate::limits::{ARENA_BYTES_MAX, STRING_BYTES_MAX};
use crate::transform::{self, TransformId};
use crate::value::{Decimal, Text, Value, ValueRef};
use core::net::IpAddr;

impl Machine {
    pub(super) fn inside(&mut self, program: &Program, op: Op) -> Result<(), RunErrorKind> {
        match op {
            Op::Null => self.stack.push(Value::Null),
            Op::Long(at) => {
                let value = program.longs.get(usize::from(at)).copied().unwrap_or(0);
                self.stack.push(Value::Int(value));
            }
            Op::Regex(id) => self.stack.push(Value::Regex(id)),
            Op::Route(id) => self.stack.push(Value::Route(id)),
            Op::Local(at) => {
                let value = self.locals.get(usize::from(at)).copied().unwrap_or(Value::Null);
                self.stack.push(value);
            }
            Op::SetLocal(at) => self.set_local(program, usize::from(at)),
            Op::Code => self.stack.push(Value::Int(self.code)),
            Op::ToInt => {
                let value = self.pop_int(program);
                self.stack.push(Value::Int(value));
            }
            Op::ToStr => {
                let value = self.pop();
                let text = self.text(program, value)?;
                self.stack.push(Value::Str(text));
            }
            Op::Encode(at) => self.encode(program, usize::from(at)),
            Op::Format(pieces) => self.format(program, usize::from(pieces))?,
            Op::Concat => self.concat(program)?,
            Op::Add => self.add(program)?,
            Op::Arithmetic(operation) => {
                let right = self.pop_int(program);
                let left = self.pop_int(program);
                self.stack.push(calculate(operation, left, right));
            }
            Op::Negate => self.unary(program, i64::wrapping_neg),
            Op::Complement => self.unary(program, |value| !value),
            Op::Not => self.unary(program, |value| i64::from(value == 0)),
            Op::Compare(relation) => self.compare(program, relation),
            Op::Match(regex) => self.matches(program, regex),
            Op::MatchDynamic => self.matches_dynamic(program),
            Op::InNetwork(network) => self.in_network(program, network),
            Op::Strlen | Op::Strempty => {
                let value = self.pop();
                let len = match value {
                    Value::Int(int) => Decimal::new(int).as_bytes().len(),
                    value => self.bytes(program, value).len(),
                };
                let answer = if op == Op::Strlen { len } else { usize::from(len == 0) };
                self.stack.push(Value::Int(i64::try_from(answer).unwrap_or(i64::MAX)));
            }
            Op::Defined => {
                let defined = self.pop() != Value::Null;
                self.push_bool(defined);
            }
            Op::Transform { id, argc } => self.transform(program, TransformId(id), usize::from(argc))?,
            Op::Subst(at) => self.substitute(program, usize::from(at))?,
            Op::SwitchOn => self.subject = self.pop(),
            Op::CaseInt(value) => {
                let same = self.value_ref(program, self.subject).to_int() == i64::from(value);
                self.push_bool(same);
            }
            Op::CaseStr { start, len } => {
                let wanted = Text::constant(start, len.into()).get(&program.constants, &[]);
                let same = with_bytes(self.value_ref(program, self.subject), |bytes| bytes == wanted);
                self.push_bool(same);
            }
            Op::CaseRegex(regex) => {
                self.stack.push(self.subject);
                self.matches(program, regex);
            }
            // The rest is the business of the run loop.
            _ => {}
        }
        Ok(())
    }

    fn push_bool(&mut self, value: bool) {
        self.stack.push(Value::Int(value.into()));
    }

    fn unary(&mut self, program: &Program, operation: impl Fn(i64) -> i64) {
        let value = self.pop_int(program);
        self.stack.push(Value::Int(operation(value)));
    }

    fn set_local(&mut self, program: &Program, at: usize) {
        let value = match self.pop() {
            Value::Null => program.locals.get(at).copied().unwrap_or(Value::Null),
            value => value,
        };
        if let Some(slot) = self.locals.get_mut(at) {
            *slot = value;
        }
    }

    fn encode(&mut self, program: &Program, at: usize) {
        let value = self.pop();
        let value = match (self.value_ref(program, value), program.encoders.get(at)) {
            (ValueRef::Int(int), _) => int,
            (ValueRef::Str(bytes), Some(encoder)) => encoder(bytes).unwrap_or(-1),
            _ => -1,
        };
        self.stack.push(Value::Int(value));
    }

    /// The value as a string in the arena or among the constants.
    fn text(&mut self, program: &Program, value: Value) -> Result<Text, RunErrorKind> {
        match value {
            Value::Str(text) => Ok(text),
            Value::Int(int) => {
                let start = self.arena.len();
                self.append(program, Value::Int(int), b"", start)?;
                Ok(Text::arena(start, self.arena.len() - start))
            }
            _ => Ok(Text::EMPTY),
        }
    }

    /// Appends the text of a value to the string that starts at `start` in the arena.
    fn append(
        &mut self,
        program: &Program,
        value: Value,
        null: &[u8],
        start: usize,
    ) -> Result<(), RunErrorKind> {
        let more = if let Value::Str(text) = value { text.len() } else { null.len().max(20) };
        let end = self.arena.len() + more;
        if end > ARENA_BYTES_MAX || end - start > STRING_BYTES_MAX {
            return Err(RunErrorKind::Memory);
        }
        match value {
            Value::Int(int) => self.arena.extend_from_slice(Decimal::new(int).as_bytes()),
            Value::Str(text) if text.is_constant() => {
                self.arena.extend_from_slice(text.get(&program.constants, &[]));
            }
            Value::Str(text) => {
                let from = text.place() as usize;
                if from + text.len() <= self.arena.len() {
                    self.arena.extend_from_within(from..from + text.len());
                }
            }
            _ => self.arena.extend_from_slice(null),
        }
        Ok(())
    }

    /// Joins the topmost pieces; null becomes `<null>`, as logs show it.
    fn format(&mut self, program: &Program, pieces: usize) -> Result<(), RunErrorKind> {
        self.collect_if_full(program)?;
        let start = self.arena.len();
        let base = self.stack.len().saturating_sub(pieces);
        for at in base..self.stack.len() {
            let value = self.stack.get(at).copied().unwrap_or(Value::Null);
            self.append(program, value, b"<null>", start)?;
        }
        self.stack.truncate(base);
        self.stack.push(Value::Str(Text::arena(start, self.arena.len() - start)));
        Ok(())
    }

    /// Joins two values as strings; null is empty.
    fn concat(&mut self, program: &Program) -> Result<(), RunErrorKind> {
        self.collect_if_full(program)?;
        let right = self.pop();
        let left = self.pop();
        let mut start = self.arena.len();
        match left {
            // The left side is the newest string: it grows in place.
            Value::Str(text) if !text.is_constant() && text.place() as usize + text.len() == start => {
                start = text.place() as usize;
            }
            _ => self.append(program, left, b"", start)?,
        }
        self.append(program, right, b"", start)?;
        self.stack.push(Value::Str(Text::arena(start, self.arena.len() - start)));
        Ok(())
    }

    fn add(&mut self, program: &Program) -> Result<(), RunErrorKind> {
        let len = self.stack.len();
        let left = self.stack.get(len.saturating_sub(2)).copied().unwrap_or(Value::Null);
        if !matches!(left, Value::Int(_)) {
            return self.concat(program);
        }
        let right = self.pop_int(program);
        let left = self.pop_int(program);
        self.stack.push(Value::Int(left.wrapping_add(right)));
        Ok(())
    }

    fn compare(&mut self, program: &Program, relation: Relation) {
        let right = self.pop();
        let left = self.pop();
        let left = self.value_ref(program, left);
        let right = self.value_ref(program, right);
        let answer = match relation {
            Relation::Equal => equal(left, right),
            Relation::Differ => !equal(left, right),
            Relation::IntEqual => left.to_int() == right.to_int(),
            Relation::IntDiffer => left.to_int() != right.to_int(),
            Relation::StrEqual => same_text(left, right),
            Relation::StrDiffer => !same_text(left, right),
            Relation::Less => left.to_int() < right.to_int(),
            Relation::LessOrEqual => left.to_int() <= right.to_int(),
            Relation::Greater => left.to_int() > right.to_int(),
            Relation::GreaterOrEqual => left.to_int() >= right.to_int(),
        };
        self.push_bool(answer);
    }

    fn matches(&mut self, program: &Program, regex: u16) {
        let value = self.pop();
        let regex = program.regexes.get(usize::from(regex));
        let value = self.value_ref(program, value);
        let answer = with_bytes(value, |bytes| regex.is_some_and(|regex| regex.is_match(bytes)));
        self.push_bool(answer);
    }

    fn matches_dynamic(&mut self, program: &Program) {
        let pattern = self.pop();
        let value = self.pop();
        let mut spare = core::mem::take(&mut self.spare);
        spare.clear();
        spare.extend_from_slice(self.bytes(program, pattern));
        let split = spare.len();
        with_bytes(self.value_ref(program, value), |bytes| spare.extend_from_slice(bytes));
        let (pattern, text) = spare.split_at(split);
        let answer = self.dynamic_regex(pattern).is_some_and(|regex| regex.is_match(text));
        self.spare = spare;
        self.push_bool(answer);
    }

    fn in_network(&mut self, program: &Program, network: u16) {
        let value = self.pop();
        let answer = program
            .networks
            .get(usize::from(network))
            .zip(address(self.bytes(program, value)))
            .is_some_and(|(network, address)| network.contains(address));
        self.push_bool(answer);
    }

    fn transform(&mut self, program: &Program, id: TransformId, argc: usize) -> Result<(), RunErrorKind> {
        self.collect_if_full(program)?;
        let base = self.stack.len().saturating_sub(argc + 1);
        let mut spare = core::mem::take(&mut self.spare);
        spare.clear();
        let mut args = [ValueRef::Null; transform::ARGUMENTS_MAX + 1];
        for (slot, value) in args.iter_mut().zip(self.stack.get(base..).unwrap_or_default()) {
            *slot = self.value_ref(program, *value);
        }
        let mut sink = Sink::new(&mut spare);
        let (value, args) = args.split_first().unwrap_or((&ValueRef::Null, &[]));
        transform::apply(id, *value, args.get(..argc).unwrap_or_default(), &mut sink);
        let result = sink.finish();
        self.stack.truncate(base);
        self.put_spare(result, spare)
    }

    fn substitute(&mut self, program: &Program, at: usize) -> Result<(), RunErrorKind> {
        self.collect_if_full(program)?;
        let value = self.pop();
        let mut spare = core::mem::take(&mut self.spare);
        spare.clear();
        let mut sink = Sink::new(&mut spare);
        match program.substitutions.get(at) {
            Some(substitution) if value != Value::Null => {
                with_bytes(self.value_ref(program, value), |bytes| {
                    transform::substitute(substitution, bytes, &mut sink);
                });
            }
            _ => {}
        }
        let result = sink.finish();
        self.put_spare(result, spare)
    }

    /// Pushes a value whose string, if it is one, is all of `spare`; gives `spare` back.
    fn put_spare(&mut self, result: Option<Value>, spare: alloc::vec::Vec<u8>) -> Result<(), RunErrorKind> {
        let start = self.arena.len();
        let value = match result {
            Some(Value::Str(_)) if start + spare.len() <= ARENA_BYTES_MAX => {
                self.arena.extend_from_slice(&spare);
                Ok(Value::Str(Text::arena(start, spare.len())))
            }
            Some(Value::Str(_)) | None => Err(RunErrorKind::Memory),
            Some(value) => Ok(value),
        };
        self.spare = spare;
        self.stack.push(value?);
        Ok(())
    }
}

/// Runs `use_it` on the value as a string: null is empty, integers are decimal.
fn with_bytes<R>(value: ValueRef<'_>, use_it: impl FnOnce(&[u8]) -> R) -> R {
    match value {
        ValueRef::Null => use_it(b""),
        ValueRef::Int(int) => use_it(Decimal::new(int).as_bytes()),
        ValueRef::Str(bytes) => use_it(bytes),
    }
}

fn same_text(left: ValueRef<'_>, right: ValueRef<'_>) -> bool {
    with_bytes(left, |left| with_bytes(right, |right| left == right))
}

/// `==`: the left side's type decides; a null left side takes the type of the right.
fn equal(left: ValueRef<'_>, right: ValueRef<'_>) -> bool {
    match (left, right) {
        (ValueRef::Str(_), _) => same_text(left, right),
        (ValueRef::Int(_), _) | (ValueRef::Null, ValueRef::Int(_)) => left.to_int() == right.to_int(),
        (ValueRef::Null, _) => same_text(left, right),
    }
}

fn calculate(operation: Arithmetic, left: i64, right: i64) -> Value {
    let shift = u32::try_from(right).unwrap_or(u32::MAX);
    Value::Int(match operation {
        Arithmetic::Sub => left.wrapping_sub(right),
        Arithmetic::Mul => left.wrapping_mul(right),
        Arithmetic::Div | Arithmetic::Mod if right == 0 => return Value::Null,
        Arithmetic::Div => left.wrapping_div(right),
        Arithmetic::Mod => left.wrapping_rem(right),
        Arithmetic::And => left & right,
        Arithmetic::Or => left | right,
        Arithmetic::Xor => left ^ right,
        Arithmetic::Left => left.checked_shl(shift).unwrap_or(0),
        Arithmetic::Right => left.checked_shr(shift).unwrap_or(if left < 0 { -1 } else { 0 }),
    })
}

/// An address as text, with or without the brackets of IPv6.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(bytes).ok()?;
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    text.parse().ok()
}
