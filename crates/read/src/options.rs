//! What a user may pin, and how the rest is chosen.

use crate::profile::Measured;
use std::time::Duration;
use stead_core::{limits, units::format_size};
use stead_store::{IoOptions, Tier};

/// How to read. What is `None` is chosen from the file, the range and the machine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Reader threads at most.
    pub readers: Option<usize>,
    /// Bytes of a block, a multiple of 4096 (rounded up).
    pub block: Option<usize>,
    /// Blocks in flight for each reader.
    pub depth: Option<usize>,
    /// Memory for blocks: those that are read ahead, are being read, or wait to be asked for. All open files of the
    /// process share the largest such budget.
    pub memory: u64,
    /// A request that is not answered after this long fails.
    pub deadline: Duration,
    /// Read-ahead of the session's range.
    pub ahead: bool,
    /// Engine and O_DIRECT. The depth in it is not used.
    pub io: IoOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            readers: None,
            block: None,
            depth: None,
            memory: limits::DEFAULT_SESSION_MEMORY,
            deadline: Duration::from_secs(limits::READ_DEADLINE_S),
            ahead: true,
            io: IoOptions::default(),
        }
    }
}

/// Something that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What: `readers`, `block`, ...
    pub name: &'static str,
    /// For people, with its unit.
    pub value: String,
    /// Why.
    pub reason: String,
}

/// What was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Choice {
    pub(crate) readers: usize,
    pub(crate) block: u64,
    /// Blocks in flight for a reader to begin with, and at most.
    pub(crate) depth: usize,
    pub(crate) most_depth: usize,
    /// Blocks in memory at most.
    pub(crate) blocks: usize,
    /// Each reader waits for one block, so that all of them are needed to keep the device busy.
    pub(crate) whole: bool,
}

/// What a choice follows from, beside the options.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Bytes of the file.
    pub(crate) len: u64,
    pub(crate) cores: usize,
    /// Files that share the memory with it.
    pub(crate) others: u64,
    /// Blocks of so many bytes and more are best read by threads that wait for one each ([`Lender::least_whole`]).
    ///
    /// [`Lender::least_whole`]: stead_store::Lender::least_whole
    pub(crate) whole: Option<u64>,
    /// `None` for what is no file.
    pub(crate) tier: Option<Tier>,
    /// Of this tier.
    pub(crate) measured: Vec<Measured>,
}

const PAGE: u64 = 4096;

impl Options {
    /// Chooses what is not pinned, and says why.
    pub(crate) fn choose(&self, known: &Known) -> (Choice, Vec<Decision>) {
        let (block, block_why) = self.block(known);
        let blocks = usize::try_from(self.memory / block).unwrap_or(usize::MAX).max(2);
        let whole = known.whole.is_some_and(|least| block >= least);
        let (readers, readers_why) = self.readers(known, whole);
        // Half of the memory is for what is in flight.
        let most_depth = limits::MAX_QUEUE_DEPTH.min(blocks / 2 / readers).max(1);
        let (depth, depth_why) = self.depth(known, block, readers, whole);
        let pinned = self.depth.is_some() || whole;
        let most_depth = if pinned { depth.min(most_depth) } else { most_depth };
        let depth = depth.clamp(1, most_depth);
        let choice = Choice { readers, block, depth, most_depth, blocks, whole };
        let decision = |name, value: String, reason: String| Decision { name, value, reason };
        let decisions = vec![
            decision("readers", readers.to_string(), readers_why),
            decision("block", format_size(block), block_why),
            decision("queue depth", depth.to_string(), depth_why),
        ];
        (choice, decisions)
    }

    fn block(&self, known: &Known) -> (u64, String) {
        // Four blocks at least have room in the memory.
        let fit_in = |memory: u64, wanted: u64| {
            let most = limits::MAX_READ_BLOCK as u64;
            wanted.min(memory / 4).clamp(PAGE, most).next_multiple_of(PAGE)
        };
        if let Some(block) = self.block {
            return (fit_in(self.memory, block as u64), "as asked for".to_owned());
        }
        // Each of many files keeps a block in any case. With the part that the next one would have, all of theirs together
        // stay within the budget up to some thousand files.
        let part = match known.others {
            0 => self.memory,
            others => self.memory / 2 / (others + 1),
        };
        let fit = |wanted: u64| fit_in(part, wanted);
        // A file is at least some tens of blocks, so that its first bytes come early; a block is large enough for a
        // device to be at its rate with few of them in flight, and no larger, as a session may be over a small part.
        // There is a bit for each: at most 2 MiB of them.
        let least = known.len / (1 << 24);
        let small = if known.whole.is_some() { 2 << 20 } else { 256 << 10 };
        let by_size = (known.len / 64).clamp(small, 2 << 20).max(least);
        if let Some(stripe) = known.tier.as_ref().and_then(|t| t.stripe) {
            let whole = by_size.max(stripe.size).next_multiple_of(stripe.size);
            let why = format!("whole stripes of {}", format_size(stripe.size));
            return (fit(whole), why);
        }
        if let Some(preferred) = known.tier.as_ref().map(|t| t.preferred)
            && preferred > by_size
        {
            return (fit(preferred), "what the file system asks for".to_owned());
        }
        // Another size was measured, on this tier, to be clearly better. Smaller ones than would be chosen anyway were
        // somebody's own wish, and may have come from the page cache.
        let rate = |m: &&Measured| m.rate;
        let usual = known.measured.iter().filter(|m| m.block == fit(by_size)).max_by_key(rate);
        let best = known
            .measured
            .iter()
            .filter(|m| (least.max(small)..=by_size.saturating_mul(8)).contains(&m.block))
            .max_by_key(rate);
        if let (Some(usual), Some(best)) = (usual, best)
            && best.rate / 10 > usual.rate / 9
        {
            let why = format!("measured before on this tier: {}/s", format_size(best.rate));
            return (fit(best.block), why);
        }
        if known.whole.is_some() && by_size == 2 << 20 {
            return (fit(by_size), "a huge page of the page cache".to_owned());
        }
        (fit(by_size), format!("a part of {}, between 256 KiB and 2 MiB", format_size(known.len)))
    }

    fn readers(&self, known: &Known, whole: bool) -> (usize, String) {
        if let Some(readers) = self.readers {
            return (readers.clamp(1, limits::MAX_THREADS), "as asked for".to_owned());
        }
        let cores = known.cores.max(1);
        if let Some(stripe) = known.tier.as_ref().and_then(|t| t.stripe) {
            let count = usize::try_from(stripe.count).unwrap_or(usize::MAX);
            let readers = count.min(cores.div_ceil(2)).clamp(1, 16);
            return (
                readers,
                format!("the file lies on {count} server(s), of {cores} core(s) half"),
            );
        }
        if whole {
            let readers = cores.div_ceil(4).clamp(4, 8);
            return (
                readers,
                "each sleeps until the one block is there that it waits for".to_owned(),
            );
        }
        let readers = cores.div_ceil(4).min(8);
        (readers, format!("a quarter of {cores} core(s); each keeps several blocks in flight"))
    }

    fn depth(&self, known: &Known, block: u64, readers: usize, whole: bool) -> (usize, String) {
        if let Some(depth) = self.depth {
            return (depth.clamp(1, limits::MAX_QUEUE_DEPTH), "as asked for".to_owned());
        }
        if whole {
            return (
                1,
                "the page cache reads huge pages, one at a time for each reader".to_owned(),
            );
        }
        let same = |m: &&Measured| m.block == block;
        if let Some(m) = known.measured.iter().find(same) {
            let why = format!("measured before on this tier: {}/s", format_size(m.rate));
            return (m.flying.div_ceil(readers), why);
        }
        // Some MiB in flight keep most devices busy.
        let bytes = 16 << 20;
        let depth = usize::try_from(bytes / block).unwrap_or(1).clamp(4, 16);
        (depth, "to begin with; the first blocks show whether more is better".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_store::Stripe;

    fn known(len: u64, cores: usize) -> Known {
        Known { len, cores, ..Known::default() }
    }

    fn tier(stripe: Option<Stripe>, preferred: u64) -> Option<Tier> {
        Some(Tier { name: "t-0:0".into(), preferred, stripe })
    }

    fn reason(decisions: &[Decision], name: &str) -> String {
        decisions.iter().find(|d| d.name == name).unwrap().reason.clone()
    }

    #[test]
    fn blocks_fit_the_file_and_the_memory() {
        let options = Options::default();
        for len in [0, 1, 1 << 20, 1 << 30, 1 << 40, 1 << 50, u64::MAX] {
            for memory in [0, 4096, 1 << 20, 256 << 20] {
                let options = Options { memory, ..options.clone() };
                let (c, _) = options.choose(&known(len, 8));
                assert!(c.block % PAGE == 0 && c.block >= PAGE, "{c:?}");
                assert!(c.block <= (memory / 4).max(PAGE), "{c:?}");
                assert!(c.depth >= 1 && c.depth <= c.most_depth, "{c:?}");
                assert!(c.readers * c.most_depth <= (c.blocks / 2).max(c.readers), "{c:?}");
            }
        }
        for len in [1 << 30, 1 << 40, 1 << 44] {
            assert_eq!(options.choose(&known(len, 2)).0.block, 2 << 20);
        }
    }

    #[test]
    fn a_block_of_each_of_many_files_is_within_the_budget() {
        let options = Options::default();
        let block = |others| options.choose(&Known { others, ..known(1 << 40, 8) }).0.block;
        assert_eq!((block(0), block(15)), (2 << 20, 2 << 20));
        assert!((0..1000).map(block).sum::<u64>() <= options.memory);
    }

    #[test]
    fn pins_hold() {
        let options =
            Options { readers: Some(3), block: Some(5000), depth: Some(7), ..Options::default() };
        let (c, why) = options.choose(&known(1 << 30, 64));
        assert_eq!((c.readers, c.block, c.depth, c.most_depth), (3, 8192, 7, 7));
        assert!(why.iter().all(|d| d.reason == "as asked for"));
    }

    #[test]
    fn huge_pages_are_read_by_some_readers_each_of_which_waits() {
        let known = Known { whole: Some(1 << 20), ..known(1 << 30, 2) };
        let (c, why) = Options::default().choose(&known);
        assert_eq!((c.readers, c.depth, c.most_depth, c.whole), (4, 1, 1, true));
        assert!(reason(&why, "readers").contains("sleeps"), "{why:?}");
        assert_eq!(
            Options::default().choose(&Known { len: 3 << 20, ..known.clone() }).0.block,
            2 << 20
        );
        // Small blocks are asked for some at a time.
        let small = Options { block: Some(256 << 10), ..Options::default() };
        let (c, _) = small.choose(&known);
        assert_eq!((c.readers, c.depth, c.whole), (1, 16, false));
        let pinned = Options { readers: Some(2), depth: Some(3), ..Options::default() };
        let (c, _) = pinned.choose(&known);
        assert_eq!((c.readers, c.depth), (2, 3));
    }

    #[test]
    fn stripes_decide_where_there_are_some() {
        let stripe = Some(Stripe { size: 4 << 20, count: 8 });
        let known = Known { tier: tier(stripe, 4096), ..known(1 << 40, 32) };
        let (c, why) = Options::default().choose(&known);
        assert_eq!((c.readers, c.block % (4 << 20)), (8, 0));
        assert!(reason(&why, "block").contains("stripes"), "{why:?}");
        // A file system may ask for large reads.
        let known = Known { tier: tier(None, 8 << 20), ..known };
        assert_eq!(Options::default().choose(&Known { len: 1 << 30, ..known }).0.block, 8 << 20);
    }

    #[test]
    fn what_was_measured_is_believed_if_it_is_clear() {
        let m = |block, flying, rate| Measured {
            tier: "t-0:0".into(),
            direct: false,
            block,
            flying,
            rate,
        };
        let with = |measured| Known { tier: tier(None, 4096), measured, ..known(1 << 30, 8) };
        let c = |measured| Options::default().choose(&with(measured)).0;
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(4 << 20, 4, 1050)]).block, 2 << 20);
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(4 << 20, 4, 1050)]).depth, 6);
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(4 << 20, 4, 2000)]).block, 4 << 20);
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(1 << 30, 4, 2000)]).block, 2 << 20);
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(64 << 10, 256, 9000)]).block, 2 << 20);
    }
}
