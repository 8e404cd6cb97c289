//! Blocks as kernels of the caller's own see them.
//!
//! A block is good during the call that lends it, on the thread of that call, and is known by that: the thread
//! remembers which block is lent, and a pointer that is not this one is not followed.

use crate::guard::look;
use crate::own::stead_block;
use std::cell::{Cell, OnceCell};
use std::ffi::c_char;
use stead::kernels::Block;
use stead::{Error, Result};

thread_local! {
    /// The block that is lent on this thread.
    static LENT: Cell<*const View<'static>> = const { Cell::new(std::ptr::null()) };
}

/// A block and the columns that its kernel asked for, in its order.
pub struct View<'b> {
    block: &'b Block<'b>,
    numbers: &'b [usize],
    texts: &'b [usize],
    runs: OnceCell<Vec<&'b [u8]>>,
}

/// Takes the loan back, on every way out.
struct Back(*const View<'static>);

impl Drop for Back {
    fn drop(&mut self) {
        LENT.with(|l| l.set(self.0));
    }
}

impl<'b> View<'b> {
    pub fn new(block: &'b Block<'b>, numbers: &'b [usize], texts: &'b [usize]) -> View<'b> {
        View { block, numbers, texts, runs: OnceCell::new() }
    }

    /// Lends the block to `call`.
    pub fn lend<T>(&self, call: impl FnOnce(*const stead_block) -> T) -> T {
        let me: *const View<'static> = std::ptr::from_ref(self).cast();
        let _back = Back(LENT.with(|l| l.replace(me)));
        call(me.cast())
    }
}

/// Shows the block of a handle to `f`.
fn with<T>(handle: *const stead_block, f: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
    let lent = LENT.with(Cell::get);
    if handle.is_null() || !std::ptr::addr_eq(lent, handle) {
        return Err(Error::usage("this is not the block that is lent to this call").with_hint(
            "a block is good during the call of 'update' that it is handed to, on the same thread",
        ));
    }
    // SAFETY: it is the one that `lend` set on this thread and has not taken back, so the view is alive.
    f(unsafe { &*lent })
}

fn none(what: &str, i: usize, n: usize) -> Error {
    Error::usage(format!("there is no {what} {i}; there are {n}"))
}

/// Number of records in the block; 0 if the kernel asked for bytes alone, or this is not the block of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_rows(block: *const stead_block) -> usize {
    look!(0, |_c| with(block, |v| Ok(v.block.rows)))
}

/// Number of columns that the kernel asked for as numbers, with "*" resolved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_number_count(block: *const stead_block) -> usize {
    look!(0, |_c| with(block, |v| Ok(v.numbers.len())))
}

/// The `i`-th column that the kernel asked for as numbers: as many values as the block has rows, missing ones as
/// stead_is_missing knows them. NULL if there is none. Lives as long as the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_numbers(block: *const stead_block, i: usize) -> *const f64 {
    look!(std::ptr::null(), |_c| with(block, |v| {
        let id = v.numbers.get(i).ok_or_else(|| none("column of numbers", i, v.numbers.len()))?;
        Ok(v.block.numbers(*id).as_ptr())
    }))
}

/// The value in row `row` of the `i`-th column that the kernel asked for as text: its bytes, which do not end with a
/// zero byte, and their number in `len`. NULL if it is missing, or there is no such place. Lives as long as the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_text(
    block: *const stead_block,
    i: usize,
    row: usize,
    len: *mut usize,
) -> *const c_char {
    look!(std::ptr::null(), |c| with(block, |v| {
        c.put(len, 0);
        let id = v.texts.get(i).ok_or_else(|| none("column of text", i, v.texts.len()))?;
        if row >= v.block.rows {
            return Err(none("row", row, v.block.rows));
        }
        let Some(text) = v.block.texts(*id).and_then(|t| t.get(row)) else {
            return Ok(std::ptr::null());
        };
        c.put(len, text.len());
        Ok(text.as_ptr().cast())
    }))
}

/// The bytes of record `row`, with its line end if it is a line, and their number in `len`. NULL if there is none, or
/// the kernel did not ask for STEAD_NEEDS_RECORDS. Lives as long as the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_record(
    block: *const stead_block,
    row: usize,
    len: *mut usize,
) -> *const c_char {
    look!(std::ptr::null(), |c| with(block, |v| {
        c.put(len, 0);
        let n = v.block.records.len();
        let span = v.block.records.get(row).ok_or_else(|| none("record", row, n))?;
        let bytes = span.of(v.block.text);
        c.put(len, bytes.len());
        Ok(bytes.as_ptr().cast())
    }))
}

fn runs<'v>(v: &'v View<'_>) -> &'v [&'v [u8]] {
    v.runs.get_or_init(|| v.block.runs().collect())
}

/// Number of runs of bytes: 1, more where a filter or groups took records out, 0 if there are none or the kernel did
/// not ask for STEAD_NEEDS_BYTES.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_run_count(block: *const stead_block) -> usize {
    look!(0, |_c| with(block, |v| Ok(runs(v).len())))
}

/// The bytes of run `i` and their number in `len`. All runs of all blocks are every byte of the files once, headers
/// too, unless something is filtered. NULL if there is none. Lives as long as the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_run(
    block: *const stead_block,
    i: usize,
    len: *mut usize,
) -> *const c_char {
    look!(std::ptr::null(), |c| with(block, |v| {
        c.put(len, 0);
        let all = runs(v);
        let run = all.get(i).ok_or_else(|| none("run", i, all.len()))?;
        c.put(len, run.len());
        Ok(run.as_ptr().cast())
    }))
}

/// Index of the file that the block is of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_source(block: *const stead_block) -> u32 {
    look!(0, |_c| with(block, |v| Ok(v.block.source)))
}

/// Where in the (decompressed) file the block's bytes begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_block_offset(block: *const stead_block) -> u64 {
    look!(0, |_c| with(block, |v| Ok(v.block.offset)))
}
