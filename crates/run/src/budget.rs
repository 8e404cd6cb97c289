//! How the memory budget is divided between buffers, records and kernel states.

use crate::Request;
use crate::clock::processors;
use crate::meeting::Member;
use stead_core::{Error, Result, limits, units::format_size};

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
        // Half the budget is for buffers; smaller chunks first, then fewer threads.
        let per_worker = |chunk: usize| (chunk as u64).saturating_mul((depth + PARSED) as u64);
        while per_worker(chunk).saturating_mul(threads as u64) > memory / 2 {
            if chunk > limits::MIN_CHUNK {
                chunk /= 2;
            } else if threads > 1 {
                threads -= 1;
            } else {
                break;
            }
        }
        Ok(Budget {
            threads,
            chunk,
            depth,
            max_record: usize::try_from(memory / 4).unwrap_or(usize::MAX).min(limits::MAX_CHUNK),
            states: memory / 4,
            // And what neither buffers nor the longest record can take of their half.
            kept: memory / 8
                + (memory / 4).saturating_sub(per_worker(chunk).saturating_mul(threads as u64)),
            pending: usize::try_from(memory / 16).unwrap_or(usize::MAX),
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
}
