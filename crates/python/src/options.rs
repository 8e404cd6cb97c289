//! Keyword arguments as options: of `stead.open`, and of what reads by sessions.

use crate::errors::raise;
use crate::request::seconds;
use crate::run::engine;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use stead::read::Options;
use stead::{ByteOrder, ColumnType, Error, Header, OpenOptions, Order, Quote, units};

/// What was said; what is None is detected.
pub fn open_options(given: &Bound<'_, PyDict>) -> PyResult<OpenOptions> {
    let mut o = OpenOptions::default();
    each(given, |key, value| set(&mut o, key, value))?;
    Ok(o)
}

/// How to read, as was said; what is None is chosen.
///
/// # Errors
/// `TypeError` for an option that there is not, `Usage` for a value that makes no sense, `ValueError` for a deadline of NaN.
pub fn read_options(given: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut o = Options::default();
    each(given, |key, value| set_read(&mut o, key, value))?;
    Ok(o)
}

/// Has each option set that was given.
fn each(
    given: &Bound<'_, PyDict>,
    mut set: impl FnMut(&str, &Bound<'_, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    for (key, value) in given {
        let key: String = key.extract()?;
        if value.is_none() {
            continue;
        }
        set(&key, &value).map_err(|e| {
            // An extraction says what it found; the argument is what the caller can mend.
            if e.is_instance_of::<PyTypeError>(value.py()) {
                let found = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
                PyTypeError::new_err(format!("{key}= cannot be a {found}: {}", e.value(value.py())))
            } else {
                e
            }
        })?;
    }
    Ok(())
}

fn set_read(o: &mut Options, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        "readers" => o.readers = Some(positive(key, value, "a number of at least 1")?),
        "block" => o.block = Some(bytes(key, value)?),
        "depth" => o.depth = Some(positive(key, value, "a number of at least 1")?),
        "memory" => o.memory = bytes(key, value)?,
        "deadline" => o.deadline = seconds(value.extract()?, key)?.unwrap_or(o.deadline),
        "ahead" => o.ahead = value.extract()?,
        "share" => o.share = value.extract()?,
        "direct" => o.io.direct = value.extract()?,
        "engine" => o.io.engine = engine(&value.extract::<String>()?)?,
        _ => return Err(PyTypeError::new_err(format!("no option '{key}'"))),
    }
    Ok(())
}

fn set(o: &mut OpenOptions, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        "type" => o.format = Some(parsed(value)?),
        "delimiter" => o.delimiter = Some(byte(key, value)?),
        "quote" => {
            o.quote = match value.extract::<bool>() {
                Ok(false) => Quote::None,
                Ok(true) => Quote::Auto,
                Err(_) => Quote::Byte(byte(key, value)?),
            }
        }
        "header" => o.header = if value.extract()? { Header::Yes } else { Header::No },
        "comment" => o.comment = Some(byte(key, value)?),
        "missing" => o.missing = Some(strings(value)?),
        "names" => o.names = Some(strings(value)?),
        "column_types" => {
            for (name, kind) in value.cast::<PyDict>()? {
                let kind: ColumnType = parsed(&kind)?;
                o.column_types.push((name.extract()?, kind));
            }
        }
        "dtype" => o.dtype = Some(parsed(value)?),
        "shape" => o.shape = Some(value.extract()?),
        "order" => {
            o.order = Some(match value.extract::<String>()?.as_str() {
                "C" => Order::C,
                "F" => Order::Fortran,
                _ => return Err(raise(Error::usage("the order of an array is \"C\" or \"F\""))),
            })
        }
        "byte_order" => {
            o.byte_order = Some(match value.extract::<String>()?.as_str() {
                "little" => ByteOrder::Little,
                "big" => ByteOrder::Big,
                _ => return Err(raise(Error::usage("a byte order is \"little\" or \"big\""))),
            })
        }
        "skip" => o.skip = Some(value.extract()?),
        "record_length" => o.record_length = Some(value.extract()?),
        "compression" => o.compression = Some(parsed(value)?),
        "species" => o.species = Some(parsed(value)?),
        "dataspaces" => o.dataspaces = strings(value)?,
        "storage_hosts" => o.storage_hosts = Some(value.extract()?),
        _ => return Err(PyTypeError::new_err(format!("no option '{key}'"))),
    }
    Ok(())
}

/// What the text of `value` names.
pub fn parsed<T: std::str::FromStr<Err = Error>>(value: &Bound<'_, PyAny>) -> PyResult<T> {
    value.extract::<String>()?.parse().map_err(raise)
}

fn byte(key: &str, value: &Bound<'_, PyAny>) -> PyResult<u8> {
    let text: String = value.extract()?;
    match text.as_bytes() {
        [b] => Ok(*b),
        _ => Err(raise(Error::usage(format!("{key}= must be one ASCII character, not {text:?}")))),
    }
}

/// A whole number that is not 0.
fn positive<N: TryFrom<u64>>(key: &str, value: &Bound<'_, PyAny>, what: &str) -> PyResult<N> {
    let n = match value.extract::<u64>() {
        Err(e) if !e.is_instance_of::<PyOverflowError>(value.py()) => return Err(e),
        n => n.ok().filter(|n| *n > 0).and_then(|n| n.try_into().ok()),
    };
    n.ok_or_else(|| raise(Error::usage(format!("{key}= is {what}, not {value}"))))
}

/// Bytes, or a size such as "1MiB".
fn bytes<N: TryFrom<u64>>(key: &str, value: &Bound<'_, PyAny>) -> PyResult<N> {
    const WHAT: &str = "a number of bytes";
    let Ok(text) = value.extract::<String>() else {
        return positive(key, value, WHAT);
    };
    let size = units::parse_size(&text).map_err(raise)?;
    let size = (size > 0).then_some(size).and_then(|n| n.try_into().ok());
    size.ok_or_else(|| raise(Error::usage(format!("{key}= is {WHAT}, not {text}"))))
}

/// A list of texts; one text alone would be taken apart into letters.
fn strings(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if value.is_instance_of::<PyString>() {
        return Ok(vec![value.extract()?]);
    }
    value.try_iter()?.map(|v| v?.extract()).collect()
}
