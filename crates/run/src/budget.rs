//! How the memory budget is divided between buffers, records and kernel states.

use crate::Request;
use crate::clock::processors;
use crate::meeting::Member;
use stead_core::{Error, Result, limits, units::format_size};
use stead_store::MOST_PASSED;

/// What a run may use. The parts sum to no more than the budget.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub threads: usize,
    pub chunk: usize,
    pub depth: usize,
    /// Longest record.
    pub max_record: usize,
    /// All kernel states together.
    pub states: u64,
    /// Blocks kept for later passes.
    pub kept: u64,
    /// Output of map kernels that waits for its turn.
    pub pending: usize,
}

/// Parsed columns, spans and a second copy of the text can take this many times the chunk: a row of two
/// bytes becomes 8 bytes of number and 8 of span.
const PARSED: usize = 10;

/// What one rank may use.
struct Means {
    memory: u64,
    threads: usize,
    chunk: usize,
    depth: usize,
}

/// Extents of one rank at least, if they have [`SMALL`] bytes then.
const EXTENTS: u64 = 4;
const SMALL: usize = 64 << 10;

/// With the default budget buffers take no more than this, as long as chunks are larger than [`SMALLER`], and with kept blocks and
/// pages of files that are looked at where they are cached no more than [`USED`], up to 32 threads, whatever the size of the
/// data. Who gives more memory wants more to be used.
const BUFFERS: u64 = 128 << 20;
const USED: u64 = 232 << 20;
const SMALLER: usize = 256 << 10;
/// Kept blocks where buffers of many threads take all of that.
const KEPT: u64 = 64 << 20;

/// Outputs that wait take no more of the default budget: where much waits, kept blocks are what is read.
const PENDING: u64 = 32 << 20;

/// The smallest budget.
const LEAST: u64 = 8 << 20;

impl Budget {
    /// Of the only rank.
    pub fn of(request: &Request) -> Result<Budget> {
        if request.memory < LEAST {
            return Err(Error::usage(format!(
                "a memory budget of {} is too small",
                format_size(request.memory)
            ))
            .with_hint(format!("give at least {}", format_size(LEAST))));
        }
        let threads = if request.threads == 0 { processors() } else { request.threads };
        let (memory, chunk, depth) = (request.memory, request.chunk, request.io.depth);
        Means { memory, threads, chunk, depth }.divide()
    }

    /// With one thread where a kernel wants the data in their order.
    pub fn ordered(self, ordered: bool) -> Budget {
        Budget { threads: if ordered { 1 } else { self.threads }, ..self }
    }

    /// Of this rank: memory and processors of a node are for all ranks on it. Extents and the longest record are the same on
    /// all ranks, those of the rank that can have the least. So are errors.
    /// Where `bytes`, those of the data, are few, extents are small enough for each rank to get some.
    pub fn of_ranks(
        members: &[Member],
        nodes: &[Vec<usize>],
        rank: usize,
        bytes: u64,
    ) -> Result<Budget> {
        let mut mine = None;
        let (mut chunk, mut max_record) = (usize::MAX, usize::MAX);
        for node in nodes {
            let there: Vec<&Member> = node.iter().filter_map(|r| members.get(*r)).collect();
            for (r, member) in node.iter().zip(&there) {
                let ranks = there.len().max(1) as u64;
                let memory = member.memory / ranks;
                if memory < LEAST {
                    let all = LEAST.saturating_mul(ranks);
                    return Err(Error::usage(format!(
                        "a memory budget of {} is too small for {ranks} ranks on one node",
                        format_size(member.memory)
                    ))
                    .with_hint(format!("give at least {}", format_size(all))));
                }
                let small = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                let threads = member.fair_threads(&there);
                let (c, depth) = (small(member.chunk), small(member.depth));
                let budget = Means { memory, threads, chunk: c, depth }.divide()?;
                chunk = chunk.min(budget.chunk);
                max_record = max_record.min(budget.max_record);
                if *r == rank {
                    mine = Some(budget);
                }
            }
        }
        let mine = mine.ok_or_else(|| Error::internal("this rank is on no node"))?;
        let each = bytes / (EXTENTS * members.len().max(1) as u64);
        let few = usize::try_from(each).unwrap_or(usize::MAX).max(SMALL);
        Ok(Budget { chunk: chunk.min(few), max_record, ..mine })
    }
}

impl Means {
    fn divide(self) -> Result<Budget> {
        let Means { memory, mut threads, chunk, depth } = self;
        if threads > limits::MAX_THREADS {
            return Err(Error::usage(format!(
                "{threads} threads; at most {} are possible",
                limits::MAX_THREADS
            )));
        }
        let depth = depth.clamp(1, 256);
        let mut chunk = chunk.clamp(1, limits::MAX_CHUNK);
        let more = memory.saturating_sub(limits::DEFAULT_MEMORY);
        let buffers = (memory / 2).min(BUFFERS + more / 2);
        let all = |chunk: usize, threads: usize| {
            (chunk as u64).saturating_mul((depth + PARSED) as u64).saturating_mul(threads as u64)
        };
        while chunk > SMALLER && all(chunk, threads) > buffers {
            chunk /= 2;
        }
        // At most half the budget is for buffers; smaller chunks first, then fewer threads.
        while all(chunk, threads) > memory / 2 {
            if chunk > limits::MIN_CHUNK {
                chunk /= 2;
            } else if threads > 1 {
                threads -= 1;
            } else {
                break;
            }
        }
        let buffers = all(chunk, threads);
        Ok(Budget {
            threads,
            chunk,
            depth,
            max_record: usize::try_from(memory / 4).unwrap_or(usize::MAX).min(limits::MAX_CHUNK),
            states: memory / 4,
            // And what neither buffers nor the longest record can take of their half.
            kept: (memory / 8 + (memory / 4).saturating_sub(buffers))
                .min((USED - MOST_PASSED + more / 8 * 3).saturating_sub(buffers).max(KEPT)),
            pending: usize::try_from((memory / 16).min(PENDING + more / 16)).unwrap_or(usize::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_and_little_memory_fit() {
        let r = Request { memory: 16 << 20, threads: 64, ..Request::default() };
        let b = Budget::of(&r).expect("budget");
        assert!((b.chunk * (b.depth + PARSED) * b.threads) as u64 <= 8 << 20, "{b:?}");
        assert!(Budget::of(&Request { memory: 1000, ..r }).is_err());
        let r = Request { memory: 256 << 20, threads: 2, ..Request::default() };
        let b = Budget::of(&r).expect("budget");
        let buffers = (b.chunk * (b.depth + PARSED) * b.threads) as u64;
        assert!(b.kept > 64 << 20 && b.kept + buffers == (64 + 32) << 20, "{b:?}");
    }

    #[test]
    fn by_default_no_more_than_256_mb_are_used_whatever_the_machine() {
        let of = |memory, threads| {
            Budget::of(&Request { memory, threads, ..Request::default() }).expect("budget")
        };
        for threads in [1, 2, 7, 32, 256] {
            let b = of(limits::DEFAULT_MEMORY, threads);
            let buffers = (b.chunk * (b.depth + PARSED) * b.threads) as u64;
            // The rest is for the program and its libraries.
            let most = if threads <= 32 { 244_000_000 } else { 600_000_000 };
            let used = b.kept + buffers + MOST_PASSED;
            assert!(used <= most && b.kept >= KEPT, "{threads}: {b:?}");
            assert_eq!(b.threads, threads);
        }
        // And no jump where more is asked for.
        let kept = |memory| of(memory, 2).kept;
        let default = limits::DEFAULT_MEMORY;
        assert!(kept(default + (8 << 20)) - kept(default) < 4 << 20 && kept(8 << 30) > 2 << 30);
    }
}
