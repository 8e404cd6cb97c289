//! Bytes that a read brought.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, look};
use crate::table::{self, Object};
use std::ffi::c_void;
use stead::Result;
use stead::read::View;

/// Bytes that a read brought: `size` of them at `data`, until stead_view_release. They are the page cache's or a
/// block's own where that can be, so they must not be written to, and a view that is kept keeps its block from being used
/// for other bytes. All zero is no view, and nothing to release.
///
/// Copies of the struct are the same view: it is released once.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_view {
    /// The first byte.
    pub data: *const c_void,
    /// How many there are.
    pub size: usize,
    /// Which view; 0 where the bytes are in a buffer of the caller.
    pub id: u64,
}

impl stead_view {
    /// No bytes.
    pub const NONE: stead_view = stead_view { data: std::ptr::null(), size: 0, id: 0 };
}

/// The bytes behind a view.
enum ViewFace {
    View(View),
    /// Held for its bytes.
    Own {
        _bytes: Vec<u8>,
    },
}

impl Object for ViewFace {
    type Handle = stead_view;
    const NAME: &'static str = "view";
}

/// What a read answers with.
pub enum Bytes {
    /// Of the session.
    View(View),
    /// Gathered.
    Own(Vec<u8>),
    /// They were put into the caller's memory.
    There(*const c_void, usize),
}

// SAFETY: the pointer is only handed back to the caller, who gave it.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Hands them to the caller.
    pub fn give(self) -> stead_view {
        let (data, size, face) = match self {
            Bytes::There(data, size) => return stead_view { data, size, id: 0 },
            // What is borrowed here stays where it is when its owner moves into the table.
            Bytes::View(view) => (view.as_ptr(), view.len(), ViewFace::View(view)),
            Bytes::Own(bytes) => (bytes.as_ptr(), bytes.len(), ViewFace::Own { _bytes: bytes }),
        };
        let id = table::insert(face).addr() as u64;
        stead_view { data: data.cast(), size, id }
    }
}

fn handle(view: &stead_view) -> *const stead_view {
    std::ptr::without_provenance(view.id as usize)
}

/// Says whether the bytes of a view are what the file had: if it became shorter while they were looked at, or its
/// device failed, they may have been zeros. Ask after having looked, where that may happen.
///
/// Errors: STEAD_CHANGED, STEAD_IO; STEAD_USAGE for a view that was released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_view_check(
    view: *const stead_view,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let view = c.object(view, "view")?;
        if view.id == 0 {
            return Ok(());
        }
        check(&*table::get::<ViewFace>(handle(view))?)
    })
}

fn check(face: &ViewFace) -> Result<()> {
    match face {
        ViewFace::View(view) => view.check(),
        ViewFace::Own { .. } => Ok(()),
    }
}

/// Releases a view and makes it all zero. NULL and no view are nothing to do; one that was released is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_view_release(view: *mut stead_view) {
    look!((), |c| {
        if view.is_null() {
            return Ok(());
        }
        let released = *c.object(view, "view")?;
        c.put(view, stead_view::NONE);
        if released.id == 0 {
            return Ok(());
        }
        table::remove::<ViewFace>(handle(&released))
    })
}
