//! The handles that are alive.
//!
//! A handle is a number that was given out once and never again, in the shape of a pointer. Nobody follows
//! it: it is looked up here. So a handle that was freed, one of another type and a stray pointer are all told
//! apart from a good one, and freeing what another thread is using ends its life when that thread is done.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use stead::{Error, Result};

/// What a handle can stand for.
pub trait Object: Any + Send + Sync {
    /// The opaque type of the header.
    type Handle;
    /// What it is called in messages.
    const NAME: &'static str;
}

struct Live {
    name: &'static str,
    object: Arc<dyn Any + Send + Sync>,
}

/// Handles are multiples of this, so that they look like pointers to debuggers and are none.
const STEP: usize = 16;
const SHARDS: usize = 16;

static NEXT: AtomicUsize = AtomicUsize::new(1);
static TABLE: [RwLock<BTreeMap<usize, Live>>; SHARDS] =
    [const { RwLock::new(BTreeMap::new()) }; SHARDS];

fn shard(id: usize) -> &'static RwLock<BTreeMap<usize, Live>> {
    &TABLE[(id / STEP) % SHARDS]
}

/// A new handle.
pub fn insert<T: Object>(object: T) -> *mut T::Handle {
    let id = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(STEP);
    let live = Live { name: T::NAME, object: Arc::new(object) };
    shard(id).write().unwrap_or_else(PoisonError::into_inner).insert(id, live);
    std::ptr::without_provenance_mut(id)
}

/// The object of a handle.
///
/// # Errors
/// `Usage` if it is NULL, was freed, is of another type, or was never given out.
pub fn get<T: Object>(handle: *const T::Handle) -> Result<Arc<T>> {
    by_id(handle.addr())
}

/// As [`get`], with the handle's number.
pub fn by_id<T: Object>(id: usize) -> Result<Arc<T>> {
    let found = match shard(id).read().unwrap_or_else(PoisonError::into_inner).get(&id) {
        Some(live) => Ok((live.name, live.object.clone())),
        None => Err(unknown(T::NAME, id)),
    }?;
    found.1.downcast().map_err(|_| {
        Error::usage(format!("this handle is a {}, and a {} is needed", found.0, T::NAME))
    })
}

/// Ends a handle. NULL is no handle, and nothing to do.
///
/// # Errors
/// As [`get`].
pub fn remove<T: Object>(handle: *const T::Handle) -> Result<()> {
    if handle.is_null() {
        return Ok(());
    }
    get::<T>(handle)?;
    let id = handle.addr();
    let live = shard(id).write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    // The object may call back when it goes, so it goes after the lock.
    match live {
        Some(_) => Ok(()),
        None => Err(unknown(T::NAME, id)),
    }
}

/// Number of handles that are alive.
pub fn alive() -> usize {
    TABLE.iter().map(|s| s.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
}

fn unknown(name: &str, id: usize) -> Error {
    if id == 0 {
        return Error::usage(format!("the {name} is NULL"));
    }
    let given = NEXT.load(Ordering::Relaxed).saturating_mul(STEP);
    if id.is_multiple_of(STEP) && id < given {
        Error::usage(format!("the {name} was freed"))
            .with_hint("a handle is good until the call that frees it, and is freed once")
    } else {
        Error::usage(format!("this is no handle of a {name}"))
            .with_hint("only what a function of stead gave out is a handle")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct A(u32);
    struct B;
    impl Object for A {
        type Handle = u8;
        const NAME: &'static str = "a";
    }
    impl Object for B {
        type Handle = u8;
        const NAME: &'static str = "b";
    }

    fn said(e: Result<Arc<A>>) -> String {
        e.err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_handle_is_good_until_it_is_freed() {
        let h = insert(A(7));
        assert_eq!(get::<A>(h).map(|a| a.0).ok(), Some(7));
        let held = get::<A>(h).expect("alive");
        assert!(remove::<B>(h).is_err());
        remove::<A>(h).expect("freed");
        assert_eq!(held.0, 7);
        assert_eq!(said(get(h)), "the a was freed");
        assert!(remove::<A>(h).is_err());
        assert!(remove::<A>(std::ptr::null()).is_ok());
    }

    #[test]
    fn what_is_no_handle_is_told() {
        assert_eq!(said(get(std::ptr::null())), "the a is NULL");
        let stray = 0u8;
        assert_eq!(said(get(&stray)), "this is no handle of a a");
        let h = insert(B);
        assert_eq!(said(get(h)), "this handle is a b, and a a is needed");
        remove::<B>(h).expect("freed");
    }
}
