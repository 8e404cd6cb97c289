//! How parallel file systems have spread a file over servers: by their extended attributes and calls.

use std::fs::File;

/// A file lies in pieces on several servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// Bytes of a piece, not 0.
    pub size: u64,
    /// Over so many servers or disks, not 0.
    pub count: u64,
}

impl Stripe {
    fn new(size: u64, count: u64) -> Option<Stripe> {
        (size > 0 && count > 0).then_some(Stripe { size, count })
    }
}

/// Reads extended attributes of a file.
pub(crate) fn attribute(file: &File) -> impl Fn(&str) -> Option<Vec<u8>> + '_ {
    // No attribute of Linux is longer; layouts of many parts or servers take some KiB.
    const MOST: usize = 64 << 10;
    move |name| {
        let mut value = vec![0; MOST];
        let n = rustix::fs::fgetxattr(file, name, &mut value).ok()?;
        value.truncate(n);
        Some(value)
    }
}

/// Lustre: the attribute `lustre.lov`, a plain layout or a composite one (Lustre manual, "Progressive File Layout"), of
/// which the part counts that most of the file's `len` bytes lie in.
pub(crate) fn lustre(len: u64, attribute: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Stripe> {
    let bytes = attribute("lustre.lov")?;
    let at = |at: usize, n: usize| bytes.get(at..at.checked_add(n)?);
    let u16_at = |i: usize| at(i, 2)?.try_into().ok().map(u16::from_le_bytes);
    let u32_at = |i: usize| at(i, 4)?.try_into().ok().map(u32::from_le_bytes);
    let u64_at = |i: usize| at(i, 8)?.try_into().ok().map(u64::from_le_bytes);
    let plain = |at: usize| {
        if !matches!(u32_at(at)?, 0x0BD1_0BD0 | 0x0BD3_0BD0) {
            return None;
        }
        // 0xFFFF is over all servers, which are not counted: more than anybody has readers for.
        Stripe::new(u32_at(at.checked_add(24)?)?.into(), u16_at(at.checked_add(28)?)?.into())
    };
    if u32_at(0)? != 0x0BD6_0BD0 {
        return plain(0);
    }
    let entry = |i: usize| {
        let from = 32 + 48 * i;
        let (start, end) = (u64_at(from + 8)?, u64_at(from + 16)?);
        // An empty file will lie in the first part.
        let bytes = len.max(1).min(end).saturating_sub(start);
        Some((bytes, usize::try_from(u32_at(from + 24)?).ok()?))
    };
    let entries = (0..usize::from(u16_at(14)?)).filter_map(entry);
    // Of mirrors, and other parts of one length, the first.
    let most = entries.reduce(|most, next| if next.0 > most.0 { next } else { most });
    plain(most.filter(|(bytes, _)| *bytes > 0)?.1)
}

/// CephFS: the attributes `ceph.file.layout.*` (Ceph documentation, "File layouts"). Objects lie anywhere in the pool, so a
/// file of one stripe is over as many servers as it has objects, as far as there are so many.
pub(crate) fn ceph(len: u64, attribute: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Stripe> {
    let number = |name: &str| {
        let text = attribute(&format!("ceph.file.layout.{name}"))?;
        std::str::from_utf8(&text).ok()?.trim_end_matches('\0').parse::<u64>().ok()
    };
    let (unit, count) = (number("stripe_unit")?, number("stripe_count")?);
    let object = number("object_size").filter(|n| *n > 0)?;
    let size = if count > 1 { unit } else { object };
    Stripe::new(size, count.max(len.div_ceil(object)))
}

/// What `BEEGFS_IOC_GET_STRIPEINFO` fills (beegfs_ioctl.h).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct BeegfsStripe {
    pattern: u32,
    chunk: u32,
    targets: u16,
}

/// BeeGFS. For its files alone: the number of the call may mean something else elsewhere.
pub(crate) fn beegfs(file: &File) -> Option<Stripe> {
    use rustix::ioctl::{Getter, ioctl, opcode};
    const GET: rustix::ioctl::Opcode = opcode::read::<BeegfsStripe>(b'f', 25);
    // SAFETY: the call fills one such record and does nothing else.
    let found = unsafe { ioctl(file, Getter::<GET, BeegfsStripe>::new()) }.ok()?;
    spread(found)
}

/// 0 is a pattern that is not known.
fn spread(found: BeegfsStripe) -> Option<Stripe> {
    Stripe::new(found.chunk.into(), found.targets.into()).filter(|_| found.pattern != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(size: u32, count: u16) -> Vec<u8> {
        let mut b = vec![0; 32];
        b[..4].copy_from_slice(&0x0BD1_0BD0u32.to_le_bytes());
        b[24..28].copy_from_slice(&size.to_le_bytes());
        b[28..30].copy_from_slice(&count.to_le_bytes());
        b
    }

    /// Parts that begin one after the other, each with its size and count of stripes.
    fn composite(parts: &[(u64, u64, u32, u16)]) -> Vec<u8> {
        let mut b = vec![0; 32 + 48 * parts.len()];
        b[..4].copy_from_slice(&0x0BD6_0BD0u32.to_le_bytes());
        b[14..16].copy_from_slice(&(parts.len() as u16).to_le_bytes());
        for (i, (start, end, size, count)) in parts.iter().enumerate() {
            let (from, at) = (32 + 48 * i, b.len() as u32);
            b[from + 8..from + 16].copy_from_slice(&start.to_le_bytes());
            b[from + 16..from + 24].copy_from_slice(&end.to_le_bytes());
            b[from + 24..from + 28].copy_from_slice(&at.to_le_bytes());
            b.extend(plain(*size, *count));
        }
        b
    }

    fn of_lustre(len: u64, layout: &[u8]) -> Option<Stripe> {
        lustre(len, |name| (name == "lustre.lov").then(|| layout.to_vec()))
    }

    #[test]
    fn plain_layouts_of_lustre() {
        assert_eq!(of_lustre(9, &plain(1 << 20, 4)), Stripe::new(1 << 20, 4));
        assert_eq!(of_lustre(9, &plain(1 << 20, 0xFFFF)), Stripe::new(1 << 20, 0xFFFF));
        assert_eq!(of_lustre(9, &plain(0, 4)), None);
        assert_eq!(of_lustre(9, &plain(1 << 20, 0)), None);
        assert_eq!(of_lustre(9, &plain(1 << 20, 4)[..29]), None);
        assert_eq!(lustre(9, |_| None), None);
    }

    #[test]
    fn of_parts_the_one_counts_that_has_most_of_the_file() {
        let (small, large) = ((0, 1 << 20, 1 << 16, 1), (1 << 20, u64::MAX, 4 << 20, 8));
        let layout = composite(&[small, large]);
        assert_eq!(of_lustre(0, &layout), Stripe::new(1 << 16, 1));
        assert_eq!(of_lustre(1 << 20, &layout), Stripe::new(1 << 16, 1));
        assert_eq!(of_lustre(1 << 30, &layout), Stripe::new(4 << 20, 8));
        assert_eq!(of_lustre(1 << 30, &composite(&[])), None);
        assert_eq!(of_lustre(1 << 30, &layout[..layout.len() - 10]), None);
    }

    #[test]
    fn objects_of_ceph() {
        let with = |unit: &str, count: &str, object: &str| {
            let (unit, count, object) = (unit.to_owned(), count.to_owned(), object.to_owned());
            move |name: &str| match name {
                "ceph.file.layout.stripe_unit" => Some(unit.clone().into_bytes()),
                "ceph.file.layout.stripe_count" => Some(count.clone().into_bytes()),
                "ceph.file.layout.object_size" => Some(object.clone().into_bytes()),
                _ => None,
            }
        };
        let mib = |n: u64| n << 20;
        assert_eq!(ceph(mib(64), with("4194304", "1", "4194304")), Stripe::new(mib(4), 16));
        assert_eq!(ceph(mib(8), with("1048576", "8", "4194304")), Stripe::new(mib(1), 8));
        assert_eq!(ceph(0, with("1048576", "1", "4194304")), Stripe::new(mib(4), 1));
        for odd in ["0", "", "x", "-1", "99999999999999999999"] {
            assert_eq!(ceph(9, with("1048576", "8", odd)), None, "{odd}");
        }
        assert_eq!(ceph(9, |_| None), None);
    }

    #[test]
    fn targets_of_beegfs() {
        let found = BeegfsStripe { pattern: 1, chunk: 512 << 10, targets: 4 };
        assert_eq!(spread(found), Stripe::new(512 << 10, 4));
        assert_eq!(spread(BeegfsStripe { pattern: 0, ..found }), None);
        assert_eq!(spread(BeegfsStripe { targets: 0, ..found }), None);
        // What the headers of BeeGFS make of the same: 12 bytes to be read, 'f', 25.
        let code = rustix::ioctl::opcode::read::<BeegfsStripe>(b'f', 25);
        assert_eq!(u64::from(code as u32), 0x800C_6619);
    }

    #[test]
    fn attributes_of_a_file_that_has_none() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(attribute(&file)("lustre.lov"), None);
        assert_eq!(beegfs(&file), None);
    }

    proptest! {
        #[test]
        fn no_layout_panics(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            kind in 0..4usize,
            len in any::<u64>(),
        ) {
            let magic = [0x0BD1_0BD0u32, 0x0BD3_0BD0, 0x0BD6_0BD0, 0][kind];
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&magic.to_le_bytes());
            }
            let _ = of_lustre(len, &bytes);
            let _ = ceph(len, |_| Some(bytes.clone()));
        }
    }
}
