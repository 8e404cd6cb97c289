//! Which names below a source are meant: all, but for those that patterns leave out.
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
    /// `Usage` for what is no pattern; `Limit` for too many of them.
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
        })
    }

    /// True if it leaves out nothing.
    pub(crate) fn is_none(&self) -> bool {
        self.exclude.is_empty() && self.include.is_empty() && self.listed.is_none()
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
        !self.include.is_empty()
    }

    /// True of a name that is meant, by its way from the source: of what lies in a folder that is not nobody asks. Folders are looked into
    /// whatever is picked.
    pub(crate) fn takes(&self, path: &Path, is_folder: bool) -> bool {
        let any = |all: &[One]| all.iter().any(|one| one.fits(path, is_folder));
        !any(&self.exclude) && (is_folder || self.include.is_empty() || any(&self.include))
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
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "/", "[", "a**b", "***", "a\0b"] {
            assert!(filter(&[bad], &[]).is_err(), "{bad:?}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(filter(&[&long], &[]).is_err() && filter(&vec!["x"; MOST + 1], &[]).is_err());
        assert!(filter(&[], &[]).unwrap().is_none());
    }
}
