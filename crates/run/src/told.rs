//! Errors on their way from one rank to another.

use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use stead_core::{Error, Kind};
use stead_fabric::kinds;

/// An error on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    kind: u8,
    message: String,
    hint: Option<String>,
    path: Option<Vec<u8>>,
    line: Option<u64>,
    offset: Option<u64>,
    column: Option<String>,
    source: Option<u32>,
    order: Option<u64>,
    rank: Option<u64>,
    host: Option<String>,
    /// The rank that tells it, and its host.
    by: u64,
    by_host: String,
    /// How many ranks tell the same.
    ranks: u64,
}

impl Told {
    /// An error of the rank `by`.
    pub fn new(e: &Error, by: usize, by_host: &str) -> Told {
        let p = e.place();
        Told {
            kind: kinds::number(e.kind()),
            message: e.message().to_owned(),
            hint: e.hint().map(str::to_owned),
            path: p.path.as_ref().map(|p| p.as_os_str().as_bytes().to_vec()),
            line: p.line,
            offset: p.offset,
            column: p.column.clone(),
            source: p.source,
            order: e.order().1,
            rank: p.rank.map(|r| r as u64),
            host: p.host.clone(),
            by: by as u64,
            by_host: by_host.to_owned(),
            ranks: 1,
        }
    }

    /// As it is told by all ranks, whoever was the first.
    pub fn of_all(self) -> Told {
        Told { ranks: u64::MAX, ..self }
    }

    /// The error as it was.
    pub fn plain(self) -> Error {
        self.error(0)
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        kinds::kind(self.kind)
    }

    /// The error as all ranks tell it. What is in the data and in the request is so for any number of ranks; all else is
    /// that of a rank and its host.
    pub fn error(self, size: usize) -> Error {
        let kind = self.kind();
        let all = matches!(kind, Kind::Data | Kind::Format | Kind::Limit | Kind::Cancelled);
        let one = !all && self.ranks < size as u64;
        let mut e = Error::new(kind, self.message);
        let number = |r: u64| usize::try_from(r).unwrap_or(usize::MAX);
        match self.rank {
            Some(rank) => e = e.at_rank(number(rank)),
            None if one => e = e.at_rank(number(self.by)).at_host(self.by_host),
            None => {}
        }
        for (value, put) in [
            (self.line, Error::at_line as fn(Error, u64) -> Error),
            (self.offset, Error::at_offset),
            (self.order, Error::in_order),
        ] {
            if let Some(value) = value {
                e = put(e, value);
            }
        }
        for (text, put) in [
            (self.host, (|e, t| e.at_host(t)) as fn(Error, String) -> Error),
            (self.column, |e, t| e.at_column(t)),
            (self.hint, |e, t| e.with_hint(t)),
        ] {
            if let Some(text) = text {
                e = put(e, text);
            }
        }
        if let Some(path) = self.path {
            e = e.at_path(OsStr::from_bytes(&path));
        }
        match self.source {
            Some(source) => e.at_source(source),
            None => e,
        }
    }

    /// Of two errors the one to tell, `self` being that of a lower rank: the cause before the stop it led to, then the
    /// earlier place in the data.
    pub fn or(self, other: Told) -> Told {
        let same = |a: &Told, b: &Told| {
            (a.kind, &a.message, &a.path, a.line, a.offset)
                == (b.kind, &b.message, &b.path, b.line, b.offset)
        };
        if same(&self, &other) {
            return Told { ranks: self.ranks.saturating_add(other.ranks), ..self };
        }
        let stopped = |t: &Told| t.kind() == Kind::Cancelled;
        let order = |t: &Told| (stopped(t), t.source, t.order);
        if order(&other) < order(&self) { other } else { self }
    }
}
