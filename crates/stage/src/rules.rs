//! What is agreed about dataspaces, as far as each transfer by itself keeps to it: quotas, jobs.

use crate::ends::Base;
use crate::journal::{Ends, Journal};
use crate::others::{Beside, Claim};
use crate::place::Place;
use crate::plan::{Planned, Sums};
use rustix::process::geteuid;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use stead_core::layout::spaces::Bound;
use stead_core::layout::{Spaces, Terms};
use stead_core::{BucketUrl, Cancel, Error, Kind, Result, units};
use stead_store::{Folder, What};

/// Whose a quota is that is of more than one user.
const ALL: &str = "all users together";
/// How often it is looked once more what others are about to write, where that leaves too little, and after how long.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// Names of a folder that are looked at together.
const AT_ONCE: usize = 1 << 12;
/// Folders within each other that are looked into.
const DEEPEST: usize = 256;

/// The jobs of a user on this node: the dataspaces that the processes of each may use.
pub type Jobs = BTreeMap<String, BTreeSet<String>>;

/// A dataspace that a transfer touches, and what is agreed about it.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) terms: Terms,
}

impl From<Bound<'_>> for Rule {
    fn from(b: Bound<'_>) -> Rule {
        Rule { name: b.name.to_owned(), place: b.place.to_owned(), terms: b.terms.clone() }
    }
}

impl Rule {
    /// True if somebody may have only so many bytes there.
    pub(crate) fn has_quota(&self) -> bool {
        self.terms.quota.or(self.terms.user_quota).is_some()
    }

    /// Bytes a second.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.terms.limit
    }
}

/// Those that a name below an open folder lies in.
pub(crate) fn of(spaces: &Spaces, base: &Base, folder: &Place, path: &Path) -> Vec<Rule> {
    // Asked of the system once, and only where somebody has agreed on something.
    let mut above: Option<HashSet<(u64, u64)>> = None;
    let mut lies_in = |bound: &Bound<'_>| {
        if is_of(base, bound.name, bound.place) {
            return true;
        }
        if BucketUrl::is_meant(bound.place) {
            return false;
        }
        let Ok(root) = std::fs::metadata(bound.place) else { return false };
        let ids = || folder.ancestors(&path.join("x")).into_iter().collect();
        folder.bucket().is_none()
            && above.get_or_insert_with(ids).contains(&(root.dev(), root.ino()))
    };
    let found = spaces.bound().filter(|bound| lies_in(bound));
    found.map(Rule::from).collect()
}

/// True if that is said to be in a dataspace, by its name or by a path or a URL below it.
pub(crate) fn is_of(base: &Base, name: &str, place: &str) -> bool {
    let below = |path: &str| {
        path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match base {
        Base::Space(space, was) => (space == name && was == place) || below(was),
        Base::Path(path) => below(path),
        Base::Bucket(url) => below(url),
        // What is agreed there the other node knows.
        Base::Far(..) => false,
    }
}

/// Refuses what a transfer of this job, or of none, may not touch.
///
/// # Errors
/// `Permission`, with the job that it takes.
pub(crate) fn may_touch<'r>(
    rules: impl Iterator<Item = &'r Rule>,
    job: Option<&str>,
    jobs: &Jobs,
) -> Result<()> {
    for rule in rules.filter(|rule| rule.terms.jobs) {
        let name = &rule.name;
        if job.and_then(|job| jobs.get(job)).is_some_and(|spaces| spaces.contains(name)) {
            continue;
        }
        let that = jobs.iter().find(|(_, spaces)| spaces.contains(name)).map(|(job, _)| job);
        let message = match job {
            Some(job) => format!("dataspace '{name}' is none of job {job}"),
            None => format!("dataspace '{name}' is for processes of jobs"),
        };
        let hint = match that {
            Some(that) => format!("processes of your job {that} may use it"),
            None => "no job of yours has it: an administrator gives it to one with \
                     stead admin job add"
                .to_owned(),
        };
        return Err(Error::new(Kind::Permission, message).with_hint(hint));
    }
    Ok(())
}

/// What lies in a dataspace, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Of all users, as far as this one sees it; none if nobody wants to know.
    pub(crate) all: Option<u64>,
    /// Of this user.
    pub(crate) own: Option<u64>,
    /// A file system was asked for what all users have: what has no name yet is in there.
    pub(crate) whole: bool,
}

/// Looks what lies in a dataspace, if there is a quota. Where it is a file system of its own, that is asked; otherwise all of it is walked through.
///
/// # Errors
/// `Cancelled`; those of opening it.
pub(crate) fn used(place: &str, terms: &Terms, cancel: &Cancel) -> Result<Used> {
    let mut used = Used::default();
    if terms.quota.or(terms.user_quota).is_none() || BucketUrl::is_meant(place) {
        return Ok(used);
    }
    let root = Folder::open(Path::new(place))?;
    let above = Path::new(place).parent().and_then(|path| std::fs::metadata(path).ok());
    let whole = above.is_some_and(|above| root.own_meta().is_ok_and(|m| m.dev != above.dev()));
    if whole && terms.quota.is_some() {
        let stat = rustix::fs::fstatvfs(&root)
            .map_err(|e| Error::io("look at the room of", root.shown(), e.into()))?;
        let blocks = stat.f_blocks.saturating_sub(stat.f_bfree);
        used.all = Some(blocks.saturating_mul(stat.f_frsize));
        used.whole = true;
    }
    if terms.user_quota.is_some() || used.all.is_none() {
        let mut walk = Walk { user: geteuid().as_raw(), several: HashSet::new(), all: 0, own: 0 };
        walk.folder(&root, root.own_meta()?.dev, DEEPEST, cancel)?;
        used.all = terms.quota.and(used.all.or(Some(walk.all)));
        used.own = terms.user_quota.map(|_| walk.own);
    }
    Ok(used)
}

struct Walk {
    user: u32,
    /// Files with several names that were counted.
    several: HashSet<(u64, u64)>,
    all: u64,
    own: u64,
}

impl Walk {
    fn folder(&mut self, folder: &Folder, dev: u64, deep: usize, cancel: &Cancel) -> Result<()> {
        // What cannot be looked at is not counted; what goes meanwhile does not, either.
        let Ok(lists) = folder.names(AT_ONCE) else { return Ok(()) };
        for list in lists {
            cancel.check()?;
            for name in list.unwrap_or_default() {
                let Ok(Some(meta)) = folder.meta_on(&name, dev) else { continue };
                // What is on its way is counted as a whole, by the journal.
                let on_its_way = meta.uid == self.user && is_temporary(&name);
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
                    self.folder(&inner, dev, deep - 1, cancel)?;
                }
            }
        }
        Ok(())
    }
}

fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".stead-")
}

/// Bytes that transfers under way still have to write to a dataspace, but for this one.
pub(crate) fn coming(journal: &Journal, name: &str, place: &str, but: Option<i64>) -> Result<u64> {
    let there = |ends: &Ends| ends.target.as_ref().is_some_and(|base| is_of(base, name, place));
    let all = journal.under_way()?;
    let those = all.iter().filter(|t| Some(t.id) != but && there(&t.ends));
    Ok(those.map(|t| t.left).fold(0, u64::saturating_add))
}

/// Refuses a plan for which a quota of its target leaves no room. Gives what it has claimed beside others, if it is one of a transfer.
///
/// # Errors
/// `NoSpace`, with the quota, what is in use and what is needed; those of looking.
pub(crate) fn within_quota<'a>(
    planned: &Planned,
    journal: &Journal,
    id: Option<i64>,
    beside: Option<&Beside<'a>>,
    cancel: &Cancel,
) -> Result<Vec<Claim<'a>>> {
    let (needed, mut claims) = (planned.sums.room, Vec::new());
    if needed == 0 {
        return Ok(claims);
    }
    for rule in planned.to.iter().filter(|rule| rule.has_quota()) {
        let more = if id.is_some() { needed } else { 0 };
        let mut tries = 0;
        let claim = loop {
            let coming = coming(journal, &rule.name, &rule.place, id)?;
            // Before it is looked what lies there: what others have written since is in there.
            let claim = beside.map(|beside| beside.claim(rule, coming, more)).transpose()?;
            let claim = claim.flatten();
            let theirs = claim.as_ref().map_or(0, Claim::theirs);
            let all = left(rule, coming, cancel)?;
            let all = all.into_iter().map(|left| left.beside(theirs).without(&planned.sums));
            match all.into_iter().try_for_each(|left| left.refuse(rule, needed)) {
                // What has come is told a moment later, and lies there already.
                Err(_) if theirs > 0 && tries < TRIES => tries += 1,
                done => {
                    done?;
                    break claim;
                }
            }
            drop(claim);
            cancel.check()?;
            std::thread::sleep(PAUSE);
        };
        claims.extend(claim);
    }
    Ok(claims)
}

/// What a quota of a dataspace leaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    quota: u64,
    used: u64,
    coming: u64,
    /// Bytes that are removed before the first file comes.
    freed: u64,
    whose: &'static str,
    /// Files that have no name yet are in use, too.
    whole: bool,
}

/// Looks what quotas of a dataspace leave, besides what is on its way there; nothing of those that cannot be looked after.
///
/// # Errors
/// Those of [`used`].
pub(crate) fn left(rule: &Rule, coming: u64, cancel: &Cancel) -> Result<Vec<Left>> {
    let Rule { place, terms, .. } = rule;
    let Used { all, own, whole } = used(place, terms, cancel)?;
    let all = [(terms.quota, all, ALL, whole), (terms.user_quota, own, "each user", false)];
    let left = all.into_iter().filter_map(|(quota, used, whose, whole)| {
        Some(Left { quota: quota?, used: used?, coming, freed: 0, whose, whole })
    });
    Ok(left.collect())
}

impl Left {
    /// Besides files of so many bytes that are written and have no name yet.
    pub(crate) fn with_open(self, bytes: u64) -> Left {
        match self.whole {
            true => self,
            false => Left { coming: self.coming.saturating_add(bytes), ..self },
        }
    }

    /// Beside those who still have so many bytes to write, if it is of them, too.
    fn beside(self, bytes: u64) -> Left {
        match self.whose {
            ALL => Left { coming: self.coming.saturating_add(bytes), ..self },
            _ => self,
        }
    }

    /// After what a plan removes first.
    fn without(self, sums: &Sums) -> Left {
        let freed = if self.whose == ALL { sums.freed } else { sums.freed_own };
        Left { freed, ..self }
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let used = self.used.saturating_sub(self.freed);
        self.quota.saturating_sub(used).saturating_sub(self.coming)
    }

    /// Refuses what needs more.
    ///
    /// # Errors
    /// `NoSpace`, with the quota, what is in use and what is needed.
    pub(crate) fn refuse(&self, rule: &Rule, needed: u64) -> Result<()> {
        if needed <= self.bytes() {
            return Ok(());
        }
        let size = units::format_size;
        let coming = match self.coming {
            0 => String::new(),
            n => format!(", {} are on their way", size(n)),
        };
        let freed = match self.freed {
            0 => String::new(),
            n => format!(", {} of them are removed first", size(n)),
        };
        let message = format!(
            "{} are needed in dataspace '{}', which has {} for {}: {} are in use{freed}{coming}",
            size(needed),
            rule.name,
            size(self.quota),
            self.whose,
            size(self.used),
        );
        let hint = "nothing was begun; remove something there, or name another target";
        Err(Error::new(Kind::NoSpace, message).with_hint(hint))
    }
}

/// True if a rename would bring something into a dataspace that nobody has counted.
pub(crate) fn counts_renames(planned: &Planned) -> bool {
    let from = |name: &str| planned.from.iter().any(|rule| rule.name == name);
    let counted = |rule: &Rule| rule.has_quota() && !from(&rule.name);
    planned.sums.renamed > 0 && planned.to.iter().any(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let terms = Terms { user_quota: Some(1), quota: Some(1), ..Terms::default() };
        let count = || used(path, &terms, &Cancel::new()).unwrap().own.unwrap();
        let empty = count();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/f"), vec![1; 100_000]).unwrap();
        let one = count();
        assert!((100_000..200_000).contains(&(one - empty)), "{one} {empty}");
        std::fs::hard_link(dir.path().join("a/f"), dir.path().join("g")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("out")).unwrap();
        std::fs::write(dir.path().join(".stead-x"), vec![1; 100_000]).unwrap();
        assert!(count() - one < 50_000, "{} {one}", count());
        assert_eq!(used(path, &Terms::default(), &Cancel::new()).unwrap(), Used::default());
        let stopped = Cancel::new();
        stopped.cancel();
        assert_eq!(used(path, &terms, &stopped).unwrap_err().kind(), Kind::Cancelled);
    }

    #[test]
    fn names_and_paths_lie_in_dataspaces() {
        let space = Base::Space("s".into(), "/a/b".into());
        let (path, bucket) = (Base::Path("/a/b/c".into()), Base::Bucket("s3://x/y".into()));
        assert!(
            is_of(&space, "s", "/a/b") && is_of(&space, "t", "/a") && is_of(&path, "s", "/a/b")
        );
        assert!(!is_of(&space, "s", "/a/bc") && !is_of(&path, "s", "/a/b/cd"));
        assert!(is_of(&bucket, "s", "s3://x") && !is_of(&bucket, "s", "s3://xy"));
    }

    #[test]
    fn jobs_may_touch_what_they_name() {
        let terms = Terms { jobs: true, ..Terms::default() };
        let rules = [Rule { name: "s".into(), place: "/s".into(), terms }];
        let jobs =
            Jobs::from([("7".into(), BTreeSet::from(["s".into()])), ("8".into(), BTreeSet::new())]);
        may_touch(rules.iter(), Some("7"), &jobs).unwrap();
        for job in [None, Some("8"), Some("9")] {
            let e = may_touch(rules.iter(), job, &jobs).unwrap_err();
            assert!(e.kind() == Kind::Permission && e.hint().unwrap().contains("job 7"), "{e}");
        }
        may_touch([].iter(), None, &Jobs::new()).unwrap();
    }
}
