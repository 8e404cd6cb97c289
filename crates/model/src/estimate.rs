//! What a request would take in one place, and in which of its stages.

use std::fmt;
use stead_core::{Error, Result, units};

/// Where the work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The bytes move; who asks computes.
    Pull,
    /// The kernel moves; who has the data computes.
    Push,
    /// Who has the data parses it and sends the numbers to who asks.
    VectorUp,
    /// Who asks reads and parses the data and sends the numbers to who has it.
    VectorDown,
    /// Both work: some of the bytes move.
    Split,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Pull => "pull",
            Place::Push => "push",
            Place::VectorUp => "vector",
            Place::VectorDown => "vector back",
            Place::Split => "split",
        })
    }
}

/// What somebody wishes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wish {
    /// Whatever takes the least time.
    #[default]
    Auto,
    /// [`Place::Pull`].
    Pull,
    /// [`Place::Push`].
    Push,
    /// The better one of [`Place::VectorUp`] and [`Place::VectorDown`].
    Vector,
    /// [`Place::Split`].
    Split,
}

impl Wish {
    /// Reads `auto`, `pull`, `push`, `vector` or `split`.
    ///
    /// # Errors
    /// `Usage` for anything else.
    pub fn parse(text: &str) -> Result<Wish> {
        Ok(match text {
            "auto" => Wish::Auto,
            "pull" => Wish::Pull,
            "push" => Wish::Push,
            "vector" => Wish::Vector,
            "split" => Wish::Split,
            _ => {
                let shown = crate::profile::shown(text);
                return Err(Error::usage(format!("'{shown}' is not a place to compute"))
                    .with_hint("take auto, pull, push, vector or split"));
            }
        })
    }

    /// True if the place is one that is wished for.
    pub fn allows(&self, place: Place) -> bool {
        match self {
            Wish::Auto => true,
            Wish::Pull => place == Place::Pull,
            Wish::Push => place == Place::Push,
            Wish::Vector => matches!(place, Place::VectorUp | Place::VectorDown),
            Wish::Split => place == Place::Split,
        }
    }
}

/// A part of the work. Those that are not fixed go on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reading from the tier.
    Read,
    /// Data on the links.
    Link,
    /// Cores of who has the data.
    Storage,
    /// Cores of who asks.
    Host,
    /// Cores that both share.
    Shared,
    /// Merging and sending results.
    Result,
    /// What each request costs: latencies, setting up.
    Fixed,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Read => "reading",
            Stage::Link => "the links",
            Stage::Storage => "the cores of the storage",
            Stage::Host => "the cores of the hosts",
            Stage::Shared => "the cores that hosts share",
            Stage::Result => "merging results",
            Stage::Fixed => "the fixed costs",
        })
    }
}

/// Seconds of each stage over all passes. They overlap: their sum is more than the time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parts {
    /// [`Stage::Read`].
    pub read: f64,
    /// [`Stage::Link`].
    pub link: f64,
    /// [`Stage::Storage`].
    pub storage: f64,
    /// [`Stage::Host`].
    pub host: f64,
    /// [`Stage::Shared`].
    pub shared: f64,
    /// [`Stage::Result`].
    pub result: f64,
    /// [`Stage::Fixed`].
    pub fixed: f64,
}

impl Parts {
    /// Each stage with its seconds.
    pub fn stages(&self) -> [(Stage, f64); 7] {
        [
            (Stage::Read, self.read),
            (Stage::Link, self.link),
            (Stage::Storage, self.storage),
            (Stage::Host, self.host),
            (Stage::Shared, self.shared),
            (Stage::Result, self.result),
            (Stage::Fixed, self.fixed),
        ]
    }

    /// The stage that takes the most; of equal ones the first.
    pub fn binds(&self) -> Stage {
        let most = |a: (Stage, f64), b: (Stage, f64)| if b.1 > a.1 { b } else { a };
        self.stages().into_iter().reduce(most).map_or(Stage::Fixed, |s| s.0)
    }

    /// Both together.
    pub(crate) fn plus(&self, o: &Parts) -> Parts {
        Parts {
            read: self.read + o.read,
            link: self.link + o.link,
            storage: self.storage + o.storage,
            host: self.host + o.host,
            shared: self.shared + o.shared,
            result: self.result + o.result,
            fixed: self.fixed + o.fixed,
        }
    }

    /// So many times.
    pub(crate) fn times(&self, n: f64) -> Parts {
        Parts {
            read: self.read * n,
            link: self.link * n,
            storage: self.storage * n,
            host: self.host * n,
            shared: self.shared * n,
            result: self.result * n,
            fixed: self.fixed * n,
        }
    }

    /// What both take at once: of each stage the longer one.
    pub(crate) fn beside(&self, o: &Parts) -> Parts {
        Parts {
            read: self.read.max(o.read),
            link: self.link.max(o.link),
            storage: self.storage.max(o.storage),
            host: self.host.max(o.host),
            shared: self.shared.max(o.shared),
            result: self.result.max(o.result),
            fixed: self.fixed.max(o.fixed),
        }
    }
}

/// What a request takes in one place, as predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The place.
    pub place: Place,
    /// Seconds from asking to the answer.
    pub seconds: f64,
    /// Where they go.
    pub parts: Parts,
    /// Bytes that cross a link.
    pub moved_bytes: f64,
    /// How much of the data who asks computes on, 0 to 1.
    pub asked_share: f64,
}

impl Estimate {
    /// The stage that the others wait for.
    pub fn binds(&self) -> Stage {
        self.parts.binds()
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place, units::format_seconds(self.seconds))
    }
}
