//! What the system tells about the storage that a file lies on.

use crate::Source;
use crate::layout::{self, Stripe};
use std::os::unix::fs::MetadataExt;

/// The storage of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// The file system and its device, as `ext4-254:0`: letters, digits, `:` and `-`.
    pub name: String,
    /// The size of reads that the file system asks for.
    pub preferred: u64,
    /// How a parallel file system has spread the file.
    pub stripe: Option<Stripe>,
}

impl Tier {
    /// `None` for sources that are no files.
    pub fn of(source: &dyn Source) -> Option<Tier> {
        let file = source.file()?;
        let meta = file.metadata().ok()?;
        let magic = rustix::fs::fstatfs(file).ok()?.f_type as u64 & 0xFFFF_FFFF;
        Some(Tier {
            name: name_of(file).ok()?,
            preferred: meta.blksize(),
            stripe: match magic {
                LUSTRE => layout::lustre(meta.len(), layout::attribute(file)),
                CEPH => layout::ceph(meta.len(), layout::attribute(file)),
                BEEGFS => layout::beegfs(file),
                _ => None,
            },
        })
    }
}

/// The name of the tier that a file or a folder lies on, as [`Tier::name`].
///
/// # Errors
/// System errors.
pub fn name_of(file: impl std::os::fd::AsFd) -> std::io::Result<String> {
    let magic = rustix::fs::fstatfs(&file)?.f_type as u64 & 0xFFFF_FFFF;
    #[allow(clippy::unnecessary_cast)] // The type of this field is another one on other systems.
    let dev = rustix::fs::fstat(&file)?.st_dev as u64;
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    Ok(format!("{}-{major}:{minor}", file_system(magic)))
}

/// True if a file lies in memory, so that nothing is gained by passing by the page cache, and nothing is durable.
pub fn is_memory(file: impl std::os::fd::AsFd) -> bool {
    const RAMFS: u64 = 0x8584_58F6;
    let magic = rustix::fs::fstatfs(file).map(|s| s.f_type as u64 & 0xFFFF_FFFF);
    matches!(magic, Ok(TMPFS | RAMFS))
}

const TMPFS: u64 = 0x0102_1994;
const LUSTRE: u64 = 0x0BD0_0BD0;
const CEPH: u64 = 0x00C3_6400;
const BEEGFS: u64 = 0x1983_0326;

fn file_system(magic: u64) -> String {
    let name = match magic {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        TMPFS => "tmpfs",
        0xF2F5_2010 => "f2fs",
        0x794C_7630 => "overlay",
        0x2FC1_2FC1 => "zfs",
        0xCA45_1A4E => "bcachefs",
        0x6969 => "nfs",
        0xFF53_4D42 | 0xFE53_4D42 => "smb",
        CEPH => "ceph",
        0x6573_5546 => "fuse",
        0x4750_4653 => "gpfs",
        BEEGFS => "beegfs",
        LUSTRE => "lustre",
        other => return format!("fs{other:x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn files_have_a_tier_and_memory_has_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"x").unwrap();
        let file = crate::FileSource::open(dir.path().join("f")).unwrap();
        let tier = Tier::of(&file).unwrap();
        assert!(tier.preferred > 0 && tier.name.contains(':') && tier.stripe.is_none(), "{tier:?}");
        let memory: Arc<dyn Source> = Arc::new(crate::MemorySource::new("m", b"x"));
        assert_eq!(Tier::of(&*memory), None);
    }
}
