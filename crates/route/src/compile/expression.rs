//! Expressions: as values, and as conditions that jump.

use super::{Compiler, Type};
use crate::ast::{Binary, Expr, ExprKind, Keyword, Meaning, Unary};
use crate::code::{Arithmetic, Network, Op, Relation};
use crate::diagnostic::{Diagnostic, Span};
use alloc::format;
use alloc::vec::Vec;

impl Compiler<'_> {
    /// Leaves the value of an expression on the stack.
    pub(super) fn value(&mut self, expr: &Expr) -> Type {
        match &expr.kind {
            ExprKind::Int(value) => {
                self.emit_int(*value);
                Type::Int
            }
            ExprKind::Str(text) => {
                self.warn_variables(text, expr.span);
                self.emit_str(text);
                Type::Str
            }
            ExprKind::Variable(variable) => self.read(variable),
            ExprKind::Keyword(keyword) => self.keyword(keyword, expr.span),
            ExprKind::Call { name, args } => {
                self.call(name, args, expr.span);
                Type::Int
            }
            ExprKind::Route(name) => {
                self.route_call(name, expr.span);
                Type::Int
            }
            ExprKind::Unary(operator, operand) => self.unary(*operator, operand, expr),
            ExprKind::Binary(Binary::And | Binary::Or, ..) => self.truth(expr),
            ExprKind::Binary(operator, left, right) => self.binary(*operator, left, right, expr),
            ExprKind::Myself => {
                let finding = Diagnostic::error("myself", "`myself` is not a value", expr.span);
                self.error(finding.help("compare with it: `uri == myself`, `src_ip != myself`"));
                self.emit(Op::Null);
                Type::Any
            }
            ExprKind::Word(word) => {
                let finding = Diagnostic::error("bare-word", format!("`{word}` is not a value"), expr.span);
                let defined = crate::diagnostic::nearest(word, self.defines.keys().map(|key| key.as_str()));
                self.error(match defined {
                    Some(near) => finding.help(format!("did you mean the definition `{near}`?")),
                    None => finding.help(format!("a string needs quotes: \"{word}\"")),
                });
                self.emit(Op::Null);
                Type::Any
            }
            ExprKind::Error => {
                self.emit(Op::Null);
                Type::Any
            }
        }
    }

    /// 1 or 0, by jumps.
    fn truth(&mut self, expr: &Expr) -> Type {
        let no = self.jump(expr, false);
        self.emit(Op::Int(1));
        let end = self.emit(Op::Jump(0));
        self.patch_all(no);
        self.emit(Op::Int(0));
        self.patch(end);
        Type::Int
    }

    /// Jumps when the truth of the condition is `sense`, and goes on when it is not. Gives the jumps.
    pub(super) fn jump(&mut self, expr: &Expr, sense: bool) -> Vec<usize> {
        match &expr.kind {
            ExprKind::Unary(Unary::Not, operand) => self.jump(operand, !sense),
            ExprKind::Binary(operator @ (Binary::And | Binary::Or), left, right) => {
                // `a && b` is false as soon as `a` is; `a || b` is true as soon as `a` is.
                let short = *operator == Binary::Or;
                if sense == short {
                    let mut jumps = self.jump(left, sense);
                    jumps.extend(self.jump(right, sense));
                    jumps
                } else {
                    let skip = self.jump(left, short);
                    let jumps = self.jump(right, sense);
                    self.patch_all(skip);
                    jumps
                }
            }
            ExprKind::Int(value) => {
                if (*value != 0) == sense {
                    alloc::vec![self.emit(Op::Jump(0))]
                } else {
                    Vec::new()
                }
            }
            ExprKind::Call { .. } | ExprKind::Route(_) => {
                self.value(expr);
                let jump = if sense { Op::JumpOk(0) } else { Op::JumpFailed(0) };
                alloc::vec![self.emit(jump)]
            }
            ExprKind::Str(_) => {
                let finding = Diagnostic::error("condition", "a string is not a condition", expr.span);
                self.error(finding.help("compare it with something"));
                Vec::new()
            }
            _ => {
                self.value(expr);
                let jump = if sense { Op::JumpIf(0) } else { Op::JumpUnless(0) };
                alloc::vec![self.emit(jump)]
            }
        }
    }

    fn keyword(&mut self, keyword: &Keyword, span: Span) -> Type {
        match keyword.meaning {
            Meaning::ReturnCode => {
                self.emit(Op::Code);
                Type::Int
            }
            Meaning::Text(text) => {
                self.emit_str(text.as_bytes());
                Type::Str
            }
            Meaning::Variable(name) => match self.catalogue.variable_named(name) {
                Some(id) => {
                    self.emit(Op::Read(id.0));
                    Type::Any
                }
                None => {
                    let message = format!("`{}` is not supported", keyword.word);
                    self.error(
                        Diagnostic::error("keyword", message, span)
                            .label(format!("no module of this server has the variable `${name}`")),
                    );
                    self.emit(Op::Null);
                    Type::Any
                }
            },
        }
    }

    fn unary(&mut self, operator: Unary, operand: &Expr, whole: &Expr) -> Type {
        if let (Unary::Negate, ExprKind::Int(value)) = (operator, &operand.kind) {
            self.emit_int(value.wrapping_neg());
            return Type::Int;
        }
        if operator == Unary::Not {
            return self.truth(whole);
        }
        let of = self.value(operand);
        let op = match operator {
            Unary::Not => Op::Not,
            Unary::Negate => Op::Negate,
            Unary::Complement => Op::Complement,
            Unary::Defined => Op::Defined,
            Unary::ToInt if of == Type::Int => return Type::Int,
            Unary::ToStr if of == Type::Str => return Type::Str,
            Unary::ToInt => Op::ToInt,
            Unary::ToStr => Op::ToStr,
            Unary::Strlen => Op::Strlen,
            Unary::Strempty => Op::Strempty,
        };
        self.emit(op);
        if operator == Unary::ToStr { Type::Str } else { Type::Int }
    }

    fn binary(&mut self, operator: Binary, left: &Expr, right: &Expr, whole: &Expr) -> Type {
        let equality = matches!(operator, Binary::Equal | Binary::Differ | Binary::Assigned);
        if equality {
            let negated = operator == Binary::Differ;
            if let Some(done) = self.special_equality(left, right, negated) {
                return done;
            }
        }
        if matches!(operator, Binary::Match | Binary::NoMatch) {
            return self.matching(operator, left, right);
        }
        let left_type = self.value(left);
        let right_type = match &right.kind {
            // `method == INVITE`: the old language compares its words with bare words.
            ExprKind::Word(word) if equality && matches!(left.kind, ExprKind::Keyword(_)) => {
                self.emit_str(word.as_bytes());
                Type::Str
            }
            _ => self.value(right),
        };
        self.apply(operator, left_type, right_type, whole)
    }

    /// `x == myself`, and an address compared with a network.
    fn special_equality(&mut self, left: &Expr, right: &Expr, negated: bool) -> Option<Type> {
        let (subject, other) = match (&left.kind, &right.kind) {
            (ExprKind::Myself, _) => (right, left),
            _ => (left, right),
        };
        match &other.kind {
            ExprKind::Myself => self.myself(subject),
            ExprKind::Word(text) => self.in_network(subject, network(text)?),
            ExprKind::Str(text) if is_address(subject) => {
                self.in_network(subject, network(core::str::from_utf8(text).ok()?)?);
            }
            _ => return None,
        }
        if negated {
            self.emit(Op::Not);
        }
        Some(Type::Int)
    }

    fn in_network(&mut self, subject: &Expr, network: Network) {
        self.value(subject);
        match u16::try_from(self.program.networks.len()) {
            Ok(at) => {
                self.program.networks.push(network);
                self.emit(Op::InNetwork(at));
            }
            Err(_) => {
                self.too_many("networks");
            }
        }
    }

    fn myself(&mut self, subject: &Expr) {
        let plain = match &subject.kind {
            ExprKind::Keyword(Keyword { meaning: Meaning::Variable(name), .. }) => {
                self.catalogue.variable_named(name)
            }
            ExprKind::Variable(variable)
                if variable.inner.is_none()
                    && variable.index.is_none()
                    && variable.transforms.is_empty()
                    && !super::variable::is_intrinsic(&variable.name) =>
            {
                self.resolve_variable(variable).map(|(id, _)| id)
            }
            _ => None,
        };
        match plain {
            Some(id) => {
                self.emit(Op::MyselfVariable(id.0));
            }
            None => {
                if self.value(subject) != Type::Str {
                    self.emit(Op::ToStr);
                }
                self.emit(Op::MyselfValue);
            }
        }
    }

    fn matching(&mut self, operator: Binary, left: &Expr, right: &Expr) -> Type {
        self.value(left);
        match &right.kind {
            ExprKind::Str(text) => {
                let regex = self.regex(text, right.span);
                self.emit(Op::Match(regex));
            }
            _ => {
                if self.value(right) != Type::Str {
                    self.emit(Op::ToStr);
                }
                self.emit(Op::MatchDynamic);
            }
        }
        if operator == Binary::NoMatch {
            self.emit(Op::Not);
        }
        Type::Int
    }

    /// The operator on the two topmost values.
    pub(super) fn apply(&mut self, operator: Binary, left: Type, right: Type, whole: &Expr) -> Type {
        let op = match operator {
            Binary::Equal | Binary::Assigned => Op::Compare(Relation::Equal),
            Binary::Differ => Op::Compare(Relation::Differ),
            Binary::IntEqual => Op::Compare(Relation::IntEqual),
            Binary::IntDiffer => Op::Compare(Relation::IntDiffer),
            Binary::StrEqual => Op::Compare(Relation::StrEqual),
            Binary::StrDiffer => Op::Compare(Relation::StrDiffer),
            Binary::Less => Op::Compare(Relation::Less),
            Binary::LessOrEqual => Op::Compare(Relation::LessOrEqual),
            Binary::Greater => Op::Compare(Relation::Greater),
            Binary::GreaterOrEqual => Op::Compare(Relation::GreaterOrEqual),
            Binary::Add => {
                self.emit(Op::Add);
                return if left == Type::Any { Type::Any } else { left };
            }
            Binary::Concat => {
                self.emit(Op::Concat);
                return Type::Str;
            }
            Binary::Sub => Op::Arithmetic(Arithmetic::Sub),
            Binary::Mul => Op::Arithmetic(Arithmetic::Mul),
            Binary::Div => Op::Arithmetic(Arithmetic::Div),
            Binary::Mod => Op::Arithmetic(Arithmetic::Mod),
            Binary::BitAnd => Op::Arithmetic(Arithmetic::And),
            Binary::BitOr => Op::Arithmetic(Arithmetic::Or),
            Binary::BitXor => Op::Arithmetic(Arithmetic::Xor),
            Binary::Left => Op::Arithmetic(Arithmetic::Left),
            Binary::Right => Op::Arithmetic(Arithmetic::Right),
            // These become jumps before they come here.
            Binary::And | Binary::Or | Binary::Match | Binary::NoMatch => Op::Pop,
        };
        let _ = right;
        if matches!(operator, Binary::Div | Binary::Mod) && self.divides_by_zero() {
            let finding = Diagnostic::error("division", "this divides by zero", whole.span);
            self.error(finding);
        }
        self.emit(op);
        Type::Int
    }

    fn divides_by_zero(&self) -> bool {
        matches!(self.program.code.last(), Some(Op::Int(0)))
    }
}

/// Whether an expression is the address of a message, which compares as an address.
fn is_address(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Keyword(keyword) => matches!(keyword.word, "src_ip" | "dst_ip"),
        _ => false,
    }
}

/// `10.0.0.1`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `[2001:db8::]/32`.
fn network(text: &str) -> Option<Network> {
    let (address, mask) = match text.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (text, None),
    };
    let address = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let address: core::net::IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match mask {
        None => bits,
        Some(mask) => match (mask.parse::<u8>(), mask.parse::<core::net::Ipv4Addr>()) {
            (Ok(prefix), _) => prefix,
            (_, Ok(mask)) if mask.to_bits().leading_ones() + mask.to_bits().trailing_zeros() == 32 => {
                u8::try_from(mask.to_bits().leading_ones()).ok()?
            }
            (_, Ok(mask)) if mask.to_bits() == 0 => 0,
            _ => return None,
        },
    };
    Network::new(address, prefix)
}
