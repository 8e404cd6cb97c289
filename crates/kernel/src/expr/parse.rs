//! From tokens to a tree, and from a tree back to text.

use super::lexer::{self, Token};
use super::{count_chars, error_at};
use std::fmt;
use stead_core::{Error, Result, limits};

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Compare {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Compare::Eq => "==",
            Compare::Ne => "!=",
            Compare::Lt => "<",
            Compare::Le => "<=",
            Compare::Gt => ">",
            Compare::Ge => ">=",
        }
    }

    fn of(symbol: &str) -> Option<Compare> {
        Some(match symbol {
            "==" => Compare::Eq,
            "!=" => Compare::Ne,
            "<" => Compare::Lt,
            "<=" => Compare::Le,
            ">" => Compare::Gt,
            ">=" => Compare::Ge,
            _ => return None,
        })
    }
}

/// A column as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ColumnName {
    Name(String),
    Position(usize),
}

/// A constant of an `in` list.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Number(f64),
    Text(String),
}

/// An expression and the byte of the text where it begins.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: usize,
    pub(super) kind: NodeKind,
}

/// Chains of operators of one rank are one node, so that the depth of a tree is bounded by the
/// nesting that the user wrote and not by the length of a sum.
#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    Number(f64),
    Text(String),
    Column(ColumnName),
    Negate(Box<Node>),
    /// `+ -` (rank 5) or `* / %` (rank 6), from left to right.
    Chain {
        rank: u8,
        first: Box<Node>,
        rest: Vec<(&'static str, Node)>,
    },
    Compare(Compare, Box<Node>, Box<Node>),
    In {
        value: Box<Node>,
        list: Vec<(Constant, usize)>,
        not: bool,
    },
    Missing {
        value: Box<Node>,
        not: bool,
    },
    Match {
        value: Box<Node>,
        pattern: String,
        pattern_at: usize,
        not: bool,
    },
    Call(String, Vec<Node>),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
}

/// Reads an expression. Columns and types are not looked at.
pub(super) fn parse(text: &str) -> Result<Node> {
    if text.len() > limits::MAX_EXPR_BYTES {
        return Err(Error::usage(format!(
            "a filter of {} bytes; at most {} are supported",
            text.len(),
            limits::MAX_EXPR_BYTES
        )));
    }
    let tokens = lexer::tokens(text)?;
    let mut p = Parser { text, tokens, next: 0, depth: 0 };
    if *p.peek() == Token::End {
        return Err(Error::usage("the filter is empty")
            .with_hint("write a condition, for example 'delay > 15 and carrier == \"UA\"'"));
    }
    let node = p.or()?;
    match p.peek() {
        Token::End => Ok(node),
        Token::Symbol(")") => Err(p.error("this ')' closes nothing", "")),
        t => {
            let m = format!("expected an operator or the end, found {}", t.shown());
            Err(p.error(&m, "join conditions with 'and' or 'or'"))
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |t| &t.0)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.text.len(), |t| t.1)
    }

    fn error(&self, message: &str, hint: &str) -> Error {
        error_at(self.text, self.at(), message, hint)
    }

    /// Takes the symbol `s` if it is next.
    fn take(&mut self, s: &str) -> bool {
        let yes = matches!(self.peek(), Token::Symbol(t) if *t == s);
        self.next += usize::from(yes);
        yes
    }

    /// Takes one of `symbols` if it is next.
    fn take_of(&mut self, symbols: &[&'static str]) -> Option<&'static str> {
        symbols.iter().copied().find(|s| self.take(s))
    }

    fn expect(&mut self, s: &str, why: &str) -> Result<()> {
        if self.take(s) {
            return Ok(());
        }
        Err(self.error(&format!("expected '{s}' {why}, found {}", self.peek().shown()), ""))
    }

    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == limits::MAX_EXPR_DEPTH {
            let m = format!("nested deeper than {} levels", limits::MAX_EXPR_DEPTH);
            return Err(self.error(&m, ""));
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    fn or(&mut self) -> Result<Node> {
        let at = self.at();
        let mut parts = vec![self.and()?];
        while self.take("or") {
            parts.push(self.and()?);
        }
        Ok(join(at, parts, NodeKind::Or))
    }

    fn and(&mut self) -> Result<Node> {
        let at = self.at();
        let mut parts = vec![self.not()?];
        while self.take("and") {
            parts.push(self.not()?);
        }
        Ok(join(at, parts, NodeKind::And))
    }

    fn not(&mut self) -> Result<Node> {
        let at = self.at();
        if self.take("not") {
            let inner = self.deeper(Self::not)?;
            return Ok(Node { at, kind: NodeKind::Not(Box::new(inner)) });
        }
        self.condition()
    }

    /// A value, alone or compared with something.
    fn condition(&mut self) -> Result<Node> {
        let value = self.chain(5)?;
        let at = value.at;
        let kind = if let Token::Symbol(s) = *self.peek() {
            match (Compare::of(s), s) {
                (Some(c), _) => {
                    self.next += 1;
                    NodeKind::Compare(c, Box::new(value), Box::new(self.chain(5)?))
                }
                (_, "~" | "!~") => {
                    self.next += 1;
                    self.pattern(value, s == "!~")?
                }
                (_, "is") => {
                    self.next += 1;
                    let not = self.take("not");
                    match self.peek() {
                        Token::Name(n) if n.eq_ignore_ascii_case("missing") => self.next += 1,
                        t => {
                            let m = format!("expected 'missing' after 'is', found {}", t.shown());
                            return Err(
                                self.error(&m, "write 'x is missing' or 'x is not missing'")
                            );
                        }
                    }
                    NodeKind::Missing { value: Box::new(value), not }
                }
                (_, "in") => {
                    self.next += 1;
                    self.list(value, false)?
                }
                (_, "not") => {
                    self.next += 1;
                    self.expect("in", "after 'not' behind a value")?;
                    self.list(value, true)?
                }
                _ => return Ok(value),
            }
        } else {
            return Ok(value);
        };
        if let Token::Symbol(s) = *self.peek()
            && (Compare::of(s).is_some() || matches!(s, "~" | "!~" | "is" | "in"))
        {
            return Err(self.error(
                "comparisons cannot be chained",
                "write 'a < b and b < c' in place of 'a < b < c'",
            ));
        }
        Ok(Node { at, kind })
    }

    fn pattern(&mut self, value: Node, not: bool) -> Result<NodeKind> {
        let pattern_at = self.at();
        match self.peek().clone() {
            Token::Text(pattern) => {
                self.next += 1;
                Ok(NodeKind::Match { value: Box::new(value), pattern, pattern_at, not })
            }
            t => {
                let m = format!("expected a regular expression in quotes, found {}", t.shown());
                Err(self.error(&m, "write for example name ~ '^N[0-9]+'"))
            }
        }
    }

    fn list(&mut self, value: Node, not: bool) -> Result<NodeKind> {
        self.expect("(", "before the list of 'in'")?;
        let mut list = Vec::new();
        loop {
            let at = self.at();
            let minus = self.take("-");
            let constant = match self.peek().clone() {
                Token::Number(n) => Constant::Number(if minus { -n } else { n }),
                Token::Text(t) if !minus => Constant::Text(t),
                t => {
                    let m = format!("expected a number or a text in quotes, found {}", t.shown());
                    let hint =
                        "the list of 'in' holds constants, for example (1, 2) or ('UA', 'AA')";
                    return Err(self.error(&m, hint));
                }
            };
            self.next += 1;
            list.push((constant, at));
            if !self.take(",") {
                break;
            }
        }
        self.expect(")", "after the list of 'in'")?;
        Ok(NodeKind::In { value: Box::new(value), list, not })
    }

    /// Sums (rank 5) of products (rank 6) of signed values.
    fn chain(&mut self, rank: u8) -> Result<Node> {
        let symbols: &[&'static str] = if rank == 5 { &["+", "-"] } else { &["*", "/", "%"] };
        let part = |p: &mut Self| if rank == 5 { p.chain(6) } else { p.signed() };
        let at = self.at();
        let first = part(self)?;
        let mut rest = Vec::new();
        while let Some(s) = self.take_of(symbols) {
            rest.push((s, part(self)?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Node { at, kind: NodeKind::Chain { rank, first: Box::new(first), rest } })
    }

    fn signed(&mut self) -> Result<Node> {
        let at = self.at();
        if self.take("-") {
            let inner = self.deeper(Self::signed)?;
            return Ok(Node { at, kind: NodeKind::Negate(Box::new(inner)) });
        }
        if self.take("+") {
            return self.deeper(Self::signed);
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Node> {
        let at = self.at();
        let kind = match self.peek().clone() {
            Token::Number(n) => NodeKind::Number(n),
            Token::Text(t) => NodeKind::Text(t),
            Token::Quoted(n) => NodeKind::Column(ColumnName::Name(n)),
            Token::Position(n) => NodeKind::Column(ColumnName::Position(n)),
            Token::Name(n) => {
                self.next += 1;
                if !self.take("(") {
                    return Ok(Node { at, kind: NodeKind::Column(ColumnName::Name(n)) });
                }
                let args = self.deeper(|p| {
                    let mut args = Vec::new();
                    if p.take(")") {
                        return Ok(args);
                    }
                    loop {
                        args.push(p.or()?);
                        if !p.take(",") {
                            break;
                        }
                    }
                    p.expect(")", "after the arguments of a function")?;
                    Ok(args)
                })?;
                return Ok(Node { at, kind: NodeKind::Call(n, args) });
            }
            Token::Symbol("(") => {
                self.next += 1;
                let inner = self.deeper(Self::or)?;
                if !self.take(")") {
                    let m = format!("expected ')', found {}", self.peek().shown());
                    let hint = format!("the '(' is character {}", count_chars(self.text, at) + 1);
                    return Err(self.error(&m, &hint));
                }
                return Ok(Node { at, ..inner });
            }
            Token::Symbol("not") => {
                return Err(
                    self.error("'not' cannot stand inside a value", "put it in parentheses")
                );
            }
            t => {
                let m = format!("expected a column, a number or a text, found {}", t.shown());
                return Err(self.error(&m, ""));
            }
        };
        self.next += 1;
        Ok(Node { at, kind })
    }
}

fn join(at: usize, mut parts: Vec<Node>, kind: fn(Vec<Node>) -> NodeKind) -> Node {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            Node { at, kind: kind(parts) }
        }
        // Both callers put one part in first.
        None => Node { at, kind: kind(parts) },
    }
}

impl NodeKind {
    /// How strongly it binds: 1 (`or`) to 8 (a name).
    fn rank(&self) -> u8 {
        match self {
            NodeKind::Or(_) => 1,
            NodeKind::And(_) => 2,
            NodeKind::Not(_) => 3,
            NodeKind::Compare(..)
            | NodeKind::In { .. }
            | NodeKind::Missing { .. }
            | NodeKind::Match { .. } => 4,
            NodeKind::Chain { rank, .. } => *rank,
            NodeKind::Negate(_) => 7,
            _ => 8,
        }
    }
}

/// A node where at least rank `.1` is needed: in parentheses if it binds less.
struct Bound<'a>(&'a Node, u8);

impl fmt::Display for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.kind.rank() < self.1 { write!(f, "({})", self.0) } else { self.0.fmt(f) }
    }
}

fn write_quoted(f: &mut fmt::Formatter<'_>, s: &str, quote: char) -> fmt::Result {
    let doubled: String = [quote, quote].iter().collect();
    write!(f, "{quote}{}{quote}", s.replace(quote, &doubled))
}

fn write_number(f: &mut fmt::Formatter<'_>, n: f64) -> fmt::Result {
    if n.fract() == 0.0 && n.abs() < 1e15 { write!(f, "{n}") } else { write!(f, "{n:?}") }
}

impl fmt::Display for ColumnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnName::Position(n) => write!(f, "${n}"),
            ColumnName::Name(n) if lexer::is_bare(n) => f.write_str(n),
            ColumnName::Name(n) => write_quoted(f, n, '`'),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |n: &bool| if *n { "not " } else { "" };
        match &self.kind {
            NodeKind::Number(n) => write_number(f, *n),
            NodeKind::Text(t) => write_quoted(f, t, '\''),
            NodeKind::Column(c) => c.fmt(f),
            NodeKind::Negate(a) => write!(f, "-{}", Bound(a, 7)),
            NodeKind::Chain { rank, first, rest } => {
                write!(f, "{}", Bound(first, rank + 1))?;
                rest.iter().try_for_each(|(s, b)| write!(f, " {s} {}", Bound(b, rank + 1)))
            }
            NodeKind::Compare(c, a, b) => {
                write!(f, "{} {} {}", Bound(a, 5), c.symbol(), Bound(b, 5))
            }
            NodeKind::In { value, list, not: n } => {
                write!(f, "{} {}in (", Bound(value, 5), not(n))?;
                for (i, (c, _)) in list.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    match c {
                        Constant::Number(n) => write_number(f, *n)?,
                        Constant::Text(t) => write_quoted(f, t, '\'')?,
                    }
                }
                f.write_str(")")
            }
            NodeKind::Missing { value, not: n } => {
                write!(f, "{} is {}missing", Bound(value, 5), not(n))
            }
            NodeKind::Match { value, pattern, not: n, .. } => {
                write!(f, "{} {}~ ", Bound(value, 5), if *n { "!" } else { "" })?;
                write_quoted(f, pattern, '\'')
            }
            NodeKind::Call(name, args) => {
                write!(f, "{name}(")?;
                for (i, a) in args.iter().enumerate() {
                    write!(f, "{}{a}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            NodeKind::Not(a) => write!(f, "not {}", Bound(a, 3)),
            NodeKind::And(v) | NodeKind::Or(v) => {
                let (word, rank) =
                    if matches!(self.kind, NodeKind::And(_)) { ("and", 3) } else { ("or", 2) };
                for (i, a) in v.iter().enumerate() {
                    if i > 0 {
                        write!(f, " {word} ")?;
                    }
                    write!(f, "{}", Bound(a, rank))?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(s: &str) -> String {
        parse(s).expect(s).to_string()
    }

    #[test]
    fn operators_bind_as_documented() {
        for (from, to) in [
            ("a<1||b>2&&c=3", "a < 1 or b > 2 and c == 3"),
            ("(a<1 or b>2) and c=3", "(a < 1 or b > 2) and c == 3"),
            ("not a = 1 and !b=2", "not a == 1 and not b == 2"),
            ("a - b - c*-d % 2 > 0", "a - b - c * -d % 2 > 0"),
            ("a - (b - c) > 0", "a - (b - c) > 0"),
            ("-(a+b) <> 1e300", "-(a + b) != 1e300"),
            ("x NOT IN (1,-2.5)", "x not in (1, -2.5)"),
            ("`my col` is not missing", "`my col` is not missing"),
            ("`and` is missing", "`and` is missing"),
            ("name !~ \"it's\"", "name !~ 'it''s'"),
            ("min($0, +2) > abs(y)", "min($0, 2) > abs(y)"),
            ("not (not (a = 1 or b = 1))", "not not (a == 1 or b == 1)"),
        ] {
            assert_eq!(shown(from), to);
            assert_eq!(shown(to), to, "the shown form means the same");
        }
    }

    #[test]
    fn mistakes_are_pointed_at() {
        for (s, part) in [
            ("a >", "found the end"),
            ("a > 1 b", "expected an operator"),
            ("a < b < c", "cannot be chained"),
            ("(a > 1", "expected ')'"),
            ("a > 1)", "closes nothing"),
            ("a in ()", "expected a number"),
            ("a in (b)", "expected a number"),
            ("a is 3", "expected 'missing'"),
            ("a ~ b", "regular expression in quotes"),
            ("abs(a", "expected ')'"),
            ("  ", "empty"),
        ] {
            let e = parse(s).expect_err(s);
            assert!(e.message().contains(part), "{s}: {e}");
        }
        let e = parse("dep_delay > and x").expect_err("caret");
        let lines: Vec<&str> = e.message().lines().collect();
        assert!(lines[0].contains("character 13"), "{e}");
        assert_eq!(lines[1].find("and"), lines[2].find('^'));
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = format!("{}x{} > 1", "(".repeat(65), ")".repeat(65));
        assert!(parse(&deep).is_err_and(|e| e.message().contains("nested deeper")));
        assert!(parse(&format!("{}x > 1", "-".repeat(5000))).is_err());
        assert!(parse(&format!("{}x > 1", "not ".repeat(5000))).is_err());
        assert!(parse(&"(".repeat(60_000)).is_err());
        assert!(parse(&" ".repeat(70_000)).is_err());
        // Long is not deep.
        assert!(parse(&format!("x{} > 1", " + x".repeat(10_000))).is_ok());
        assert!(parse(&format!("x > 1{}", " or x > 1".repeat(6000))).is_ok());
    }
}
