//! How `finish` of a kernel of the caller's own says its result.

use crate::error::{self, STEAD_OK, stead_status};
use crate::guard::{Caller, look};
use crate::own::{self, stead_builder};
use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use stead::{Error, Result, Value};

thread_local! {
    /// The builder that is lent on this thread.
    static LENT: Cell<*const Builder> = const { Cell::new(std::ptr::null()) };
}

/// A list or a map that is not closed yet.
enum Open {
    List(Vec<Value>),
    Map(Vec<(String, Value)>, Option<String>),
}

/// A result in the making.
#[derive(Default)]
struct Builder(RefCell<Parts>);

#[derive(Default)]
struct Parts {
    open: Vec<Open>,
    done: Option<Value>,
    /// True if the data are to be read once more.
    again: bool,
}

/// What `finish` says.
pub enum Said {
    Result(Value),
    /// Another pass, whose states begin as the one that it has left.
    Again,
}

/// Lists and maps are nested no deeper.
const MAX_DEPTH: usize = 64;

impl Parts {
    fn add(&mut self, value: Value) -> Result<()> {
        match self.open.last_mut() {
            _ if self.again => {
                return Err(Error::usage("there is no result before the last pass"));
            }
            None if self.done.is_none() => self.done = Some(value),
            None => return Err(Error::usage("the result was given already")),
            Some(Open::List(v)) => v.push(value),
            Some(Open::Map(v, key)) => {
                let key =
                    key.take().ok_or_else(|| Error::usage("a member of a map needs a name"))?;
                v.push((key, value));
            }
        }
        Ok(())
    }

    fn begin(&mut self, open: Open) -> Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(Error::usage(format!("a result is nested deeper than {MAX_DEPTH}")));
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let value = match self.open.pop() {
            Some(Open::List(v)) => Value::List(v),
            Some(Open::Map(v, None)) => Value::Map(v),
            Some(Open::Map(_, Some(key))) => {
                return Err(Error::usage(format!("the member '{key}' has no value")));
            }
            None => return Err(Error::usage("no list and no map is open")),
        };
        self.add(value)
    }
}

/// Takes the loan back, on every way out.
struct Back(*const Builder);

impl Drop for Back {
    fn drop(&mut self) {
        LENT.with(|l| l.set(self.0));
    }
}

/// What `finish` gives; null if it gives nothing.
pub fn fill(finish: impl FnOnce(*mut stead_builder) -> Result<()>) -> Result<Said> {
    let builder = Builder::default();
    let me: *const Builder = &builder;
    {
        let _back = Back(LENT.with(|l| l.replace(me)));
        finish(me.cast_mut().cast())?;
    }
    let parts = builder.0.into_inner();
    if !parts.open.is_empty() {
        return Err(Error::usage("the result has a list or a map that was not ended"));
    }
    Ok(match parts.again {
        true => Said::Again,
        false => Said::Result(parts.done.unwrap_or(Value::Null)),
    })
}

/// Does something with the builder of a handle. A failure is kept, as by `stead_fail`, so that the caller's function
/// can return what it gets.
fn with(
    handle: *mut stead_builder,
    f: impl FnOnce(&Caller, &mut Parts) -> Result<()>,
) -> stead_status {
    look!(error::STEAD_INTERNAL, |c| {
        let lent = LENT.with(Cell::get);
        let done = if handle.is_null() || !std::ptr::addr_eq(lent, handle) {
            Err(Error::usage("this is not the builder that is lent to this call"))
        } else {
            // SAFETY: it is the one that `fill` set on this thread and has not taken back, so it is alive.
            f(c, &mut unsafe { &*lent }.0.borrow_mut())
        };
        Ok(match done {
            Ok(()) => STEAD_OK,
            Err(e) => {
                own::fail(e.kind(), e.message().to_string());
                crate::guard::remember(&e);
                error::number(e.kind())
            }
        })
    })
}

/// The result, or the next member of the list or map that is open, is null: no answer. As its like, it is for use in
/// stead_kernel.finish only, on the thread of that call, and returns STEAD_OK or STEAD_USAGE, which may be returned
/// from there. A result that is given no value is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_null(result: *mut stead_builder) -> stead_status {
    with(result, |_, p| p.add(Value::Null))
}

/// As stead_builder_null, with a bool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_bool(
    result: *mut stead_builder,
    value: bool,
) -> stead_status {
    with(result, |_, p| p.add(Value::Bool(value)))
}

/// As stead_builder_null, with a count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_int(result: *mut stead_builder, value: u64) -> stead_status {
    with(result, |_, p| p.add(Value::Int(value)))
}

/// As stead_builder_null, with a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_double(
    result: *mut stead_builder,
    value: f64,
) -> stead_status {
    with(result, |_, p| p.add(Value::Float(value)))
}

/// As stead_builder_null, with UTF-8 text, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_text(
    result: *mut stead_builder,
    value: *const c_char,
) -> stead_status {
    with(result, |c, p| p.add(Value::Text(c.text(value, "text")?.to_string())))
}

/// As stead_builder_null, with a list of `n` numbers, which are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_doubles(
    result: *mut stead_builder,
    values: *const f64,
    n: usize,
) -> stead_status {
    with(result, |c, p| {
        let values = c.slice(values, n, "numbers")?;
        p.add(Value::floats(values.iter().copied()))
    })
}

/// As stead_builder_null, with a list of `rows` lists of `columns` numbers each, which lie row by row and are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_matrix(
    result: *mut stead_builder,
    values: *const f64,
    rows: usize,
    columns: usize,
) -> stead_status {
    with(result, |c, p| {
        let n = rows
            .checked_mul(columns)
            .ok_or_else(|| Error::usage("the matrix is larger than memory can be"))?;
        let values = c.slice(values, n, "numbers")?;
        let row = |r: usize| Value::floats(values[r * columns..(r + 1) * columns].iter().copied());
        p.add(Value::List((0..rows).map(row).collect()))
    })
}

/// Begins a list; what is given next are its members, until stead_builder_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_list(result: *mut stead_builder) -> stead_status {
    with(result, |_, p| p.begin(Open::List(Vec::new())))
}

/// Begins a map; what is given next are its members, each after its name (stead_builder_key), until
/// stead_builder_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_map(result: *mut stead_builder) -> stead_status {
    with(result, |_, p| p.begin(Open::Map(Vec::new(), None)))
}

/// The name of the next member of the map that is open: UTF-8, copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_key(
    result: *mut stead_builder,
    key: *const c_char,
) -> stead_status {
    with(result, |c, p| {
        let key = c.text(key, "name of the member")?;
        match p.open.last_mut() {
            Some(Open::Map(_, next @ None)) => {
                *next = Some(key.to_string());
                Ok(())
            }
            Some(Open::Map(..)) => {
                Err(Error::usage(format!("the member before '{key}' has no value")))
            }
            _ => Err(Error::usage(format!("'{key}' is the name of a member, and no map is open"))),
        }
    })
}

/// Ends the list or the map that was begun last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_end(result: *mut stead_builder) -> stead_status {
    with(result, |_, p| p.end())
}

/// There is no result yet: the data are read once more, and the states of that pass begin as copies of the one that
/// stead_kernel.finish leaves. So it puts there what the pass has found, for `update` to look at, and takes back to
/// nothing what is added up. Each pass sees the same records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_builder_again(result: *mut stead_builder) -> stead_status {
    with(result, |_, p| {
        if p.done.is_some() || !p.open.is_empty() {
            return Err(Error::usage("a result was given, so there is no other pass"));
        }
        p.again = true;
        Ok(())
    })
}
