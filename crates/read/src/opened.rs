//! A source that is open: it was looked at, and is not read yet. How it is read follows from it, from the options, and from
//! the range of the session that begins.

use crate::engine::New;
use crate::options::{Chosen, Known, Options};
use crate::profile::Way;
use crate::{profile, registry};
use std::sync::{Arc, Mutex, PoisonError};
use stead_core::{Kind, Result};
use stead_store::{Engine, IoOptions, Lender, ReadQueue, Source, Tier};

pub(crate) struct Opened {
    source: Arc<dyn Source>,
    tier: Option<Tier>,
    cores: usize,
    /// Its views are to be parts of a mapping; and of blocks, whether whole ones are best read ([`Lender::least_whole`]).
    maps: bool,
    whole: Option<u64>,
    /// The mapping, until there are buffers that use it.
    lender: Mutex<Option<Lender>>,
}

impl Opened {
    /// Looks whether a source can be read as the options say.
    ///
    /// # Errors
    /// `Usage` if the engine that was asked for is not to be had.
    pub(crate) fn look(source: Arc<dyn Source>, options: &Options) -> Result<Opened> {
        let lender = Lender::new(&source, &options.io);
        let opened = Opened {
            tier: Tier::of(&*source),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            maps: lender.is_some(),
            whole: lender.as_ref().and_then(Lender::least_whole),
            lender: Mutex::new(lender),
            source,
        };
        let io = io(options, &opened.choose(options, opened.source.len(), 0));
        if options.io.engine != Engine::Auto {
            drop(ReadQueue::new(&io)?);
        }
        if io.direct {
            see_direct(&opened.source, &io)?;
        }
        Ok(opened)
    }

    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// True if views are to be parts of a mapping.
    pub(crate) fn maps(&self) -> bool {
        self.maps
    }

    /// Chooses for a session over `range` bytes of a file that has so many sets of buffers already.
    pub(crate) fn choose(&self, options: &Options, range: u64, own: usize) -> Chosen {
        self.choose_for(options, range, own, self.maps)
    }

    /// As [`Opened::choose`], where all who read it have it in the page cache, or not.
    pub(crate) fn choose_for(
        &self,
        options: &Options,
        range: u64,
        own: usize,
        cached: bool,
    ) -> Chosen {
        let tier = self.tier.clone();
        let measured = profile::of(tier.as_ref().map(|t| &*t.name), self.way(options));
        let others = if self.maps { 0 } else { registry::holders().saturating_sub(own as u64) };
        let (len, cores, whole) = (self.source.len(), self.cores, self.whole);
        options.choose(&Known { len, range, cached, cores, others, whole, tier, measured })
    }

    /// How its bytes come; also those that not all who read it have in the page cache come into that of who reads them.
    fn way(&self, options: &Options) -> Way {
        Way::of(self.maps, self.whole.is_some(), &options.io)
    }

    /// All that is needed for buffers.
    pub(crate) fn buffers(&self, options: &Options, chosen: Chosen) -> New {
        let lender = if self.maps {
            self.take_lender().or_else(|| Lender::new(&self.source, &options.io))
        } else {
            None
        };
        New {
            source: self.source.clone(),
            lender,
            segment: None,
            neighbours: None,
            tier: self.tier.as_ref().map(|t| t.name.clone()),
            io: io(options, &chosen),
            chosen,
            options: options.clone(),
        }
    }

    /// The mapping, if no buffers use it: those of somebody else, who joins, need none.
    pub(crate) fn take_lender(&self) -> Option<Lender> {
        self.lender.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn io(options: &Options, chosen: &Chosen) -> IoOptions {
    IoOptions { depth: chosen.choice.most_depth, ..options.io }
}

/// A file system that has no direct reads says so at the first one.
fn see_direct(source: &Arc<dyn Source>, io: &IoOptions) -> Result<()> {
    if source.file().is_none() || source.is_empty() {
        return Ok(());
    }
    let mut queue = ReadQueue::new(io)?;
    queue.submit(0, source, 0, usize::try_from(source.len()).map_or(4096, |len| len.min(4096)))?;
    match queue.next() {
        Err(error) if error.kind() == Kind::Usage => Err(error),
        // Other errors are those of whoever asks for these bytes.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Measured;
    use stead_store::FileSource;

    /// A size of blocks that no other test has.
    const BLOCK: usize = 29 * 4096;

    #[test]
    fn what_was_remembered_of_a_file_is_found_also_by_ranks_on_several_nodes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 16 * BLOCK]).unwrap();
        let source: Arc<dyn Source> = Arc::new(FileSource::open(&path).unwrap());
        let options = Options { block: Some(BLOCK), ..Options::default() };
        let opened = Opened::look(source.clone(), &options).unwrap();
        let Some(tier) = Tier::of(&*source) else { return };
        let shared = registry::open_source(source, &options).unwrap();
        // What it would remember.
        profile::learn(Measured {
            tier: tier.name,
            way: shared.way(),
            block: BLOCK as u64,
            readers: 7,
            depth: 1,
            rate: 1000,
            settled: true,
        });
        registry::close(&shared);
        for cached in [true, false] {
            let chosen = opened.choose_for(&options, 16 * BLOCK as u64, 0, cached);
            assert_eq!(chosen.choice.readers, 7, "{cached}");
        }
    }
}
