//! Room for a transfer before it is begun.

use crate::bytes::Source;
use crate::place::Place;
use crate::plan::Planned;
use std::ffi::OsStr;
use stead_core::{Error, Kind, Result};
use stead_store::{Folder, Meta};

/// Bytes that a user may still write.
pub(crate) fn free(place: &Place) -> Result<Option<u64>> {
    // Buckets have no end.
    let Place::Folder(folder) = place else { return Ok(None) };
    folder.free().map(Some)
}

/// Files of fewer bytes are not looked into for holes.
const LEAST_LOOKED: u64 = 1 << 20;
/// Holes that are looked for in a file.
const MOST_HOLES: usize = 10_000;

/// Bytes of the blocks that hold so many.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.saturating_add(4095) & !4095
}

/// Bytes of the blocks that a copy of a file gets. One that has less itself may have holes, or be compressed, or lie elsewhere, as on tape:
/// holes alone are none of its copy.
pub(crate) fn data_of(folder: &Place, name: &OsStr, meta: &Meta) -> u64 {
    let all = blocks(meta.size);
    match folder {
        _ if meta.room >= meta.size || meta.size < LEAST_LOOKED => all,
        Place::Folder(folder) => folder.open_file(name).map_or(all, |file| {
            let (source, mut data, mut at) = (Source::new(file, meta), 0, 0);
            for _ in 0..MOST_HOLES {
                match source.next(at, meta.size) {
                    Ok(next) if at < meta.size => {
                        data += next.end - next.start;
                        at = next.end;
                    }
                    Ok(_) => break,
                    Err(_) => return all,
                }
            }
            blocks(data + (meta.size - at))
        }),
        // What another node tells of it.
        _ if meta.room == 0 => all,
        _ => meta.room.min(all),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_copy_has_no_holes_of_a_file_and_all_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let whole = vec![7; 3 << 20];
        std::fs::write(dir.path().join("whole"), &whole).unwrap();
        let holes = std::fs::File::create(dir.path().join("holes")).unwrap();
        holes.set_len(64 << 20).unwrap();
        for at in [1, 9, 40] {
            holes.write_all_at(&whole[..1 << 20], at << 20).unwrap();
        }
        let place = Place::Folder(folder.clone());
        let of = |name: &str, room: Option<u64>| {
            let meta = folder.meta(OsStr::new(name)).unwrap().unwrap();
            data_of(&place, OsStr::new(name), &Meta { room: room.unwrap_or(meta.room), ..meta })
        };
        // Compressed, or on tape: it has few blocks, or none.
        for room in [None, Some(0), Some(1 << 20)] {
            assert_eq!(of("whole", room), 3 << 20, "{room:?}");
        }
        // Not every file system has holes.
        assert!([3 << 20, 64 << 20].contains(&of("holes", None)));
    }
}
