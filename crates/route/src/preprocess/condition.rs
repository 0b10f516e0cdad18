//! The conditions of `#!ifexp`: definitions, integers, strings, comparisons and logic.
//!
//! A name that is defined stands for its value (1 when it has none); one that is not defined is 0.

use super::Defines;
use crate::lexer::{Lexer, Token, TokenKind};
use crate::value::parse_int;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Int(i64),
    Str(Box<[u8]>),
}

impl Value {
    fn truth(&self) -> bool {
        match self {
            Self::Int(value) => *value != 0,
            Self::Str(text) => !text.is_empty(),
        }
    }
}

struct Reader<'a> {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    defines: &'a Defines,
}

/// Whether the condition is met.
pub(super) fn evaluate(text: &str, defines: &Defines) -> Result<bool, String> {
    let mut lexer = Lexer::new(text, 0);
    let mut findings = Vec::new();
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next(&mut findings);
        if token.kind == TokenKind::End {
            break;
        }
        tokens.push(token);
    }
    if let Some(finding) = findings.first() {
        return Err(finding.message.clone());
    }
    let mut reader = Reader { tokens, at: 0, depth: 0, defines };
    let value = reader.any()?;
    match reader.tokens.get(reader.at) {
        None => Ok(value.truth()),
        Some(_) => Err("something follows the condition".to_string()),
    }
}

impl Reader<'_> {
    fn sign(&mut self, wanted: &[&'static str]) -> Option<&'static str> {
        match self.tokens.get(self.at).map(|token| &token.kind) {
            Some(TokenKind::Sign(sign)) if wanted.contains(sign) => {
                self.at += 1;
                Some(sign)
            }
            _ => None,
        }
    }

    fn any(&mut self) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("it nests more than {DEPTH_MAX} deep"));
        }
        let mut value = self.all()?;
        while self.sign(&["||"]).is_some() {
            let right = self.all()?;
            value = Value::Int((value.truth() || right.truth()).into());
        }
        self.depth -= 1;
        Ok(value)
    }

    fn all(&mut self) -> Result<Value, String> {
        let mut value = self.comparison()?;
        while self.sign(&["&&"]).is_some() {
            let right = self.comparison()?;
            value = Value::Int((value.truth() && right.truth()).into());
        }
        Ok(value)
    }

    fn comparison(&mut self) -> Result<Value, String> {
        let left = self.unary()?;
        let Some(sign) = self.sign(&["==", "!=", "<", "<=", ">", ">="]) else { return Ok(left) };
        let right = self.unary()?;
        let answer = match (sign, &left, &right) {
            ("==", ..) => left == right,
            ("!=", ..) => left != right,
            (_, Value::Int(left), Value::Int(right)) => match sign {
                "<" => left < right,
                "<=" => left <= right,
                ">" => left > right,
                _ => left >= right,
            },
            _ => return Err(format!("`{sign}` compares integers")),
        };
        Ok(Value::Int(answer.into()))
    }

    fn unary(&mut self) -> Result<Value, String> {
        let mut negated = false;
        while self.sign(&["!"]).is_some() {
            negated = !negated;
        }
        let value = self.operand()?;
        Ok(if negated { Value::Int((!value.truth()).into()) } else { value })
    }

    fn operand(&mut self) -> Result<Value, String> {
        if self.sign(&["("]).is_some() {
            let value = self.any()?;
            return match self.sign(&[")"]) {
                Some(_) => Ok(value),
                None => Err("a `)` is missing".to_string()),
            };
        }
        let minus = self.sign(&["-"]).is_some();
        let token = self.tokens.get(self.at).map(|token| token.kind.clone());
        self.at += 1;
        match token {
            Some(TokenKind::Number(number)) => {
                let value = parse_int(number.as_bytes()).ok_or(format!("`{number}` is not a number"))?;
                Ok(Value::Int(if minus { value.wrapping_neg() } else { value }))
            }
            Some(TokenKind::Str(text)) => Ok(Value::Str(text)),
            Some(TokenKind::Word(word)) if &*word == "defined" => {
                let open = self.sign(&["("]).is_some();
                let name = self.tokens.get(self.at).map(|token| token.kind.clone());
                self.at += 1;
                let Some(TokenKind::Word(name)) = name else {
                    return Err("`defined` takes a name".to_string());
                };
                if open && self.sign(&[")"]).is_none() {
                    return Err("a `)` is missing".to_string());
                }
                Ok(Value::Int(self.defines.contains_key(&*name).into()))
            }
            Some(TokenKind::Word(word)) => Ok(match self.defines.get(&*word) {
                None => Value::Int(0),
                Some(define) => match define.tokens.first().map(|token| &token.kind) {
                    Some(TokenKind::Number(number)) => Value::Int(parse_int(number.as_bytes()).unwrap_or(1)),
                    Some(TokenKind::Str(text)) => Value::Str(text.clone()),
                    _ => Value::Int(1),
                },
            }),
            _ => Err("a name, a number or a string is missing".to_string()),
        }
    }
}
