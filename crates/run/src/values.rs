//! Results on their way from one rank to another, to the bit. Whatever comes may be anything: it becomes an error.

use stead_core::{Error, Result, Value};

/// Values within values.
const DEEPEST: usize = 64;

const NULL: u8 = 0;
const BOOL: u8 = 1;
const INT: u8 = 2;
const FLOAT: u8 = 3;
const TEXT: u8 = 4;
const LIST: u8 = 5;
const MAP: u8 = 6;

fn number(n: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn text(t: &str, out: &mut Vec<u8>) {
    number(t.len() as u64, out);
    out.extend_from_slice(t.as_bytes());
}

fn malformed() -> Error {
    Error::format("a result from another rank is malformed")
}

/// Appends a value. Its bits arrive as they are, those of NaN too.
pub fn put(value: &Value, out: &mut Vec<u8>) -> Result<()> {
    add(value, out, 0)
}

/// Takes the value that bytes begin with.
pub fn take(from: &mut &[u8]) -> Result<Value> {
    next(from, 0)
}

fn add(value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    if depth > DEEPEST {
        return Err(Error::limit(format!("a result has more than {DEEPEST} lists within lists")));
    }
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(b) => out.extend_from_slice(&[BOOL, u8::from(*b)]),
        Value::Int(n) => {
            out.push(INT);
            number(*n, out);
        }
        Value::Float(f) => {
            out.push(FLOAT);
            number(f.to_bits(), out);
        }
        Value::Text(t) => {
            out.push(TEXT);
            text(t, out);
        }
        Value::List(all) => {
            out.push(LIST);
            number(all.len() as u64, out);
            all.iter().try_for_each(|v| add(v, out, depth + 1))?;
        }
        Value::Map(all) => {
            out.push(MAP);
            number(all.len() as u64, out);
            for (key, v) in all {
                text(key, out);
                add(v, out, depth + 1)?;
            }
        }
    }
    Ok(())
}

fn take_number(from: &mut &[u8]) -> Result<u64> {
    let (n, rest) = from.split_first_chunk().ok_or_else(malformed)?;
    *from = rest;
    Ok(u64::from_le_bytes(*n))
}

/// A number of things each of which has so many bytes at least.
fn take_count(from: &mut &[u8], least: usize) -> Result<usize> {
    let n = usize::try_from(take_number(from)?).map_err(|_| malformed())?;
    if n > from.len() / least { Err(malformed()) } else { Ok(n) }
}

fn take_text(from: &mut &[u8]) -> Result<String> {
    let len = take_count(from, 1)?;
    let (text, rest) = from.split_at_checked(len).ok_or_else(malformed)?;
    *from = rest;
    String::from_utf8(text.to_vec()).map_err(|_| malformed())
}

fn next(from: &mut &[u8], depth: usize) -> Result<Value> {
    /// Room that is taken before values are seen.
    const FEW: usize = 1024;
    if depth > DEEPEST {
        return Err(malformed());
    }
    let (sort, rest) = from.split_first().ok_or_else(malformed)?;
    *from = rest;
    Ok(match *sort {
        NULL => Value::Null,
        BOOL => {
            let (b, rest) = from.split_first().ok_or_else(malformed)?;
            *from = rest;
            Value::Bool(*b != 0)
        }
        INT => Value::Int(take_number(from)?),
        FLOAT => Value::Float(f64::from_bits(take_number(from)?)),
        TEXT => Value::Text(take_text(from)?),
        LIST => {
            let n = take_count(from, 1)?;
            let mut all = Vec::with_capacity(n.min(FEW));
            for _ in 0..n {
                all.push(next(from, depth + 1)?);
            }
            Value::List(all)
        }
        MAP => {
            let n = take_count(from, size_of::<u64>() + 1)?;
            let mut all = Vec::with_capacity(n.min(FEW));
            for _ in 0..n {
                all.push((take_text(from)?, next(from, depth + 1)?));
            }
            Value::Map(all)
        }
        _ => return Err(malformed()),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::Kind;

    /// Any value.
    pub fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<u64>().prop_map(Value::Int),
            any::<u64>().prop_map(|b| Value::Float(f64::from_bits(b))),
            ".{0,9}".prop_map(Value::Text),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
                prop::collection::vec((".{0,5}", inner), 0..6).prop_map(Value::Map),
            ]
        })
    }

    #[test]
    fn values_that_are_too_deep_or_too_long_are_no_values() {
        let mut deep = Value::Null;
        for _ in 0..=DEEPEST {
            deep = Value::List(vec![deep]);
        }
        assert_eq!(put(&deep, &mut Vec::new()).unwrap_err().kind(), Kind::Limit);
        let nested = [LIST, 1, 0, 0, 0, 0, 0, 0, 0].repeat(100_000);
        assert!(take(&mut &*nested).is_err());
        for sort in [TEXT, LIST, MAP] {
            let mut long = vec![sort];
            number(u64::MAX, &mut long);
            long.extend_from_slice(&[0; 100]);
            assert!(take(&mut &*long).is_err());
        }
    }
}
