//! Room for a transfer before it is begun.

use crate::place::Place;
use crate::plan::Planned;
use stead_core::{Error, Kind, Result};
use stead_store::Folder;

/// Bytes that a user may still write.
pub(crate) fn free(place: &Place) -> Result<Option<u64>> {
    // Buckets have no end.
    let Place::Folder(folder) = place else { return Ok(None) };
    folder.free().map(Some)
}

/// True if the file systems may share the blocks of both sides.
pub(crate) fn shares(planned: &Planned) -> bool {
    let of = |place: Option<&Place>| place.and_then(Place::tier).unwrap_or_default();
    let (from, to) = (of(Some(&planned.source)), of(planned.target.as_ref()));
    from == to && ["btrfs-", "xfs-", "bcachefs-", "zfs-"].iter().any(|fs| to.starts_with(fs))
}

/// Refuses a plan for which the target has no room.
pub(crate) fn enough(planned: &Planned) -> Result<()> {
    let Some(place @ Place::Folder(target)) = &planned.target else { return Ok(()) };
    let (needed, free) = (planned.sums.room, free(place)?.unwrap_or(u64::MAX));
    let stat = |folder: &Folder| rustix::fs::fstatvfs(folder).map(|s| s.f_blocks).unwrap_or(0);
    // What is removed goes before the first file comes. Some file systems do not say what they have; some share blocks.
    let room = free.saturating_add(planned.sums.freed);
    if needed <= room || stat(target) == 0 || shares(planned) {
        return Ok(());
    }
    let size = stead_core::units::format_size;
    let freed = match planned.sums.freed {
        0 => String::new(),
        freed => format!(", {} with what is removed", size(free.saturating_add(freed))),
    };
    Err(Error::new(
        Kind::NoSpace,
        format!("{} are needed, and {} are free{freed}", size(needed), size(free)),
    )
    .at_path(target.shown())
    .with_hint("nothing was begun; free some space, or name another target"))
}
