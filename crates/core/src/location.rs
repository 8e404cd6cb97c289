//! Where data are, as people name it: a path, or a path in a dataspace, here or on another node.

use crate::layout::spaces::{Variable, put_in};
use crate::layout::{check_relative, check_space};
use crate::{BucketUrl, Error, Result, limits};
use std::fmt;

/// A file, a folder, or a pattern of their names: `results/a.h5`, `/scratch/run1/`, `nvme0://run1/*.h5`, `node7:/scratch/run1/`.
///
/// A `/` at the end says that it is a folder: as a source its contents are meant, as a target what comes into it. Text, since
/// it is written into commands and configurations; names below it may be any bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// The node whose path or dataspace it is; `None` for the one that it is read on.
    pub node: Option<String>,
    /// The dataspace; `None` for a path of the system.
    pub space: Option<String>,
    /// The path, without `/` at its end, in a dataspace without one at its beginning; empty for its root.
    pub path: String,
    /// A `/` was at the end.
    pub inside: bool,
}

/// What patterns are made of.
const WILD: [char; 3] = ['*', '?', '['];

impl Location {
    /// Reads a name. What comes before `://` is a dataspace; `${NAME}` in its path is the value of `variable`, and `$$` a dollar
    /// sign. Paths of the system are taken as they are: shells put variables into them. A name and a colon before a path from the
    /// root on, or before a dataspace, are a node; any other colon is one of a file.
    ///
    /// # Errors
    /// `Usage` for the empty name, names of dataspaces that are none, variables that are not set, paths that lead out of a
    /// dataspace, buckets of a node.
    pub fn parse(text: &str, variable: Variable<'_>) -> Result<Location> {
        let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
        if text.len() > limits::MAX_PATH_BYTES {
            let most = limits::MAX_PATH_BYTES;
            return Err(Error::usage(format!("'{shown}...' is longer than {most} bytes")));
        }
        if text.is_empty() || text.contains('\0') {
            return Err(Error::usage(format!("'{shown}' names no file")));
        }
        let (node, text) = match text.split_once(':') {
            Some((node, rest)) if is_node(node) && (is_absolute(rest) || has_space(rest)) => {
                (Some(node.to_owned()), rest)
            }
            _ => (None, text),
        };
        let Some((space, path)) = text.split_once("://").filter(|(s, _)| !s.contains('/')) else {
            let inside = text.ends_with('/');
            let path = match text.trim_end_matches('/') {
                "" => "/",
                path => path,
            };
            return Ok(Location { node, space: None, path: path.to_owned(), inside });
        };
        check_space(space)?;
        if node.is_some() && BucketUrl::is_of_all_nodes(space) {
            return Err(Error::usage(format!("'{shown}' is a bucket, and a bucket is of no node"))
                .with_hint("every node can read it: leave out the node"));
        }
        let path = put_in(path, variable)?;
        let inside = path.is_empty() || path.ends_with('/');
        // A variable such as ${HOME} begins with one.
        let path = path.trim_matches('/');
        if !path.is_empty() {
            check_relative(path).map_err(|e| e.and(&format!(", in '{shown}'")))?;
        }
        Ok(Location { node, space: Some(space.to_owned()), path: path.to_owned(), inside })
    }

    /// True if it may be a pattern of several names.
    pub fn is_pattern(&self) -> bool {
        self.path.contains(WILD)
    }

    /// True of a text that may be a pattern.
    pub fn is_wild(step: &str) -> bool {
        step.contains(WILD)
    }

    /// The last step of its path; `None` for roots, `.` and `..`.
    pub fn name(&self) -> Option<&str> {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        Some(name).filter(|name| !matches!(*name, "" | "." | ".."))
    }
}

/// True of what a node can be called: letters, digits, `.`, `-` and `_`, as host names are.
pub fn is_node(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    (1..=limits::MAX_NODE_BYTES).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with(['-', '.'])
}

/// True of `/a`, and not of `//a`, which is what follows a dataspace or the protocol of a URL.
fn is_absolute(text: &str) -> bool {
    text.starts_with('/') && !text.starts_with("//")
}

fn has_space(text: &str) -> bool {
    text.split_once("://").is_some_and(|(space, _)| check_space(space).is_ok())
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "{node}:")?;
        }
        if let Some(space) = &self.space {
            write!(f, "{space}://")?;
        }
        f.write_str(&self.path)?;
        if self.inside && !self.path.is_empty() && self.path != "/" {
            f.write_str("/")?;
        }
        Ok(())
    }
}

impl Location {
    /// As [`Location::parse`] reads it, whatever variables there are: they are in it already, and a dollar sign is one.
    pub fn written(&self) -> String {
        match &self.space {
            Some(_) => self.to_string().replace('$', "$$"),
            None => self.to_string(),
        }
    }
}

impl serde::Serialize for Location {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(&self.written())
    }
}

impl<'de> serde::Deserialize<'de> for Location {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Location::parse(&text, &|_| None).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn variable(name: &str) -> Option<String> {
        (name == "HOME").then(|| "/users/ada".to_owned())
    }

    fn location(text: &str) -> Location {
        Location::parse(text, &variable).unwrap()
    }

    #[test]
    fn paths_and_dataspaces_are_told_apart() {
        let plain = location("a/b.h5");
        assert_eq!((plain.space, &*plain.path, plain.inside), (None, "a/b.h5", false));
        let folder = location("/scratch//");
        assert_eq!(
            (&*folder.path, folder.inside, folder.name()),
            ("/scratch", true, Some("scratch"))
        );
        let root = location("/");
        assert_eq!((&*root.path, root.inside, root.name()), ("/", true, None));
        let space = location("nvme0://run1/*.h5");
        assert_eq!(space.space.as_deref(), Some("nvme0"));
        assert!(space.path == "run1/*.h5" && space.is_pattern() && !space.inside);
        let whole = location("nvme0://");
        assert_eq!((&*whole.path, whole.inside, whole.name()), ("", true, None));
        assert_eq!(location("lustre://${HOME}/a$$b/").path, "users/ada/a$b");
        // No dataspace: a path with such a step.
        assert_eq!(location("dir/odd://x").space, None);
        assert_eq!(location("$HOME").path, "$HOME");
    }

    #[test]
    fn nodes_stand_before_paths_from_the_root_and_dataspaces() {
        let far = location("node-7.b:/scratch/run1/*.h5");
        assert_eq!((far.node.as_deref(), &*far.path), (Some("node-7.b"), "/scratch/run1/*.h5"));
        assert!(far.space.is_none() && far.is_pattern() && !far.inside);
        let space = location("n2:nvme0://run1/");
        assert_eq!((space.node.as_deref(), space.space.as_deref()), (Some("n2"), Some("nvme0")));
        assert!(&*space.path == "run1" && space.inside && space.to_string() == "n2:nvme0://run1/");
        assert_eq!(location("n2:/").to_string(), "n2:/");
        assert_eq!(location("n2:memory://x").to_string(), "n2:memory://x");
        // All else is a name of files here.
        for text in ["n2:a", "a b:/x", "./n2:/x", "d/n2:/x", "-n:/x", ":/x", "n2:", "n2:~/x"] {
            assert_eq!((location(text).node, location(text).space), (None, None), "{text}");
        }
        assert_eq!(location("n2://x").space.as_deref(), Some("n2"));
        let bucket = Location::parse("n2:s3://b/x", &variable).unwrap_err();
        assert_eq!(bucket.kind(), Kind::Usage);
    }

    #[test]
    fn what_leads_out_is_refused() {
        for bad in [
            "",
            "a\0b",
            "nvme0://../x",
            "nvme0://a/../../x",
            "n v://x",
            "-a://b",
            "://x",
            "x://a//b",
        ] {
            assert_eq!(Location::parse(bad, &variable).unwrap_err().kind(), Kind::Usage, "{bad:?}");
        }
        assert!(Location::parse("x://${NONE}", &variable).is_err());
        assert!(Location::parse(&"a".repeat(5000), &variable).is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in
            ["a", "/", "/a/b/", "x://", "x://a/", "x://a b/c$$d", "$a", "n:/$a", "n:x://a$$"]
        {
            let one = location(text);
            let json = serde_json::to_string(&one).unwrap();
            assert_eq!(serde_json::from_str::<Location>(&json).unwrap(), one, "{json}");
        }
        assert_eq!(location("x://a/").to_string(), "x://a/");
    }
}
