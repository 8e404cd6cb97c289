//! From a tree to a program: finds the columns, checks the types, hands out registers.

use super::error_at;
use super::parse::{ColumnName, Constant, Node, NodeKind};
use super::program::{Binary, Find, Number, Op, Program, Text, Unary};
use stead_core::{Error, Needs, Result, Schema, limits, schema::distance};

/// Regular expressions of one filter, which share the budget of one.
const MAX_PATTERNS: usize = 16;

/// The functions, with what they take, for messages.
const FUNCTIONS: [(&str, usize); 14] = [
    ("abs", 1),
    ("sqrt", 1),
    ("floor", 1),
    ("ceil", 1),
    ("log", 1),
    ("log10", 1),
    ("exp", 1),
    ("min", 2),
    ("max", 2),
    ("len", 1),
    ("lower", 1),
    ("starts_with", 2),
    ("ends_with", 2),
    ("contains", 2),
];

/// What a sub-expression is, and where its value is.
#[derive(Debug, Clone, Copy)]
enum Typed {
    Number(Number),
    Text(Text),
    Truth(usize),
}

impl Typed {
    fn noun(self) -> &'static str {
        match self {
            Typed::Number(_) => "a number",
            Typed::Text(_) => "text",
            Typed::Truth(_) => "a condition",
        }
    }
}

/// Registers of one kind: freed ones are used again.
#[derive(Default)]
struct Registers {
    free: Vec<usize>,
    made: usize,
}

impl Registers {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            self.made - 1
        })
    }
}

/// Compiles `node`, whose text is `text`.
pub(super) fn compile(text: &str, node: &Node, schema: &Schema) -> Result<(Program, Needs)> {
    let mut c = Compiler {
        text,
        schema,
        program: Program::default(),
        needs: Needs::default(),
        numbers: Registers::default(),
        texts: Registers::default(),
        truths: Registers::default(),
    };
    c.program.answer = c.truth(node)?;
    c.program.numbers = c.numbers.made;
    c.program.texts = c.texts.made;
    c.program.truths = c.truths.made;
    for list in [&mut c.needs.numbers, &mut c.needs.texts] {
        list.sort_unstable();
        list.dedup();
    }
    Ok((c.program, c.needs))
}

struct Compiler<'a> {
    text: &'a str,
    schema: &'a Schema,
    program: Program,
    needs: Needs,
    numbers: Registers,
    texts: Registers,
    truths: Registers,
}

impl Compiler<'_> {
    fn error(&self, at: usize, message: &str, hint: &str) -> Error {
        error_at(self.text, at, message, hint)
    }

    fn release(&mut self, v: Typed) {
        match v {
            Typed::Number(Number::Register(r)) => self.numbers.free.push(r),
            Typed::Text(Text::Register(r)) => self.texts.free.push(r),
            Typed::Truth(r) => self.truths.free.push(r),
            _ => {}
        }
    }

    fn node(&mut self, node: &Node) -> Result<Typed> {
        match &node.kind {
            NodeKind::Number(n) => Ok(Typed::Number(Number::Constant(*n))),
            NodeKind::Text(t) => Ok(Typed::Text(self.constant(t.as_bytes().to_vec()))),
            NodeKind::Column(c) => self.column(c, node.at),
            NodeKind::Negate(a) => {
                let a = self.number(a, "'-'")?;
                Ok(self.unary(Unary::Negate, a))
            }
            NodeKind::Chain { first, rest, .. } => {
                let mut a = match rest.first() {
                    Some((s, _)) => self.number(first, &format!("'{s}'"))?,
                    None => return self.node(first),
                };
                for (s, b) in rest {
                    let b = self.number(b, &format!("'{s}'"))?;
                    let f = match *s {
                        "+" => Binary::Add,
                        "-" => Binary::Subtract,
                        "*" => Binary::Multiply,
                        "/" => Binary::Divide,
                        _ => Binary::Remainder,
                    };
                    a = self.binary(f, a, b);
                }
                Ok(Typed::Number(a))
            }
            NodeKind::Compare(f, a, b) => {
                let (x, y) = (self.node(a)?, self.node(b)?);
                let to = self.truths.take();
                self.program.ops.push(match (x, y) {
                    (Typed::Number(a), Typed::Number(b)) => Op::CompareNumbers { f: *f, a, b, to },
                    (Typed::Text(a), Typed::Text(b)) => Op::CompareTexts { f: *f, a, b, to },
                    _ => return Err(self.mixed(a, x, b, y)),
                });
                self.release(x);
                self.release(y);
                Ok(Typed::Truth(to))
            }
            NodeKind::In { value, list, not } => {
                let a = self.node(value)?;
                let to = self.truths.take();
                let op = self.list(value, a, list, to)?;
                self.program.ops.push(op);
                self.release(a);
                Ok(self.negated(to, *not))
            }
            NodeKind::Missing { value, not } => {
                let a = self.node(value)?;
                let to = self.truths.take();
                self.program.ops.push(match a {
                    Typed::Number(a) => Op::MissingNumber { a, to },
                    Typed::Text(a) => Op::MissingText { a, to },
                    Typed::Truth(_) => {
                        let hint = "a condition is not missing; ask for the columns it uses";
                        let m = "'is missing' needs a value, and this is a condition";
                        return Err(self.error(value.at, m, hint));
                    }
                });
                self.release(a);
                Ok(self.negated(to, *not))
            }
            NodeKind::Match { value, pattern, pattern_at, not } => {
                let a = self.text(value, "'~'")?;
                let patterns = self.program.ops.iter().filter(|op| matches!(op, Op::Match { .. }));
                if patterns.count() >= MAX_PATTERNS {
                    let m = format!("more than {MAX_PATTERNS} regular expressions");
                    let hint = "join patterns with '|', or filter with 'in'";
                    return Err(self.error(*pattern_at, &m, hint));
                }
                let regex = regex::bytes::RegexBuilder::new(pattern)
                    .size_limit(limits::MAX_REGEX_BYTES / MAX_PATTERNS)
                    .build()
                    .map_err(|e| {
                        let e = e.to_string();
                        // The crate's message has lines of its own; the last one says what is wrong.
                        let what = e.lines().last().unwrap_or("it cannot be read");
                        let m = format!(
                            "bad regular expression: {}",
                            what.trim_start_matches("error: ").trim_end_matches('.').to_lowercase()
                        );
                        self.error(
                            *pattern_at,
                            &m,
                            "a special character is meant literally after '\\'",
                        )
                    })?;
                let to = self.truths.take();
                self.program.ops.push(Op::Match { a, regex, to });
                self.release(Typed::Text(a));
                Ok(self.negated(to, *not))
            }
            NodeKind::Call(name, args) => self.call(node.at, name, args),
            NodeKind::Not(a) => {
                let a = self.truth(a)?;
                Ok(self.negated(a, true))
            }
            NodeKind::And(parts) | NodeKind::Or(parts) => {
                let and = matches!(node.kind, NodeKind::And(_));
                let mut result = None;
                for part in parts {
                    let b = self.truth(part)?;
                    let Some(a) = result else {
                        result = Some(b);
                        continue;
                    };
                    let to = self.truths.take();
                    self.program.ops.push(if and {
                        Op::And { a, b, to }
                    } else {
                        Op::Or { a, b, to }
                    });
                    self.release(Typed::Truth(a));
                    self.release(Typed::Truth(b));
                    result = Some(to);
                }
                result
                    .map(Typed::Truth)
                    .ok_or_else(|| Error::internal("an empty chain of conditions"))
            }
        }
    }

    fn negated(&mut self, a: usize, not: bool) -> Typed {
        if !not {
            return Typed::Truth(a);
        }
        let to = self.truths.take();
        self.program.ops.push(Op::Not { a, to });
        self.release(Typed::Truth(a));
        Typed::Truth(to)
    }

    fn constant(&mut self, bytes: Vec<u8>) -> Text {
        self.program.constants.push(bytes);
        Text::Constant(self.program.constants.len() - 1)
    }

    fn unary(&mut self, f: Unary, a: Number) -> Typed {
        if let Number::Constant(x) = a {
            return Typed::Number(Number::Constant(f.of(x)));
        }
        let to = self.numbers.take();
        self.program.ops.push(Op::Unary { f, a, to });
        self.release(Typed::Number(a));
        Typed::Number(Number::Register(to))
    }

    fn binary(&mut self, f: Binary, a: Number, b: Number) -> Number {
        if let (Number::Constant(a), Number::Constant(b)) = (a, b) {
            return Number::Constant(f.of(a, b));
        }
        let to = self.numbers.take();
        self.program.ops.push(Op::Binary { f, a, b, to });
        self.release(Typed::Number(a));
        self.release(Typed::Number(b));
        Number::Register(to)
    }

    fn column(&mut self, column: &ColumnName, at: usize) -> Result<Typed> {
        let count = self.schema.columns.len();
        let index = match column {
            ColumnName::Position(i) if *i < count => *i,
            ColumnName::Position(i) => {
                let m =
                    format!("no column ${i}: there are {count} columns, and counting starts at 0");
                return Err(self.error(at, &m, "see 'stead describe' for the columns"));
            }
            ColumnName::Name(name) => self.schema.column(name).map_err(|e| {
                let hint = match name.to_ascii_lowercase().as_str() {
                    "na" | "null" | "nan" | "none" | "missing" => {
                        "to test for a missing value write 'x is missing'".to_string()
                    }
                    _ => format!("{}; text values stand in quotes", e.hint().unwrap_or("")),
                };
                self.error(at, e.message(), hint.trim_start_matches("; "))
            })?,
        };
        Ok(if self.schema.columns[index].kind.is_number() {
            self.needs.numbers.push(index);
            Typed::Number(Number::Column(index))
        } else {
            self.needs.texts.push(index);
            Typed::Text(Text::Column(index))
        })
    }

    fn truth(&mut self, node: &Node) -> Result<usize> {
        match self.node(node)? {
            Typed::Truth(r) => Ok(r),
            v => {
                let m = format!("expected a condition, and this is {}", v.noun());
                let hint = "compare it with something, for example '> 0' or 'is not missing'";
                Err(self.error(node.at, &m, hint))
            }
        }
    }

    fn number(&mut self, node: &Node, user: &str) -> Result<Number> {
        match self.node(node)? {
            Typed::Number(n) => Ok(n),
            v => {
                let m = format!("{user} needs a number, and this is {}", v.noun());
                Err(self.error(node.at, &m, &self.force(node, v)))
            }
        }
    }

    fn text(&mut self, node: &Node, user: &str) -> Result<Text> {
        match self.node(node)? {
            Typed::Text(t) => Ok(t),
            v => {
                let m = format!("{user} needs text, and this is {}", v.noun());
                Err(self.error(node.at, &m, &self.force(node, v)))
            }
        }
    }

    /// How to make a column what the user took it for.
    fn force(&self, node: &Node, v: Typed) -> String {
        let name = |i: usize| self.schema.columns.get(i).map_or("", |c| c.name.as_str());
        match v {
            Typed::Text(Text::Column(i)) => {
                format!("if column '{0}' is to hold numbers, say --column-type {0}=number", name(i))
            }
            Typed::Number(Number::Column(i)) => {
                format!("if column '{0}' is to hold text, say --column-type {0}=text", name(i))
            }
            Typed::Text(_) if matches!(node.kind, NodeKind::Text(_)) => {
                "numbers stand without quotes".into()
            }
            Typed::Number(_) if matches!(node.kind, NodeKind::Number(_)) => {
                format!("text stands in quotes: '{node}'")
            }
            _ => String::new(),
        }
    }

    fn mixed(&self, a: &Node, x: Typed, b: &Node, y: Typed) -> Error {
        let m = format!("{} cannot be compared with {}", x.noun(), y.noun());
        if matches!((x, y), (Typed::Truth(_), _) | (_, Typed::Truth(_))) {
            return self.error(b.at, &m, "join conditions with 'and', 'or' and 'not'");
        }
        // The column is what the user may be wrong about; the constant is what can be rewritten.
        let hints = [self.force(b, y), self.force(a, x)];
        let hint = hints.iter().filter(|h| !h.is_empty()).cloned().collect::<Vec<_>>().join("; ");
        self.error(b.at, &m, &hint)
    }

    fn list(&self, value: &Node, a: Typed, list: &[(Constant, usize)], to: usize) -> Result<Op> {
        let mut numbers = Vec::new();
        let mut texts = Vec::new();
        for (constant, at) in list {
            match (a, constant) {
                (Typed::Number(_), Constant::Number(n)) => numbers.push(*n),
                (Typed::Text(_), Constant::Text(t)) => texts.push(t.as_bytes().to_vec()),
                (Typed::Truth(_), _) => {
                    let m = "'in' needs a value, and this is a condition";
                    return Err(self.error(value.at, m, ""));
                }
                (_, Constant::Number(n)) => {
                    let hint = format!("write '{n}' with quotes; {}", self.force(value, a));
                    let m = "text cannot be compared with a number";
                    return Err(self.error(*at, m, hint.trim_end_matches("; ")));
                }
                (_, Constant::Text(_)) => {
                    let m = "a number cannot be compared with text";
                    return Err(self.error(*at, m, &self.force(value, a)));
                }
            }
        }
        numbers.sort_by(f64::total_cmp);
        texts.sort_unstable();
        match a {
            Typed::Number(a) => Ok(Op::InNumbers { a, list: numbers, to }),
            Typed::Text(a) => Ok(Op::InTexts { a, list: texts, to }),
            Typed::Truth(_) => Err(Error::internal("a condition in front of 'in'")),
        }
    }

    fn call(&mut self, at: usize, written: &str, args: &[Node]) -> Result<Typed> {
        let name = written.to_ascii_lowercase();
        let Some((name, count)) = FUNCTIONS.iter().find(|(n, _)| *n == name).copied() else {
            let close = FUNCTIONS.iter().map(|(n, _)| (distance(n, &name), *n)).min();
            let all: Vec<&str> = FUNCTIONS.iter().map(|(n, _)| *n).collect();
            let hint = match close {
                Some((d, n)) if d <= 2 => format!("did you mean '{n}'?"),
                _ => format!("the functions are: {}", all.join(", ")),
            };
            return Err(self.error(at, &format!("no function '{written}'"), &hint));
        };
        if args.len() != count {
            let s = if count == 1 { "" } else { "s" };
            let m = format!("{name}() takes {count} argument{s}, and {} were given", args.len());
            return Err(self.error(at, &m, ""));
        }
        let user = format!("{name}()");
        let f = match name {
            "abs" => Unary::Abs,
            "sqrt" => Unary::Sqrt,
            "floor" => Unary::Floor,
            "ceil" => Unary::Ceil,
            "log" => Unary::Log,
            "log10" => Unary::Log10,
            "exp" => Unary::Exp,
            "min" | "max" => {
                let f = if name == "min" { Binary::Min } else { Binary::Max };
                let a = self.number(&args[0], &user)?;
                let b = self.number(&args[1], &user)?;
                return Ok(Typed::Number(self.binary(f, a, b)));
            }
            "len" => {
                let a = self.text(&args[0], &user)?;
                let to = self.numbers.take();
                self.program.ops.push(Op::Len { a, to });
                self.release(Typed::Text(a));
                return Ok(Typed::Number(Number::Register(to)));
            }
            "lower" => {
                let a = self.text(&args[0], &user)?;
                let to = self.texts.take();
                self.program.ops.push(Op::Lower { a, to });
                self.release(Typed::Text(a));
                return Ok(Typed::Text(Text::Register(to)));
            }
            _ => return self.find(name, args),
        };
        let a = self.number(&args[0], &user)?;
        Ok(self.unary(f, a))
    }

    fn find(&mut self, name: &str, args: &[Node]) -> Result<Typed> {
        let how = match name {
            "starts_with" => Find::Starts,
            "ends_with" => Find::Ends,
            _ => Find::Contains,
        };
        let user = format!("{name}()");
        let a = self.text(&args[0], &user)?;
        let b = self.text(&args[1], &user)?;
        let to = self.truths.take();
        self.program.ops.push(match (how, b) {
            (Find::Contains, Text::Constant(i)) => {
                let needle = &self.program.constants[i];
                let finder = Box::new(memchr::memmem::Finder::new(needle).into_owned());
                Op::FindConstant { a, finder, to }
            }
            _ => Op::Find { how, a, b, to },
        });
        self.release(Typed::Text(a));
        self.release(Typed::Text(b));
        Ok(Typed::Truth(to))
    }
}
