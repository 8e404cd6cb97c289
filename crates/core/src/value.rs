//! Results: what a kernel says when it is done.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// A result. Serialises to JSON with floats that read back to the same bits; NaN and infinities, which
/// JSON does not have, become the strings `"NaN"`, `"Infinity"`, `"-Infinity"`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No answer, such as the mean of nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A count.
    Int(u64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// Named values, in the order to show them.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// A list of floats.
    pub fn floats(v: impl IntoIterator<Item = f64>) -> Value {
        Value::List(v.into_iter().map(Value::Float).collect())
    }

    /// A map from pairs.
    pub fn map<const N: usize>(pairs: [(&str, Value); N]) -> Value {
        Value::Map(pairs.into_iter().map(|(k, v)| (k.to_string(), v)).collect())
    }

    /// The member `key` of a map.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Map(m) => m.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Float(f) => Some(*f),
            Value::Int(i) => Some(*i as f64),
            _ => None,
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => s.serialize_unit(),
            Value::Bool(b) => s.serialize_bool(*b),
            Value::Int(i) => s.serialize_u64(*i),
            Value::Float(f) if f.is_finite() => s.serialize_f64(*f),
            Value::Float(f) if f.is_nan() => s.serialize_str("NaN"),
            Value::Float(f) => s.serialize_str(if *f > 0.0 { "Infinity" } else { "-Infinity" }),
            Value::Text(t) => s.serialize_str(t),
            Value::List(v) => {
                let mut seq = s.serialize_seq(Some(v.len()))?;
                for x in v {
                    seq.serialize_element(x)?;
                }
                seq.end()
            }
            Value::Map(m) => {
                let mut map = s.serialize_map(Some(m.len()))?;
                for (k, v) in m {
                    map.serialize_entry(k, v)?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_floats_read_back_to_the_same_bits() {
        for x in [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e23] {
            let s = serde_json::to_string(&Value::Float(x)).expect("json");
            assert_eq!(s.parse::<f64>().expect("float").to_bits(), x.to_bits(), "{s}");
        }
        let v = Value::map([("a", Value::Float(f64::NAN)), ("b", Value::floats([f64::INFINITY]))]);
        assert_eq!(serde_json::to_string(&v).expect("json"), r#"{"a":"NaN","b":["Infinity"]}"#);
    }
}
