//! What is asked about sources on another node, and what is answered.

use crate::ends::Base;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use stead_core::Location;
use stead_store::{FileTime, Meta, What};

/// A name of the system: text, or bytes that are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Raw {
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Raw {
    pub(crate) fn of(name: &OsStr) -> Raw {
        match name.to_str() {
            Some(text) => Raw::Text(text.to_owned()),
            None => Raw::Bytes(name.as_bytes().to_vec()),
        }
    }

    pub(crate) fn os(self) -> OsString {
        match self {
            Raw::Text(text) => text.into(),
            Raw::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(self.clone().os())
    }
}

/// Extended attributes: names and values.
pub type Attributes = Vec<(Raw, Value)>;

/// Bytes, as hexadecimal text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value(pub Vec<u8>);

impl Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
        let text: String = self.0.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect();
        s.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let digit = |c: &u8| char::from(*c).to_digit(16).and_then(|n| u8::try_from(n).ok());
        let pair = |pair: &[u8]| match pair {
            [a, b] => Some(digit(a)? << 4 | digit(b)?),
            _ => None,
        };
        let bytes = text.as_bytes().chunks(2).map(pair).collect::<Option<Vec<u8>>>();
        bytes.map(Value).ok_or_else(|| serde::de::Error::custom("no hexadecimal text"))
    }
}

/// What a name leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// `file`, `folder`, `link` or `special`.
    what: String,
    /// Bytes, and those that the device has given it.
    size: u64,
    room: u64,
    mode: u32,
    /// User, group.
    owner: (u32, u32),
    /// Device, number, names.
    id: (u64, u64, u64),
    /// Seconds since 1970 and nanoseconds: of its bytes, and of all of it.
    mtime: (i64, u32),
    ctime: (i64, u32),
    /// If they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attributes: Option<Attributes>,
    /// Of bytes that were asked for: their checksum, as they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sum: Option<u64>,
}

const KINDS: [(What, &str); 4] = [
    (What::File, "file"),
    (What::Folder, "folder"),
    (What::Link, "link"),
    (What::Special, "special"),
];

impl Told {
    pub(crate) fn of(meta: &Meta) -> Told {
        let time = |t: FileTime| (t.seconds, t.nanos);
        let what = KINDS.iter().find(|(what, _)| *what == meta.what).map_or("special", |k| k.1);
        Told {
            what: what.to_owned(),
            size: meta.size,
            room: meta.room,
            mode: meta.mode,
            owner: (meta.uid, meta.gid),
            id: (meta.dev, meta.ino, meta.links),
            mtime: time(meta.mtime),
            ctime: time(meta.ctime),
            attributes: None,
            sum: None,
        }
    }

    /// None of what is no kind of file, or that no system tells.
    pub(crate) fn meta(&self) -> Option<Meta> {
        let time = |(seconds, nanos)| FileTime { seconds, nanos };
        let nanos = self.mtime.1.max(self.ctime.1);
        if i64::try_from(self.size).is_err() || nanos > 999_999_999 {
            return None;
        }
        Some(Meta {
            what: KINDS.iter().find(|(_, name)| *name == self.what)?.0,
            size: self.size,
            room: self.room,
            mode: self.mode & 0o7777,
            uid: self.owner.0,
            gid: self.owner.1,
            dev: self.id.0,
            ino: self.id.1,
            links: self.id.2,
            mtime: time(self.mtime),
            ctime: time(self.ctime),
        })
    }
}

/// What is asked. Paths are below their base, which is as the answer to `find` has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    /// What does a name lead to? A link that is named by its path is followed if `follow`.
    Find {
        /// The name.
        location: Location,
        /// See above.
        follow: bool,
    },
    /// Is a base still what it was?
    Open {
        /// It.
        base: Base,
    },
    /// What is there?
    Meta {
        /// Where it lies below.
        base: Base,
        /// It; the base itself if it is empty.
        path: Raw,
    },
    /// The first names of a folder, with what they lead to.
    List {
        /// Where it lies below.
        base: Base,
        /// It.
        path: Raw,
    },
    /// The next ones.
    More {},
    /// The text of a link.
    Link {
        /// Where it lies below.
        base: Base,
        /// It.
        path: Raw,
    },
    /// What is there, with extended attributes.
    Attributes {
        /// Where it lies below.
        base: Base,
        /// It.
        path: Raw,
    },
    /// Bytes of a file, which come before the answer.
    Read {
        /// Where it lies below.
        base: Base,
        /// It.
        path: Raw,
        /// From this one on.
        at: u64,
        /// So many.
        len: u64,
        /// It is an error if the file is another one than this, or was changed.
        seen: Option<Told>,
        /// Wait until a later change would show.
        careful: bool,
        /// With extended attributes in the answer.
        attributes: bool,
        /// For a transfer that gives way to others.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gentle: bool,
        /// Their checksum is all that is wanted: none of them comes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        silent: bool,
    },
    /// Remove a name, of what was moved.
    Remove {
        /// Where it lies below.
        base: Base,
        /// It.
        path: Raw,
        /// An empty folder, and no other one; otherwise a file or a link.
        folder: bool,
        /// It is an error if it is another file than this, or was changed.
        seen: Option<Told>,
        /// The same, if it was not changed last at this time.
        mtime: Option<(i64, u32)>,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// To `find`: whether something is there `meta` says.
    Found {
        /// The folder that it lies below.
        base: Base,
        /// Its path there.
        path: Raw,
        /// What the base is called.
        shown: Raw,
        /// The tier that it is on, if that is known.
        tier: Option<String>,
        /// Bytes a second that are agreed for it, if any are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
        /// Transfers that read it are to give way to others.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gentle: bool,
    },
    /// To `open`.
    Opened {
        /// As in `found`.
        shown: Raw,
        /// As in `found`.
        tier: Option<String>,
        /// As in `found`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
        /// As in `found`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gentle: bool,
    },
    /// To `meta`; none if nothing is there.
    Meta(Option<Told>),
    /// To `list` and `more`.
    Names {
        /// Some of them.
        names: Vec<(Raw, Told)>,
        /// There are more.
        more: bool,
    },
    /// To `link`.
    Link(Raw),
    /// To `attributes` and `read`.
    Whole(Box<Told>),
    /// To `remove`: false if nothing was there.
    Removed(bool),
}

/// Bytes of a file, or how many zeros nobody has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// So many zeros.
    Hole(u64),
}
