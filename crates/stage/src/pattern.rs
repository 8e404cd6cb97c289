//! Names that match a pattern, below a folder that is open.

use crate::place::{Place, is_too_long};
use glob::{MatchOptions, Pattern};
use std::ffi::OsStr;
use std::iter;
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
    let mut steps: Vec<Step<'_>> = pattern
        .split('/')
        .map(|step| match step {
            "**" => Ok(Step::Any),
            step if Location::is_wild(step) => Pattern::new(step).map(Step::Wild).map_err(|e| {
                Error::usage(format!("'{step}' is no pattern: {}", e.msg)).at_path(shown())
            }),
            step => Ok(Step::Is(step)),
        })
        .collect::<Result<_>>()?;
    // Any number and any number are any number.
    steps.dedup_by(|a, b| matches!((a, b), (Step::Any, Step::Any)));
    let mut search =
        Search { folder, steps: &steps, most, cancel, left: Vec::new(), found: Vec::new() };
    search.left.push((PathBuf::new(), 0));
    // By a list of what is left, not by calls within each other: somebody else's folders may lie within each other as deep as they like.
    while let Some((path, step)) = search.left.pop() {
        cancel.check()?;
        search.look(&path, step)?;
    }
    let mut found = search.found;
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
    folder: &'s Place,
    steps: &'s [Step<'s>],
    most: usize,
    cancel: &'s Cancel,
    /// Folders that match the steps before this one.
    left: Vec<(PathBuf, usize)>,
    found: Vec<PathBuf>,
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
    /// A folder below the one that is searched, by single steps if its path is too long for the system.
    fn open(&self, path: &Path) -> Result<Place> {
        match self.folder.below(path) {
            Err(e) if is_too_long(&e) => {
                path.components().try_fold(self.folder.clone(), |here, step| {
                    self.cancel.check()?;
                    here.enter(step.as_os_str())
                })
            }
            opened => opened,
        }
    }

    /// Looks which names of a folder match a step.
    fn look(&mut self, path: &Path, at: usize) -> Result<()> {
        let Some(step) = self.steps.get(at) else { return Ok(()) };
        let last = at + 1 == self.steps.len();
        let here = match path.as_os_str().is_empty() {
            true => self.folder.clone(),
            false => match self.open(path) {
                // Gone meanwhile.
                Err(e) if e.kind() == Kind::NotFound => return Ok(()),
                folder => folder?,
            },
        };
        // Of no folder as well: what comes next may lie here, and both are looked for at once.
        let next = (matches!(step, Step::Any) && !last).then_some(at + 1);
        let mut lists = false;
        for at in iter::once(at).chain(next) {
            match self.steps.get(at) {
                Some(Step::Is(name)) => self.take(&here, path, OsStr::new(name), at)?,
                _ => lists = true,
            }
        }
        if !lists {
            return Ok(());
        }
        for names in here.names(1 << 16)? {
            for name in names? {
                for at in iter::once(at).chain(next) {
                    let fits = match self.steps.get(at) {
                        Some(Step::Wild(pattern)) => {
                            name.to_str().is_some_and(|name| pattern.matches_with(name, HOW))
                        }
                        Some(Step::Any) => !hidden(&name),
                        _ => false,
                    };
                    if fits {
                        self.take(&here, path, &name, at)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a name that matches a step: as what was looked for, if that is the last one, and as a folder in which to look on.
    fn take(&mut self, here: &Place, path: &Path, name: &OsStr, at: usize) -> Result<()> {
        let last = at + 1 == self.steps.len();
        let Some(meta) = here.meta(name)? else { return Ok(()) };
        let any = matches!(self.steps.get(at), Some(Step::Any));
        if last {
            if self.found.len() >= self.most {
                return Err(Error::limit(format!("more than {} names match", self.most))
                    .with_hint("name the folder that they lie in"));
            }
            self.found.push(path.join(name));
        }
        if meta.what == What::Folder && (any || !last) {
            self.left.push((path.join(name), if any { at } else { at + 1 }));
        }
        Ok(())
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
        assert_eq!(of("**/**/*.h5"), of("**/*.h5"));
        assert_eq!(of("**/c/*"), ["b/c/4.h5"]);
        assert_eq!(of("**/1.h5"), ["a/1.h5", "b/1.h5"]);
        assert_eq!(of("*/**/[14].h5"), ["a/1.h5", "b/1.h5", "b/c/4.h5"]);
        let none = expand(&folder, "*.none", 100, &Cancel::new()).unwrap_err();
        assert_eq!(none.kind(), Kind::NotFound);
        assert_eq!(expand(&folder, "a[", 100, &Cancel::new()).unwrap_err().kind(), Kind::Usage);
        assert_eq!(expand(&folder, "**", 3, &Cancel::new()).unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn folders_within_each_other_are_looked_into_however_many_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let deep = "d/".repeat(1500);
        std::fs::create_dir_all(dir.path().join(&deep)).unwrap();
        std::fs::write(dir.path().join(&deep).join("1.h5"), b"").unwrap();
        let path = dir.path().to_owned();
        let look = move |pattern: &str| {
            let folder = Place::Folder(stead_store::Folder::open(&path).unwrap());
            expand(&folder, pattern, 10_000, &Cancel::new()).unwrap().len()
        };
        // In as little as the threads have that answer programs.
        let little = std::thread::Builder::new().stack_size(512 << 10);
        let found = little
            .spawn(move || (look("**/*.h5"), look("**"), look(&format!("{}*", "*/".repeat(1499)))));
        assert_eq!(found.unwrap().join().unwrap(), (1, 1501, 1));
    }

    #[test]
    fn a_path_that_is_too_long_for_the_system_is_gone_step_by_step() {
        let dir = tempfile::tempdir().unwrap();
        let top = stead_store::Folder::open(dir.path()).unwrap();
        let mut here = top.clone();
        for _ in 0..25 {
            here = here.make(OsStr::new(&"l".repeat(200)), false).unwrap().0;
        }
        here.create_file(OsStr::new("1.h5"), 0o644).unwrap();
        let found = expand(&Place::Folder(top), "**/1.h5", 10, &Cancel::new()).unwrap();
        assert_eq!(found[0].as_os_str().len(), 25 * 201 + 4);
    }
}
