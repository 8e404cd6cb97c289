//! What the system tells about the storage that a file lies on.

use crate::Source;
use std::fs::File;
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

/// A file lies in pieces on several servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// Bytes of a piece, not 0.
    pub size: u64,
    /// Over so many servers or disks, not 0.
    pub count: u64,
}

impl Tier {
    /// `None` for sources that are no files.
    pub fn of(source: &dyn Source) -> Option<Tier> {
        let file = source.file()?;
        let meta = file.metadata().ok()?;
        let magic = rustix::fs::fstatfs(file).ok()?.f_type as u64 & 0xFFFF_FFFF;
        let dev = meta.dev();
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        Some(Tier {
            name: format!("{}-{major}:{minor}", file_system(magic)),
            preferred: meta.blksize(),
            stripe: (magic == LUSTRE).then(|| stripe(file)).flatten(),
        })
    }
}

const LUSTRE: u64 = 0x0BD0_0BD0;

fn file_system(magic: u64) -> String {
    let name = match magic {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0xF2F5_2010 => "f2fs",
        0x794C_7630 => "overlay",
        0x2FC1_2FC1 => "zfs",
        0xCA45_1A4E => "bcachefs",
        0x6969 => "nfs",
        0xFF53_4D42 | 0xFE53_4D42 => "smb",
        0x00C3_6400 => "ceph",
        0x6573_5546 => "fuse",
        0x4750_4653 => "gpfs",
        0x1983_0326 => "beegfs",
        LUSTRE => "lustre",
        other => return format!("fs{other:x}"),
    };
    name.to_owned()
}

fn stripe(file: &File) -> Option<Stripe> {
    let mut layout = [0; 4096];
    let n = rustix::fs::fgetxattr(file, "lustre.lov", &mut layout).ok()?;
    parse_layout(layout.get(..n)?)
}

/// The extended attribute `lustre.lov`: a plain layout, or a composite one, whose last part counts, as files grow into it.
fn parse_layout(bytes: &[u8]) -> Option<Stripe> {
    let u32_at =
        |at: usize| bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes);
    let u16_at =
        |at: usize| bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes);
    let plain = |at: usize| {
        if !matches!(u32_at(at)?, 0x0BD1_0BD0 | 0x0BD3_0BD0) {
            return None;
        }
        let size = u64::from(u32_at(at.checked_add(24)?)?);
        let count = u64::from(u16_at(at.checked_add(28)?)?);
        // -1 is over all; how many that are is not told.
        (size > 0 && count > 0 && count < 0xFFFF).then_some(Stripe { size, count })
    };
    if u32_at(0)? != 0x0BD6_0BD0 {
        return plain(0);
    }
    let entries = usize::from(u16_at(14)?);
    let last = entries.checked_sub(1)?.checked_mul(48)?.checked_add(32)?;
    let at = u32_at(last.checked_add(24)?)?;
    plain(usize::try_from(at).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn plain(size: u32, count: u16) -> Vec<u8> {
        let mut b = vec![0; 32];
        b[..4].copy_from_slice(&0x0BD1_0BD0u32.to_le_bytes());
        b[24..28].copy_from_slice(&size.to_le_bytes());
        b[28..30].copy_from_slice(&count.to_le_bytes());
        b
    }

    #[test]
    fn layouts_are_read() {
        let four = Some(Stripe { size: 1 << 20, count: 4 });
        assert_eq!(parse_layout(&plain(1 << 20, 4)), four);
        assert_eq!(parse_layout(&plain(0, 4)), None);
        assert_eq!(parse_layout(&plain(1 << 20, 0xFFFF)), None);
        assert_eq!(parse_layout(&plain(1 << 20, 4)[..29]), None);
        let mut composite = vec![0; 32 + 2 * 48];
        composite[..4].copy_from_slice(&0x0BD6_0BD0u32.to_le_bytes());
        composite[14] = 2;
        let at = composite.len() as u32;
        composite[32 + 48 + 24..32 + 48 + 28].copy_from_slice(&at.to_le_bytes());
        composite.extend(plain(1 << 20, 4));
        assert_eq!(parse_layout(&composite), four);
        composite[14] = 0;
        assert_eq!(parse_layout(&composite), None);
    }

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

    proptest! {
        #[test]
        fn no_layout_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..4usize) {
            let magic = [0x0BD1_0BD0u32, 0x0BD3_0BD0, 0x0BD6_0BD0, 0][kind];
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&magic.to_le_bytes());
            }
            let _ = parse_layout(&bytes);
        }
    }
}
