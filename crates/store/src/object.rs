//! Buckets of object stores: lists, and whole objects or parts of them, for those who copy.
//!
//! All calls wait, look now and then whether they are to stop, and end by themselves some time: the client tries again what
//! fails on its way (`client.rs`, which alone knows that there is a runtime). Credentials come from where the tools of each
//! store have them, the environment, their own files (`client/profile.rs`) or the machine, and are in no error and in no URL.

#[cfg(feature = "object")]
mod client;
#[cfg(not(feature = "object"))]
#[path = "object/none.rs"]
mod client;
#[cfg(feature = "object")]
mod http;
#[cfg(feature = "object")]
mod told;

pub use client::Bucket;

use crate::FileTime;

/// What a store tells of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Bytes.
    pub size: u64,
    /// When it was put there.
    pub modified: FileTime,
    /// When the file was changed that it is a copy of, if whoever put it there has said so. Lists do not tell.
    pub mtime: Option<FileTime>,
    /// Which transfer put it there, and as which of its names, if it was one. Lists do not tell.
    pub mark: Option<String>,
    /// Another one for other bytes, where the store has such.
    pub tag: Option<String>,
}

impl Object {
    /// When its bytes were changed, as far as that is known.
    pub fn changed(&self) -> FileTime {
        self.mtime.unwrap_or(self.modified)
    }

    /// True if it has the same bytes as the other one had, as far as the store tells.
    pub fn same(&self, other: &Object) -> bool {
        match (&self.tag, &other.tag) {
            (Some(a), Some(b)) => a == b && self.size == other.size,
            _ => (self.size, self.modified) == (other.size, other.modified),
        }
    }
}

/// What is kept with an object besides bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Label {
    /// See [`Object::mtime`].
    pub mtime: FileTime,
    /// See [`Object::mark`].
    pub mark: String,
}

/// A name directly below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Without the prefix and without `/`.
    pub name: String,
    /// None for a further prefix.
    pub object: Option<Object>,
}

/// Some of the names below a prefix.
#[derive(Debug, Default)]
pub struct Page {
    /// In no order that all stores share.
    pub entries: Vec<Entry>,
    /// What to ask for more with; none if there are no more.
    pub next: Option<String>,
}

/// An upload that somebody has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// What the store calls it.
    pub id: String,
    /// So many seconds before the store was asked, by its own clock.
    pub ago: i64,
}

/// A time as it is kept with objects: seconds since 1970 with a fraction, as rclone writes it.
#[cfg(any(test, feature = "object"))]
fn time_text(time: FileTime) -> String {
    let all = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    let sign = if all < 0 { "-" } else { "" };
    let all = all.unsigned_abs();
    format!("{sign}{}.{:09}", all / 1_000_000_000, all % 1_000_000_000)
}

/// The time of such a text; none of others.
#[cfg(any(test, feature = "object"))]
fn time_of(text: &str) -> Option<FileTime> {
    let (sign, plain) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (seconds, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if seconds.is_empty() || seconds.len() > 15 || !digits(seconds) || !digits(fraction) {
        return None;
    }
    let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let all = seconds.parse::<i128>().ok()? * 1_000_000_000 + fraction.parse::<i128>().ok()?;
    let all = sign * all;
    Some(FileTime {
        seconds: i64::try_from(all.div_euclid(1_000_000_000)).ok()?,
        nanos: u32::try_from(all.rem_euclid(1_000_000_000)).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_text_and_back() {
        for (text, seconds, nanos) in [
            ("0.000000000", 0, 0),
            ("1600000000.000000007", 1_600_000_000, 7),
            ("-0.500000000", -1, 500_000_000),
            ("-2.000000000", -2, 0),
        ] {
            let time = FileTime { seconds, nanos };
            assert_eq!((&*time_text(time), time_of(text)), (text, Some(time)));
        }
        assert_eq!(time_of("12"), Some(FileTime { seconds: 12, nanos: 0 }));
        assert_eq!(time_of("1.5"), Some(FileTime { seconds: 1, nanos: 500_000_000 }));
        for bad in ["", "x", "1.x", ".5", "--1", "99999999999999999999", "1e9"] {
            assert_eq!(time_of(bad), None, "{bad}");
        }
    }
}
