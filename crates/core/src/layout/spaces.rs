//! Where the dataspaces of a node are: `stead.toml`.
//!
//! ```toml
//! [dataspace.nvme]
//! path = "/mnt/nvme/${USER}"
//! ```
//!
//! Read strictly, as layouts are. Variables are told to it: this room asks no environment. What they make of a path is looked at
//! when its dataspace is used, so that who uses another one needs none of them.

use super::space::{check_path, check_space};
use super::text::{at_line, line, not_toml};
use crate::{BucketUrl, Error, Result, limits};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    dataspace: BTreeMap<String, RawSpace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSpace {
    path: Spanned<String>,
}

/// The value of a variable of the environment.
pub type Variable<'v> = &'v dyn Fn(&str) -> Option<String>;

/// The folders that dataspaces are on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spaces(BTreeMap<String, Folder>);

/// The folder of a dataspace, or its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Folder {
    /// An absolute path, or a URL.
    Is(String),
    /// With the variables as they are it is none.
    None { why: String, hint: Option<String>, line: u64, file: Option<PathBuf> },
}

impl Spaces {
    /// Reads a `stead.toml`. `${NAME}` in a path is the value of `variable`; `$$` is a dollar sign.
    ///
    /// # Errors
    /// `Format` with the line for unknown keys, names that are none, paths that are not absolute or have `..`; `Limit` for a
    /// text of more than [`limits::MAX_CONFIG_BYTES`]. The caller adds the path. What is wrong with variables alone, such as
    /// one that is not set, is an error of [`Spaces::folder`].
    pub fn parse(text: &str, variable: Variable<'_>) -> Result<Spaces> {
        if text.len() > limits::MAX_CONFIG_BYTES {
            return Err(Error::limit(format!(
                "a configuration of {} bytes; at most {} are read",
                text.len(),
                limits::MAX_CONFIG_BYTES
            )));
        }
        let raw: Raw = toml::from_str(text).map_err(|e| {
            let hint = "docs/layouts.md describes the keys of stead.toml";
            not_toml("a configuration", hint, &e, text)
        })?;
        let mut spaces = BTreeMap::new();
        for (name, space) in raw.dataspace {
            let (at, path) = (space.path.span().start, space.path.get_ref());
            let wrong = |e: Error| at_line(&e, text, at);
            check_space(&name).map_err(wrong)?;
            let folder = match root(path, variable) {
                Ok(path) => Folder::Is(path),
                // It is wrong whatever they are.
                Err(e)
                    if root(path, &|_| Some("/x".into())).is_err()
                        && root(path, &|_| Some("x".into())).is_err() =>
                {
                    return Err(wrong(e));
                }
                Err(e) => Folder::None {
                    why: e.message().to_owned(),
                    hint: e.hint().map(str::to_owned),
                    line: line(text, at),
                    file: None,
                },
            };
            spaces.insert(name, folder);
        }
        Ok(Spaces(spaces))
    }

    /// Says that all of them were read from this file, for errors about them.
    #[must_use]
    pub fn read_from(mut self, path: &Path) -> Spaces {
        for folder in self.0.values_mut() {
            if let Folder::None { file, .. } = folder {
                *file = Some(path.to_owned());
            }
        }
        self
    }

    /// Takes one as it is given on a command line: `nvme=/mnt/nvme/me`. It replaces one of the same name.
    ///
    /// # Errors
    /// `Usage`.
    pub fn give(&mut self, given: &str, variable: Variable<'_>) -> Result<()> {
        let Some((name, path)) = given.split_once('=') else {
            return Err(Error::usage(format!("'{}' is no dataspace", given.escape_debug()))
                .with_hint("write its name and its folder: nvme=/mnt/nvme/me"));
        };
        check_space(name)?;
        self.0.insert(name.to_owned(), Folder::Is(root(path, variable)?));
        Ok(())
    }

    /// Takes those of a configuration that goes before this one.
    pub fn extend(&mut self, later: Spaces) {
        self.0.extend(later.0);
    }

    /// The names of all of them, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The folder of a dataspace: an absolute path.
    ///
    /// # Errors
    /// Those of [`Spaces::place`]; `Usage` for a dataspace that is a bucket.
    pub fn folder(&self, name: &str) -> Result<&str> {
        match self.place(name)? {
            url if BucketUrl::is_meant(url) => {
                let message = format!("dataspace '{name}' is a bucket, and a folder is needed");
                Err(Error::usage(message)
                    .with_hint("stage what lies in it to a folder: stead stage"))
            }
            path => Ok(path),
        }
    }

    /// True if there is a dataspace of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Where a dataspace is: an absolute path, or the URL of a bucket.
    ///
    /// # Errors
    /// `Usage` if there is none of this name; `Format`, with file and line, if a variable in its path is not set, or what it
    /// is set to makes no path.
    pub fn place(&self, name: &str) -> Result<&str> {
        match self.0.get(name) {
            Some(Folder::Is(path)) => Ok(path),
            Some(Folder::None { why, hint, line, file }) => {
                let mut e = Error::format(format!("dataspace '{name}': {why}")).at_line(*line);
                if let Some(file) = file {
                    e = e.at_path(file);
                }
                let given = format!("or give its folder with --dataspace {name}=/PATH");
                let set = || format!("set the variable on every node, {given}");
                Err(e.with_hint(hint.as_ref().map_or_else(set, |hint| format!("{hint}, {given}"))))
            }
            None => Err(Error::usage(format!("dataspace '{name}' is not configured here"))
                .with_hint(format!(
                    "give its folder with --dataspace {name}=/PATH, or write it into stead.toml as \
                     [dataspace.{name}] with a path"
                ))),
        }
    }
}

/// The root of a dataspace, with variables put in.
fn root(text: &str, variable: Variable<'_>) -> Result<String> {
    let path = put_in(text, variable)?;
    if BucketUrl::is_meant(&path) {
        return Ok(BucketUrl::parse(&path)?.to_string());
    }
    if path == "/" {
        return Err(Error::usage("the folder of a dataspace is a folder of its own, and not '/'")
            .with_hint("name a folder below it: parts would lie between those of the system"));
    }
    let path = path.strip_suffix('/').unwrap_or(&path);
    if !path.starts_with('/') {
        return Err(Error::usage(format!("path '{}' is not absolute", path.escape_debug()))
            .with_hint(
                "the folder of a dataspace begins with '/', or with a variable such as ${HOME}",
            ));
    }
    check_path(path)?;
    Ok(path.to_owned())
}

pub(crate) fn put_in(text: &str, variable: Variable<'_>) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let named = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
        let Some((name, after)) = named.filter(|(n, _)| !n.is_empty() && n.bytes().all(plain))
        else {
            return Err(Error::usage(format!(
                "'{}' has a '$' before no variable",
                text.escape_debug()
            ))
            .with_hint("write ${HOME} for a variable, and $$ for a dollar sign"));
        };
        let value = variable(name).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| Error::usage(format!("variable '{name}' is not set")))?;
        out.push_str(&value);
        if out.len() > limits::MAX_PATH_BYTES {
            break;
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn variable(name: &str) -> Option<String> {
        match name {
            "USER" => Some("ada".into()),
            "HOME" => Some("/users/ada".into()),
            "EMPTY" => Some(String::new()),
            "UP" => Some("../root".into()),
            _ => None,
        }
    }

    #[test]
    fn buckets_are_dataspaces_and_no_folders() {
        let text = "[dataspace.archive]\npath = \"s3://old-${USER}/runs/\"\n";
        let mut spaces = Spaces::parse(text, &variable).unwrap();
        assert_eq!(spaces.place("archive").unwrap(), "s3://old-ada/runs");
        assert_eq!(spaces.folder("archive").unwrap_err().kind(), Kind::Usage);
        spaces.give("b=gs://x", &variable).unwrap();
        assert_eq!(spaces.place("b").unwrap(), "gs://x");
        assert!(spaces.has("b") && !spaces.has("c"));
        assert!(spaces.give("b=s3://me:secret@x", &variable).is_err());
    }

    #[test]
    fn dataspaces_are_read() {
        let text = "# ours\n[dataspace.nvme]\npath = \"/mnt/nvme/${USER}/\"\n\
            [dataspace.home]\npath = \"${HOME}/d$$\"\n";
        let mut spaces = Spaces::parse(text, &variable).unwrap();
        assert_eq!(spaces.folder("nvme").unwrap(), "/mnt/nvme/ada");
        assert_eq!(spaces.folder("home").unwrap(), "/users/ada/d$");
        spaces.give("nvme=/other", &variable).unwrap();
        assert_eq!(spaces.folder("nvme").unwrap(), "/other");
        assert_eq!(spaces.folder("home").unwrap(), "/users/ada/d$");
        let e = spaces.folder("disk").unwrap_err();
        assert_eq!(e.kind(), Kind::Usage);
        assert!(e.hint().is_some_and(|hint| hint.contains("--dataspace disk=")), "{e}");
        assert_eq!(Spaces::parse("", &variable).unwrap(), Spaces::default());
    }

    #[test]
    fn what_is_none_is_an_error_with_its_line() {
        for (bad, says) in [
            ("path = \"relative\"", "not absolute"),
            ("path = \"/a/../b\"", "'..'"),
            ("path = \"/a/$USER\"", "'$'"),
            ("path = \"relative/${NOT}\"", "'NOT' is not set"),
            ("path = \"/\"", "a folder of its own"),
            ("path = 7", "not a configuration"),
            ("folder = \"/a\"", "not a configuration"),
        ] {
            let e =
                Spaces::parse(&format!("# one\n[dataspace.x]\n{bad}\n"), &variable).unwrap_err();
            assert!(e.message().contains(says), "{bad}: {e}");
            assert_eq!(e.kind(), Kind::Format, "{bad}");
            let line = e.place().line.unwrap();
            assert!(line == 3 || (line == 2 && says == "not a configuration"), "{bad}: {e}");
        }
        for bad in
            ["[dataspaces.x]\npath = \"/a\"", "x = 1", "[dataspace.\"a b\"]\npath = \"/a\"", "["]
        {
            let e = Spaces::parse(bad, &variable).unwrap_err();
            assert_eq!(e.kind(), Kind::Format, "{bad}");
        }
        for bad in ["nvme", "a b=/x", "nvme=x", "=/x", "nvme="] {
            let e = Spaces::default().give(bad, &variable).unwrap_err();
            assert_eq!(e.kind(), Kind::Usage, "{bad}");
        }
        let e = Spaces::default().give("a=/x/${NOT}", &variable).unwrap_err();
        assert!(e.message().contains("'NOT' is not set"), "{e}");
        let long = "#".repeat(limits::MAX_CONFIG_BYTES + 1);
        assert_eq!(Spaces::parse(&long, &variable).unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn who_does_not_use_a_dataspace_needs_none_of_its_variables() {
        let text = "[dataspace.good]\npath = \"/a\"\n\n[dataspace.bad]\npath = \"PATH\"\n";
        for (path, says) in [
            ("/a/${NOT}", "'NOT' is not set"),
            ("${NOT}", "'NOT' is not set"),
            ("/a/${EMPTY}", "'EMPTY' is not set"),
            ("/a/${UP}", "'..'"),
            ("${USER}/a", "not absolute"),
        ] {
            let spaces = Spaces::parse(&text.replace("PATH", path), &variable).unwrap();
            let mut spaces = spaces.read_from(Path::new("/etc/x.toml"));
            assert_eq!(spaces.folder("good").unwrap(), "/a");
            let e = spaces.folder("bad").unwrap_err();
            assert_eq!((e.kind(), e.place().line), (Kind::Format, Some(5)), "{path}");
            assert_eq!(e.place().path.as_deref(), Some(Path::new("/etc/x.toml")), "{path}");
            assert!(e.message().contains(says) && e.message().contains("'bad'"), "{path}: {e}");
            assert!(e.hint().is_some_and(|hint| hint.contains("--dataspace bad=")), "{e}");
            spaces.give("bad=/b", &variable).unwrap();
            assert_eq!(spaces.folder("bad").unwrap(), "/b");
        }
    }
}
