//! Expressions, by precedence: `||`, `&&`, `|`, `&`, `^`, shifts, equality, order, sums, products, unary
//! operators, `.`.

use super::Parser;
use crate::ast::{Binary, Expr, ExprKind, KEYWORDS, Name, Unary};
use crate::diagnostic::{Diagnostic, Span};
use crate::lexer::{Gap, TokenKind};
use crate::limits::{ARGUMENTS_MAX, EXPRESSION_DEPTH_MAX};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// How tight each operator binds.
fn operator(kind: &TokenKind) -> Option<(Binary, u8)> {
    let sign: &str = match kind {
        TokenKind::Sign(sign) => sign,
        TokenKind::Word(word) => word,
        _ => return None,
    };
    Some(match sign {
        "||" | "or" => (Binary::Or, 1),
        "&&" | "and" => (Binary::And, 2),
        "|" => (Binary::BitOr, 3),
        "&" => (Binary::BitAnd, 4),
        "^" => (Binary::BitXor, 5),
        "<<" => (Binary::Left, 6),
        ">>" => (Binary::Right, 6),
        "==" => (Binary::Equal, EQUALITY),
        "!=" => (Binary::Differ, EQUALITY),
        "ieq" => (Binary::IntEqual, EQUALITY),
        "ine" => (Binary::IntDiffer, EQUALITY),
        "eq" => (Binary::StrEqual, EQUALITY),
        "ne" => (Binary::StrDiffer, EQUALITY),
        "=~" => (Binary::Match, EQUALITY),
        "!~" => (Binary::NoMatch, EQUALITY),
        "=" => (Binary::Assigned, EQUALITY),
        "<" => (Binary::Less, ORDER),
        "<=" => (Binary::LessOrEqual, ORDER),
        ">" => (Binary::Greater, ORDER),
        ">=" => (Binary::GreaterOrEqual, ORDER),
        "+" => (Binary::Add, 9),
        "-" => (Binary::Sub, 9),
        "*" => (Binary::Mul, 10),
        "/" => (Binary::Div, 10),
        "%" | "mod" => (Binary::Mod, 10),
        "." => (Binary::Concat, CONCAT),
        _ => return None,
    })
}

const EQUALITY: u8 = 7;
const ORDER: u8 = 8;
const CONCAT: u8 = 12;

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Expr {
        self.binary(1)
    }

    fn broken(&self, span: Span) -> Expr {
        Expr { kind: ExprKind::Error, span, depth: 1 }
    }

    /// Operators that bind at least as tight as `lowest`.
    fn binary(&mut self, lowest: u8) -> Expr {
        let span = self.span();
        if self.expression_depth >= EXPRESSION_DEPTH_MAX {
            let message = format!("the expression nests more than {EXPRESSION_DEPTH_MAX} deep");
            self.error(
                Diagnostic::error("nesting", message, span).help("compute parts of it into variables first"),
            );
            self.recover();
            return self.broken(span);
        }
        self.expression_depth += 1;
        let left = self.unary();
        let result = self.operators(left, lowest);
        self.expression_depth -= 1;
        result
    }

    fn operators(&mut self, mut left: Expr, lowest: u8) -> Expr {
        while let Some((operator, tightness)) = operator(self.kind()) {
            if tightness < lowest {
                break;
            }
            let sign = self.next();
            if operator == Binary::Assigned {
                self.error(
                    Diagnostic::error(
                        "assignment-in-condition",
                        "`=` assigns; it does not compare",
                        sign.span,
                    )
                    .label("here")
                    .help("write `==`"),
                );
            }
            let right = self.binary(tightness + 1);
            let depth = left.depth.max(right.depth) + 1;
            let span = left.span.to(right.span);
            if usize::from(depth) > EXPRESSION_DEPTH_MAX {
                let message =
                    format!("the expression has more than {EXPRESSION_DEPTH_MAX} operators in a row");
                self.error(Diagnostic::error("nesting", message, left.span));
                self.recover();
                return self.broken(span);
            }
            let broken = [&left, &right].iter().any(|side| matches!(side.kind, ExprKind::Error));
            let kind = if broken {
                ExprKind::Error
            } else {
                ExprKind::Binary(operator, Box::new(left), Box::new(right))
            };
            left = Expr { kind, span, depth };
        }
        left
    }

    fn unary(&mut self) -> Expr {
        let span = self.span();
        let operator = match self.kind() {
            TokenKind::Sign("!") => Unary::Not,
            TokenKind::Sign("-") => Unary::Negate,
            TokenKind::Sign("~") => Unary::Complement,
            TokenKind::Word(word) if &**word == "not" => Unary::Not,
            TokenKind::Word(word) if &**word == "defined" => Unary::Defined,
            TokenKind::Sign("(") => match (&self.token(1).kind, self.sign_ahead(2, ")")) {
                (TokenKind::Word(word), true) if &**word == "int" => Unary::ToInt,
                (TokenKind::Word(word), true) if matches!(&**word, "str" | "string") => Unary::ToStr,
                _ => return self.primary(),
            },
            _ => return self.primary(),
        };
        self.at += if matches!(operator, Unary::ToInt | Unary::ToStr) { 3 } else { 1 };
        // `! uri == myself` negates the comparison: the words of the old language bind it first.
        let tightness = match self.kind() {
            TokenKind::Word(word) if operator == Unary::Not && keyword(word).is_some() => EQUALITY,
            _ => CONCAT - 1,
        };
        let operand = self.binary(tightness);
        let span = span.to(operand.span);
        if matches!(operand.kind, ExprKind::Error) {
            return self.broken(span);
        }
        let depth = operand.depth + 1;
        Expr { kind: ExprKind::Unary(operator, Box::new(operand)), span, depth }
    }

    fn primary(&mut self) -> Expr {
        let span = self.span();
        let kind = match self.kind().clone() {
            TokenKind::Str(_) => self.strings().map_or(ExprKind::Error, |(text, _)| ExprKind::Str(text)),
            TokenKind::Number(number) => self.number(&number, span),
            TokenKind::Variable(text) => {
                self.at += 1;
                match super::variable::parse(text.as_bytes(), span) {
                    Ok(variable) => ExprKind::Variable(Box::new(variable)),
                    Err(finding) => {
                        self.error(*finding);
                        ExprKind::Error
                    }
                }
            }
            TokenKind::Sign("(") => {
                self.at += 1;
                let inner = self.expression();
                self.close_expression(&inner, span);
                return Expr { span: span.to(self.before()), ..inner };
            }
            TokenKind::Sign("[") => match self.glued(&["-", "*", "+", "%"]) {
                Some((text, _)) if text.contains(':') => ExprKind::Word(text),
                _ => {
                    self.error(Diagnostic::error("syntax", "this is not an address", span));
                    ExprKind::Error
                }
            },
            TokenKind::Word(word) => self.named(&word, span),
            TokenKind::Select(text) => {
                self.at += 1;
                let message = format!("selects such as `{text}` are not supported");
                self.error(
                    Diagnostic::error("select", message, span)
                        .help("use the pseudo-variable that holds the same"),
                );
                ExprKind::Error
            }
            _ => {
                let message = format!("expected a value, found {}", self.found());
                self.error(Diagnostic::error("syntax", message, span).label("an expression belongs here"));
                ExprKind::Error
            }
        };
        let depth = match &kind {
            ExprKind::Call { args, .. } => args.iter().map(|arg| arg.depth).max().unwrap_or(0) + 1,
            ExprKind::Route(name) => name.depth + 1,
            ExprKind::Unary(_, inner) => inner.depth + 1,
            _ => 1,
        };
        Expr { kind, span: span.to(self.before()), depth }
    }

    fn number(&mut self, number: &str, span: Span) -> ExprKind {
        let dotted = self.sign_ahead(1, ".")
            && self.token(1).gap == Gap::None
            && matches!(self.token(2).kind, TokenKind::Number(_))
            && self.token(2).gap == Gap::None;
        if dotted && let Some((text, _)) = self.glued(&["-", "*", "+", "%", "[", "]"]) {
            return ExprKind::Word(text);
        }
        self.at += 1;
        match crate::value::parse_int(number.as_bytes()) {
            Some(value) => ExprKind::Int(value),
            None => {
                let message = format!("`{number}` is not a number");
                self.error(
                    Diagnostic::error("number", message, span)
                        .help("numbers are decimal, or hexadecimal after `0x`, and fit into 64 bits"),
                );
                ExprKind::Error
            }
        }
    }

    /// What begins with a word: a call, a keyword, or a bare word.
    fn named(&mut self, word: &str, span: Span) -> ExprKind {
        if self.sign_ahead(1, "(") {
            return match word {
                "route" => self.route_call(),
                "strlen" => self.unary_call(Unary::Strlen),
                "strempty" => self.unary_call(Unary::Strempty),
                _ => self.call(word, span),
            };
        }
        if word == "myself" {
            self.at += 1;
            return ExprKind::Myself;
        }
        let joined = (self.sign_ahead(1, ":") || self.sign_ahead(1, "."))
            && self.token(1).gap == Gap::None
            && matches!(self.token(2).kind, TokenKind::Word(_) | TokenKind::Number(_) | TokenKind::Sign("["))
            && self.token(2).gap == Gap::None;
        let text = if joined {
            self.glued(&["-", "/", "*", "+", "%"]).map_or_else(String::new, |(text, _)| text)
        } else {
            self.at += 1;
            word.to_string()
        };
        match keyword(&text) {
            Some(keyword) => ExprKind::Keyword(keyword),
            None => ExprKind::Word(text),
        }
    }

    /// `strlen(x)`: an operator written as a call.
    fn unary_call(&mut self, operator: Unary) -> ExprKind {
        self.at += 1;
        let open = self.span();
        self.at += 1;
        let operand = self.expression();
        self.close_expression(&operand, open);
        match operand.kind {
            ExprKind::Error => ExprKind::Error,
            _ => ExprKind::Unary(operator, Box::new(operand)),
        }
    }

    /// Takes the `)` behind an expression; one that is broken has been reported already.
    fn close_expression(&mut self, inner: &Expr, open: Span) {
        if matches!(inner.kind, ExprKind::Error) {
            self.take_sign(")");
        } else {
            self.close(")", open);
        }
    }

    fn route_call(&mut self) -> ExprKind {
        self.at += 1;
        let open = self.span();
        self.at += 1;
        let simple = match self.kind() {
            TokenKind::Word(_) | TokenKind::Number(_) => {
                let at = self.at;
                let name = self.glued(&["[", "]", "/", "*", "+", "%"]);
                if !self.is_sign(")") {
                    self.at = at;
                }
                name.filter(|_| self.is_sign(")"))
            }
            _ => None,
        };
        let name = match simple {
            Some((text, span)) => Expr { kind: ExprKind::Word(text), span, depth: 1 },
            None => self.expression(),
        };
        self.close_expression(&name, open);
        match name.kind {
            ExprKind::Error => ExprKind::Error,
            _ => ExprKind::Route(Box::new(name)),
        }
    }

    fn call(&mut self, word: &str, span: Span) -> ExprKind {
        self.at += 1;
        let open = self.span();
        self.at += 1;
        let mut args: Vec<Expr> = Vec::new();
        let mut broken = false;
        while !self.at_end() && !self.is_sign(")") {
            let arg = self.expression();
            if matches!(arg.kind, ExprKind::Error) {
                broken = true;
                break;
            }
            if args.len() >= ARGUMENTS_MAX {
                let message = format!("more than {ARGUMENTS_MAX} arguments");
                self.error(Diagnostic::error("arguments", message, arg.span));
                broken = true;
                break;
            }
            args.push(arg);
            if !self.take_sign(",") {
                break;
            }
            if self.is_sign(")") {
                let message = "an argument is missing behind this comma";
                let place = self.before();
                self.error(Diagnostic::error("syntax", message, place));
            }
        }
        if broken {
            self.skip_arguments();
        } else if !self.close(")", open) {
            broken = true;
            self.skip_arguments();
        }
        if broken {
            return ExprKind::Error;
        }
        ExprKind::Call { name: Name { text: word.to_string(), span }, args }
    }

    /// Goes behind the `)` of a broken argument list, if it comes before the statement ends.
    fn skip_arguments(&mut self) {
        let mut depth = 0usize;
        while !self.at_end() && !self.is_sign(";") && !self.is_sign("{") && !self.is_sign("}") {
            if self.is_sign("(") {
                depth += 1;
            }
            if self.is_sign(")") {
                self.at += 1;
                if depth == 0 {
                    return;
                }
                depth -= 1;
                continue;
            }
            self.at += 1;
        }
    }
}

fn keyword(word: &str) -> Option<&'static crate::ast::Keyword> {
    KEYWORDS.iter().find(|keyword| keyword.word == word)
}
