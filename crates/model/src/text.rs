//! Profiles as text: TOML, read strictly.

use crate::Profile;
use crate::profile::shown;
use serde::Deserialize;
use stead_core::{Error, Result};

/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a profile.
const MOST_BYTES: usize = 4 << 20;

/// All that is looked at in a file of another version.
#[derive(Deserialize)]
struct Head {
    version: i64,
}

pub(crate) fn other_version(version: i64) -> Error {
    Error::format(format!("a profile of version {version}; this stead reads version {VERSION}"))
        .with_hint("measure again with `stead calibrate`")
}

impl Profile {
    /// Reads the text form.
    ///
    /// # Errors
    /// `Format`, with the line or the entry, for an unknown key, a number that is none or has no sense, a name that is
    /// there twice or not at all. The caller adds the path.
    pub fn parse(text: &str) -> Result<Profile> {
        if text.len() > MOST_BYTES {
            return Err(Error::format(format!(
                "a profile of {} bytes; at most {MOST_BYTES} are read",
                text.len()
            )));
        }
        match toml::from_str::<Profile>(text) {
            Ok(profile) => {
                profile.check()?;
                Ok(profile)
            }
            Err(e) => Err(match toml::from_str::<Head>(text) {
                Ok(head) if head.version != i64::from(VERSION) => other_version(head.version),
                _ => not_toml(&e, text),
            }),
        }
    }

    /// The text form, which [`Profile::parse`] reads back to the same profile.
    ///
    /// # Errors
    /// Those of [`Profile::check`].
    pub fn to_text(&self) -> Result<String> {
        self.check()?;
        let text = toml::to_string(self)
            .map_err(|e| Error::internal(format!("a profile cannot be written: {e}")))?;
        Ok(format!(
            "# What was measured of these machines. Rates are of one host, costs of one core.\n{text}"
        ))
    }
}

fn not_toml(e: &toml::de::Error, text: &str) -> Error {
    let said: Vec<String> = e.message().split('\n').map(|l| shown(l.trim())).collect();
    let said = said.join("; ").trim_end_matches(['.', ' ', ';']).to_owned();
    let found = Error::format(format!("not a profile: {said}"))
        .with_hint("measure again with `stead calibrate`");
    match e.span() {
        Some(span) => {
            let before = text.as_bytes().get(..span.start).unwrap_or(text.as_bytes());
            found.at_line(1 + before.iter().filter(|c| **c == b'\n').count() as u64)
        }
        None => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Link, Shared, Site, Tier};
    use proptest::prelude::*;

    const GOOD: &str = r#"version = 1
switch_bytes_per_s = 5e8
[[sites]]
name = "storage"
hosts = 4
cores = 4
speed = 0.25
[[sites]]
name = "host"
cores = 8
load = 1.5
[[tiers]]
name = "nvme"
site = "storage"
bytes_per_s = 1400000000
latency_s = 1e-4
depth = 16
[[links]]
from = "storage"
to = "host"
bytes_per_s = 117e6
[[kernels]]
kernel = "sum"
format = "csv"
core_s_per_gb = 0.3
parse_share = 0.9
"#;

    #[test]
    fn a_profile_is_read_and_written() {
        let profile = Profile::parse(GOOD).unwrap();
        assert_eq!(profile.sites[1].hosts, 1);
        assert_eq!(profile.tiers[0].bytes_per_s, 1.4e9);
        assert_eq!(profile.cost("sum", "csv", &profile.sites[0]).unwrap().core_s_per_gb, 1.2);
        assert_eq!(profile.link("host", "storage").unwrap().bytes_per_s, 117e6);
        assert_eq!(Profile::parse(&profile.to_text().unwrap()).unwrap(), profile);
    }

    #[test]
    fn costs_measured_at_a_site_come_first() {
        let mut profile = Profile::parse(GOOD).unwrap();
        let site = profile.sites[0].clone();
        let mut cost = profile.kernels[0].clone();
        (cost.format, cost.core_s_per_gb) = ("*".into(), 8.0);
        profile.kernels.push(cost.clone());
        assert_eq!(profile.cost("sum", "csv", &site).unwrap().core_s_per_gb, 1.2);
        assert_eq!(profile.cost("sum", "raw", &site).unwrap().core_s_per_gb, 32.0);
        (cost.format, cost.site) = ("csv".into(), Some("storage".into()));
        profile.kernels.push(cost);
        assert_eq!(profile.cost("sum", "csv", &site).unwrap().core_s_per_gb, 8.0);
        assert!(profile.cost("grep", "csv", &site).is_err());
        profile.check().unwrap();
    }

    #[test]
    fn profiles_that_make_no_sense_are_refused() {
        for (old, new, says) in [
            ("version = 1", "version = 2", "version 2"),
            ("version = 1", "", "missing field"),
            ("cores = 4", "cores = 0", "cores = 0 is not a positive number"),
            ("cores = 4", "cores = -4", "not a positive"),
            ("cores = 4", "cores = nan", "not a positive"),
            ("cores = 4", "cores = \"4\"", "invalid type"),
            ("hosts = 4", "hosts = 0", "hosts = 0"),
            ("hosts = 4", "hosts = 99999999999", "not a profile"),
            ("load = 1.5", "load = inf", "load = inf"),
            ("load = 1.5", "load = -1", "load = -1"),
            ("speed = 0.25", "speed = 1e-320", "not a positive"),
            ("bytes_per_s = 117e6", "bytes_per_s = 0", "bytes_per_s = 0"),
            ("parse_share = 0.9", "parse_share = 1.1", "between 0 and 1"),
            ("depth = 16", "depth = 16\ncolour = 3", "unknown field"),
            ("name = \"host\"", "name = \"storage\"", "is there twice"),
            ("name = \"host\"", "name = \"\"", "names have"),
            ("to = \"host\"", "to = \"moon\"", "site 'moon', which is not there"),
            ("site = \"storage\"", "site = \"moon\"", "site 'moon'"),
            ("switch_bytes_per_s = 5e8", "switch_bytes_per_s = -5e8", "the switch"),
        ] {
            assert!(GOOD.contains(old), "{old}");
            let e = Profile::parse(&GOOD.replacen(old, new, 1)).unwrap_err();
            assert!(e.message().contains(says), "{new}: {e}");
            assert!(!e.message().contains('\n'), "{e}");
        }
        let e = Profile::parse(&GOOD.replace("depth = 16", "depth = x")).unwrap_err();
        assert_eq!(e.place().line, Some(17));
        assert!(Profile::parse(&" ".repeat(MOST_BYTES + 1)).is_err());
    }

    fn profile() -> impl Strategy<Value = Profile> {
        let number = || prop_oneof![Just(1.0), 1e-9..1e12f64, Just(0.1)];
        (number(), number(), 0.0..1.0f64, 1..100u32, "\\PC{1,20}").prop_map(
            |(a, b, share, hosts, name)| Profile {
                version: 1,
                note: name.clone(),
                switch_bytes_per_s: (a > 1.0).then_some(b),
                sites: vec![
                    Site { hosts, speed: b, load: share, ..Site::new(name.clone(), a) },
                    Site::new("other", 1.0),
                ],
                tiers: vec![Tier {
                    latency_s: share,
                    depth: hosts,
                    core_s_per_gb: share,
                    ..Tier::new("t", "other", a)
                }],
                links: vec![Link {
                    busy_latency_s: share,
                    send_core_s_per_gb: a,
                    receive_core_s_per_gb: b,
                    ..Link::new(name.clone(), "other", b)
                }],
                shared: vec![Shared { sites: vec!["other".into()], cores: a }],
                kernels: vec![Cost {
                    kernel: name.clone(),
                    format: "*".into(),
                    site: Some(name),
                    core_s_per_gb: a,
                    parse_share: share,
                    core_s_per_gstep: b,
                    result_bytes: b,
                    result_per_byte: share,
                    vector_per_byte: 0.0,
                }],
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(profile in profile()) {
            prop_assume!(profile.sites[0].name != "other");
            let text = profile.to_text().unwrap();
            prop_assert_eq!(Profile::parse(&text).unwrap(), profile, "{}", text);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,100}", at in any::<prop::sample::Index>()) {
            let _ = Profile::parse(&text);
            let _ = Profile::parse(&GOOD[..at.index(GOOD.len())]);
        }
    }
}
