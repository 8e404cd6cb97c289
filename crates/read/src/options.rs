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
    /// Bytes of a block, a multiple of 4096 (rounded up). In the page cache no file has more than 16,777,216 blocks: those of one that
    /// would are larger.
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
    /// Whether blocks in memory, and the memory for them, are shared with other processes of the user that read the same
    /// file.
    pub share: bool,
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
            share: true,
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
    /// What is found while reading stays within these, too.
    pub(crate) least_depth: usize,
    pub(crate) readers_at_least: usize,
    pub(crate) readers_at_most: usize,
    /// Blocks in memory at most.
    pub(crate) blocks: usize,
    /// Each reader waits for one block, so that all of them are needed to keep the device busy.
    pub(crate) whole: bool,
    /// Readers or their depth are somebody's wish.
    pub(crate) pinned: bool,
    /// Bytes in a second that were measured before, if nothing else is to be tried as long as it is about as fast.
    pub(crate) measured: Option<u64>,
}

/// What a choice follows from, beside the options.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Bytes of the file.
    pub(crate) len: u64,
    /// Bytes of the session.
    pub(crate) range: u64,
    /// Blocks are in the page cache. Of those at the ends of a session only its bytes are read.
    pub(crate) cached: bool,
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

/// What was chosen, for which session, and why.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    pub(crate) decisions: Vec<Decision>,
    /// Bytes of the session.
    pub(crate) range: u64,
    /// Blocks follow from these, and not from the file.
    pub(crate) by_range: bool,
}

/// Buffers that there are already, as a session sees them that begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct There {
    /// Bytes of their blocks.
    pub(crate) block: u64,
    /// Sessions use them.
    pub(crate) busy: bool,
    /// They have all blocks of the session, or read them anyway.
    pub(crate) covers: bool,
}

impl There {
    /// How well they serve a session over `range` bytes for which blocks of `wanted` bytes would be chosen, to be compared
    /// with others; `None` if the session is to have buffers of its own.
    ///
    /// To read the same bytes twice is worse than blocks of a fraction, where others are using them; blocks as small as
    /// those of a header are not, for all of a file.
    pub(crate) fn serve(&self, wanted: u64, range: u64) -> Option<(bool, bool, u64)> {
        let serve = match self.block.cmp(&wanted) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => self.covers || self.block <= most_block(range),
            std::cmp::Ordering::Less => self.block >= wanted / if self.busy { 8 } else { 2 },
        };
        serve.then_some((self.covers, self.block == wanted, self.block))
    }
}

/// The largest block with which an eighth more than a range is read at most, or one of [`SMALL`] at each end.
fn most_block(range: u64) -> u64 {
    power_of_two((range / 16).max(SMALL))
}

/// The largest power of two that is no more than this.
fn power_of_two(n: u64) -> u64 {
    n.checked_ilog2().map_or(1, |log| 1 << log)
}

/// What was pinned.
pub(crate) const ASKED: &str = "as asked for";
/// The smallest block that is chosen for small ranges.
const SMALL: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// Blocks of a file in the page cache at most.
const MOST_CACHED: u64 = 1 << 24;
/// Readers at most, whatever is measured.
const MOST_READERS: usize = 16;

impl Options {
    /// Chooses what is not pinned, and says why.
    pub(crate) fn choose(&self, known: &Known) -> Chosen {
        let (block, block_why) = self.block(known);
        let blocks = usize::try_from(self.memory / block).unwrap_or(usize::MAX).max(2);
        // Each of them is in flight as a whole; who wants several in flight for each reader has them read in another way.
        let several = self.depth.is_some_and(|depth| depth > 1);
        let whole = known.whole.is_some_and(|least| block >= least) && !several;
        let measured = known.measured.iter().find(|m| m.block == block);
        let (readers, readers_why) = self.readers(known, measured, blocks, whole);
        // Half of the memory is for what is in flight.
        let most_depth = limits::MAX_QUEUE_DEPTH.min(blocks / 2 / readers).max(1);
        let (depth, depth_why) = self.depth(measured, readers, block, whole);
        let fixed = self.depth.is_some() || whole;
        let most_depth = if fixed { depth.min(most_depth) } else { most_depth };
        let depth = depth.clamp(1, most_depth);
        let most = MOST_READERS.min(blocks / 2).max(readers);
        let (least, most) = if self.readers.is_some() { (readers, readers) } else { (1, most) };
        let choice = Choice {
            readers,
            block,
            depth,
            most_depth,
            least_depth: if fixed { depth } else { 1 },
            readers_at_least: least,
            readers_at_most: most,
            blocks,
            whole,
            pinned: self.readers.is_some() || self.depth.is_some(),
            // It says nothing of how others would read.
            measured: measured
                .filter(|m| m.settled && (m.readers, m.depth) == (readers, depth))
                .map(|m| m.rate),
        };
        let decision = |name, value: String, reason: String| Decision { name, value, reason };
        let decisions = vec![
            decision("readers", readers.to_string(), readers_why),
            decision("block", format_size(block), block_why),
            decision("queue depth", depth.to_string(), depth_why),
        ];
        Chosen { choice, decisions, range: known.range, by_range: !known.cached }
    }

    fn block(&self, known: &Known) -> (u64, String) {
        // There is a bit for each of those in the page cache: at most 2 MiB of bits, whatever was asked for.
        let least = if known.cached { known.len / MOST_CACHED } else { 0 };
        // Four blocks at least have room in the memory; those in the page cache take none of it.
        let fit_in = |memory: u64, wanted: u64| {
            let most = limits::MAX_READ_BLOCK as u64;
            wanted.min(memory / 4).max(least).clamp(PAGE, most).next_multiple_of(PAGE)
        };
        if let Some(block) = self.block {
            let block = block as u64;
            let why = if block < least {
                let len = format_size(known.len);
                format!("more than was asked for: a file of {len} has {MOST_CACHED} blocks at most")
            } else {
                ASKED.to_owned()
            };
            return (fit_in(self.memory, block), why);
        }
        // Each of many files keeps a block in any case. With the part that the next one would have, all of theirs together
        // stay within the budget up to some thousand files.
        let part = match known.others {
            0 => self.memory,
            others => self.memory / 2 / (others + 1),
        };
        let fit = |wanted: u64| fit_in(part, wanted);
        // What is read is at least some tens of blocks, so that its first bytes come early; a block is large enough for a
        // device to be at its rate with few of them in flight, and no larger.
        let small = if known.whole.is_some() { 2 << 20 } else { 256 << 10 };
        let by_size = |len: u64| (len / 64).clamp(small, 2 << 20);
        let (usual, most) = if known.cached {
            (by_size(known.len).max(least), u64::MAX)
        } else {
            let most = most_block(known.range);
            (power_of_two(by_size(known.range)).min(most), most)
        };
        if let Some(stripe) = known.tier.as_ref().and_then(|t| t.stripe) {
            let whole = usual.max(stripe.size).checked_next_multiple_of(stripe.size);
            if let Some(whole) = whole.filter(|whole| *whole <= most) {
                return (fit(whole), format!("whole stripes of {}", format_size(stripe.size)));
            }
        }
        if let Some(preferred) = known.tier.as_ref().map(|t| t.preferred)
            && (usual + 1..=most).contains(&preferred)
        {
            return (fit(preferred), "what the file system asks for".to_owned());
        }
        // Another size was measured, on this tier, to be clearly better. Smaller ones than would be chosen anyway were
        // somebody's own wish, and may have come from the page cache.
        let rate = |m: &&Measured| m.rate;
        let least = if known.cached { least.max(small) } else { usual };
        let worth = least..=usual.saturating_mul(8).min(most);
        let before = known.measured.iter().filter(|m| m.block == fit(usual)).max_by_key(rate);
        let best = known.measured.iter().filter(|m| worth.contains(&m.block)).max_by_key(rate);
        if let (Some(before), Some(best)) = (before, best)
            && best.rate / 10 > before.rate / 9
        {
            return (fit(best.block), as_before(best));
        }
        let why = if known.cached && known.whole.is_some() && usual == 2 << 20 {
            "a huge page of the page cache".to_owned()
        } else if known.cached {
            let len = format_size(known.len);
            format!("a part of the file of {len}, between 256 KiB and 2 MiB")
        } else if usual < power_of_two(by_size(known.range)) {
            let range = format_size(known.range);
            format!("little more than the session's range of {range} is read so")
        } else {
            let range = format_size(known.range);
            format!("a part of the session's range of {range}, up to 2 MiB")
        };
        (fit(usual), why)
    }

    fn readers(
        &self,
        known: &Known,
        measured: Option<&Measured>,
        blocks: usize,
        whole: bool,
    ) -> (usize, String) {
        if let Some(readers) = self.readers {
            return (readers.clamp(1, limits::MAX_THREADS), ASKED.to_owned());
        }
        if let Some(m) = measured {
            return (m.readers.min(MOST_READERS.min(blocks / 2)).max(1), as_before(m));
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

    fn depth(
        &self,
        measured: Option<&Measured>,
        readers: usize,
        block: u64,
        whole: bool,
    ) -> (usize, String) {
        if let Some(depth) = self.depth {
            return (depth.clamp(1, limits::MAX_QUEUE_DEPTH), ASKED.to_owned());
        }
        if whole {
            return (
                1,
                "the page cache reads huge pages, one at a time for each reader".to_owned(),
            );
        }
        if let Some(m) = measured {
            if m.readers == readers {
                return (m.depth, as_before(m));
            }
            let depth = m.readers.saturating_mul(m.depth).div_ceil(readers);
            return (depth, format!("as many in flight together as {}", as_before(m)));
        }
        // Some MiB in flight keep most devices busy.
        let bytes = 16 << 20;
        let depth = usize::try_from(bytes / block).unwrap_or(1).clamp(4, 16);
        (depth, "to begin with; the first blocks show whether more is better".to_owned())
    }
}

/// Why something is as it was before.
fn as_before(measured: &Measured) -> String {
    format!("measured before on this tier: {}/s", format_size(measured.rate))
}

impl Chosen {
    /// With another reason for what was pinned here, and not by the user.
    pub(crate) fn because(&mut self, name: &str, reason: String) {
        if let Some(decision) = self.decisions.iter_mut().find(|d| d.name == name) {
            decision.reason = reason;
        }
    }

    /// What is told to a session over `range` bytes that lie in so many blocks, which may not be the one that this was chosen
    /// for.
    pub(crate) fn told(&self, range: u64, blocks: u64) -> Vec<Decision> {
        let mut all = self.decisions.clone();
        for decision in all.iter_mut().filter(|d| d.reason != ASKED) {
            match decision.name {
                "readers" if blocks < self.choice.readers as u64 => {
                    decision.value = blocks.max(1).to_string();
                    let range = format_size(range);
                    decision.reason = format!("the range of {range} lies in {blocks} block(s)");
                }
                "block" if self.by_range && self.range != range => {
                    let first = format_size(self.range);
                    let why = &decision.reason;
                    decision.reason = format!("{why}; chosen for an earlier session, of {first}");
                }
                _ => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_store::Stripe;

    /// A session over all of a file, into memory.
    fn known(len: u64, cores: usize) -> Known {
        Known { len, range: len, cores, ..Known::default() }
    }

    fn choice(options: &Options, known: &Known) -> (Choice, Vec<Decision>) {
        let chosen = options.choose(known);
        (chosen.choice, chosen.decisions)
    }

    fn tier(stripe: Option<Stripe>, preferred: u64) -> Option<Tier> {
        Some(Tier { name: "t-0:0".into(), preferred, stripe })
    }

    fn reason(decisions: &[Decision], name: &str) -> String {
        decisions.iter().find(|d| d.name == name).unwrap().reason.clone()
    }

    fn measured(block: u64, readers: usize, depth: usize, rate: u64) -> Measured {
        let way = crate::profile::Way::of(true, false, &IoOptions::default());
        Measured { tier: "t-0:0".into(), way, block, readers, depth, rate, settled: true }
    }

    #[test]
    fn what_was_found_before_is_where_it_begins() {
        let found = measured(2 << 20, 8, 1, 1 << 30);
        let with = |found: Measured| Known {
            whole: Some(1 << 20),
            cached: true,
            measured: vec![found],
            ..known(1 << 30, 2)
        };
        let (c, why) = choice(&Options::default(), &with(found.clone()));
        assert_eq!((c.readers, c.depth, c.whole, c.measured), (8, 1, true, Some(1 << 30)));
        assert_eq!(reason(&why, "readers"), "measured before on this tier: 1.0 GiB/s");
        assert_eq!((c.readers_at_least, c.readers_at_most), (1, MOST_READERS));
        // What was not found to its end goes on; no number is believed that could do harm; a wish goes before.
        let open = Measured { settled: false, ..found.clone() };
        assert_eq!(choice(&Options::default(), &with(open)).0.measured, None);
        let many = Measured { readers: 1000, ..found.clone() };
        assert_eq!(choice(&Options::default(), &with(many.clone())).0.readers, MOST_READERS);
        let small = Options { memory: 8 << 20, ..Options::default() };
        assert_eq!(choice(&small, &with(many)).0.readers, 2);
        let pinned = Options { readers: Some(3), ..Options::default() };
        let (c, why) = choice(&pinned, &with(found));
        assert_eq!((c.readers, c.readers_at_least, c.readers_at_most), (3, 3, 3));
        assert_eq!(reason(&why, "readers"), ASKED);
    }

    #[test]
    fn other_readers_than_were_measured_have_as_many_blocks_in_flight_together() {
        let with = |readers, depth, pinned| {
            let found = vec![measured(2 << 20, readers, depth, 1000)];
            let known = Known { measured: found, cached: true, ..known(1 << 30, 8) };
            let (c, why) = choice(&Options { readers: pinned, ..Options::default() }, &known);
            let why = reason(&why, "queue depth");
            (c.readers, c.depth, c.measured, why.starts_with("measured before"))
        };
        assert_eq!(with(16, 1, Some(1)), (1, 16, None, false));
        assert_eq!(with(4, 4, Some(3)), (3, 6, None, false));
        assert_eq!(with(32, 1, None), (16, 2, None, false));
        assert_eq!(with(4, 4, None), (4, 4, Some(1000), true));
        assert_eq!(with(4, 4, Some(4)), (4, 4, Some(1000), true));
    }

    #[test]
    fn blocks_fit_the_file_and_the_memory() {
        let options = Options::default();
        for len in [0, 1, 1 << 20, 1 << 30, 1 << 40, 1 << 50, u64::MAX] {
            for memory in [0, 4096, 1 << 20, 256 << 20] {
                let options = Options { memory, ..options.clone() };
                let (c, _) = choice(&options, &known(len, 8));
                assert!(c.block % PAGE == 0 && c.block >= PAGE, "{c:?}");
                assert!(c.block <= (memory / 4).max(PAGE), "{c:?}");
                assert!(c.depth >= 1 && c.depth <= c.most_depth, "{c:?}");
                assert!(c.readers * c.most_depth <= (c.blocks / 2).max(c.readers), "{c:?}");
            }
        }
        for len in [1 << 30, 1 << 40, 1 << 44] {
            assert_eq!(options.choose(&known(len, 2)).choice.block, 2 << 20);
        }
    }

    #[test]
    fn a_block_of_each_of_many_files_is_within_the_budget() {
        let options = Options::default();
        let block = |others| options.choose(&Known { others, ..known(1 << 40, 8) }).choice.block;
        assert_eq!((block(0), block(15)), (2 << 20, 2 << 20));
        assert!((0..1000).map(block).sum::<u64>() <= options.memory);
    }

    #[test]
    fn pins_hold() {
        let options =
            Options { readers: Some(3), block: Some(5000), depth: Some(7), ..Options::default() };
        let (c, why) = choice(&options, &known(1 << 30, 64));
        assert_eq!((c.readers, c.block, c.depth, c.most_depth), (3, 8192, 7, 7));
        assert!(why.iter().all(|d| d.reason == ASKED));
    }

    #[test]
    fn a_huge_file_in_the_page_cache_has_no_smaller_blocks_than_there_are_bits_for() {
        let len: u64 = 1 << 46;
        let small = Options { block: Some(4096), ..Options::default() };
        let little = Options { memory: 0, ..Options::default() };
        for options in [&small, &little] {
            let (c, why) = choice(options, &Known { cached: true, ..known(len, 8) });
            assert!(len / c.block <= 1 << 24, "{c:?}");
            assert_eq!(why[1].value, format_size(c.block));
            assert_ne!(why[1].reason, ASKED);
        }
        let (c, why) = choice(&small, &Known { cached: true, ..known(1 << 36, 8) });
        assert_eq!((c.block, &*why[1].reason), (4096, ASKED));
        assert_eq!(choice(&small, &known(len, 8)).0.block, 4096);
    }

    #[test]
    fn huge_pages_are_read_by_some_readers_each_of_which_waits() {
        let known = Known { whole: Some(1 << 20), cached: true, ..known(1 << 30, 2) };
        let (c, why) = choice(&Options::default(), &known);
        assert_eq!((c.readers, c.depth, c.most_depth, c.whole), (4, 1, 1, true));
        assert!(reason(&why, "readers").contains("sleeps"), "{why:?}");
        let short = Known { len: 3 << 20, range: 1, ..known.clone() };
        assert_eq!(Options::default().choose(&short).choice.block, 2 << 20);
        // Small blocks are asked for some at a time.
        let small = Options { block: Some(256 << 10), ..Options::default() };
        let (c, _) = choice(&small, &known);
        assert_eq!((c.readers, c.depth, c.whole), (1, 16, false));
        let pinned = Options { readers: Some(2), depth: Some(3), ..Options::default() };
        let (c, _) = choice(&pinned, &known);
        assert_eq!((c.readers, c.depth, c.most_depth, c.whole), (2, 3, 3, false));
        let one = Options { depth: Some(1), ..Options::default() };
        let (c, _) = choice(&one, &known);
        assert_eq!((c.readers, c.depth, c.whole), (4, 1, true));
    }

    #[test]
    fn stripes_decide_where_there_are_some() {
        let stripe = Some(Stripe { size: 4 << 20, count: 8 });
        let known = Known { tier: tier(stripe, 4096), ..known(1 << 40, 32) };
        let (c, why) = choice(&Options::default(), &known);
        assert_eq!((c.readers, c.block % (4 << 20)), (8, 0));
        assert!(reason(&why, "block").contains("stripes"), "{why:?}");
        // A file system may ask for large reads.
        let known = Known { tier: tier(None, 8 << 20), ..known };
        assert_eq!(Options::default().choose(&known).choice.block, 8 << 20);
    }

    #[test]
    fn what_was_measured_is_believed_if_it_is_clear() {
        let m = |block, depth, rate| measured(block, 2, depth, rate);
        let with = |measured| Known { tier: tier(None, 4096), measured, ..known(1 << 30, 8) };
        let c = |measured| Options::default().choose(&with(measured)).choice;
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(4 << 20, 4, 1050)]).block, 2 << 20);
        let found = c(vec![m(2 << 20, 12, 1000), m(4 << 20, 4, 1050)]);
        assert_eq!((found.readers, found.depth, found.measured), (2, 12, Some(1000)));
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(4 << 20, 4, 2000)]).block, 4 << 20);
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(1 << 30, 4, 2000)]).block, 2 << 20);
        assert_eq!(c(vec![m(2 << 20, 12, 1000), m(64 << 10, 256, 9000)]).block, 2 << 20);
    }

    #[test]
    fn little_is_read_beyond_a_range_in_memory() {
        let tiers = [
            None,
            tier(None, 1 << 20),
            tier(Some(Stripe { size: 1 << 20, count: 4 }), 4 << 20),
            tier(None, 4096),
        ];
        for tier in tiers {
            for log in 0..45 {
                let range = (1 << log) + log;
                let known = Known { range, tier: tier.clone(), ..known(1 << 46, 8) };
                let (c, why) = choice(&Options::default(), &known);
                assert!(2 * c.block <= (range / 8).max(2 * SMALL), "{range}: {c:?} {why:?}");
                assert!(c.block >= (range / 64).clamp(1, 2 << 20) / 2, "{range}: {c:?} {why:?}");
            }
        }
        // Blocks of the page cache are those of the file, as only a part of them is read.
        let cached = Known { range: 1000, cached: true, ..known(1 << 30, 8) };
        assert_eq!(Options::default().choose(&cached).choice.block, 2 << 20);
    }

    #[test]
    fn small_blocks_are_not_chosen_for_what_was_measured_of_them() {
        let m = |block, rate| measured(block, 1, 4, rate);
        let all = vec![m(2 << 20, 1000), m(64 << 10, 9000), m(4 << 20, 9000)];
        let known = |range| Known { range, measured: all.clone(), ..known(1 << 40, 8) };
        let block = |range| Options::default().choose(&known(range)).choice.block;
        // For a large range the large one; for a small one none that goes far beyond it.
        assert_eq!((block(1 << 30), block(40 << 20), block(100)), (4 << 20, 512 << 10, SMALL));
    }

    #[test]
    fn a_session_is_told_of_its_own_range() {
        let chosen = Options::default().choose(&Known { range: 4 << 20, ..known(1 << 40, 64) });
        assert_eq!((chosen.choice.block, chosen.choice.readers), (256 << 10, 8));
        let own = chosen.told(4 << 20, 16);
        assert!(reason(&own, "block").contains("4.0 MiB"), "{own:?}");
        assert!(!reason(&own, "block").contains("earlier"), "{own:?}");
        let other = chosen.told(1000, 1);
        assert!(reason(&other, "block").ends_with("an earlier session, of 4.0 MiB"), "{other:?}");
        assert_eq!(other[0].value, "1");
        assert_eq!(reason(&other, "readers"), "the range of 1000 B lies in 1 block(s)");
        // What is pinned is no choice.
        let pinned = Options { readers: Some(8), block: Some(8192), ..Options::default() };
        let chosen = pinned.choose(&known(1 << 40, 64));
        assert_eq!(chosen.told(1000, 1), chosen.decisions);
    }

    #[test]
    fn sessions_join_what_serves_them() {
        let there = |block, busy, covers| There { block, busy, covers };
        let serves = |there: There, wanted, range| there.serve(wanted, range).is_some();
        let (small, large) = (SMALL, 2 << 20);
        let body = 1 << 30;
        // A header before, open or not.
        assert!(!serves(there(small, true, false), large, body));
        assert!(!serves(there(small, false, false), large, body));
        // A part that is read beside, and one that was read before.
        assert!(serves(there(large / 8, true, false), large, body));
        assert!(!serves(there(large / 8, false, false), large, body));
        assert!(serves(there(large / 2, false, false), large, body));
        // A small part of what others read, or have read; or of something else.
        assert!(serves(there(large, true, true), small, 1000));
        assert!(!serves(there(large, true, false), small, 1000));
        assert!(serves(there(large, false, false), large / 2, 64 << 20));
        assert!(serves(there(small, false, false), small, 1000));
        // Best by what reads its bytes anyway, then by blocks of its own size, then by large ones.
        let best = [
            there(large, true, true),
            there(small, true, true),
            there(small, false, false),
            there(small / 2, true, false),
        ];
        let best = best.map(|b| b.serve(small, 1000).unwrap());
        assert_eq!(best.iter().max(), Some(&(true, true, small)));
        assert!(best[0] > best[2] && best[2] > best[3]);
    }
}
