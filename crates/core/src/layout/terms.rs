//! What a dataspace is besides a place: the keys of `stead.toml`, and what they say.

use super::space::check_space;
use super::spaces::check_root;
use crate::{BucketUrl, Error, Result, limits, units};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Transfers at a time that a dataspace may be given.
const MOST_TRANSFERS: u64 = 65_535;
/// Bytes of a value; a path may have more.
const MOST_BYTES: usize = 256;
/// Keys that there are, with what they hold.
const KEYS: [(&str, &str); 14] = [
    ("path", "a folder, or the URL of a bucket"),
    ("memory", "yes or no"),
    ("size", "bytes"),
    ("quota", "bytes"),
    ("user_quota", "bytes"),
    ("owner", "a user"),
    ("group", "a group"),
    ("mode", "rights in octal"),
    ("shared", "yes or no"),
    ("expires", "a time such as 7d"),
    ("jobs", "yes or no"),
    ("limit", "bytes a second"),
    ("transfers", "a number of transfers at a time"),
    ("gentle", "yes or no"),
];
/// Those that say something of a folder: nothing keeps to them in a bucket, of which the store alone knows what lies there.
const OF_FOLDERS: [&str; 8] =
    ["memory", "size", "quota", "user_quota", "owner", "group", "mode", "expires"];

/// What is agreed about a dataspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// It is a folder in memory.
    pub memory: bool,
    /// Bytes that all users together may have there by transfers: the smaller one of `size` and `quota`.
    pub quota: Option<u64>,
    /// Bytes that each user may have there.
    pub user_quota: Option<u64>,
    /// Whose the folder becomes when it is made.
    pub owner: Option<String>,
    /// The group that it gets then.
    pub group: Option<String>,
    /// The rights that it gets then.
    pub mode: Option<u32>,
    /// All nodes see the same.
    pub shared: bool,
    /// Seconds after the last change of a thing in it when that is removed.
    pub expires: Option<u64>,
    /// Only processes of jobs that name it may use it.
    pub jobs: bool,
    /// Bytes a second of all transfers together that read or write there.
    pub limit: Option<u64>,
    /// Transfers at a time that read or write there.
    pub transfers: Option<u64>,
    /// Transfers that read or write there give way to others.
    pub gentle: bool,
}

impl Terms {
    /// True if a transfer has to keep to something there.
    pub fn binds(&self) -> bool {
        self.quota.or(self.user_quota).is_some() || self.is_shared() || self.jobs || self.gentle
    }

    /// True if transfers share something there: how many they are at a time, or bytes a second.
    pub fn is_shared(&self) -> bool {
        self.limit.or(self.transfers).is_some()
    }

    /// True if its folder is made where it is not there.
    pub fn is_made(&self) -> bool {
        self.memory || self.mode.is_some() || self.owner.is_some() || self.group.is_some()
    }

    fn take(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "path" => {}
            "memory" => self.memory = truth(value)?,
            "size" | "quota" => {
                let bytes = units::parse_size(value)?;
                self.quota = Some(self.quota.map_or(bytes, |other| other.min(bytes)));
            }
            "user_quota" => self.user_quota = Some(units::parse_size(value)?),
            "owner" => self.owner = Some(name(value)?),
            "group" => self.group = Some(name(value)?),
            "mode" => self.mode = Some(mode(value)?),
            "shared" => self.shared = truth(value)?,
            "expires" => self.expires = Some(units::parse_time(value)?),
            "jobs" => self.jobs = truth(value)?,
            "gentle" => self.gentle = truth(value)?,
            "limit" => {
                let per_second = value.strip_suffix("/s").unwrap_or(value);
                let bytes = Some(units::parse_size(per_second)?).filter(|bytes| *bytes > 0);
                let none = || Error::usage("a limit of 0 bytes a second would never end");
                self.limit = Some(bytes.ok_or_else(none)?);
            }
            "transfers" => {
                let n = value.parse().ok().filter(|n| (1..=MOST_TRANSFERS).contains(n));
                let none = || {
                    let shown = value.escape_debug();
                    Error::usage(format!("'{shown}' is no number from 1 to {MOST_TRANSFERS}"))
                };
                self.transfers = Some(n.ok_or_else(none)?);
            }
            _ => return Err(unknown(key)),
        }
        Ok(())
    }
}

fn unknown(key: &str) -> Error {
    let known: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
    Error::usage(format!("a dataspace has no '{}'", key.escape_debug()))
        .with_hint(format!("its keys are {}", known.join(", ")))
}

/// Says that a bucket keeps to nothing of this.
pub(super) fn not_of_buckets(key: &str) -> Error {
    Error::usage(format!("a bucket has no '{}' here", key.escape_debug()))
        .with_hint("set it at the store, and leave out the key")
}

fn truth(value: &str) -> Result<bool> {
    match value {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(Error::usage(format!("'{}' is neither yes nor no", value.escape_debug()))),
    }
}

/// A user or a group as systems name them, or its number.
fn name(value: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@+\\".contains(c);
    match !value.is_empty() && !value.starts_with('-') && value.chars().all(plain) {
        true => Ok(value.to_owned()),
        false => Err(Error::usage(format!("'{}' names nobody", value.escape_debug()))),
    }
}

fn mode(value: &str) -> Result<u32> {
    let octal = value.strip_prefix("0o").unwrap_or(value);
    let digits = (3..=5).contains(&octal.len()) && octal.bytes().all(|c| (b'0'..b'8').contains(&c));
    let mode = u32::from_str_radix(octal, 8).ok().filter(|mode| digits && *mode <= 0o7777);
    mode.ok_or_else(|| {
        Error::usage(format!("'{}' are no rights of a folder", value.escape_debug()))
            .with_hint("write them as for chmod, in quotes: \"2770\"")
    })
}

/// A dataspace as somebody has written it: keys of `stead.toml` and their values, all of which make sense.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct SpaceConfig {
    keys: BTreeMap<String, String>,
    terms: Terms,
}

impl TryFrom<BTreeMap<String, String>> for SpaceConfig {
    type Error = Error;

    fn try_from(keys: BTreeMap<String, String>) -> Result<SpaceConfig> {
        let mut terms = Terms::default();
        for (key, value) in &keys {
            let most = if key == "path" { limits::MAX_PATH_BYTES } else { MOST_BYTES };
            if value.len() > most || value.chars().any(char::is_control) {
                return Err(Error::usage(format!("the '{}' is no such", key.escape_debug())));
            }
            terms.take(key, value).map_err(|e| {
                let what = KEYS.iter().find(|(name, _)| name == key).map(|(_, what)| *what);
                let message = format!("{}: {}", key.escape_debug(), e.message());
                let hint = what.map(|what| format!("'{key}' is {what}")).unwrap_or_default();
                Error::usage(message).with_hint(e.hint().map_or(hint, str::to_owned))
            })?;
        }
        if keys.get("path").is_none_or(String::is_empty) {
            return Err(Error::usage("a dataspace has a path").with_hint("path = \"/mnt/nvme\""));
        }
        if keys.contains_key("size") && !terms.memory {
            return Err(Error::usage("only a dataspace in memory has a size")
                .with_hint("memory = true; a disk has a quota"));
        }
        Ok(SpaceConfig { keys, terms })
    }
}

impl From<SpaceConfig> for BTreeMap<String, String> {
    fn from(config: SpaceConfig) -> Self {
        config.keys
    }
}

impl SpaceConfig {
    /// One that is a folder and nothing else.
    pub(super) fn plain(path: &str) -> SpaceConfig {
        let keys = BTreeMap::from([("path".to_owned(), path.to_owned())]);
        SpaceConfig { keys, terms: Terms::default() }
    }

    /// With these keys set, and those whose value is empty taken away.
    ///
    /// # Errors
    /// `Usage` for keys that there are not, values that make no sense, a name that is none, a path that is none whatever its variables
    /// are, keys of folders where it is a bucket.
    pub fn with(&self, name: &str, set: &BTreeMap<String, String>) -> Result<SpaceConfig> {
        check_space(name)?;
        let mut keys = self.keys.clone();
        for (key, value) in set {
            if !KEYS.iter().any(|(known, _)| known == key) {
                return Err(unknown(key));
            }
            match value.is_empty() {
                true => keys.remove(key),
                false => keys.insert(key.clone(), value.clone()),
            };
        }
        let config = SpaceConfig::try_from(keys)?;
        check_root(config.path()).map_err(|e| {
            let wrong = Error::usage(format!("dataspace '{name}': {}", e.message()));
            match e.hint() {
                Some(hint) => wrong.with_hint(hint),
                None => wrong,
            }
        })?;
        if let Some(key) = config.key_of_folders()
            && BucketUrl::is_meant(config.path())
        {
            return Err(not_of_buckets(key));
        }
        Ok(config)
    }

    /// The first of its keys that says something of a folder.
    pub(super) fn key_of_folders(&self) -> Option<&str> {
        self.keys.keys().map(String::as_str).find(|key| OF_FOLDERS.contains(key))
    }

    /// Where it is, with the variables that are in there.
    pub fn path(&self) -> &str {
        self.keys.get("path").map_or("", String::as_str)
    }

    /// What is agreed about it.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The keys and their values.
    pub fn keys(&self) -> &BTreeMap<String, String> {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(keys: &[(&str, &str)]) -> BTreeMap<String, String> {
        keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn keys_say_what_is_agreed() {
        let all = map(&[
            ("path", "/dev/shm/x"),
            ("memory", "true"),
            ("size", "4GiB"),
            ("quota", "8GiB"),
            ("user_quota", "1000"),
            ("owner", "ada"),
            ("group", "7"),
            ("mode", "2770"),
            ("shared", "no"),
            ("expires", "7d"),
            ("jobs", "yes"),
            ("limit", "1GB/s"),
            ("transfers", "3"),
            ("gentle", "yes"),
        ]);
        assert_eq!(all.len(), KEYS.len());
        let config = SpaceConfig::try_from(all.clone()).unwrap();
        let terms = config.terms();
        assert_eq!((terms.quota, terms.user_quota), (Some(4 << 30), Some(1000)));
        assert_eq!((terms.mode, terms.expires), (Some(0o2770), Some(7 * 86_400)));
        assert_eq!((terms.limit, terms.transfers), (Some(1_000_000_000), Some(3)));
        let gentle = SpaceConfig::try_from(map(&[("path", "/x"), ("gentle", "true")])).unwrap();
        // It alone is something that transfers keep to.
        assert!(terms.gentle && gentle.terms().binds() && !gentle.terms().is_shared());
        assert!(terms.memory && terms.jobs && !terms.shared && terms.binds() && terms.is_made());
        assert_eq!(BTreeMap::from(config.clone()), all);
        let less = config.with("x", &map(&[("memory", ""), ("size", ""), ("jobs", "no")])).unwrap();
        assert_eq!((less.terms().quota, less.terms().memory), (Some(8 << 30), false));
        for (key, value) in [
            ("memory", "maybe"),
            ("quota", "much"),
            ("owner", "a b"),
            ("group", "-x"),
            ("mode", "777777"),
            ("mode", "rwx"),
            ("expires", "soon"),
            ("limit", "0"),
            ("transfers", "0"),
            ("transfers", "-1"),
            ("transfers", "70000"),
            ("gentle", "rather"),
            ("path", ""),
            ("paths", "/a"),
            ("path", "/a\nb"),
        ] {
            assert!(config.with("x", &map(&[(key, value)])).is_err(), "{key} = {value}");
        }
        assert!(config.with("a b", &map(&[])).is_err());
        let e = less.with("x", &map(&[("size", "1")])).unwrap_err();
        assert!(e.message().contains("only a dataspace in memory"), "{e}");
    }

    #[test]
    fn what_only_folders_keep_to_no_bucket_is_given() {
        let bucket = SpaceConfig::plain("s3://old/runs");
        let shared = [("jobs", "yes"), ("limit", "1GB/s"), ("transfers", "2"), ("gentle", "yes")];
        let bucket = bucket.with("b", &map(&shared)).unwrap();
        for (key, value) in [
            ("quota", "1TB"),
            ("user_quota", "1TB"),
            ("expires", "7d"),
            ("memory", "yes"),
            ("owner", "ada"),
            ("group", "7"),
            ("mode", "2770"),
        ] {
            let e = bucket.with("b", &map(&[(key, value)])).unwrap_err();
            assert_eq!(e.message(), format!("a bucket has no '{key}' here"));
            assert!(e.hint().is_some_and(|hint| hint.contains("at the store")), "{e}");
            // Nor does a folder become one that has it.
            let folder = SpaceConfig::plain("/x").with("b", &map(&[(key, value)])).unwrap();
            assert!(folder.with("b", &map(&[("path", "s3://old-${USER}")])).is_err(), "{key}");
            assert!(folder.with("b", &map(&[("path", "s3://old"), (key, "")])).is_ok(), "{key}");
        }
    }

    #[test]
    fn a_path_that_is_none_is_refused_and_an_older_one_is_set_right() {
        for (path, says) in [
            ("rel", "path 'rel' is not absolute"),
            ("../x", "path '../x' is not absolute"),
            ("foo://x", "path 'foo://x' is not absolute"),
            ("s3://", "without the name of a bucket"),
            ("/", "a folder of its own"),
            ("/a/../b", "'..'"),
            ("/a/${USER}/../b", "/a/${USER}/../b"),
            ("rel/${USER}", "path 'rel/${USER}' is not absolute"),
            ("/a/$USER", "'$'"),
        ] {
            let set = map(&[("path", path)]);
            let e = SpaceConfig::default().with("n2", &set).unwrap_err();
            assert_eq!(e.kind(), crate::Kind::Usage, "{path}");
            assert!(e.message().starts_with("dataspace 'n2': "), "{path}: {e}");
            assert!(e.message().contains(says), "{path}: {e}");
            // One that was kept before is read, changed to nothing that is as wrong, and set right.
            let old = SpaceConfig::try_from(set.clone()).unwrap();
            assert!(old.with("n2", &map(&[("quota", "5")])).is_err(), "{path}");
            assert!(old.with("n2", &map(&[("path", "/x"), ("quota", "5")])).is_ok(), "{path}");
        }
        for path in ["${HOME}", "${ROOT}/x", "/a/${USER}/", "s3://old-${USER}", "${OUT}"] {
            assert!(SpaceConfig::default().with("n2", &map(&[("path", path)])).is_ok(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_was_taken_is_taken_again(
            keys in proptest::collection::btree_map(
                proptest::sample::select(KEYS.map(|(key, _)| key.to_owned()).to_vec()), "[0-9a-z/]{0,6}|yes|[1-9]d|1k", 0..14),
        ) {
            if let Ok(config) = SpaceConfig::try_from(keys.clone()) {
                let text = serde_json::to_string(&config).unwrap();
                prop_assert_eq!(serde_json::from_str::<SpaceConfig>(&text).unwrap(), config);
            }
        }
    }
}
