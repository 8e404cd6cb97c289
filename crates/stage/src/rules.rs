//! What is agreed about dataspaces, as far as each transfer by itself keeps to it: quotas, jobs.

use crate::ends::Base;
use crate::job::tag_of;
use crate::journal::{Ends, Journal, UnderWay};
use crate::manager::Means;
use crate::others::{Beside, Claim};
use crate::place::Place;
use crate::plan::{Planned, Sums};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::layout::spaces::Bound;
use stead_core::{Cancel, Error, Kind, Location, Result, units};
use stead_store::quota;

pub(crate) use stead_store::quota::Rule;

/// How often it is looked once more what others are about to write, where that leaves too little, and after how long.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// The jobs of a user on this node: the dataspaces that the processes of each may use.
pub type Jobs = BTreeMap<String, BTreeSet<String>>;

/// Those that a name below an open folder lies in.
pub(crate) fn of(spaces: &Spaces, base: &Base, folder: &Place, path: &Path) -> Vec<Rule> {
    let named = |bound: &Bound<'_>| is_of(base, bound.name, bound.place).then_some(true);
    let above = || match folder.bucket() {
        Some(_) => Vec::new(),
        None => folder.ancestors(&path.join("x")),
    };
    quota::around(spaces, &named, &above)
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

/// Refuses a program of this job, or of none, what is in a dataspace for others: named by it, or by a path below its folder, by whatever links
/// that leads there. What is not there yet is where it will be; its path has no `..`.
///
/// # Errors
/// `Permission`, with the job that it takes.
pub fn keep_to_jobs(means: &Means, job: Option<&str>, at: &Location) -> Result<()> {
    // Another dataspace may lie in it, or have its name for this user.
    let path = match &at.space {
        None => PathBuf::from(&at.path),
        Some(space) => {
            let folder = means.spaces.folder(space).map(Path::new).unwrap_or(Path::new(""));
            folder.join(at.path.trim_start_matches('/'))
        }
    };
    // One whose folder is not there yet is known by its path.
    let named = |bound: &Bound<'_>| match bound.terms.jobs {
        true => path.starts_with(bound.place).then_some(true),
        false => Some(false),
    };
    let above = || {
        let known = |path: &&Path| std::fs::metadata(path).is_ok_and(|meta| meta.is_dir());
        let folder = path.ancestors().find(known);
        let whole = folder.and_then(|folder| std::fs::canonicalize(folder).ok());
        let of = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
        whole.map_or_else(Vec::new, |whole| whole.ancestors().filter_map(of).collect())
    };
    may_touch(quota::around(&means.spaces, &named, &above).iter(), job, &means.jobs)
}

/// Tells names of files that these transfers are bringing.
pub(crate) fn of_these(all: &[UnderWay]) -> impl Fn(&OsStr) -> bool {
    let tags: BTreeSet<u64> = all.iter().map(|transfer| transfer.tag).collect();
    move |name| tag_of(name).is_some_and(|tag| tags.contains(&tag))
}

/// Bytes that transfers under way still have to write to a dataspace, but for this one.
fn coming(all: &[UnderWay], rule: &Rule, but: Option<i64>) -> u64 {
    let is = |base: &Base| is_of(base, &rule.name, &rule.place);
    let there = |ends: &Ends| ends.target.as_ref().is_some_and(is);
    let those = all.iter().filter(|t| Some(t.id) != but && there(&t.ends));
    those.map(|t| t.left).fold(0, u64::saturating_add)
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
            // What is on its way, and by which names, at one moment: each file counts as the one or as what lies there.
            let under_way = journal.under_way()?;
            let coming = coming(&under_way, rule, id);
            // Before it is looked what lies there: what others have written since is in there.
            let claim = beside.map(|beside| beside.claim(rule, coming, more)).transpose()?;
            let claim = claim.flatten();
            let theirs = claim.as_ref().map_or(0, Claim::theirs);
            let all = left(rule, coming, &of_these(&under_way), cancel)?;
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

/// Refuses so many bytes more of a transfer under way, of which files have grown since it was planned, if a quota has no room for them.
///
/// # Errors
/// As [`within_quota`].
pub(crate) fn still_within_quota(
    to: &[Rule],
    journal: &Journal,
    (id, needed): (i64, u64),
    cancel: &Cancel,
) -> Result<()> {
    let under_way = journal.under_way()?;
    for rule in to {
        let coming = coming(&under_way, rule, Some(id));
        for left in left(rule, coming, &of_these(&under_way), cancel)? {
            left.refuse(rule, needed).map_err(|e| {
                e.with_hint(
                    "it has grown since it was planned; remove something there, and stage it again",
                )
            })?;
        }
    }
    Ok(())
}

/// What a quota of a dataspace leaves for transfers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    of: quota::Left,
    coming: u64,
    /// Bytes that are removed before the first file comes.
    freed: u64,
}

/// Looks what quotas of a dataspace leave, besides what is on its way there.
///
/// # Errors
/// Those of [`quota::left`].
pub(crate) fn left(
    rule: &Rule,
    coming: u64,
    on_their_way: &dyn Fn(&OsStr) -> bool,
    cancel: &Cancel,
) -> Result<Vec<Left>> {
    let all = quota::left(rule, on_their_way, &|| cancel.check())?;
    Ok(all.into_iter().map(|of| Left { of, coming, freed: 0 }).collect())
}

impl Left {
    /// Besides files of so many bytes that are written and have no name yet.
    pub(crate) fn with_open(self, bytes: u64) -> Left {
        match self.of.whole {
            true => self,
            false => Left { coming: self.coming.saturating_add(bytes), ..self },
        }
    }

    /// Beside those who still have so many bytes to write, if it is of them, too.
    fn beside(self, bytes: u64) -> Left {
        match self.of.is_of_all {
            true => Left { coming: self.coming.saturating_add(bytes), ..self },
            false => self,
        }
    }

    /// After what a plan removes first.
    fn without(self, sums: &Sums) -> Left {
        let freed = if self.of.is_of_all { sums.freed } else { sums.freed_own };
        Left { freed, ..self }
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let used = self.of.used.saturating_sub(self.freed);
        self.of.quota.saturating_sub(used).saturating_sub(self.coming)
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
        let message = format!("{}{freed}{coming}", self.of.shortage(&rule.name, needed));
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
    use stead_core::layout::Terms;

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
    fn what_lies_in_a_dataspace_of_jobs_is_found_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(path("burst")).unwrap();
        std::os::unix::fs::symlink(path("burst"), path("link")).unwrap();
        let text = format!(
            "[dataspace.burst]\npath = \"{0}\"\njobs = true\n[dataspace.same]\npath = \"{0}\"\n[dataspace.all]\npath = \"{1}\"\n",
            path("burst"),
            path("")
        );
        let spaces = Spaces::parse(&text, &|_| None).unwrap();
        let jobs = Jobs::from([("12".to_owned(), BTreeSet::from(["burst".to_owned()]))]);
        let means = Means { spaces, jobs, ..Means::default() };
        let at = |text: &str| Location::parse(text, &|_| None).unwrap();
        let kind = |job, text: &str| keep_to_jobs(&means, job, &at(text)).err().map(|e| e.kind());
        for text in [
            "burst://a",
            "burst://",
            "same://a",
            "all://burst/a",
            &path("burst"),
            &path("burst/a/b"),
            &path("link/a"),
        ] {
            assert_eq!(kind(None, text), Some(Kind::Permission), "{text}");
            assert_eq!(kind(Some("13"), text), Some(Kind::Permission), "{text}");
            assert_eq!(kind(Some("12"), text), None, "{text}");
        }
        for text in ["all://a", &path("a"), &path("bursts"), "/"] {
            assert_eq!(kind(None, text), None, "{text}");
        }
        // The folder of one that is not there yet, and a name that this user has for something else.
        let text = format!(
            "[dataspace.later]\npath = \"{}\"\njobs = true\n[dataspace.burst]\npath = \"{}\"\n",
            path("later"),
            path("mine")
        );
        let mut later = means.clone();
        later.spaces.extend(Spaces::parse(&text, &|_| None).unwrap());
        let kind = |text: &str| keep_to_jobs(&later, None, &at(text)).err().map(|e| e.kind());
        assert_eq!(kind(&path("later/a")), Some(Kind::Permission));
        assert_eq!(kind("later://a"), Some(Kind::Permission));
        assert_eq!(kind("burst://a"), None);
        assert_eq!(kind(&path("burst/a")), Some(Kind::Permission));
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
