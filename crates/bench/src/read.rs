//! How fast this machine looks at every byte of a file once: what no scan can be faster than.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use stead_core::{Error, Result, limits};
use stead_store::{FileSource, IoOptions, ReadQueue, Source};

/// Adds up the words of a file with all cores, and says how long that took, as JSON.
#[allow(clippy::disallowed_methods)] // It is here to take the time.
pub fn once(path: &Path) -> Result<String> {
    let start = Instant::now();
    let source: Arc<dyn Source> = Arc::new(FileSource::open(path)?);
    let (next, total) = (AtomicU64::new(0), AtomicU64::new(0));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..cores).map(|_| scope.spawn(|| work(&source, &next, &total))).collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().unwrap_or_else(|_| Err(Error::internal("a thread died"))))
    })?;
    let (sum, seconds) = (total.into_inner(), start.elapsed().as_secs_f64());
    let rate = source.len() as f64 / seconds;
    Ok(format!(
        "{{\"seconds\": {seconds:.6}, \"bytes_per_second\": {rate:.0}, \"threads\": {cores}, \"sum\": {sum}}}"
    ))
}

fn work(source: &Arc<dyn Source>, next: &AtomicU64, total: &AtomicU64) -> Result<()> {
    let mut queue = ReadQueue::new(&IoOptions::default())?;
    let chunk = limits::DEFAULT_CHUNK as u64;
    let mut sum = 0u64;
    loop {
        while !queue.is_full() {
            let offset = next.fetch_add(chunk, Ordering::Relaxed);
            if offset >= source.len() {
                break;
            }
            queue.submit(0, source, offset, chunk.min(source.len() - offset) as usize)?;
        }
        let Some(done) = queue.next()? else { break };
        let (words, rest) = done.buffer.as_chunks::<8>();
        let mut sums = [0u64; 8];
        for eight in words.chunks(8) {
            for (s, w) in sums.iter_mut().zip(eight) {
                *s = s.wrapping_add(u64::from_le_bytes(*w));
            }
        }
        sum = sums.iter().fold(sum, |a, b| a.wrapping_add(*b));
        sum = rest.iter().fold(sum, |a, b| a.wrapping_add(u64::from(*b)));
        queue.recycle(done.buffer)?;
    }
    total.fetch_add(sum, Ordering::Relaxed);
    Ok(())
}
