//! Which names below a source are meant: all, but for those that patterns leave out.
//!
//! A pattern is that of a shell. Without a `/` it is about the last part of a name, wherever that lies; with one it is about the way to it
//! from the source, and `**` stands for any number of folders; with one at its end it is about folders.

use crate::request::Options;
use glob::{MatchOptions, Pattern};
use std::path::Path;
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

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    exclude: Vec<One>,
    include: Vec<One>,
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
        Ok(Filter { exclude: all(&options.exclude)?, include: all(&options.include)? })
    }

    /// True if it leaves out nothing.
    pub(crate) fn is_none(&self) -> bool {
        self.exclude.is_empty() && self.include.is_empty()
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
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "/", "[", "a**b", "***", "a\0b"] {
            assert!(filter(&[bad], &[]).is_err(), "{bad:?}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(filter(&[&long], &[]).is_err() && filter(&vec!["x"; MOST + 1], &[]).is_err());
        assert!(filter(&[], &[]).unwrap().is_none());
    }
}
