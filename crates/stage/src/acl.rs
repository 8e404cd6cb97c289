//! Rights of single users to files, as POSIX access lists: what the kernel keeps in two extended attributes.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// What `r`, `w` and `x` are.
pub(crate) const READ: u16 = 4;
pub(crate) const ENTER: u16 = 1;

const VERSION: u32 = 2;
/// Whom an entry is for.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// Of entries that name nobody.
const NOBODY: u32 = u32::MAX;
/// Bytes of a list that are read.
const MOST: usize = 64 << 10;

/// One of both lists of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// Who may do what with it.
    Access,
    /// Of a folder: what is made in it gets this.
    Default,
}

impl List {
    fn name(self) -> &'static str {
        match self {
            List::Access => "system.posix_acl_access",
            List::Default => "system.posix_acl_default",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tag: u16,
    id: u32,
    may: u16,
}

/// Entries in the order in which the kernel wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Acl(Vec<Entry>);

impl Acl {
    /// What the mode of a file says.
    fn of_mode(mode: u32) -> Acl {
        let entry = |tag, shift: u32| Entry { tag, id: NOBODY, may: ((mode >> shift) & 7) as u16 };
        Acl(vec![entry(OWNER, 6), entry(GROUP, 3), entry(OTHER, 0)])
    }

    /// Without those who are named.
    fn base(mut self) -> Acl {
        self.settle();
        self.0.retain(|e| matches!(e.tag, OWNER | GROUP | OTHER));
        self
    }

    /// What the mask lets through.
    fn mask(&self) -> u16 {
        self.0.iter().find(|e| e.tag == MASK).map_or(7, |e| e.may)
    }

    /// Everybody has what the mask leaves of it: with a wider mask or none, nobody has more than before.
    fn settle(&mut self) {
        let mask = self.mask();
        let masked = self.0.iter_mut().filter(|e| Acl::named(e) || e.tag == GROUP);
        masked.for_each(|e| e.may &= mask);
    }

    fn parse(bytes: &[u8]) -> Option<Acl> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let (entries, []) = rest.as_chunks::<8>() else { return None };
        if u32::from_le_bytes(*head) != VERSION {
            return None;
        }
        let entry = |[a, b, c, d, e, f, g, h]: &[u8; 8]| Entry {
            tag: u16::from_le_bytes([*a, *b]),
            may: u16::from_le_bytes([*c, *d]) & 7,
            id: u32::from_le_bytes([*e, *f, *g, *h]),
        };
        Some(Acl(entries.iter().map(entry).collect()))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for Entry { tag, id, may } in &self.0 {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(may.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn named(entry: &Entry) -> bool {
        !matches!(entry.tag, OWNER | GROUP | MASK | OTHER)
    }

    /// What somebody named, or the group, has at most.
    fn most(&self) -> u16 {
        let those = self.0.iter().filter(|e| Acl::named(e) || e.tag == GROUP);
        those.fold(0, |all, e| all | e.may)
    }

    /// What a user has by an entry of this user.
    fn of(&self, user: u32) -> Option<u16> {
        self.0.iter().find(|e| e.tag == USER && e.id == user).map(|e| e.may)
    }

    /// A user may do this, too.
    fn grant(&mut self, user: u32, may: u16) {
        self.settle();
        match self.0.iter_mut().find(|e| e.tag == USER && e.id == user) {
            Some(entry) => entry.may |= may,
            None => self.0.push(Entry { tag: USER, id: user, may }),
        }
        let most = self.most();
        match self.0.iter_mut().find(|e| e.tag == MASK) {
            Some(mask) => mask.may |= may,
            None => self.0.push(Entry { tag: MASK, id: NOBODY, may: most }),
        }
        self.0.sort_unstable();
    }

    /// A user has no entry any more.
    fn revoke(&mut self, user: u32) {
        self.0.retain(|e| !(e.tag == USER && e.id == user));
        let most = self.most();
        if self.0.iter().any(Acl::named) {
            let masks = self.0.iter_mut().filter(|e| e.tag == MASK);
            masks.for_each(|mask| mask.may &= most);
        } else {
            // Without anybody named it is what the mode says.
            self.0.retain(|e| e.tag != MASK);
        }
    }
}

/// The path by which the kernel finds what is open, also if it cannot be read.
fn path(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn read(file: &impl AsFd, list: List) -> std::io::Result<Option<Acl>> {
    let mut bytes = vec![0u8; MOST];
    match rustix::fs::getxattr(path(file), list.name(), &mut bytes[..]) {
        Ok(n) => {
            let odd = || std::io::Error::other("an access list that is not understood");
            Acl::parse(bytes.get(..n).unwrap_or_default()).map(Some).ok_or_else(odd)
        }
        Err(Errno::NODATA) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn write(file: &impl AsFd, list: List, acl: &Acl) -> std::io::Result<()> {
    let minimal = acl.0.len() <= 3;
    if minimal && list == List::Default {
        return match rustix::fs::removexattr(path(file), list.name()) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(e) => Err(e.into()),
        };
    }
    // Of a list that says no more than a mode the kernel makes a mode.
    Ok(rustix::fs::setxattr(path(file), list.name(), &acl.bytes(), XattrFlags::empty())?)
}

/// A user may do this with a file of this mode, too; true if that was not so before.
///
/// # Errors
/// System errors: `PermissionDenied` if it is another user's, `Unsupported` where file systems have no such lists.
pub(crate) fn grant(
    file: &impl AsFd,
    list: List,
    mode: u32,
    user: u32,
    may: u16,
) -> std::io::Result<bool> {
    let mut acl = match read(file, list)? {
        Some(acl) => acl,
        // Beside a list the mode says what the mask is, and not what the group may.
        None => match list {
            List::Default => read(file, List::Access)?.map(Acl::base),
            List::Access => None,
        }
        .unwrap_or_else(|| Acl::of_mode(mode)),
    };
    if acl.of(user).is_some_and(|has| has & acl.mask() & may == may) {
        return Ok(false);
    }
    acl.grant(user, may);
    write(file, list, &acl).map(|()| true)
}

/// Takes the entry of a user away, if it says this or, without `only`, whatever it says.
///
/// # Errors
/// As [`grant`].
pub(crate) fn revoke(
    file: &impl AsFd,
    list: List,
    user: u32,
    only: Option<u16>,
) -> std::io::Result<()> {
    let Some(mut acl) = read(file, list)? else { return Ok(()) };
    let Some(has) = acl.of(user) else { return Ok(()) };
    if only.is_some_and(|only| only != has) {
        return Ok(());
    }
    acl.revoke(user);
    write(file, list, &acl)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    fn told(path: &std::path::Path) -> Option<String> {
        let out = Command::new("getfacl").args(["-cpn"]).arg(path).output().ok()?;
        Some(
            String::from_utf8(out.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" "),
        )
    }

    #[test]
    fn users_get_rights_and_lose_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"x").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        for mode in [0o600u32, 0o640, 0o755] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match grant(&file, List::Access, mode, 4711, READ) {
                // Not every file system has them.
                Err(e) if e.kind() == std::io::ErrorKind::Unsupported => return,
                granted => assert!(granted.unwrap()),
            }
            assert!(!grant(&file, List::Access, mode, 4711, READ).unwrap());
            let acl = read(&file, List::Access).unwrap().unwrap();
            assert_eq!(acl.of(4711), Some(READ));
            if let Some(told) = told(&path) {
                assert!(told.contains("user:4711:r--"), "{told}");
            }
            revoke(&file, List::Access, 4711, Some(ENTER)).unwrap();
            assert!(read(&file, List::Access).unwrap().is_some());
            revoke(&file, List::Access, 4711, None).unwrap();
            assert_eq!(read(&file, List::Access).unwrap(), None);
            // All is as before, the rights of the group among it.
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
        let folder = std::fs::File::open(dir.path()).unwrap();
        grant(&folder, List::Default, 0o700, 4711, READ | ENTER).unwrap();
        std::fs::write(dir.path().join("new"), b"x").unwrap();
        let new = std::fs::File::open(dir.path().join("new")).unwrap();
        assert!(read(&new, List::Access).unwrap().unwrap().of(4711).is_some());
        revoke(&folder, List::Default, 4711, None).unwrap();
        assert_eq!(read(&folder, List::Default).unwrap(), None);
    }

    #[test]
    fn others_keep_what_they_have() {
        let mut acl = Acl::of_mode(0o640);
        acl.grant(7, READ | ENTER);
        acl.grant(9, READ);
        acl.revoke(7);
        assert_eq!((acl.of(7), acl.of(9)), (None, Some(READ)));
        let mask = acl.0.iter().find(|e| e.tag == MASK).unwrap();
        assert_eq!(mask.may, READ);
        acl.revoke(9);
        assert_eq!(acl, Acl::of_mode(0o640));
    }

    #[test]
    fn what_was_masked_stays_so() {
        // As `chmod 600` leaves a file that others could read, and its group.
        let mut acl = Acl::of_mode(0o640);
        acl.grant(9, READ | ENTER);
        acl.0.iter_mut().filter(|e| e.tag == MASK).for_each(|mask| mask.may = 0);
        let effective = |acl: &Acl, user| acl.of(user).map(|may| may & acl.mask());
        let group = |acl: &Acl| acl.0.iter().find(|e| e.tag == GROUP).map(|e| e.may & acl.mask());
        assert_eq!((effective(&acl, 9), group(&acl)), (Some(0), Some(0)));
        let mut folder = acl.clone();
        acl.grant(7, READ);
        assert_eq!(
            (effective(&acl, 7), effective(&acl, 9), group(&acl)),
            (Some(READ), Some(0), Some(0))
        );
        // Nor does what is made in a folder get it.
        folder = folder.base();
        assert_eq!(group(&folder), Some(0));
        // Who has an entry that is masked is not let in by it.
        acl.0.iter_mut().filter(|e| e.tag == MASK).for_each(|mask| mask.may = 0);
        acl.grant(7, READ);
        assert_eq!(effective(&acl, 7), Some(READ));
    }

    #[test]
    fn who_was_masked_is_let_in_once_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"x").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let mode =
            |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        if grant(&file, List::Access, 0o600, 4711, READ).is_err() {
            return;
        }
        mode(0o600);
        assert!(grant(&file, List::Access, 0o600, 4711, READ).unwrap());
        let acl = read(&file, List::Access).unwrap().unwrap();
        assert_eq!(acl.of(4711).unwrap() & acl.mask(), READ);
    }

    proptest! {
        #[test]
        fn lists_are_bytes_and_back(mode in 0u32..0o1000, users in proptest::collection::btree_set(0u32..1000, 0..9)) {
            let mut acl = Acl::of_mode(mode);
            users.iter().for_each(|user| acl.grant(*user, READ));
            prop_assert_eq!(Acl::parse(&acl.bytes()).unwrap(), acl.clone());
            users.iter().for_each(|user| acl.revoke(*user));
            prop_assert_eq!(acl, Acl::of_mode(mode));
        }

        #[test]
        fn odd_bytes_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(acl) = Acl::parse(&bytes) {
                prop_assert_eq!(acl.bytes().len(), bytes.len());
            }
        }
    }
}
