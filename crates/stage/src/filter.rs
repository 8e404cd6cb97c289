//! Which names below a source are meant: all, but for those that patterns leave out, and files and links of other sizes and ages.
//!
//! A pattern is that of a shell. Without a `/` it is about the last part of a name, wherever that lies; with one it is about the way to it
//! from the source, and `**` stands for any number of folders; with one at its end it is about folders. Or names are listed, which alone are
//! meant then, as far as patterns do not leave them out.

use crate::request::Options;
use glob::{MatchOptions, Pattern};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use stead_core::{Error, Result};
use stead_store::FileTime;

/// As in a shell, but that a dot at the beginning of a name is a letter as any other: what is to be left out is so wherever it hides.
const HOW: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};
/// Patterns of a request, and bytes of one.
const MOST: usize = 1000;
const LONGEST: usize = 4096;
/// Names that a request lists.
const MOST_LISTED: usize = 100_000;

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    exclude: Vec<One>,
    include: Vec<One>,
    listed: Option<Listed>,
    /// Bytes of files and links, and seconds since they were changed.
    sizes: Between,
    ages: Between,
    /// From this time on ages are counted back, in seconds since 1970.
    now: f64,
}

/// At least so much, and at most.
#[derive(Debug, Clone, Copy, Default)]
struct Between {
    least: Option<u64>,
    most: Option<u64>,
}

impl Between {
    fn new(what: &str, least: Option<u64>, most: Option<u64>) -> Result<Between> {
        if least.zip(most).is_some_and(|(least, most)| least > most) {
            let message =
                format!("no file has at least the --min-{what} and at most the --max-{what}");
            return Err(Error::usage(message).with_hint("the first is to be the smaller one"));
        }
        Ok(Between { least, most })
    }

    fn is_none(self) -> bool {
        self.least.is_none() && self.most.is_none()
    }

    fn has(self, n: f64) -> bool {
        self.least.is_none_or(|least| n >= least as f64)
            && self.most.is_none_or(|most| n <= most as f64)
    }
}

/// Names that alone are meant, by their ways from the source: in the order of their steps, so that those in a folder follow each other.
#[derive(Debug, Clone, Default)]
struct Listed(BTreeSet<PathBuf>);

impl Listed {
    fn new(texts: &[String]) -> Result<Listed> {
        if texts.len() > MOST_LISTED {
            return Err(Error::limit(format!("more than {MOST_LISTED} names are listed"))
                .with_hint("list their folders, or take what matches: --include '*.h5'"));
        }
        let mut listed = Listed::default();
        for text in texts {
            let steps: Vec<&str> =
                text.split('/').filter(|step| !matches!(*step, "" | ".")).collect();
            let odd = steps.is_empty() || steps.contains(&"..") || text.contains('\0');
            if odd || text.len() > LONGEST {
                let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
                return Err(Error::usage(format!("'{shown}' is no name below a source"))
                    .with_hint("write its way from the source on, without '..'"));
            }
            listed.0.insert(steps.into_iter().collect());
        }
        Ok(listed)
    }
}

#[derive(Debug, Clone)]
struct One {
    pattern: Pattern,
    /// It is about the way from the source, and not about the last part alone.
    whole: bool,
    folders: bool,
}

impl One {
    fn new(text: &str) -> Result<One> {
        if text.len() > LONGEST {
            return Err(Error::limit(format!("a pattern is longer than {LONGEST} bytes")));
        }
        let (rest, folders) = match text.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let whole = rest.contains('/');
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        if rest.is_empty() || rest.contains('\0') {
            return Err(Error::usage(format!("'{}' is no pattern of names", text.escape_debug())));
        }
        let pattern = Pattern::new(rest).map_err(|e| {
            Error::usage(format!("'{}' is no pattern: {}", text.escape_debug(), e.msg))
        })?;
        Ok(One { pattern, whole, folders })
    }

    fn fits(&self, path: &Path, is_folder: bool) -> bool {
        if self.folders && !is_folder {
            return false;
        }
        let name = match self.whole {
            true => Some(path.as_os_str()),
            false => path.file_name(),
        };
        name.is_some_and(|name| self.pattern.matches_with(&name.to_string_lossy(), HOW))
    }
}

impl Filter {
    /// What options say.
    ///
    /// # Errors
    /// `Usage` for what is no pattern, and for what no file has; `Limit` for too many of them.
    pub(crate) fn new(options: &Options) -> Result<Filter> {
        let all = |texts: &[String]| -> Result<Vec<One>> {
            texts.iter().map(|text| One::new(text)).collect()
        };
        if options.exclude.len() + options.include.len() > MOST {
            return Err(Error::limit(format!("more than {MOST} patterns of names"))
                .with_hint("leave out their folder"));
        }
        let files = Some(&options.files).filter(|files| !files.is_empty());
        Ok(Filter {
            exclude: all(&options.exclude)?,
            include: all(&options.include)?,
            listed: files.map(|files| Listed::new(files)).transpose()?,
            sizes: Between::new("size", options.min_size, options.max_size)?,
            ages: Between::new("age", options.min_age, options.max_age)?,
            now: 0.0,
        })
    }

    /// The same at this time, in seconds since 1970.
    pub(crate) fn at(self, now: f64) -> Filter {
        Filter { now, ..self }
    }

    /// True if it leaves out nothing.
    pub(crate) fn is_none(&self) -> bool {
        self.exclude.is_empty()
            && self.include.is_empty()
            && self.listed.is_none()
            && !self.measures()
    }

    /// True if files and links are left out by their size or their age.
    fn measures(&self) -> bool {
        !self.sizes.is_none() || self.asks_age()
    }

    /// True if somebody has to say when files were changed.
    pub(crate) fn asks_age(&self) -> bool {
        !self.ages.is_none()
    }

    /// True if names are listed.
    pub(crate) fn is_list(&self) -> bool {
        self.listed.is_some()
    }

    /// The names of a folder that are listed, or lead to such; none if nobody has to list them, or all that lies in the folder is meant. It
    /// is told by its way from the source.
    pub(crate) fn listed_in(&self, folder: &Path) -> Option<Vec<OsString>> {
        let listed = self.listed.as_ref()?;
        if folder.ancestors().any(|above| listed.0.contains(above)) {
            return None;
        }
        let after: (Bound<&Path>, Bound<&Path>) = (Bound::Excluded(folder), Bound::Unbounded);
        let ways =
            listed.0.range::<Path, _>(after).map_while(|path| path.strip_prefix(folder).ok());
        let mut steps: Vec<&OsStr> = ways.filter_map(|way| way.iter().next()).collect();
        steps.dedup();
        Some(steps.into_iter().map(OsStr::to_owned).collect())
    }

    /// True of a name that is listed itself.
    pub(crate) fn lists(&self, path: &Path) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.0.contains(path))
    }

    /// True if a folder is made for what lies in it alone.
    pub(crate) fn picks(&self) -> bool {
        !self.include.is_empty() || self.measures()
    }

    /// True of a name that is meant, by its way from the source: of what lies in a folder that is not nobody asks. Folders are looked into
    /// whatever is picked.
    pub(crate) fn takes(&self, path: &Path, is_folder: bool) -> bool {
        let any = |all: &[One]| all.iter().any(|one| one.fits(path, is_folder));
        !any(&self.exclude) && (is_folder || self.include.is_empty() || any(&self.include))
    }

    /// True of a file or a link of so many bytes, as far as these matter.
    pub(crate) fn takes_size(&self, size: u64) -> bool {
        self.sizes.has(size as f64)
    }

    /// True of a file or a link that was changed then. What is of the future is as new as can be.
    pub(crate) fn takes_age(&self, changed: FileTime) -> bool {
        let then = changed.seconds as f64 + f64::from(changed.nanos) * 1e-9;
        self.ages.has((self.now - then).max(0.0))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn filter(exclude: &[&str], include: &[&str]) -> Result<Filter> {
        let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let options =
            Options { exclude: all(exclude), include: all(include), ..Options::default() };
        Filter::new(&options)
    }

    #[test]
    fn names_are_left_out_and_picked() {
        let takes = |exclude: &[&str], include: &[&str], path: &str| {
            let filter = filter(exclude, include).unwrap();
            filter.takes(Path::new(path.trim_end_matches('/')), path.ends_with('/'))
        };
        for (pattern, out, stays) in [
            ("*.tmp", &["a.tmp", "deep/b.tmp", ".tmp", "x.tmp/"][..], &["a.tmpx", "tmp"][..]),
            ("core", &["core", "deep/core", "core/"], &["core.1", "score"]),
            ("/core", &["core"], &["deep/core"]),
            ("logs/", &["logs/", "a/logs/"], &["logs", "a/logs"]),
            ("a/*.log", &["a/x.log"], &["a/b/x.log", "b/a/x.log", "x.log"]),
            ("a/**/x", &["a/x", "a/b/x", "a/b/c/x"], &["x", "b/x", "a/y"]),
            ("**/cache/", &["cache/", "a/b/cache/"], &["cache"]),
            ("[ab]?", &["ax", "deep/b1"], &["a", "cx"]),
        ] {
            for path in out {
                assert!(!takes(&[pattern], &[], path), "{pattern} {path}");
            }
            for path in stays {
                assert!(takes(&[pattern], &[], path), "{pattern} {path}");
            }
        }
        assert!(takes(&[], &["*.h5"], "deep/a.h5") && !takes(&[], &["*.h5"], "deep/a.nc"));
        assert!(takes(&[], &["*.h5"], "deep/"), "it may have some");
        assert!(!takes(&["deep/"], &["*.h5"], "deep/") && !takes(&["a*"], &["*.h5"], "a.h5"));
    }

    #[test]
    fn names_are_listed_with_the_folders_that_they_lie_in() {
        let files = ["a/b/c.h5", "./a//d", "a.b", "a/b/c.h5", "e/", "e/f", "a/b.c/g"];
        let files = files.map(str::to_owned).to_vec();
        let filter = Filter::new(&Options { files, ..Options::default() }).unwrap();
        let listed = |folder: &str| filter.listed_in(Path::new(folder));
        assert_eq!(listed(""), Some(vec!["a".into(), "a.b".into(), "e".into()]));
        assert_eq!(listed("a"), Some(vec!["b".into(), "b.c".into(), "d".into()]));
        assert_eq!(listed("a/b"), Some(vec!["c.h5".into()]));
        // All that lies in it.
        assert!(listed("e").is_none() && listed("e/deep").is_none());
        assert_eq!(listed("elsewhere"), Some(Vec::new()));
        assert!(filter.lists(Path::new("a/d")) && !filter.lists(Path::new("a/b")));
        assert!(filter.is_list() && !filter.is_none() && !filter.picks());
        let many = vec!["a".to_owned(); MOST_LISTED + 1];
        assert!(Filter::new(&Options { files: many, ..Options::default() }).is_err());
    }

    #[test]
    fn files_are_measured() {
        let of = |options: Options| Filter::new(&options).unwrap().at(10_000.5);
        let sizes = of(Options { min_size: Some(10), max_size: Some(20), ..Options::default() });
        let taken: Vec<u64> = (0..30).filter(|size| sizes.takes_size(*size)).collect();
        assert_eq!(taken, (10..=20).collect::<Vec<_>>());
        assert!(!sizes.is_none() && sizes.picks() && !sizes.asks_age());
        let at = |seconds| FileTime { seconds, nanos: 500_000_000 };
        assert!(sizes.takes_age(at(0)) && sizes.takes(Path::new("a"), false));
        let ages = of(Options { min_age: Some(60), max_age: Some(3600), ..Options::default() });
        for (seconds, taken) in
            [(9_999, false), (9_941, false), (9_940, true), (6_400, true), (6_399, false)]
        {
            assert_eq!(ages.takes_age(at(seconds)), taken, "{seconds}");
        }
        assert!(ages.asks_age() && ages.picks() && ages.takes_size(0));
        // A clock that goes ahead: new, and not old.
        assert!(!ages.takes_age(at(20_000)));
        assert!(of(Options { max_age: Some(1), ..Options::default() }).takes_age(at(20_000)));
        for bad in [
            Options { min_size: Some(2), max_size: Some(1), ..Options::default() },
            Options { min_age: Some(2), max_age: Some(1), ..Options::default() },
        ] {
            assert!(Filter::new(&bad).is_err());
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "/", "[", "a**b", "***", "a\0b"] {
            assert!(filter(&[bad], &[]).is_err(), "{bad:?}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(filter(&[&long], &[]).is_err() && filter(&vec!["x"; MOST + 1], &[]).is_err());
        assert!(filter(&[], &[]).unwrap().is_none());
    }
}
