//! What is agreed about how much may lie in dataspaces, and what does: for all who keep to it.

use crate::{Folder, What};
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::process::geteuid;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use stead_core::layout::spaces::Bound;
use stead_core::layout::{Spaces, Terms};
use stead_core::{BucketUrl, Error, Result, units};

/// Names of a folder that are looked at together.
const AT_ONCE: usize = 1 << 12;
/// Folders within each other that are looked into.
const DEEPEST: usize = 256;

/// A dataspace, and what is agreed about it.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Its folder or bucket.
    pub place: String,
    /// What is agreed.
    pub terms: Terms,
}

impl From<Bound<'_>> for Rule {
    fn from(b: Bound<'_>) -> Rule {
        Rule { name: b.name.to_owned(), place: b.place.to_owned(), terms: b.terms.clone() }
    }
}

impl Rule {
    /// True if somebody may have only so many bytes there.
    pub fn has_quota(&self) -> bool {
        has_quota(&self.terms)
    }

    /// Bytes a second.
    pub fn limit(&self) -> Option<u64> {
        self.terms.limit
    }
}

/// True if somebody may have only so many bytes in a dataspace.
pub fn has_quota(terms: &Terms) -> bool {
    terms.quota.or(terms.user_quota).is_some()
}

/// The dataspaces about which something is agreed, and that something lies in: those of which `known` says so, and of which it says nothing
/// those whose folder is among the ones `above`, by device and number, which is asked once at most. What `known` denies is not looked at.
pub fn around(
    spaces: &Spaces,
    known: &dyn Fn(&Bound<'_>) -> Option<bool>,
    above: &dyn Fn() -> Vec<(u64, u64)>,
) -> Vec<Rule> {
    let mut ids: Option<HashSet<(u64, u64)>> = None;
    let mut lies_in = |bound: &Bound<'_>| {
        if let Some(known) = known(bound) {
            return known;
        }
        if BucketUrl::is_meant(bound.place) {
            return false;
        }
        let Ok(root) = std::fs::metadata(bound.place) else { return false };
        let ids = ids.get_or_insert_with(|| above().into_iter().collect());
        ids.contains(&(root.dev(), root.ino()))
    };
    let found = spaces.bound().filter(|bound| lies_in(bound));
    found.map(Rule::from).collect()
}

/// The dataspaces with quotas that a folder lies in, or is, by whatever name it was found.
pub fn of(spaces: &Spaces, folder: &Folder) -> Vec<Rule> {
    let known = |bound: &Bound<'_>| (!has_quota(bound.terms)).then_some(false);
    around(spaces, &known, &|| folder.ancestors(Path::new("x")))
}

/// What lies in a dataspace, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Of all users, as far as this one sees it; none if nobody wants to know.
    pub all: Option<u64>,
    /// Of this user.
    pub own: Option<u64>,
    /// A file system was asked for what all users have: what has no name yet is in there.
    pub whole: bool,
}

/// Looks what lies in a dataspace, if there is a quota. Where it is a file system of its own, that is asked; otherwise all of it is walked through,
/// until `check` has an error, but for files of this user that are `on_their_way`, by their names: who asks counts these as a whole.
///
/// # Errors
/// That one; those of opening it.
pub fn used(
    place: &str,
    terms: &Terms,
    on_their_way: &dyn Fn(&OsStr) -> bool,
    check: &dyn Fn() -> Result<()>,
) -> Result<Used> {
    let mut used = Used::default();
    if !has_quota(terms) || BucketUrl::is_meant(place) {
        return Ok(used);
    }
    let root = Folder::open(Path::new(place))?;
    if terms.quota.is_some() && is_whole(&root) {
        let stat = rustix::fs::fstatvfs(&root)
            .map_err(|e| Error::io("look at the room of", root.shown(), e.into()))?;
        let blocks = stat.f_blocks.saturating_sub(stat.f_bfree);
        used.all = Some(blocks.saturating_mul(stat.f_frsize));
        used.whole = true;
    }
    if terms.user_quota.is_some() || used.all.is_none() {
        let (user, several) = (geteuid().as_raw(), HashSet::new());
        let mut walk = Walk { user, on_their_way, several, all: 0, own: 0 };
        walk.folder(&root, root.own_meta()?.dev, DEEPEST, check)?;
        used.all = terms.quota.and(used.all.or(Some(walk.all)));
        used.own = terms.user_quota.map(|_| walk.own);
    }
    Ok(used)
}

/// True if a folder is all of a file system, so that what this has is what lies there: a link to a part of one is not, nor is such a part that is
/// mounted once more. As what nobody can tell is not, either, it is walked through.
fn is_whole(folder: &Folder) -> bool {
    let above = folder.meta(OsStr::new("..")).ok().flatten();
    let is_mounted = above.is_some_and(|above| folder.own_meta().is_ok_and(|m| m.dev != above.dev));
    let mount = || {
        let flags = StatxFlags::MNT_ID;
        let found = statx(folder, "", AtFlags::EMPTY_PATH, flags).ok()?;
        StatxFlags::from_bits_retain(found.stx_mask).contains(flags).then_some(found.stx_mnt_id)
    };
    let is_of = |line: &str, id: u64| {
        let mut words = line.split(' ');
        words.next().and_then(|word| word.parse().ok()) == Some(id) && words.nth(2) == Some("/")
    };
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    is_mounted && mount().is_some_and(|id| mounts().lines().any(|line| is_of(line, id)))
}

struct Walk<'w> {
    user: u32,
    on_their_way: &'w dyn Fn(&OsStr) -> bool,
    /// Files with several names that were counted.
    several: HashSet<(u64, u64)>,
    all: u64,
    own: u64,
}

impl Walk<'_> {
    fn folder(
        &mut self,
        folder: &Folder,
        dev: u64,
        deep: usize,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        // What cannot be looked at is not counted; what goes meanwhile does not, either.
        let Ok(lists) = folder.names(AT_ONCE) else { return Ok(()) };
        for list in lists {
            check()?;
            for name in list.unwrap_or_default() {
                let Ok(Some(meta)) = folder.meta_on(&name, dev) else { continue };
                let on_its_way = meta.uid == self.user && (self.on_their_way)(&name);
                let again = meta.what != What::Folder
                    && meta.links > 1
                    && !self.several.insert((meta.dev, meta.ino));
                if on_its_way || again {
                    continue;
                }
                self.all = self.all.saturating_add(meta.room);
                if meta.uid == self.user {
                    self.own = self.own.saturating_add(meta.room);
                }
                if meta.what == What::Folder
                    && deep > 0
                    && let Ok(inner) = folder.enter(&name)
                {
                    self.folder(&inner, dev, deep - 1, check)?;
                }
            }
        }
        Ok(())
    }
}

/// What a quota of a dataspace leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Bytes that may lie there.
    pub quota: u64,
    /// Bytes that do.
    pub used: u64,
    /// It is of all users together, and not of each.
    pub is_of_all: bool,
    /// Files that have no name yet are in use, too.
    pub whole: bool,
}

/// Looks what the quotas of a dataspace leave; nothing of those that cannot be looked after.
///
/// # Errors
/// Those of [`used`].
pub fn left(
    rule: &Rule,
    on_their_way: &dyn Fn(&OsStr) -> bool,
    check: &dyn Fn() -> Result<()>,
) -> Result<Vec<Left>> {
    let Rule { place, terms, .. } = rule;
    let Used { all, own, whole } = used(place, terms, on_their_way, check)?;
    let all = [(terms.quota, all, true, whole), (terms.user_quota, own, false, false)];
    let left = all.into_iter().filter_map(|(quota, used, is_of_all, whole)| {
        Some(Left { quota: quota?, used: used?, is_of_all, whole })
    });
    Ok(left.collect())
}

impl Left {
    /// Bytes that may still be written there.
    pub fn bytes(&self) -> u64 {
        self.quota.saturating_sub(self.used)
    }

    /// Says that so many bytes are too many for the dataspace of this name.
    pub fn shortage(&self, name: &str, needed: u64) -> String {
        let size = units::format_size;
        let whose = if self.is_of_all { "all users together" } else { "each user" };
        format!(
            "{} are needed in dataspace '{name}', which has {} for {whose}: {} are in use",
            size(needed),
            size(self.quota),
            size(self.used),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::Kind;

    #[test]
    fn what_lies_below_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let terms = Terms { user_quota: Some(1), quota: Some(1), ..Terms::default() };
        let mine = |name: &OsStr| name == ".stead-x";
        let count = || used(path, &terms, &mine, &|| Ok(())).unwrap().own.unwrap();
        let empty = count();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/f"), vec![1; 100_000]).unwrap();
        let one = count();
        assert!((100_000..200_000).contains(&(one - empty)), "{one} {empty}");
        std::fs::hard_link(dir.path().join("a/f"), dir.path().join("g")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("out")).unwrap();
        std::fs::write(dir.path().join(".stead-x"), vec![1; 100_000]).unwrap();
        assert!(count() - one < 50_000, "{} {one}", count());
        // What only looks like one lies there as all else.
        std::fs::write(dir.path().join(".stead-y"), vec![1; 100_000]).unwrap();
        assert!(count() - one >= 100_000, "{} {one}", count());
        assert_eq!(used(path, &Terms::default(), &mine, &|| Ok(())).unwrap(), Used::default());
        let stopped = || -> Result<()> { Err(Error::cancelled()) };
        assert_eq!(used(path, &terms, &mine, &stopped).unwrap_err().kind(), Kind::Cancelled);
        let rule = Rule { name: "s".into(), place: path.into(), terms };
        let left = left(&rule, &mine, &|| Ok(())).unwrap();
        assert_eq!(left.iter().map(Left::bytes).collect::<Vec<_>>(), [0, 0]);
        let says = left.iter().map(|left| left.shortage("s", 5));
        let whose = ["which has 1 B for all users together: ", "which has 1 B for each user: "];
        assert!(says.zip(whose).all(|(says, whose)| says.contains(whose)));
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn a_file_system_is_asked_for_all_of_it_alone() {
        let run = |command: &str, words: &[&OsStr]| {
            let done = std::process::Command::new(command).args(words).output();
            done.is_ok_and(|done| done.status.success())
        };
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let (all, again) = (at("all"), at("again"));
        let [tmpfs, bind, lazy] = ["-ttmpfs", "--bind", "-l"].map(OsStr::new);
        if !run("mount", &[tmpfs, OsStr::new("none"), all.as_os_str()]) {
            return eprintln!("NOT TESTED HERE: only root mounts");
        }
        let part = at("all/part");
        std::os::unix::fs::symlink(&part, dir.path().join("link")).unwrap();
        let bound = run("mount", &[bind, part.as_os_str(), again.as_os_str()]);
        let is = |path: &Path| is_whole(&Folder::open(path).unwrap());
        let found = [is(&all), is(&part), is(&dir.path().join("link")), is(&again), is(dir.path())];
        for path in [&again, &all] {
            run("umount", &[lazy, path.as_os_str()]);
        }
        assert!(bound);
        assert_eq!(found, [true, false, false, false, false]);
    }

    #[test]
    fn a_folder_lies_in_dataspaces_by_whatever_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        std::fs::create_dir_all(dir.path().join("in/deep")).unwrap();
        std::fs::create_dir(dir.path().join("beside")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("in/deep"), dir.path().join("link")).unwrap();
        let text = format!(
            "[dataspace.in]\npath = \"{path}/in\"\nquota = 5\n\
             [dataspace.all]\npath = \"{path}\"\nuser_quota = 7\n\
             [dataspace.slow]\npath = \"{path}/in/deep\"\nlimit = 9\n\
             [dataspace.gone]\npath = \"{path}/gone\"\nquota = 5\n\
             [dataspace.bucket]\npath = \"s3://x\"\nlimit = 9\n"
        );
        let spaces = Spaces::parse(&text, &|_| None).unwrap();
        let names = |at: &str| {
            let folder = Folder::open(&dir.path().join(at)).unwrap();
            of(&spaces, &folder).into_iter().map(|rule| rule.name).collect::<Vec<_>>()
        };
        for at in ["in", "in/deep", "link", "beside/../in"] {
            assert_eq!(names(at), ["all", "in"], "{at}");
        }
        assert_eq!(names("beside"), ["all"]);
        let all = around(&spaces, &|bound| Some(bound.name == "slow"), &|| vec![(0, 0)]);
        assert!(all.len() == 1 && all[0].limit() == Some(9) && !all[0].has_quota());
    }
}
