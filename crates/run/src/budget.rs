//! How the memory budget is divided between buffers, records and kernel states.

use crate::Request;
use crate::clock::processors;
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

impl Budget {
    pub fn of(request: &Request) -> Result<Budget> {
        let memory = request.memory;
        let least = 8 << 20;
        if memory < least {
            return Err(Error::usage(format!(
                "a memory budget of {} is too small",
                format_size(memory)
            ))
            .with_hint(format!("give at least {}", format_size(least))));
        }
        if request.threads > limits::MAX_THREADS {
            return Err(Error::usage(format!(
                "{} threads; at most {} are possible",
                request.threads,
                limits::MAX_THREADS
            )));
        }
        let depth = request.io.depth.clamp(1, 256);
        let mut threads = if request.threads == 0 { processors() } else { request.threads };
        let mut chunk = request.chunk.clamp(1, limits::MAX_CHUNK);
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
