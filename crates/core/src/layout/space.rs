//! Names of dataspaces, and paths that stay within them.

use super::nodes;
use crate::{Error, Result, limits};
use std::fmt;

/// A named root for data: of one node (`nvme@node1`), or one that all nodes share (`lustre`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dataspace {
    /// Letters, digits, `-` and `_`.
    pub name: String,
    /// The node whose it is; `None` if all nodes share it.
    pub node: Option<String>,
}

impl Dataspace {
    /// The dataspaces that a list names, in its order: `nvme@node[1-4]`, `nvme@node1,disk@node[2-3],node5`, `lustre`.
    /// What follows an `@` is a list of nodes, up to the next name with an `@`; the last one of these three is
    /// `disk@node5`.
    ///
    /// # Errors
    /// As [`nodes::expand`]; `Usage` for names that are none and for a dataspace that is named twice.
    pub fn expand(list: &str) -> Result<Vec<Dataspace>> {
        let mut all: Vec<Dataspace> = Vec::new();
        let mut space: Option<&str> = None;
        for item in nodes::items(list)? {
            let listed = match (item.split_once('@'), space) {
                (Some((name, listed)), _) => {
                    check_space(name)?;
                    space = Some(name);
                    listed
                }
                (None, Some(_)) => item,
                (None, None) => {
                    check_space(item)?;
                    all.push(Dataspace { name: item.to_owned(), node: None });
                    continue;
                }
            };
            let name = space.unwrap_or_default();
            let node = |n| Dataspace { name: name.to_owned(), node: Some(n) };
            all.extend(nodes::expand(listed)?.into_iter().map(node));
            if all.len() > limits::MAX_NODES {
                return Err(Error::limit(format!(
                    "more than {} dataspaces in one list",
                    limits::MAX_NODES
                )));
            }
        }
        let mut seen = std::collections::HashSet::with_capacity(all.len());
        match all.iter().find(|d| !seen.insert(*d)) {
            Some(twice) => Err(Error::usage(format!("dataspace '{twice}' is named twice"))),
            None => Ok(all),
        }
    }
}

impl fmt::Display for Dataspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{}@{node}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

/// Refuses what no dataspace can be called.
pub(crate) fn check_space(name: &str) -> Result<()> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-') {
        return Ok(());
    }
    Err(Error::usage(format!("'{}' is not the name of a dataspace", shown(name))).with_hint(
        "dataspaces have letters, digits, '-' and '_'; nodes come after an '@': nvme@node[1-4]",
    ))
}

/// Refuses paths that do not stay within the folder that they start from: absolute ones, `..`, and those that name one
/// file in several ways (`.`, `//`).
///
/// # Errors
/// `Usage`.
pub fn check_relative(path: &str) -> Result<()> {
    if path.starts_with('/') {
        return Err(Error::usage(format!("path '{}' is absolute", shown(path))).with_hint(
            "paths of a dataspace begin at its root: write them without the first '/'",
        ));
    }
    check_path(path)
}

/// Refuses paths with `..`, and those that name one file in several ways.
pub(super) fn check_path(path: &str) -> Result<()> {
    let bad = |what: &str| Err(Error::usage(format!("path '{}' {what}", shown(path))));
    if path.len() > limits::MAX_PATH_BYTES {
        return bad(&format!("is longer than {} bytes", limits::MAX_PATH_BYTES));
    }
    if path.contains(|c: char| c.is_control()) {
        return bad("has a control character");
    }
    let relative = path.strip_prefix('/').unwrap_or(path);
    for step in relative.split('/') {
        match step {
            "" => return bad("has an empty step"),
            "." => return bad("has a step '.'"),
            ".." => return bad("leaves its folder by '..'"),
            _ => {}
        }
    }
    Ok(())
}

/// Refuses what is no name of one file.
pub(super) fn check_file_name(name: &str) -> Result<()> {
    let short = (1..=255).contains(&name.len());
    let odd = name.contains(|c: char| c == '/' || c.is_control());
    if short && !odd && name != "." && name != ".." {
        return Ok(());
    }
    Err(Error::usage(format!("'{}' is not the name of a file", shown(name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn names(list: &str) -> Vec<String> {
        Dataspace::expand(list).unwrap().iter().map(Dataspace::to_string).collect()
    }

    #[test]
    fn dataspaces_are_named_with_their_nodes() {
        assert_eq!(names("nvme@node[1-2]"), ["nvme@node1", "nvme@node2"]);
        assert_eq!(names("nvme@a,disk@b,c[1-2]"), ["nvme@a", "disk@b", "disk@c1", "disk@c2"]);
        assert_eq!(names("lustre"), ["lustre"]);
        assert_eq!(names("nvme@a,disk@a"), ["nvme@a", "disk@a"]);
    }

    #[test]
    fn what_is_no_dataspace_is_refused() {
        for list in ["", "@a", "nvme@", "nv me@a", "a@b@c", "nvme@a,nvme@a", "../x@a", "x,x"] {
            assert_eq!(Dataspace::expand(list).unwrap_err().kind(), Kind::Usage, "{list}");
        }
        let many = "a@n[1-60000],b@n[1-60000]";
        assert_eq!(Dataspace::expand(many).unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn paths_stay_in_their_dataspace() {
        for good in ["a", "a/b.c", "...", "a..b", "-", "a b/é"] {
            assert!(check_relative(good).is_ok(), "{good}");
        }
        for bad in [
            "", "/", "/a", "..", "../a", "a/..", "a/../b", ".", "./a", "a//b", "a/", "a\0b", "a\nb",
        ] {
            assert_eq!(check_relative(bad).unwrap_err().kind(), Kind::Usage, "{bad:?}");
        }
        assert!(check_relative(&"a".repeat(5000)).is_err());
        assert!(check_path("/data/a").is_ok());
        assert!(check_path("/data/../a").is_err() && check_path("//a").is_err());
    }
}
