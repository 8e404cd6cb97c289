//! What is asked for.

use crate::filter::Filter;
use serde::{Deserialize, Serialize};
use stead_core::{BucketUrl, Error, Location, Result};

/// What is done with the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The target has them too.
    Copy,
    /// The target has them, the sources are gone.
    Move,
    /// The target is made equal to the source: what is the same in size and time is left, or in size and bytes.
    Sync,
    /// The sources are removed.
    Remove,
}

/// What becomes of a name that the target has already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exists {
    /// Nothing is done, and the request fails before it starts.
    #[default]
    Refuse,
    /// The new file replaces it.
    Replace,
    /// It stays.
    Skip,
    /// The new file replaces it if it was changed later.
    Newer,
}

/// How it is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// What becomes of names that the target has. Without meaning for [`Action::Sync`] and [`Action::Remove`].
    pub exists: Exists,
    /// With [`Action::Sync`]: what the source has not is removed from the target.
    pub delete: bool,
    /// With `delete`: if more names would be removed, files and folders, nothing is done at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delete: Option<u64>,
    /// With [`Action::Sync`]: files of one size are compared by their bytes, which are read on both sides, and not by their time of change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checksum: bool,
    /// Read what was written back, past the page cache, and compare checksums, before it gets its name.
    pub verify: bool,
    /// Pipes, sockets and devices are left out, in place of failing.
    pub skip_special: bool,
    /// Files are on the device before they get their names. Without it they survive the end of every process, and not of the
    /// machine.
    pub durable: bool,
    /// Give way to everybody else on the machine: what others want of its processors and its devices is theirs, but for a small part. A
    /// dataspace may have all do so that read or write there.
    pub gentle: bool,
    /// Bytes a second at most.
    pub limit: Option<u64>,
    /// Who waits with a larger number goes first.
    pub priority: i32,
    /// How often a file that fails for a reason that may pass is tried again.
    pub retries: u32,
    /// Patterns of names below the sources that are left out, and folders with all that lies in them. What is left out stays as it is on
    /// the target, too. Without `/` a pattern is about the last part of a name, with one about the way from the source, with one at its
    /// end about folders. For all but removals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// If there are some, only files and links that match one of these patterns, and folders that have some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Only files and links of at least so many bytes, and folders that have some. What is left out stays as it is on the target, too, and
    /// there it is by its own size that something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<u64>,
    /// The same, of at most so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u64>,
    /// The same, that were changed at least so many seconds before the transfer begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_age: Option<u64>,
    /// The same, at most so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<u64>,
    /// If there are some, only these names below the one source, a folder: files, and folders with all that lies in them, each by its way
    /// from the source. They come with the folders that they lie in; nothing else of the source is looked at. For copies, and syncs
    /// without `delete`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

impl Options {
    /// True if files and links are left out by their size or their age.
    pub(crate) fn measures(&self) -> bool {
        [self.min_size, self.max_size, self.min_age, self.max_age].iter().any(Option::is_some)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            exists: Exists::default(),
            delete: false,
            max_delete: None,
            checksum: false,
            verify: false,
            skip_special: false,
            durable: true,
            gentle: false,
            limit: None,
            priority: 0,
            retries: 3,
            exclude: Vec::new(),
            include: Vec::new(),
            min_size: None,
            max_size: None,
            min_age: None,
            max_age: None,
            files: Vec::new(),
        }
    }
}

/// A transfer, as it is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// What is done.
    pub action: Action,
    /// With what: files, folders, patterns.
    pub sources: Vec<Location>,
    /// Where to; none for [`Action::Remove`].
    pub target: Option<Location>,
    /// How.
    #[serde(default)]
    pub options: Options,
}

/// Names that one request may have, before patterns are expanded.
const MOST_SOURCES: usize = 100_000;

impl Request {
    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// `Usage`; `Limit` for too many sources.
    pub fn check(&self) -> Result<()> {
        if self.sources.is_empty() {
            return Err(Error::usage("nothing to stage: no source is named"));
        }
        if self.sources.len() > MOST_SOURCES {
            let message = format!("more than {MOST_SOURCES} sources in one request");
            return Err(
                Error::limit(message).with_hint("name their folder, or a pattern in quotes")
            );
        }
        // What is taken is written down.
        for location in self.sources.iter().chain(&self.target) {
            let space = location.space.as_deref().filter(|space| BucketUrl::is_scheme(space));
            let host = location.path.split('/').next().unwrap_or_default();
            if let Some(scheme) = space.filter(|_| host.contains('@')) {
                BucketUrl::parse(&format!("{scheme}://{host}"))?;
            }
        }
        match (self.action, &self.target) {
            (Action::Remove, Some(_)) => {
                return Err(Error::usage("what is removed has no target"));
            }
            (Action::Copy | Action::Move | Action::Sync, None) => {
                return Err(Error::usage("no target is named"));
            }
            (_, Some(target)) if target.is_pattern() && target.space.is_some() => {
                return Err(Error::usage(format!(
                    "'{target}' is a pattern, and a target is one name"
                )));
            }
            _ => {}
        }
        let cleared = match (self.action, &self.target) {
            (Action::Remove, _) => self.sources.iter().find(|s| is_system(s)),
            (_, Some(target)) if self.options.delete => Some(target).filter(|t| is_system(t)),
            _ => None,
        };
        if let Some(cleared) = cleared {
            return Err(Error::usage(format!(
                "'{cleared}' would be cleared, and has no name of its own"
            ))
            .with_hint("name the folder that is meant"));
        }
        if self.options.delete && self.action != Action::Sync {
            return Err(Error::usage("only a sync removes what the source has not"));
        }
        if self.options.max_delete.is_some() && !self.options.delete {
            return Err(Error::usage(
                "how many names are removed at most is said of a sync that removes some",
            )
            .with_hint("say --delete, too"));
        }
        if self.options.checksum && self.action != Action::Sync {
            return Err(Error::usage("only a sync compares what is in files"));
        }
        let filter = Filter::new(&self.options)?;
        if self.action == Action::Remove && !filter.is_none() {
            return Err(Error::usage("only copies, moves and syncs leave names out")
                .with_hint("name what is meant by a pattern in its place: 'DIR/*.h5'"));
        }
        if self.action == Action::Move && filter.is_list() {
            return Err(Error::usage("names are listed for copies and syncs")
                .with_hint("name each of them, or leave out what is not meant"));
        }
        if !self.options.files.is_empty() {
            if self.sources.len() > 1 || self.sources.iter().any(Location::is_pattern) {
                return Err(Error::usage("names are listed below one source, which is a folder")
                    .with_hint("name that folder, and list names by their way from there"));
            }
            if self.options.delete {
                return Err(Error::usage("a sync of listed names removes nothing")
                    .with_hint("leave out --delete, or the list"));
            }
        }
        if self.options.limit == Some(0) {
            return Err(Error::usage("a limit of 0 bytes a second would never end"));
        }
        Ok(())
    }
}

/// True of `/`, `.` and `..`, which nobody means to clear: a variable was empty.
fn is_system(location: &Location) -> bool {
    location.space.is_none() && location.name().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::Kind;

    fn request(action: Action, sources: &[&str], target: Option<&str>) -> Request {
        let location = |text: &str| Location::parse(text, &|_| None).unwrap();
        Request {
            action,
            sources: sources.iter().map(|s| location(s)).collect(),
            target: target.map(location),
            options: Options::default(),
        }
    }

    #[test]
    fn requests_that_make_no_sense_are_refused() {
        request(Action::Copy, &["a"], Some("b")).check().unwrap();
        request(Action::Remove, &["a"], None).check().unwrap();
        for bad in [
            request(Action::Copy, &[], Some("b")),
            request(Action::Copy, &["a"], None),
            request(Action::Remove, &["a"], Some("b")),
            request(Action::Move, &["a"], Some("x://b*")),
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), Kind::Usage, "{bad:?}");
        }
        let mut bad = request(Action::Copy, &["a"], Some("b"));
        bad.options.delete = true;
        assert!(bad.check().is_err());
        for all in ["/", ".", "..", "a/.."] {
            assert!(request(Action::Remove, &[all], None).check().is_err(), "{all}");
            let mut sync = request(Action::Sync, &["a"], Some(all));
            sync.check().unwrap();
            sync.options.delete = true;
            assert!(sync.check().is_err(), "{all}");
        }
        bad.options = Options { max_delete: Some(1), ..Options::default() };
        assert!(bad.check().is_err());
        bad.options = Options { checksum: true, ..Options::default() };
        assert!(bad.check().is_err());
        bad.options = Options { limit: Some(0), ..Options::default() };
        assert!(bad.check().is_err());
    }

    #[test]
    fn names_are_listed_below_one_folder() {
        let listed = |action, sources: &[&str], files: &[&str], delete| {
            let mut one = request(action, sources, Some("x://to"));
            one.options.files = files.iter().map(|name| (*name).to_owned()).collect();
            one.options.delete = delete;
            one.check().map_err(|e| e.kind())
        };
        assert_eq!(listed(Action::Copy, &["a/"], &["b/c.h5", "./d/", "e f"], false), Ok(()));
        assert_eq!(listed(Action::Sync, &["a"], &["b"], false), Ok(()));
        for (action, sources, files, delete) in [
            (Action::Copy, &["a/", "b/"][..], &["c"][..], false),
            (Action::Copy, &["a*"], &["c"], false),
            (Action::Sync, &["a"], &["c"], true),
            (Action::Move, &["a"], &["c"], false),
            (Action::Copy, &["a"], &["../c"], false),
            (Action::Copy, &["a"], &["c", ""], false),
            (Action::Copy, &["a"], &["./"], false),
            (Action::Copy, &["a"], &["b\0"], false),
        ] {
            assert_eq!(listed(action, sources, files, delete), Err(Kind::Usage), "{files:?}");
        }
    }

    #[test]
    fn requests_are_text_and_back() {
        let mut one = request(Action::Sync, &["x://a/", "/b"], Some("y://"));
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), one);
        // Whoever does not know it is not told of it unless it is asked for.
        assert!(!text.contains("checksum"), "{text}");
        one.options.checksum = true;
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), one);
        assert!(serde_json::from_str::<Options>("{\"typo\": 1}").is_err());
    }
}
