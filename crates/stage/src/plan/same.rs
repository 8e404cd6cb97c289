//! When a name of the target is what its source is.

use super::walk::Found;
use crate::commit::same_time;
use crate::place::Place;
use stead_core::Result;
use stead_store::{Meta, What};

/// True if a file of the target has the time of its source.
pub(super) fn has_time(found: &Found<'_>, there: &Meta, to: &Place) -> Result<bool> {
    let changed = found.folder.changed(found.name, &found.meta)?.unwrap_or(found.meta.mtime);
    let name = found.target.file_name().unwrap_or_default();
    Ok(match to.changed(name, there)? {
        Some(time) => same_time(changed, time),
        // Nobody has said of which time it is: not of a later one than that at which it was put there.
        None => changed <= there.mtime,
    })
}

/// True if both are the same file or folder. Of other nodes it is one of a file system that both have if nothing tells them apart.
pub(super) fn is_one(here: &Meta, there: &Meta) -> bool {
    let far = there.dev >> 63 == 1 && here.dev >> 63 == 0;
    let of = |m: &Meta| (m.ino, m.size, m.mtime, m.ctime);
    match far {
        true => of(here) == of(there),
        false => (here.dev, here.ino) == (there.dev, there.ino),
    }
}

/// True if what the target keeps is what a copy would be, of which other names may be made: also by whose it is, since its owner may change
/// all names at once.
pub(super) fn is_copy(from: &Meta, there: &Meta) -> bool {
    let user = rustix::process::geteuid();
    let owner = if user.is_root() { from.uid } else { user.as_raw() };
    (there.what, there.size, there.uid) == (What::File, from.size, owner)
        && same_time(from.mtime, there.mtime)
}
