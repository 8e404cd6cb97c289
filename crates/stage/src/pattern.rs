//! Names that match a pattern, below a folder that is open.

use crate::place::Place;
use glob::{MatchOptions, Pattern};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use stead_core::{Cancel, Error, Kind, Location, Result};
use stead_store::What;

/// As in a shell: `*` matches no `/`, and no dot at the beginning of a name.
const HOW: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The paths below `folder` that match, in order. A name with `*` in it that is there is itself. `**` is any number of folders;
/// links are not followed.
///
/// # Errors
/// `NotFound` if there is none; `Usage` for patterns that are none; `Limit` for more than `most`; system errors.
pub(crate) fn expand(
    folder: &Place,
    pattern: &str,
    most: usize,
    cancel: &Cancel,
) -> Result<Vec<PathBuf>> {
    let shown = || folder.shown().join(pattern);
    if exists(folder, Path::new(pattern))? {
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let steps: Vec<Step<'_>> = pattern
        .split('/')
        .map(|step| match step {
            "**" => Ok(Step::Any),
            step if Location::is_wild(step) => Pattern::new(step).map(Step::Wild).map_err(|e| {
                Error::usage(format!("'{step}' is no pattern: {}", e.msg)).at_path(shown())
            }),
            step => Ok(Step::Is(step)),
        })
        .collect::<Result<_>>()?;
    let mut found = Vec::new();
    let mut search = Search { most, cancel, found: &mut found };
    search.go(folder, Path::new(""), &steps)?;
    if found.is_empty() {
        return Err(Error::new(Kind::NotFound, "no file has a name that matches").at_path(shown()));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

enum Step<'p> {
    Is(&'p str),
    Wild(Pattern),
    Any,
}

struct Search<'s> {
    most: usize,
    cancel: &'s Cancel,
    found: &'s mut Vec<PathBuf>,
}

fn exists(folder: &Place, path: &Path) -> Result<bool> {
    let (dir, name) = crate::ends::split(path);
    match folder.below(dir) {
        Ok(dir) => Ok(dir.meta(name)?.is_some()),
        Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Usage) => Ok(false),
        Err(e) => Err(e),
    }
}

impl Search<'_> {
    fn go(&mut self, here: &Place, path: &Path, steps: &[Step<'_>]) -> Result<()> {
        self.cancel.check()?;
        let Some((step, rest)) = steps.split_first() else { return Ok(()) };
        match step {
            Step::Is(name) => self.take(here, path, OsStr::new(name), rest),
            Step::Wild(pattern) => self.each(here, |search, name| {
                let fits = name.to_str().is_some_and(|n| pattern.matches_with(n, HOW));
                if fits { search.take(here, path, name, rest) } else { Ok(()) }
            }),
            Step::Any => {
                match rest {
                    [] => self.each(here, |search, name| {
                        if hidden(name) { Ok(()) } else { search.take(here, path, name, &[]) }
                    })?,
                    rest => self.go(here, path, rest)?,
                }
                self.each(here, |search, name| {
                    let folder = |m: stead_store::Meta| m.what == What::Folder;
                    if hidden(name) || !here.meta(name)?.is_some_and(folder) {
                        return Ok(());
                    }
                    search.go(&here.enter(name)?, &path.join(name), steps)
                })
            }
        }
    }

    fn each(
        &mut self,
        here: &Place,
        mut f: impl FnMut(&mut Self, &OsStr) -> Result<()>,
    ) -> Result<()> {
        for names in here.names(1 << 16)? {
            for name in names? {
                f(self, &name)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, here: &Place, path: &Path, name: &OsStr, rest: &[Step<'_>]) -> Result<()> {
        let Some(meta) = here.meta(name)? else { return Ok(()) };
        let path = path.join(name);
        if rest.is_empty() {
            if self.found.len() >= self.most {
                return Err(Error::limit(format!("more than {} names match", self.most))
                    .with_hint("name the folder that they lie in"));
            }
            self.found.push(path);
            return Ok(());
        }
        match meta.what {
            What::Folder => self.go(&here.enter(name)?, &path, rest),
            _ => Ok(()),
        }
    }
}

fn hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/1.h5", "a/2.h5", "a/.3.h5", "b/1.h5", "b/c/4.h5", "a/x*y", "b/.d/5.h5"] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let folder = Place::Folder(stead_store::Folder::open(dir.path()).unwrap());
        let of = |pattern: &str| {
            let found = expand(&folder, pattern, 100, &Cancel::new()).unwrap();
            found.iter().map(|p| p.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of("a/*.h5"), ["a/1.h5", "a/2.h5"]);
        assert_eq!(of("*/1.h5"), ["a/1.h5", "b/1.h5"]);
        assert_eq!(of("**/*.h5"), ["a/1.h5", "a/2.h5", "b/1.h5", "b/c/4.h5"]);
        assert_eq!(of("[ab]"), ["a", "b"]);
        assert_eq!(of("l*"), ["link"]);
        assert_eq!(of("a/x*y"), ["a/x*y"]);
        assert_eq!(of("b/**"), ["b/1.h5", "b/c", "b/c/4.h5"]);
        let none = expand(&folder, "*.none", 100, &Cancel::new()).unwrap_err();
        assert_eq!(none.kind(), Kind::NotFound);
        assert_eq!(expand(&folder, "a[", 100, &Cancel::new()).unwrap_err().kind(), Kind::Usage);
        assert_eq!(expand(&folder, "**", 3, &Cancel::new()).unwrap_err().kind(), Kind::Limit);
    }
}
