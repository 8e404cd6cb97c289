//! Where steps spill when their writers name no place: in the first dataspace that has room for them.
//!
//! Those of this node go before those of all nodes, and then it goes by names. Folders in memory are none, since it is memory that is full; nor are
//! buckets, and what is for processes of jobs alone. The first writer of a node chooses for all of them.

use super::spot::{self, Card};
use crate::clock;
use crate::home::{self, BOARD};
use crate::options::Stop;
use std::ffi::OsStr;
use std::time::{Duration, Instant};
use stead_core::layout::Spaces;
use stead_core::units::format_size;
use stead_core::{BucketUrl, Error, Kind, Result};
use stead_store::region::SPACE;
use stead_store::{Folder, Root, process, quota, tier};

/// What writers say in place of a folder for what [spills](crate::Written::spill), to have one chosen.
pub const AUTO: &str = "auto";
/// What the writers of a node agree on then, in place of the number of a folder.
pub(crate) const CHOSEN: u64 = u64::MAX;
/// So often it is looked whether another writer has chosen.
const SLICE: Duration = Duration::from_millis(20);
/// Letters of the name of a stream in that of its folder, which has a number, too.
const MOST: usize = 200;

/// What is to be chosen.
#[derive(Debug)]
pub(crate) struct Choice<'c> {
    pub(crate) spaces: &'c Spaces,
    pub(crate) card: &'c Card,
    /// Bytes that there is to be room for.
    pub(crate) bytes: u64,
}

impl Choice<'_> {
    /// The folder that the first writer of this node chooses, which is made and told to all by then. `memory` is the folder of the stream.
    ///
    /// # Errors
    /// `Usage` if there is no dataspace to choose, `NoSpace` if none has room; `Timeout` if another writer does not come to an end; that of
    /// what ends waits; system errors.
    pub(crate) fn settle(&self, memory: &Folder, until: Instant, stop: &Stop) -> Result<Folder> {
        loop {
            if let Some(at) = told(memory)? {
                return Ok(at);
            }
            if let Some(_locked) = memory.lock_if_free(OsStr::new(BOARD))? {
                // Another one may have been first.
                if let Some(at) = told(memory)? {
                    return Ok(at);
                }
                // Or was killed while it made one.
                spot::forget(memory, self.card.run(), std::iter::empty());
                let at = self.choose(memory, until, stop)?;
                spot::tell(memory, &at)?;
                return Ok(at);
            }
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                let message = format!(
                    "another writer of stream '{}' has not found where it spills",
                    self.card.name
                );
                return Err(Error::new(Kind::Timeout, message)
                    .with_hint("name a folder with spill; or does a device not answer?"));
            }
            stop.check()?;
            clock::pause(left.min(SLICE));
        }
    }

    /// A folder of this stream alone in the first dataspace that has room.
    fn choose(&self, memory: &Folder, until: Instant, stop: &Stop) -> Result<Folder> {
        let mut why = Vec::new();
        let check = || -> Result<()> {
            stop.check()?;
            if clock::now() < until {
                return Ok(());
            }
            Err(Error::new(Kind::Timeout, "what lies there was not looked through in time"))
        };
        for name in order(self.spaces) {
            let looked = self.look(name, &check);
            stop.check()?;
            match looked {
                Ok(Ok(root)) => match self.make(memory, &root) {
                    Ok(folder) => return Ok(folder),
                    Err(e) => why.push(format!("'{name}': {}", e.message())),
                },
                Ok(Err(left)) => why.push(format!("'{name}' has {}", format_size(left))),
                Err(e) => why.push(format!("'{name}': {}", e.message())),
            }
        }
        let (name, bytes) = (&self.card.name, format_size(self.bytes));
        let (kind, message) = match why.is_empty() {
            true => {
                (Kind::Usage, format!("there is no dataspace that stream '{name}' may spill to"))
            }
            false => (
                Kind::NoSpace,
                format!(
                    "no dataspace has room for the {bytes} that stream '{name}' may spill: {}",
                    why.join(", ")
                ),
            ),
        };
        Err(Error::new(kind, message).with_hint(
            "name a folder with spill, say less with spill_limit, or write a dataspace on a device of this node into stead.toml",
        ))
    }

    /// The folder of a dataspace, or what is left there if that is too little.
    fn look(
        &self,
        name: &str,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<std::result::Result<Folder, u64>> {
        let root = Root::open(self.spaces, name)?.folder();
        if tier::is_memory(&root) {
            return Err(Error::usage("it lies in memory"));
        }
        let mut left = root.free()?;
        for rule in quota::of(self.spaces, &root) {
            if left < self.bytes {
                break;
            }
            for of in quota::left(&rule, &|_| false, check)? {
                left = left.min(of.bytes());
            }
        }
        Ok(if left < self.bytes { Err(left) } else { Ok(root) })
    }

    /// Makes the folder: no other user looks into it, no other run of a stream has it, and it says of which one it is. It is noted before, so
    /// that it goes with the stream also if this process is killed meanwhile.
    fn make(&self, memory: &Folder, root: &Folder) -> Result<Folder> {
        let hint = "name a folder with spill";
        let all = home::private(root, &format!(".spilled-{}", process::user()), hint)?;
        let called: String = self.card.name.chars().take(MOST).collect();
        let name = format!("{called}-{:016x}", self.card.run());
        spot::intend(memory, &all, &name)?;
        let at = home::private(&all, &name, hint)?;
        match spot::found(&at, self.card) {
            Ok(()) => Ok(at),
            Err(e) => {
                // Nobody is told of it, and what another node has there stays.
                let _ = all.remove_folder(OsStr::new(&name));
                Err(e)
            }
        }
    }
}

/// What was chosen before, as long as it is there.
fn told(memory: &Folder) -> Result<Option<Folder>> {
    match spot::told(memory) {
        // Writers of another node, which were the last ones in it, have removed it.
        Err(e) if e.kind() == Kind::NotFound => Ok(None),
        told => told,
    }
}

/// The dataspaces that may be chosen, in their order.
fn order(spaces: &Spaces) -> impl Iterator<Item = &str> {
    let named = spaces.names().filter(|name| *name != SPACE).filter_map(|name| {
        let terms = spaces.terms(name)?;
        let is_bucket = spaces.place(name).is_ok_and(BucketUrl::is_meant);
        (!terms.memory && !terms.jobs && !is_bucket).then_some((terms.shared, name))
    });
    let mut all: Vec<(bool, &str)> = named.collect();
    all.sort_unstable();
    all.into_iter().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dataspaces_of_this_node_go_before_those_of_all() {
        let text = "[dataspace.a]\npath = \"/a\"\nshared = true\n\
            [dataspace.z]\npath = \"/z\"\nquota = 5\n\
            [dataspace.m]\npath = \"/m\"\n\
            [dataspace.ram]\npath = \"/ram\"\nmemory = true\n\
            [dataspace.memory]\npath = \"/memory\"\n\
            [dataspace.jobs]\npath = \"/jobs\"\njobs = true\n\
            [dataspace.bucket]\npath = \"s3://x\"\n";
        let mut spaces = Spaces::parse(text, &|_| None).unwrap();
        spaces.imply("implied", "/implied");
        assert_eq!(order(&spaces).collect::<Vec<_>>(), ["m", "z", "a"]);
        assert_eq!(order(&Spaces::default()).count(), 0);
    }

    #[test]
    fn what_nobody_was_told_of_goes_with_the_stream() {
        let dir = tempfile::tempdir().unwrap();
        let [memory, disk] = ["memory", "disk"].map(|name| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            Folder::open(&path).unwrap()
        });
        let (spaces, card) = (Spaces::default(), Card::new("sim", 2, 7, true));
        let choice = Choice { spaces: &spaces, card: &card, bytes: 0 };
        // Whoever is killed while it makes the folder has said of which stream it is, or not yet.
        for has_said in [true, false] {
            let at = choice.make(&memory, &disk).unwrap();
            if !has_said {
                at.remove_file(OsStr::new(spot::CARD)).unwrap();
            }
            assert!(spot::told(&memory).unwrap().is_none() && at.shown().exists());
            spot::forget(&memory, 7, 0..2);
            assert!(!at.shown().exists(), "{has_said}");
        }
        // That of another run is none of it.
        let at = choice.make(&memory, &disk).unwrap();
        spot::forget(&memory, 8, 0..2);
        assert!(at.shown().exists());
        // Who comes next is told of it until it has gone, and then chooses anew.
        spot::tell(&memory, &at).unwrap();
        assert!(told(&memory).unwrap().is_some());
        spot::forget(&memory, 7, 0..2);
        assert!(!at.shown().exists() && told(&memory).unwrap().is_none());
    }
}
