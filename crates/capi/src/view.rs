//! Bytes that a read brought.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, look};
use crate::table::{self, Object};
use std::ffi::{c_int, c_void};
use stead::read::{Place, View};
use stead::{Error, Result};

/// Where bytes lie.
pub type stead_place = c_int;

/// In the page cache: the view takes no memory.
pub const STEAD_IN_CACHE: stead_place = 1;
/// In a block of the session, which cannot be used for other bytes while there is a view of it. So it is on network file
/// systems, with direct reads, and with an engine that was asked for by name.
pub const STEAD_IN_BLOCK: stead_place = 2;
/// In memory of the view's own.
pub const STEAD_IN_MEMORY: stead_place = 3;

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

/// Where the bytes of a view lie: STEAD_IN_CACHE and so on; 0 for no view, and for a buffer of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_view_place(view: *const stead_view) -> stead_place {
    look!(0, |c| {
        let view = c.object(view, "view")?;
        if view.id == 0 {
            return Ok(0);
        }
        Ok(place(&*table::get::<ViewFace>(handle(view))?))
    })
}

fn place(face: &ViewFace) -> stead_place {
    match face {
        ViewFace::View(view) => match view.place() {
            Place::Cache => STEAD_IN_CACHE,
            Place::Block => STEAD_IN_BLOCK,
            Place::Own => STEAD_IN_MEMORY,
        },
        ViewFace::Own { .. } => STEAD_IN_MEMORY,
    }
}

/// Copies the bytes of a view that lie in a block, which is then free for other bytes: for views that are kept. Any other
/// view is left as it is.
///
/// Errors: STEAD_USAGE for a view that was released; STEAD_LIMIT if there is no memory for the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_view_own(
    view: *mut stead_view,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let before = *c.object(view, "view")?;
        if before.id == 0 {
            return Ok(());
        }
        let face = table::get::<ViewFace>(handle(&before))?;
        let ViewFace::View(bytes) = &*face else { return Ok(()) };
        if bytes.place() != Place::Block {
            return Ok(());
        }
        let mut own = Vec::new();
        own.try_reserve_exact(bytes.len())
            .map_err(|_| Error::limit(format!("no memory for {} bytes", bytes.len())))?;
        own.extend_from_slice(bytes);
        table::remove::<ViewFace>(handle(&before))?;
        c.put(view, Bytes::Own(own).give());
        Ok(())
    })
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
