//! Where the dataspaces of a node are: `stead.toml`.
//!
//! ```toml
//! [dataspace.nvme]
//! path = "/mnt/nvme/${USER}"
//! quota = "1TB"
//! ```
//!
//! Read strictly, as layouts are. Variables are told to it: this room asks no environment. What they make of a path is looked at
//! when its dataspace is used, so that who uses another one needs none of them.

use super::space::{check_path, check_space};
use super::terms::{SpaceConfig, Terms, not_of_buckets};
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
    dataspace: BTreeMap<String, Spanned<BTreeMap<String, Spanned<Value>>>>,
}

/// Numbers and truth values are what they are as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Truth(bool),
    Number(u64),
}

/// The value of a variable of the environment.
pub type Variable<'v> = &'v dyn Fn(&str) -> Option<String>;

/// The folders that dataspaces are on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spaces {
    named: BTreeMap<String, Space>,
    /// Those of earlier configurations whose names mean others now. What is agreed about their folders still is.
    others: Vec<(String, Space)>,
    /// Those that there are unless one of the name is configured: see [`Spaces::imply`].
    implied: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Space {
    folder: Folder,
    config: SpaceConfig,
}

/// A dataspace with terms that transfers keep to.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'s> {
    /// Its name.
    pub name: &'s str,
    /// Its folder or bucket.
    pub place: &'s str,
    /// What is agreed.
    pub terms: &'s Terms,
}

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
        let mut spaces = Spaces::default();
        for (name, space) in raw.dataspace {
            let whole = space.span().start;
            let keys = space.into_inner();
            // What is wrong with one key alone is told with its line.
            let mut all = BTreeMap::from([("path".to_owned(), "/x".to_owned())]);
            for memory in [true, false] {
                for (key, value) in keys.iter().filter(|(key, _)| (*key == "memory") == memory) {
                    let wrong = |e: Error| at_line(&e, text, value.span().start);
                    let value = match value.get_ref() {
                        Value::Number(n) if key == "mode" => {
                            return Err(wrong(Error::usage(format!("{n} are rights in quotes"))));
                        }
                        Value::Text(text) => text.clone(),
                        Value::Truth(truth) => truth.to_string(),
                        Value::Number(n) => n.to_string(),
                    };
                    all.insert(key.clone(), value);
                    SpaceConfig::try_from(all.clone()).map_err(wrong)?;
                }
            }
            let Some(path) = keys.get("path") else {
                let e = Error::usage("a dataspace has a path");
                return Err(at_line(&e, text, whole));
            };
            let at = path.span().start;
            let wrong = |e: Error| at_line(&e, text, at);
            check_space(&name).map_err(wrong)?;
            let config = SpaceConfig::try_from(all).map_err(wrong)?;
            let folder = match root(config.path(), variable) {
                Ok(path) => Folder::Is(path),
                // It is wrong whatever they are.
                Err(e) if check_root(config.path()).is_err() => return Err(wrong(e)),
                Err(e) => Folder::none(&e).at_line(line(text, at)),
            };
            let mut space = Space { folder, config };
            let meant = BucketUrl::is_meant(space.config.path());
            let is = matches!(&space.folder, Folder::Is(place) if BucketUrl::is_meant(place));
            if let Some(key) = space.config.key_of_folders().filter(|_| meant || is) {
                let at = keys.get(key).map_or(at, |value| value.span().start);
                let e = not_of_buckets(key);
                if meant {
                    return Err(at_line(&e, text, at));
                }
                // A variable makes a bucket of it: that is for those who use it.
                space.folder = Folder::none(&e).at_line(line(text, at));
            }
            spaces.named.insert(name, space);
        }
        Ok(spaces)
    }

    /// Puts one in, in place of one of the same name. A path that is none is an error of [`Spaces::place`]: it harms nobody who uses
    /// another one.
    ///
    /// # Errors
    /// `Usage` for a name that is none.
    pub fn put(&mut self, name: &str, config: SpaceConfig, variable: Variable<'_>) -> Result<()> {
        check_space(name)?;
        let mut folder = Folder::of(config.path(), variable);
        if let (Folder::Is(place), Some(key)) = (&folder, config.key_of_folders())
            && BucketUrl::is_meant(place)
        {
            folder = Folder::none(&not_of_buckets(key));
        }
        self.named.insert(name.to_owned(), Space { folder, config });
        Ok(())
    }

    /// Takes one away.
    pub fn remove(&mut self, name: &str) {
        self.named.remove(name);
    }

    /// What is agreed about a dataspace; none if there is none of this name.
    pub fn terms(&self, name: &str) -> Option<&Terms> {
        self.config(name).map(SpaceConfig::terms)
    }

    /// A dataspace as it is configured.
    pub fn config(&self, name: &str) -> Option<&SpaceConfig> {
        self.named.get(name).map(|space| &space.config)
    }

    /// Those with terms that transfers keep to, also where a later configuration has given the name to another folder.
    pub fn bound(&self) -> impl Iterator<Item = Bound<'_>> {
        let named = self.named.iter().map(|(name, space)| (name.as_str(), space));
        let all = named.chain(self.others.iter().map(|(name, space)| (name.as_str(), space)));
        all.filter(|(_, space)| space.config.terms().binds()).filter_map(|(name, space)| {
            match &space.folder {
                Folder::Is(place) => Some(Bound { name, place, terms: space.config.terms() }),
                Folder::None { .. } => None,
            }
        })
    }

    /// Says that all of them were read from this file, for errors about them.
    #[must_use]
    pub fn read_from(mut self, path: &Path) -> Spaces {
        for space in self.named.values_mut() {
            if let Folder::None { file, .. } = &mut space.folder {
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
        let folder = Folder::Is(root(path, variable)?);
        let config = SpaceConfig::plain(path);
        self.insert(name.to_owned(), Space { folder, config });
        Ok(())
    }

    /// Takes those of a configuration that goes before this one. What is agreed about a folder still is if its name is given to another.
    pub fn extend(&mut self, later: Spaces) {
        self.others.extend(later.others);
        self.implied.extend(later.implied);
        for (name, space) in later.named {
            self.insert(name, space);
        }
    }

    /// Takes those of others of whose names there are none here.
    pub fn fill(&mut self, others: Spaces) {
        for (name, space) in others.named {
            if !self.has(&name) {
                self.named.insert(name, space);
            }
        }
    }

    fn insert(&mut self, name: String, space: Space) {
        if let Some(before) = self.named.insert(name.clone(), space)
            && before.config.terms().binds()
        {
            self.others.push((name, before));
        }
    }

    /// One that everybody has, in a private folder that is made when it is needed, unless one of this name is configured.
    pub fn imply(&mut self, name: &str, path: &str) {
        self.implied.insert(name.to_owned(), path.to_owned());
    }

    /// The folder of a dataspace that is implied, and not configured.
    pub fn implied(&self, name: &str) -> Option<&str> {
        let implied = self.implied.get(name).filter(|_| !self.named.contains_key(name));
        implied.map(String::as_str)
    }

    /// The names of all that are configured, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// The names of those that are implied, and not configured.
    pub fn implied_names(&self) -> impl Iterator<Item = &str> {
        self.implied.keys().map(String::as_str).filter(|name| !self.named.contains_key(*name))
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
        self.named.contains_key(name) || self.implied.contains_key(name)
    }

    /// Where a dataspace is: an absolute path, or the URL of a bucket.
    ///
    /// # Errors
    /// `Usage` if there is none of this name; `Format`, with file and line, if a variable in its path is not set, or what it
    /// is set to makes no path.
    pub fn place(&self, name: &str) -> Result<&str> {
        if let Some(path) = self.implied(name) {
            return Ok(path);
        }
        match self.named.get(name).map(|space| &space.folder) {
            Some(Folder::Is(path)) => Ok(path),
            Some(Folder::None { why, hint, line, file }) => {
                let mut e = Error::format(format!("dataspace '{name}': {why}"));
                if *line > 0 {
                    e = e.at_line(*line);
                }
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

impl Folder {
    fn of(path: &str, variable: Variable<'_>) -> Folder {
        match root(path, variable) {
            Ok(path) => Folder::Is(path),
            Err(e) => Folder::none(&e),
        }
    }

    fn none(e: &Error) -> Folder {
        let (why, hint) = (e.message().to_owned(), e.hint().map(str::to_owned));
        Folder::None { why, hint, line: 0, file: None }
    }

    fn at_line(mut self, at: u64) -> Folder {
        if let Folder::None { line, .. } = &mut self {
            *line = at;
        }
        self
    }
}

/// Looks whether a path may be one of a dataspace with some values of its variables.
///
/// # Errors
/// `Usage`.
pub(super) fn check_root(path: &str) -> Result<()> {
    let with = |value: &str| root(path, &|_| Some(value.into())).map(drop);
    match with("/x").or_else(|_| with("x")) {
        Ok(()) => Ok(()),
        // What is shown has the variables as they were written.
        Err(e) => root(path, &|name| Some(format!("${{{name}}}"))).map(drop).and(Err(e)),
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
    fn others_fill_up_what_there_is_not() {
        let of = |text: &str| Spaces::parse(text, &variable).unwrap();
        let mut spaces = of("[dataspace.a]\npath = \"/a\"\n");
        spaces.imply("memory", "/dev/shm/me");
        spaces.fill(of(
            "[dataspace.a]\npath = \"/other\"\nquota = 5\n[dataspace.b]\npath = \"/b\"\n\
             [dataspace.memory]\npath = \"/dev/shm/all\"\n",
        ));
        let place = |name| spaces.place(name).unwrap().to_owned();
        assert_eq!([place("a"), place("b"), place("memory")], ["/a", "/b", "/dev/shm/me"]);
        assert_eq!(spaces.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(spaces.bound().count(), 0);
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
        // Nothing would keep to these there.
        for key in ["quota = \"1TB\"", "user_quota = 5", "expires = \"7d\"", "mode = \"2770\""] {
            let bad = format!("{text}limit = \"1GB/s\"\n{key}\n");
            let e = Spaces::parse(&bad, &variable).unwrap_err();
            assert_eq!((e.kind(), e.place().line), (Kind::Format, Some(4)), "{key}: {e}");
            assert!(e.message().contains("a bucket has no") && e.hint().is_some(), "{key}: {e}");
        }
        // Where a variable makes a bucket of it, that is an error of who uses it.
        let text = "[dataspace.o]\npath = \"${OUT}\"\nquota = 5\n[dataspace.a]\npath = \"/a\"\n";
        let of = |out: &'static str| move |name: &str| (name == "OUT").then(|| out.to_owned());
        let spaces = Spaces::parse(text, &of("gs://x")).unwrap();
        let e = spaces.place("o").unwrap_err();
        assert_eq!((e.kind(), e.place().line), (Kind::Format, Some(3)), "{e}");
        assert!(e.message().contains("a bucket has no 'quota'"), "{e}");
        assert_eq!(spaces.place("a").unwrap(), "/a");
        assert_eq!(Spaces::parse(text, &of("/o")).unwrap().place("o").unwrap(), "/o");
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
    fn what_is_agreed_stays_whatever_a_name_means_later() {
        let text = "[dataspace.nvme]\npath = \"/mnt/${USER}\"\nquota = \"1kB\"\njobs = true\n\
            [dataspace.m]\nsize = 10\nmemory = true\npath = \"/dev/shm/m\"\nmode = \"1777\"\n";
        let mut spaces = Spaces::parse(text, &variable).unwrap();
        assert_eq!(spaces.terms("nvme").unwrap().quota, Some(1000));
        assert_eq!(spaces.terms("m").unwrap().mode, Some(0o1777));
        spaces.give("nvme=/other", &variable).unwrap();
        assert_eq!(spaces.terms("nvme"), Some(&Terms::default()));
        let bound: Vec<_> = spaces.bound().map(|b| (b.name, b.place, b.terms.quota)).collect();
        assert_eq!(bound, [("m", "/dev/shm/m", Some(10)), ("nvme", "/mnt/ada", Some(1000))]);
        spaces.remove("m");
        assert!(!spaces.has("m") && spaces.terms("m").is_none());
        let config = spaces.config("nvme").unwrap().clone();
        spaces.put("again", config, &variable).unwrap();
        assert_eq!(spaces.folder("again").unwrap(), "/other");
    }

    #[test]
    fn a_path_that_is_none_harms_nobody_but_its_dataspace() {
        let mut spaces = Spaces::parse("[dataspace.a]\npath = \"/a\"\n", &variable).unwrap();
        let of = |keys: &[(&str, &str)]| {
            let keys = keys.iter().map(|(key, value)| ((*key).into(), (*value).into()));
            SpaceConfig::try_from(keys.collect::<BTreeMap<String, String>>()).unwrap()
        };
        for path in ["rel", "../x", "/a/../b", "s3://", "foo://x", "/", "${NOT}"] {
            spaces.put("bad", of(&[("path", path)]), &variable).unwrap();
            let e = spaces.place("bad").unwrap_err();
            assert!(e.kind() == Kind::Format && e.message().contains("dataspace 'bad': "), "{e}");
            assert!(spaces.has("bad") && spaces.folder("a").is_ok(), "{path}");
        }
        spaces.put("bad", of(&[("path", "s3://old"), ("quota", "5")]), &variable).unwrap();
        assert!(spaces.place("bad").unwrap_err().message().contains("a bucket has no 'quota'"));
        assert!(spaces.put("a b", of(&[("path", "/b")]), &variable).is_err());
    }

    #[test]
    fn what_is_none_is_an_error_with_its_line() {
        for (bad, says) in [
            ("path = \"relative\"", "not absolute"),
            ("path = \"/a/../b\"", "'..'"),
            ("path = \"/a/$USER\"", "'$'"),
            ("path = \"relative/${NOT}\"", "'NOT' is not set"),
            ("path = \"/\"", "a folder of its own"),
            ("path = 7", "not absolute"),
            ("folder = \"/a\"", "no 'folder'"),
            ("path = [7]", "not a configuration"),
            ("path = \"/a\"\nquota = \"much\"", "'much' is not a size"),
            ("path = \"/a\"\nsize = 5", "only a dataspace in memory"),
            ("path = \"/a\"\nmode = 770", "in quotes"),
            ("", "has a path"),
        ] {
            let e =
                Spaces::parse(&format!("# one\n[dataspace.x]\n{bad}\n"), &variable).unwrap_err();
            assert!(e.message().contains(says), "{bad}: {e}");
            assert_eq!(e.kind(), Kind::Format, "{bad}");
            let line = e.place().line.unwrap();
            let second = bad.contains('\n');
            assert!(line == if second { 4 } else { 3 } || line == 2, "{bad}: {e}");
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
