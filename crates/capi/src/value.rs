//! Values of results, as small structs that name a place in a report.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, c_text, call, look};
use crate::report::{ReportFace, stead_report};
use crate::table;
use crate::text;
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;
use stead::{Error, Result, Value};

/// A value in a report: a number of it and a place in it. Copied freely, never freed, good as long as its report; a
/// value of a report that was freed is told apart from a good one. All zero is no value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_value {
    /// Which report.
    pub report: u64,
    /// Which of its values.
    pub node: u64,
}

/// What a value is: STEAD_NULL and so on.
pub type stead_type = c_int;

/// No value at all: all zero, or of a report that was freed.
pub const STEAD_INVALID: stead_type = 0;
/// No answer, such as the mean of nothing.
pub const STEAD_NULL: stead_type = 1;
/// Yes or no.
pub const STEAD_BOOL: stead_type = 2;
/// A count.
pub const STEAD_INT: stead_type = 3;
/// A number.
pub const STEAD_DOUBLE: stead_type = 4;
/// Text.
pub const STEAD_TEXT: stead_type = 5;
/// Values by index.
pub const STEAD_LIST: stead_type = 6;
/// Values by name, in the order to show them.
pub const STEAD_MAP: stead_type = 7;

impl stead_value {
    /// Result `i` of a report: the first nodes are the results.
    pub fn new(report: *const stead_report, i: usize) -> stead_value {
        stead_value { report: report.addr() as u64, node: i as u64 }
    }
}

/// One value. Members of lists and maps are stretches of the arena.
enum Node {
    Null,
    Bool(bool),
    Int(u64),
    Float(f64),
    Text(CString, usize),
    List { first: usize, len: usize },
    Map { first: usize, keys: Vec<CString> },
}

impl Node {
    fn name(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "a bool",
            Node::Int(_) => "a count",
            Node::Float(_) => "a number",
            Node::Text(..) => "text",
            Node::List { .. } => "a list",
            Node::Map { .. } => "a map",
        }
    }
}

/// The values of a report, breadth first, so that members of one value lie side by side.
pub struct Arena(Vec<Node>);

impl Arena {
    pub fn new<'v>(results: impl Iterator<Item = &'v Value>) -> Arena {
        let mut waiting: VecDeque<&Value> = results.collect();
        let mut nodes = Vec::new();
        // Where the members of the next value with members will lie.
        let mut next = waiting.len();
        while let Some(value) = waiting.pop_front() {
            let first = next;
            nodes.push(match value {
                Value::Null => Node::Null,
                Value::Bool(b) => Node::Bool(*b),
                Value::Int(i) => Node::Int(*i),
                Value::Float(f) => Node::Float(*f),
                Value::Text(t) => {
                    let text = c_text(t);
                    let len = text.as_bytes().len();
                    Node::Text(text, len)
                }
                Value::List(v) => {
                    waiting.extend(v);
                    next += v.len();
                    Node::List { first, len: v.len() }
                }
                Value::Map(m) => {
                    waiting.extend(m.iter().map(|(_, v)| v));
                    next += m.len();
                    Node::Map { first, keys: m.iter().map(|(k, _)| c_text(k)).collect() }
                }
            });
        }
        Arena(nodes)
    }

    fn node(&self, at: usize) -> Result<&Node> {
        self.0.get(at).ok_or_else(|| Error::usage("the report has no such value"))
    }

    /// Where the members lie.
    fn members(&self, at: usize) -> Result<std::ops::Range<usize>> {
        match self.node(at)? {
            Node::List { first, len } => Ok(*first..first + len),
            Node::Map { first, keys } => Ok(*first..first + keys.len()),
            other => {
                Err(Error::usage(format!("this value is {}, which has no members", other.name())))
            }
        }
    }

    /// The value as the facade has it.
    fn value(&self, at: usize) -> Result<Value> {
        let each = |r: std::ops::Range<usize>| r.map(|i| self.value(i)).collect::<Result<Vec<_>>>();
        Ok(match self.node(at)? {
            Node::Null => Value::Null,
            Node::Bool(b) => Value::Bool(*b),
            Node::Int(i) => Value::Int(*i),
            Node::Float(f) => Value::Float(*f),
            Node::Text(t, _) => Value::Text(t.to_string_lossy().into_owned()),
            Node::List { .. } => Value::List(each(self.members(at)?)?),
            Node::Map { keys, .. } => {
                let values = each(self.members(at)?)?;
                let key = |k: &CString| k.to_string_lossy().into_owned();
                Value::Map(keys.iter().map(key).zip(values).collect())
            }
        })
    }

    /// Lengths of nested lists of numbers, outermost first; `None` if it is none or they are not of one length.
    /// The last pair says where the numbers lie: members of values that lie side by side do so too.
    fn shape(&self, at: usize) -> Option<(Vec<usize>, std::ops::Range<usize>)> {
        let mut dims = Vec::new();
        let mut level = at..at + 1;
        while let Some(Node::List { first, len }) = self.0.get(level.start) {
            let same = |n: &Node| matches!(n, Node::List { len: l, .. } if l == len);
            if !self.0.get(level.clone()).is_some_and(|all| all.iter().all(same)) {
                return None;
            }
            dims.push(*len);
            level = *first..first + len * level.len();
            if level.is_empty() {
                return Some((dims, level));
            }
        }
        let number = |n: &Node| matches!(n, Node::Null | Node::Int(_) | Node::Float(_));
        let all = self.0.get(level.clone()).is_some_and(|all| all.iter().all(number));
        (all && !dims.is_empty()).then_some((dims, level))
    }
}

/// The report of a value and the value's place in it.
fn find(value: stead_value) -> Result<(Arc<ReportFace>, usize)> {
    let id = usize::try_from(value.report).unwrap_or(usize::MAX);
    let face = table::by_id::<ReportFace>(id)?;
    let at = usize::try_from(value.node).unwrap_or(usize::MAX);
    face.arena.node(at)?;
    Ok((face, at))
}

fn wrong<T>(node: &Node, wanted: &str) -> Result<T> {
    Err(Error::usage(format!("this value is {}, not {wanted}", node.name())))
}

/// Writes what `pick` finds in a value to the caller's place.
fn scalar<T>(
    c: &Caller,
    value: stead_value,
    out: *mut T,
    wanted: &str,
    pick: impl Fn(&Node) -> Option<T>,
) -> Result<()> {
    let out = c.out(out, "place for the answer")?;
    let (face, at) = find(value)?;
    let node = face.arena.node(at)?;
    out.put(pick(node).map_or_else(|| wrong(node, wanted), Ok)?);
    Ok(())
}

/// What a value is; STEAD_INVALID if it is none, or its report was freed.
#[unsafe(no_mangle)]
pub extern "C" fn stead_value_type(value: stead_value) -> stead_type {
    look!(STEAD_INVALID, |_c| {
        let (face, at) = find(value)?;
        Ok(match face.arena.node(at)? {
            Node::Null => STEAD_NULL,
            Node::Bool(_) => STEAD_BOOL,
            Node::Int(_) => STEAD_INT,
            Node::Float(_) => STEAD_DOUBLE,
            Node::Text(..) => STEAD_TEXT,
            Node::List { .. } => STEAD_LIST,
            Node::Map { .. } => STEAD_MAP,
        })
    })
}

/// The bool.
///
/// Errors: STEAD_USAGE if it is something else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_bool(
    value: stead_value,
    out: *mut bool,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| scalar(c, value, out, "a bool", |n| match n {
        Node::Bool(b) => Some(*b),
        _ => None,
    }))
}

/// The count.
///
/// Errors: STEAD_USAGE if it is something else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_int(
    value: stead_value,
    out: *mut u64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| scalar(c, value, out, "a count", |n| match n {
        Node::Int(i) => Some(*i),
        _ => None,
    }))
}

/// The number; a count beyond 2^53 is rounded to the nearest one.
///
/// Errors: STEAD_USAGE if it is neither a number nor a count, such as STEAD_NULL for the mean of nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_double(
    value: stead_value,
    out: *mut f64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| scalar(c, value, out, "a number", |n| match n {
        Node::Int(i) => Some(*i as f64),
        Node::Float(f) => Some(*f),
        _ => None,
    }))
}

/// The text, which ends with a zero byte; its length is written to `len` unless that is NULL. NULL if it is
/// something else. Lives as long as the report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_text(value: stead_value, len: *mut usize) -> *const c_char {
    look!(std::ptr::null(), |c| {
        let (face, at) = find(value)?;
        match face.arena.node(at)? {
            Node::Text(t, n) => {
                c.put(len, *n);
                Ok(t.as_ptr())
            }
            other => wrong(other, "text"),
        }
    })
}

/// Number of members of a list or a map; 0 for any other value.
#[unsafe(no_mangle)]
pub extern "C" fn stead_value_length(value: stead_value) -> usize {
    look!(0, |_c| {
        let (face, at) = find(value)?;
        Ok(face.arena.members(at)?.len())
    })
}

/// Member `i` of a list or a map.
///
/// Errors: STEAD_USAGE if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_at(
    value: stead_value,
    i: usize,
    member: *mut stead_value,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(member, "place for the value")?;
        let (face, at) = find(value)?;
        let members = face.arena.members(at)?;
        if i >= members.len() {
            let n = members.len();
            return Err(Error::usage(format!("there is no member {i}; the value has {n}")));
        }
        out.put(stead_value { node: (members.start + i) as u64, ..value });
        Ok(())
    })
}

/// The name of member `i` of a map; NULL if there is none. Lives as long as the report.
#[unsafe(no_mangle)]
pub extern "C" fn stead_value_key(value: stead_value, i: usize) -> *const c_char {
    look!(std::ptr::null(), |_c| {
        let (face, at) = find(value)?;
        match face.arena.node(at)? {
            Node::Map { keys, .. } => keys
                .get(i)
                .map(|k| k.as_ptr())
                .ok_or_else(|| Error::usage(format!("there is no member {i}"))),
            other => wrong(other, "a map"),
        }
    })
}

/// The member of a map called `key`. Cost: that of looking at each name in turn.
///
/// Errors: STEAD_USAGE if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_get(
    value: stead_value,
    key: *const c_char,
    member: *mut stead_value,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(member, "place for the value")?;
        let key = c.text(key, "name of the member")?;
        let (face, at) = find(value)?;
        let Node::Map { first, keys } = face.arena.node(at)? else {
            return wrong(face.arena.node(at)?, "a map");
        };
        let found = keys.iter().position(|k| k.as_bytes() == key.as_bytes());
        let i = found.ok_or_else(|| {
            let some: Vec<_> = keys.iter().take(20).map(|k| k.to_string_lossy()).collect();
            Error::usage(format!("there is no member '{key}'"))
                .with_hint(format!("the members are: {}", some.join(", ")))
        })?;
        out.put(stead_value { node: (first + i) as u64, ..value });
        Ok(())
    })
}

/// Number of dimensions of a list of numbers (1), of a list of lists of numbers that have one length (2), and so
/// on; 0 for any other value. The lengths, outermost first, are written to `shape`, as many as fit into `room`; it
/// may be NULL if `room` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_shape(
    value: stead_value,
    shape: *mut usize,
    room: usize,
) -> usize {
    look!(0, |c| {
        let (face, at) = find(value)?;
        let Some((dims, _)) = face.arena.shape(at) else { return Ok(0) };
        c.fill(shape, room, "shape", dims.iter().copied())?;
        Ok(dims.len())
    })
}

/// Copies the numbers of nested lists, such as a Gram matrix, to `out`, the innermost list running fastest; null
/// becomes NaN. How many there are is the product of stead_value_shape, and is written to `n` unless that is NULL.
///
/// Errors: STEAD_USAGE if it is something else, lists have different lengths, or there are more than `room`; then
/// nothing is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_doubles(
    value: stead_value,
    out: *mut f64,
    room: usize,
    n: *mut usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let (face, at) = find(value)?;
        let Some((_, place)) = face.arena.shape(at) else {
            return Err(Error::usage("this value is no list of numbers, or one of uneven lists"));
        };
        c.put(n, place.len());
        if place.len() > room {
            let n = place.len();
            return Err(Error::usage(format!("there are {n} numbers, and room for {room}")));
        }
        let numbers = face.arena.0[place.clone()].iter().map(|n| match n {
            Node::Int(i) => *i as f64,
            Node::Float(f) => *f,
            _ => f64::NAN,
        });
        c.fill(out, place.len(), "place for the numbers", numbers)
    })
}

/// The value as JSON. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_USAGE if it is no value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_value_json(
    value: stead_value,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        let (face, at) = find(value)?;
        text::give(out, &text::json(&face.arena.value(at)?)?);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_laid_out_and_read_back() {
        let row = |x: f64| Value::List(vec![Value::Float(x), Value::Int(2), Value::Null]);
        let all = [
            Value::Map(vec![
                ("m".into(), Value::List(vec![row(0.5), row(1.5)])),
                ("b".into(), Value::Bool(true)),
            ]),
            Value::List(vec![row(1.0), Value::List(vec![])]),
            Value::List(vec![]),
            Value::Text("a\0b".into()),
        ];
        let arena = Arena::new(all.iter());
        for (i, v) in all.iter().enumerate().take(3) {
            assert_eq!(arena.value(i).as_ref().ok(), Some(v));
        }
        assert_eq!(arena.value(3).ok(), Some(Value::Text("a\u{FFFD}b".into())));
        let m = arena.members(0).expect("members").start;
        let shape = |at| arena.shape(at).map(|(d, place)| (d, place.len()));
        assert_eq!(shape(m), Some((vec![2, 3], 6)));
        assert_eq!(shape(0), None);
        assert_eq!(shape(1), None);
        assert_eq!(shape(2), Some((vec![0], 0)));
        assert!(arena.node(99).is_err());
    }
}
