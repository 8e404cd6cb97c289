//! The wall that every call from C passes: panics stop here, pointers are looked at, failures are told.

use crate::error::{ErrorFace, stead_error, stead_status};
use crate::table;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use stead::{Error, Result};

thread_local! {
    /// What the last call that failed on this thread had to say.
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Stands for the promise of a caller from C: pointers are NULL or point to as much as the header says.
/// What takes one may follow the caller's pointers.
pub struct Caller(());

/// Runs the body of an entry point that returns a status.
macro_rules! call {
    ($error:expr, |$c:ident| $body:expr) => {{
        let body = |$c: &$crate::guard::Caller| -> stead::Result<()> { $body };
        // SAFETY: callers from C keep what the header says of each pointer.
        unsafe { $crate::guard::status($error, body) }
    }};
}

/// Runs the body of an entry point that returns a value of its own, and this one if it fails.
macro_rules! look {
    ($default:expr, |$c:ident| $body:expr) => {{
        let body = |$c: &$crate::guard::Caller| -> stead::Result<_> { $body };
        // SAFETY: callers from C keep what the header says of each pointer.
        unsafe { $crate::guard::value($default, body) }
    }};
}

pub(crate) use {call, look};

/// See `call!`. The error, if somebody wants it, is a new handle in `*error`, which is NULL on success.
///
/// # Safety
/// `error` is NULL or can be written to, and all pointers that `body` hands to the [`Caller`] are NULL or
/// point to what the header says.
pub unsafe fn status(
    error: *mut *mut stead_error,
    body: impl FnOnce(&Caller) -> Result<()>,
) -> stead_status {
    let told = caught(|| body(&Caller(()))).err();
    let number = told.as_ref().map_or(0, |e| crate::error::number(e.kind()));
    let handle = match told {
        None => std::ptr::null_mut(),
        Some(e) => {
            remember(&e);
            if error.is_null() { std::ptr::null_mut() } else { table::insert(ErrorFace::new(e)) }
        }
    };
    if !error.is_null() {
        // SAFETY: the caller's promise.
        unsafe { error.write(handle) };
    }
    number
}

/// See `look!`.
///
/// # Safety
/// As [`status`].
pub unsafe fn value<T>(default: T, body: impl FnOnce(&Caller) -> Result<T>) -> T {
    caught(|| body(&Caller(()))).unwrap_or_else(|e| {
        remember(&e);
        default
    })
}

/// A panic becomes an error.
fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<&str>()
            .map(|s| s.to_string())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic".into());
        // Dropping what was thrown could throw again.
        std::mem::forget(panic);
        Err(Error::internal(what))
    })
}

/// Keeps the message for `stead_last_message`.
pub fn remember(e: &Error) {
    let text = match e.hint() {
        Some(hint) => format!("{e} ({hint})"),
        None => e.to_string(),
    };
    // What exit() calls comes after all that the thread has kept: nothing more can be kept then.
    let _ = LAST.try_with(|l| {
        if let Ok(mut last) = l.try_borrow_mut() {
            *last = c_text(&text);
        }
    });
}

/// The message that was kept.
pub fn last() -> *const c_char {
    // The buffer stays where it is until the next failure on this thread.
    let kept = LAST.try_with(|l| l.try_borrow().map_or(c"".as_ptr(), |s| s.as_ptr()));
    kept.unwrap_or(c"".as_ptr())
}

/// Text for C. A zero byte, which would end it, becomes the replacement character.
pub fn c_text(s: &str) -> CString {
    CString::new(s).or_else(|_| CString::new(s.replace('\0', "\u{FFFD}"))).unwrap_or_default()
}

impl Caller {
    /// Text that must be there.
    pub fn text<'c>(&'c self, p: *const c_char, what: &str) -> Result<&'c str> {
        self.optional_text(p, what)?.ok_or_else(|| null(what))
    }

    /// Text, or NULL.
    pub fn optional_text<'c>(&'c self, p: *const c_char, what: &str) -> Result<Option<&'c str>> {
        if p.is_null() {
            return Ok(None);
        }
        // SAFETY: not NULL, so by the caller's promise a string that ends with a zero byte.
        let text = unsafe { CStr::from_ptr(p) };
        text.to_str().map(Some).map_err(|_| Error::usage(format!("the {what} is no UTF-8 text")))
    }

    /// The name of a file, in whatever bytes it has.
    pub fn path<'c>(&'c self, p: *const c_char, what: &str) -> Result<&'c Path> {
        if p.is_null() {
            return Err(null(what));
        }
        // SAFETY: not NULL, so by the caller's promise a string that ends with a zero byte.
        let bytes = unsafe { CStr::from_ptr(p) }.to_bytes();
        Ok(Path::new(OsStr::from_bytes(bytes)))
    }

    /// `n` elements; NULL will do for none.
    pub fn slice<'c, T>(&'c self, p: *const T, n: usize, what: &str) -> Result<&'c [T]> {
        if n == 0 {
            return Ok(&[]);
        }
        if p.is_null() {
            return Err(null(what));
        }
        if !p.is_aligned() {
            return Err(Error::usage(format!("the pointer to the {what} is not aligned")));
        }
        check_size::<T>(n, what)?;
        // SAFETY: not NULL, aligned, of a size that a slice can have, and by the caller's promise `n` elements.
        Ok(unsafe { std::slice::from_raw_parts(p, n) })
    }

    /// Writes values to a place with room for `room`, as many as fit; NULL will do for no room.
    pub fn fill<T>(
        &self,
        p: *mut T,
        room: usize,
        what: &str,
        values: impl Iterator<Item = T>,
    ) -> Result<()> {
        if room == 0 {
            return Ok(());
        }
        self.out(p, what)?;
        check_size::<T>(room, what)?;
        for (i, value) in values.take(room).enumerate() {
            // SAFETY: not NULL, aligned, and by the caller's promise there is room for more than `i`.
            unsafe { p.add(i).write(value) };
        }
        Ok(())
    }

    /// Writes values to places that are `stride` bytes apart and may lie at any address, from place number `first` on.
    pub fn scatter<T>(
        &self,
        p: *mut T,
        stride: usize,
        first: usize,
        values: impl Iterator<Item = T>,
    ) {
        for (i, value) in values.enumerate() {
            let place = p.wrapping_byte_add(stride.wrapping_mul(first.wrapping_add(i)));
            // SAFETY: by the caller's promise there is room for each value there; alignment is not asked for.
            unsafe { place.write_unaligned(value) };
        }
    }

    /// Texts, each of which must be there.
    pub fn texts(&self, p: *const *const c_char, n: usize, what: &str) -> Result<Vec<String>> {
        let all = self.slice(p, n, what)?;
        all.iter().map(|t| self.text(*t, what).map(String::from)).collect()
    }

    /// A struct that must be there.
    pub fn object<'c, T>(&'c self, p: *const T, what: &str) -> Result<&'c T> {
        self.slice(p, 1, what)?.first().ok_or_else(|| null(what))
    }

    /// A place for an answer that must be there. Asked for first, so that nothing is done in vain.
    pub fn out<T>(&self, p: *mut T, what: &str) -> Result<Out<T>> {
        if p.is_null() {
            return Err(null(what));
        }
        if !p.is_aligned() {
            return Err(Error::usage(format!("the pointer to the {what} is not aligned")));
        }
        Ok(Out(p))
    }

    /// A place for a handle, NULL until there is one.
    pub fn out_handle<T>(&self, p: *mut *mut T, what: &str) -> Result<Out<*mut T>> {
        let out = self.out(p, what)?;
        // SAFETY: not NULL, and by the caller's promise it can be written to.
        unsafe { p.write(std::ptr::null_mut()) };
        Ok(out)
    }

    /// Writes where there is a place.
    pub fn put<T>(&self, p: *mut T, value: T) {
        if !p.is_null() && p.is_aligned() {
            // SAFETY: not NULL, and by the caller's promise it can be written to.
            unsafe { p.write(value) };
        }
    }
}

/// A place for an answer, which has been looked at.
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the answer.
    pub fn put(self, value: T) {
        // SAFETY: `Caller::out` saw that it is not NULL; by the caller's promise it can be written to.
        unsafe { self.0.write(value) };
    }
}

/// An error if `n` elements are more than an address space holds.
pub fn check_size<T>(n: usize, what: &str) -> Result<usize> {
    n.checked_mul(size_of::<T>())
        .filter(|b| *b <= isize::MAX as usize)
        .ok_or_else(|| Error::usage(format!("{n} elements of the {what} fit no memory")))
}

/// A pointer that must not be NULL.
pub fn null(what: &str) -> Error {
    Error::usage(format!("the {what} is NULL"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead::Kind;

    fn failing(body: impl FnOnce(&Caller) -> Result<()>) -> (stead_status, String) {
        let mut e = std::ptr::null_mut();
        // SAFETY: `e` can be written to, and the bodies hand on good pointers or NULL.
        let n = unsafe { status(&mut e, body) };
        let face = table::get::<ErrorFace>(e).expect("an error");
        table::remove::<ErrorFace>(e).expect("freed");
        (n, face.error.to_string())
    }

    #[test]
    fn panics_end_at_the_wall() {
        let internal = crate::error::number(Kind::Internal);
        assert_eq!(failing(|_| panic!("of {}", 7)), (internal, "of 7".into()));
        assert_eq!(failing(|_| std::panic::panic_any(7)), (internal, "a panic".into()));
        // SAFETY: no pointers.
        assert_eq!(unsafe { value(3, |_| panic!("x")) }, 3);
    }

    #[test]
    fn null_is_an_error_and_no_crash() {
        let usage = crate::error::number(Kind::Usage);
        let null = std::ptr::null();
        assert_eq!(failing(|c| c.text(null, "x").map(|_| ())), (usage, "the x is NULL".into()));
        assert_eq!(failing(|c| c.slice::<u8>(null.cast(), 1, "x").map(|_| ())).0, usage);
        assert_eq!(failing(|c| c.out::<u8>(std::ptr::null_mut(), "x").map(|_| ())).0, usage);
        assert_eq!(failing(|c| c.slice(&7u64, usize::MAX, "x").map(|_| ())).0, usage);
        let bad = c"\xff";
        assert_eq!(failing(|c| c.text(bad.as_ptr(), "x").map(|_| ())).0, usage);
        // SAFETY: a NULL error is allowed.
        assert_eq!(unsafe { status(std::ptr::null_mut(), |_| Err(super::null("y"))) }, usage);
        // SAFETY: it is the message of the failure above.
        assert_eq!(unsafe { CStr::from_ptr(last()) }, c"the y is NULL");
    }
}
