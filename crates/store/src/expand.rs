//! From what a user names to files: a file, a glob or a directory is one dataset.

use crate::file::missing_directory;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use stead_core::layout::SUFFIX;
use stead_core::{Error, Kind, Result, limits};

/// The files that `inputs` name, each once, in natural order (`part2` before `part10`), so that a
/// quoted glob and one that the shell expanded mean the same.
///
/// - A directory stands for the regular files directly in it; hidden files, layouts and sub-directories are left
///   out.
/// - `*`, `?`, `[...]` and `**` are globs as in the shell: a leading dot must be written out. A name that
///   exists is taken as it is even if it holds such characters.
///
/// # Errors
/// `NotFound` if an input names nothing; `Limit` above [`limits::MAX_SOURCES`] files; `Usage` without
/// inputs. The files are not opened.
pub fn expand(inputs: &[String]) -> Result<Vec<PathBuf>> {
    if inputs.is_empty() {
        return Err(
            Error::usage("no dataset was named").with_hint("name a file, a glob or a directory")
        );
    }
    let mut files = Vec::new();
    for input in inputs {
        let before = files.len();
        let path = Path::new(input);
        match std::fs::metadata(path) {
            Ok(m) if m.is_dir() => directory(path, &mut files)?,
            Ok(_) => push(path.to_path_buf(), &mut files)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => missing(input, &mut files)?,
            // A name with a NUL byte or too long a name is no file either.
            Err(e) => return Err(Error::io("open", path, e)),
        }
        files[before..].sort_by(|a, b| natural(a, b));
    }
    files.sort_by(|a, b| natural(a, b));
    if inputs.len() > 1 {
        let mut seen = HashSet::new();
        files.retain(|f| seen.insert(std::path::absolute(f).unwrap_or_else(|_| f.clone())));
    }
    Ok(files)
}

fn push(path: PathBuf, files: &mut Vec<PathBuf>) -> Result<()> {
    if files.len() >= limits::MAX_SOURCES {
        return Err(Error::limit(format!(
            "more than {} files in one dataset",
            limits::MAX_SOURCES
        ))
        .with_hint("join small files, or read them in several runs"));
    }
    files.push(path);
    Ok(())
}

/// Layouts lie beside the files that they are of, and are no data.
fn is_layout(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(SUFFIX.as_bytes())
}

fn directory(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let before = files.len();
    let list = std::fs::read_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    for entry in list {
        let entry = entry.map_err(|e| Error::io("list", dir, e))?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // Follows links; one that leads nowhere is no file.
        if !hidden
            && !is_layout(&entry.path())
            && std::fs::metadata(entry.path()).is_ok_and(|m| m.is_file())
        {
            push(entry.path(), files)?;
        }
    }
    if files.len() == before {
        return Err(Error::new(Kind::NotFound, "no files in this directory")
            .at_path(dir)
            .with_hint(format!(
                "hidden files, layouts and sub-directories are not read; '{}/*/*' would name files one level \
                 further down",
                dir.display()
            )));
    }
    Ok(())
}

fn missing(input: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    if !input.contains(['*', '?', '[']) {
        let e = Error::new(Kind::NotFound, "no such file or directory").at_path(input);
        return Err(if input == "-" {
            e.with_hint("standard input cannot be read at any offset; write it to a file first")
        } else if let Some(dir) = missing_directory(Path::new(input)) {
            e.with_hint(format!("there is no directory '{}'", dir.display()))
        } else {
            e.with_hint("check the name; a file, a quoted glob or a directory is a dataset")
        });
    }
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..Default::default()
    };
    let bad = |e: glob::PatternError| {
        Error::usage(format!("'{input}' is not a glob: {} (at byte {})", e.msg, e.pos))
            .with_hint("put '[' in brackets, '[[]', to mean the character itself")
    };
    let before = files.len();
    let mut directories = false;
    let (top, deep) = split(input);
    if let Some(deep) = deep {
        let pattern = glob::Pattern::new(input).map_err(bad)?;
        let wanted = |path: &Path| pattern.matches_path_with(path, options);
        if top.is_empty() {
            walk(PathBuf::new(), deep, &wanted, files)?;
        } else {
            for found in glob::glob_with(top, options).map_err(bad)? {
                // What cannot be listed is said by the walk.
                let path = found.unwrap_or_else(|e| e.path().to_path_buf());
                if path.is_dir() {
                    walk(path, deep, &wanted, files)?;
                }
            }
        }
    }
    let paths = match deep {
        None => Some(glob::glob_with(input, options).map_err(bad)?),
        Some(_) => None,
    };
    for found in paths.into_iter().flatten() {
        let path = found.map_err(|e| {
            let path = e.path().to_path_buf();
            Error::io("list", path, e.into())
        })?;
        match std::fs::metadata(&path) {
            Ok(m) if m.is_file() => push(path, files)?,
            Ok(_) => directories = true,
            Err(_) => {}
        }
    }
    if files.len() > before {
        return Ok(());
    }
    let e = Error::new(Kind::NotFound, "no file matches this glob").at_path(input);
    Err(if directories {
        e.with_hint(format!("it matches directories; '{}/*' would name the files in them", input))
    } else {
        e.with_hint("'*' does not cross '/'; use '**/' for any depth, and write a leading '.' out")
    })
}

/// The part of a glob before its first `**`, and the rest if there is one.
fn split(input: &str) -> (&str, Option<&str>) {
    let mut at = 0;
    for part in input.split('/') {
        if part == "**" {
            // The root is all of "/**" that comes before.
            let top = if at == 1 { "/" } else { input[..at].trim_end_matches('/') };
            return (top, Some(&input[at..]));
        }
        at += part.len() + 1;
    }
    (input, None)
}

/// Adds the files below `top` that are `wanted`. Links to files count, links to directories are not
/// followed, as in the shell: they may lead round in circles.
fn walk(
    top: PathBuf,
    glob: &str,
    wanted: &dyn Fn(&Path) -> bool,
    files: &mut Vec<PathBuf>,
) -> Result<()> {
    let layouts_too = glob.ends_with(".toml");
    let hidden_too = glob.starts_with('.') || glob.contains("/.");
    let mut directories = vec![top];
    while let Some(dir) = directories.pop() {
        let here = if dir.as_os_str().is_empty() { Path::new(".") } else { dir.as_path() };
        for entry in std::fs::read_dir(here).map_err(|e| Error::io("list", here, e))? {
            let entry = entry.map_err(|e| Error::io("list", here, e))?;
            let (name, path) = (entry.file_name(), dir.join(entry.file_name()));
            if name.as_encoded_bytes().starts_with(b".") && !hidden_too {
                continue;
            }
            if is_layout(&path) && !layouts_too {
                continue;
            }
            match entry.file_type() {
                Ok(t) if t.is_dir() => directories.push(path),
                Ok(_) if wanted(&path) && path.is_file() => push(path, files)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Runs of digits compare as numbers, everything else as bytes; equal numbers by their zeros.
fn natural(a: &Path, b: &Path) -> Ordering {
    let (whole_a, whole_b) = (a.as_os_str().as_encoded_bytes(), b.as_os_str().as_encoded_bytes());
    let (mut a, mut b) = (whole_a, whole_b);
    loop {
        let (Some(x), Some(y)) = (a.first(), b.first()) else {
            return a.len().cmp(&b.len()).then_with(|| whole_a.cmp(whole_b));
        };
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (na, nb) = (number(&mut a), number(&mut b));
            match na.len().cmp(&nb.len()).then_with(|| na.cmp(nb)) {
                Ordering::Equal => {}
                different => return different,
            }
        } else if x == y {
            (a, b) = (&a[1..], &b[1..]);
        } else {
            return x.cmp(y);
        }
    }
}

/// Takes the digits that `s` begins with; returns them without leading zeros.
fn number<'a>(s: &mut &'a [u8]) -> &'a [u8] {
    let end = s.iter().position(|c| !c.is_ascii_digit()).unwrap_or(s.len());
    let (digits, rest) = s.split_at(end);
    *s = rest;
    let zeros = digits.iter().position(|c| *c != b'0').unwrap_or(digits.len());
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(files: &[PathBuf]) -> Vec<String> {
        files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for f in [
            "part10.csv",
            "part2.csv",
            "part1.csv",
            ".hidden",
            "x[1].txt",
            "part1.csv.stead-layout.toml",
        ] {
            fs::write(dir.path().join(f), b"").unwrap();
        }
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/deep.csv"), b"").unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        dir
    }

    #[test]
    fn files_globs_and_directories() {
        let dir = tree();
        let at = |s: &str| dir.path().join(s).to_string_lossy().into_owned();
        let all = ["part1.csv", "part2.csv", "part10.csv", "x[1].txt"];
        assert_eq!(names(&expand(&[at("")]).unwrap()), all);
        assert_eq!(names(&expand(&[at("*.csv")]).unwrap()), all[..3]);
        assert_eq!(names(&expand(&[at("x[1].txt")]).unwrap()), ["x[1].txt"]);
        assert_eq!(names(&expand(&[at("*.csv"), at("./part2.csv"), at("sub")]).unwrap()).len(), 4);
        assert_eq!(names(&expand(&[at("**/deep.csv")]).unwrap()), ["deep.csv"]);
    }

    #[test]
    fn two_stars_go_down_and_not_in_circles() {
        let dir = tree();
        let at = |s: &str| dir.path().join(s).to_string_lossy().into_owned();
        fs::create_dir_all(dir.path().join("sub/.git/x")).unwrap();
        fs::write(dir.path().join("sub/.git/x/deep.csv"), b"").unwrap();
        for link in ["sub/round", "sub/again"] {
            std::os::unix::fs::symlink(dir.path(), dir.path().join(link)).unwrap();
        }
        std::os::unix::fs::symlink("deep.csv", dir.path().join("sub/link.csv")).unwrap();
        assert_eq!(
            names(&expand(&[at("**/*.csv")]).unwrap()),
            ["part1.csv", "part2.csv", "part10.csv", "deep.csv", "link.csv"]
        );
        assert_eq!(names(&expand(&[at("s*/**/deep.csv")]).unwrap()), ["deep.csv"]);
        assert_eq!(names(&expand(&[at("**/.git/**/*.csv")]).unwrap()), ["deep.csv"]);
        assert_eq!(expand(&[at("no/**/*.csv")]).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(split("/**/a"), ("/", Some("**/a")));
        assert_eq!(split("**"), ("", Some("**")));
        assert_eq!(split("a/**/b/**"), ("a", Some("**/b/**")));
        assert_eq!(split("a/b*"), ("a/b*", None));
    }

    #[test]
    fn nothing_found_is_an_error_with_a_hint() {
        let dir = tree();
        let at = |s: &str| dir.path().join(s).to_string_lossy().into_owned();
        for name in ["no.csv", "*.parquet", "empty", "nodir/x", "s*b"] {
            let e = expand(&[at(name)]).unwrap_err();
            assert_eq!(e.kind(), Kind::NotFound, "{name}");
            assert!(e.hint().is_some(), "{name}");
        }
        assert_eq!(expand(&[at("a[")]).unwrap_err().kind(), Kind::Usage);
        assert_eq!(expand(&[]).unwrap_err().kind(), Kind::Usage);
        assert!(expand(&["a\0b".into()]).is_err());
    }

    #[test]
    fn natural_order_is_total() {
        let mut v: Vec<&Path> =
            ["a10", "a2", "a02", "b", "a", "a2b10", "a2b9"].iter().map(Path::new).collect();
        v.sort_by(|a, b| natural(a, b));
        let v: Vec<_> = v.iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(v, ["a", "a02", "a2", "a2b9", "a2b10", "a10", "b"]);
    }
}
