//! Structs to whose end later versions add members. A program says how many bytes of one it was built with, and goes on
//! working with a library that knows more of them, or fewer.

use crate::guard::{Caller, null};
use std::mem::MaybeUninit;
use stead::{Error, Result};

/// A struct that may grow.
///
/// # Safety
/// All bytes zero are a value of it.
pub unsafe trait Grows: Copy {
    /// As C has it.
    const NAME: &'static str;
    /// Bytes of its first version.
    const FIRST: usize;
}

/// Says of a struct that it may grow. Named is the last member that its first version had, with the type of it.
macro_rules! grows {
    ($name:ident, $last:ident: $member:ty) => {
        // SAFETY: it is of numbers, pointers and functions that may be NULL.
        unsafe impl $crate::versions::Grows for $name {
            const NAME: &'static str = stringify!($name);
            const FIRST: usize = (std::mem::offset_of!($name, $last) + size_of::<$member>())
                .next_multiple_of(align_of::<$name>());
        }
    };
}

pub(crate) use grows;

/// No version of any struct is larger: what is says nothing but that the size was never set.
const MOST: usize = 4096;

/// Looks whether a version of a struct may have that size.
fn check<T: Grows>(size: usize) -> Result<()> {
    if (T::FIRST..=MOST).contains(&size) {
        return Ok(());
    }
    let name = T::NAME;
    Err(Error::usage(format!("{size} is no size of {name}"))
        .with_hint(format!("say sizeof({name})")))
}

impl Caller {
    /// A struct that must be there and begins with the size of the caller's version. What that one does not have is 0.
    ///
    /// # Errors
    /// `Usage` for a size that no version has, and for what only later versions know.
    pub fn grown<T: Grows>(&self, p: *const T, what: &str) -> Result<T> {
        if !p.is_null() && !p.is_aligned() {
            return Err(Error::usage(format!("the pointer to the {what} is not aligned")));
        }
        let size = *self.object(p.cast::<usize>(), what)?;
        check::<T>(size)?;
        let known = size.min(size_of::<T>());
        let later = self.slice(p.cast::<u8>().wrapping_add(known), size - known, what)?;
        if later.iter().any(|b| *b != 0) {
            let message = format!("{} has members that this version does not know", T::NAME);
            return Err(Error::usage(message).with_hint(format!(
                "leave them 0, or use a later version than {}",
                env!("CARGO_PKG_VERSION")
            )));
        }
        let mut all = MaybeUninit::<T>::zeroed();
        // SAFETY: by the caller's promise there are `size` bytes, of which no more are taken than a `T` has; what they are
        // was a value of the first members, and zeros are values of the others.
        Ok(unsafe {
            std::ptr::copy_nonoverlapping(p.cast::<u8>(), all.as_mut_ptr().cast(), known);
            all.assume_init()
        })
    }

    /// A place that must be there, for a struct of which the caller's version has `size` bytes.
    ///
    /// # Errors
    /// `Usage` for a size that no version has.
    pub fn out_grown<T: Grows>(&self, p: *mut T, size: usize, what: &str) -> Result<Grown<T>> {
        if p.is_null() {
            return Err(null(what));
        }
        if !p.is_aligned() {
            return Err(Error::usage(format!("the pointer to the {what} is not aligned")));
        }
        check::<T>(size)?;
        Ok(Grown { place: p, size })
    }
}

/// A place for a struct of another version, which has been looked at.
pub struct Grown<T> {
    place: *mut T,
    size: usize,
}

impl<T: Grows> Grown<T> {
    /// Writes as much of the answer as the caller knows, and zeros where this version knows nothing.
    pub fn put(self, value: T) {
        let known = self.size.min(size_of::<T>());
        let place = self.place.cast::<u8>();
        // SAFETY: `Caller::out_grown` saw that it is not NULL; by the caller's promise `size` bytes can be written to, and
        // no more are read than a `T` has.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const value).cast(), place, known);
            place.add(known).write_bytes(0, self.size - known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead::Kind;

    /// What programs were built with once, what this library has, and what there will be.
    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Old {
        size: usize,
        a: u32,
    }

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Now {
        size: usize,
        a: u32,
        // Not where the first version has padding, which may be anything.
        _pad: u32,
        b: u64,
    }

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Later {
        now: Now,
        c: [u64; 2],
    }

    grows!(Now, a: u32);

    /// What the library makes of a struct of some version.
    fn take<T>(given: &T) -> Result<Now> {
        // SAFETY: the pointer is to as many bytes as the struct says.
        unsafe {
            let mut taken = Err(Error::internal("nothing"));
            crate::guard::value((), |c| {
                taken = c.grown((&raw const *given).cast::<Now>(), "options");
                Ok(())
            });
            taken
        }
    }

    /// Has the library write to a struct of some version.
    fn put<T>(place: &mut T, size: usize) -> Result<()> {
        // SAFETY: the sizes that are accepted are no larger than the place.
        unsafe {
            let mut done = Err(Error::internal("nothing"));
            crate::guard::value((), |c| {
                done = c.out_grown((&raw mut *place).cast::<Now>(), size, "place");
                Ok(())
            });
            done.map(|out: Grown<Now>| out.put(Now { size: 1, a: 2, _pad: 3, b: 4 }))
        }
    }

    fn refused<T: std::fmt::Debug>(done: Result<T>, says: &str) {
        let e = done.expect_err("refused");
        assert_eq!(e.kind(), Kind::Usage);
        assert!(e.to_string().contains(says), "{e}");
    }

    #[test]
    fn what_programs_of_other_versions_give_is_understood() {
        assert_eq!(Now::FIRST, size_of::<Old>());
        let (old, now) = (size_of::<Old>(), size_of::<Now>());
        let taken = take(&[Old { size: old, a: 7 }, Old { size: 9, a: 9 }]).expect("an old one");
        assert_eq!((taken.a, taken.b), (7, 0), "what lies behind it is none of it");
        let same = Now { size: now, a: 7, _pad: 0, b: 8 };
        assert_eq!(take(&same).expect("one of now"), same);
        let size = size_of::<Later>();
        let mut later = Later { now: Now { size, ..same }, c: [0, 0] };
        assert_eq!(take(&later).expect("a later one").b, 8);
        later.c[1] = 1 << 60;
        refused(take(&later), "members that this version does not know");
        for size in [0, 1, old - 1, MOST + 1, usize::MAX] {
            refused(take(&Now { size, ..same }), "no size of Now");
        }
    }

    #[test]
    fn programs_of_other_versions_get_what_they_know() {
        let mut places = [Old { size: 0, a: 0 }, Old { size: 9, a: 9 }];
        put(&mut places, size_of::<Old>()).expect("an old one");
        assert_eq!(places, [Old { size: 1, a: 2 }, Old { size: 9, a: 9 }]);
        let mut now = Now { size: 0, a: 0, _pad: 0, b: 0 };
        put(&mut now, size_of::<Now>()).expect("one of now");
        assert_eq!((now.a, now.b), (2, 4));
        let mut later = [Later { now, c: [5, 6] }; 2];
        put(&mut later, size_of::<Later>()).expect("a later one");
        assert_eq!((later[0].now.b, later[0].c, later[1].c), (4, [0, 0], [5, 6]));
        for size in [0, 1, size_of::<Old>() - 1, MOST + 1, usize::MAX] {
            refused(put(&mut now, size), "no size of Now");
        }
    }
}
