//! How fast a tier is read: past the page cache, at the queue depth that serves it best, and through it.

use crate::clock::Watch;
use std::path::Path;
use std::sync::Arc;
use stead_core::{Cancel, Error, Result};
use stead_model::Tier;
use stead_store::{AtomicFile, Engine, FileSource, IoOptions, ReadQueue, Source, evict};

/// Bytes of a read when rates are measured, and of one when latency is.
const BLOCK: usize = 1 << 20;
const SMALL: usize = 4 << 10;
/// Reads in flight that are tried, and how much better more of them must be.
const DEPTHS: [usize; 4] = [1, 4, 16, 64];
const WORTH: f64 = 1.05;
/// Bytes of a file that is made for it.
const LEAST_BYTES: u64 = 8 << 20;
const MOST_BYTES: u64 = 512 << 20;
/// Bytes that are taken from memory, and how often.
const TAKEN_BYTES: u64 = 64 << 20;
const TAKEN_TIMES: usize = 3;
/// Small reads that are timed at most.
const SMALL_READS: usize = 200;

/// Measures the storage behind a folder or a file in about so many seconds: `NAME` through the page cache, which has nothing of
/// it, and `NAME-direct` past it, where the file system can do that.
///
/// # Errors
/// `NoSpace`, `Permission`, `Io`; `Usage` for a file with nothing in it; `Cancelled`.
pub fn measure(path: &Path, seconds: f64, cancel: &Cancel) -> Result<Vec<Tier>> {
    let made = path.is_dir().then(|| make(path, seconds / 3.0, cancel)).transpose()?;
    let file = FileSource::open(made.as_ref().map_or(path, AtomicFile::temporary))?;
    if file.len() < SMALL as u64 {
        return Err(Error::usage("there is too little in it to measure how fast it is read")
            .at_path(path)
            .with_hint("name a folder of the same storage, or a larger file"));
    }
    let tier = stead_store::Tier::of(&file);
    let name = tier.map_or_else(|| "tier".to_owned(), |t| t.name);
    let source: Arc<dyn Source> = Arc::new(file);
    // What is left is for the small reads, the four depths, and the reads through the cache.
    let each = seconds * 2.0 / 3.0 / (DEPTHS.len() + 2) as f64;
    let latency_s = latency(&source, each, cancel)?;
    let mut tiers = Vec::new();
    let cached = rate(&source, false, 16, each, cancel)?;
    let core_s_per_gb = taken(&source, cancel)? * 1e9;
    let tier = |name: String, bytes_per_s: f64, depth: usize| Tier {
        latency_s,
        depth: depth as u32,
        core_s_per_gb,
        ..Tier::new(name, "", bytes_per_s.max(1.0))
    };
    let mut best: Option<(f64, usize)> = None;
    for depth in DEPTHS {
        match rate(&source, true, depth, each, cancel) {
            Ok(rate) if best.is_none_or(|(most, _)| rate > most * WORTH) => {
                best = Some((rate, depth));
            }
            Ok(_) => {}
            // The file system has no direct reads.
            Err(e) if e.kind() == stead_core::Kind::Usage => break,
            Err(e) => return Err(e),
        }
    }
    tiers.push(tier(name.clone(), cached, 16));
    tiers.extend(best.map(|(rate, depth)| tier(format!("{name}-direct"), rate, depth)));
    Ok(tiers)
}

/// A file of bytes that no device can make less of, which goes when it is dropped.
fn make(folder: &Path, seconds: f64, cancel: &Cancel) -> Result<AtomicFile> {
    let mut file = AtomicFile::create(folder.join("stead-calibrate"))?;
    let (watch, mut block, mut seed) = (Watch::start(), vec![0u8; BLOCK], 1u64);
    let enough = |bytes: u64| bytes >= LEAST_BYTES && watch.seconds() >= seconds;
    while file.written() < MOST_BYTES && !enough(file.written()) {
        cancel.check()?;
        for word in block.chunks_exact_mut(8) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            word.copy_from_slice(&seed.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    // Pages that are not on the device yet cannot leave the cache.
    file.sync()?;
    Ok(file)
}

fn forget(source: &Arc<dyn Source>) {
    source.file().into_iter().for_each(evict);
}

/// Seconds of one small read, alone, at places in no order.
fn latency(source: &Arc<dyn Source>, seconds: f64, cancel: &Cancel) -> Result<f64> {
    forget(source);
    let places = source.len() / SMALL as u64;
    let (watch, mut took, mut seed) = (Watch::start(), Vec::new(), 7u64);
    let mut queue = queue(true, 1)?;
    while took.len() < SMALL_READS && (took.is_empty() || watch.seconds() < seconds) {
        cancel.check()?;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (seed >> 33) % places * SMALL as u64;
        let begun = watch.seconds();
        match read(&mut queue, source, offset, SMALL) {
            Ok(()) => took.push(watch.seconds() - begun),
            // No direct reads: through the cache, which has nothing yet.
            Err(e) if e.kind() == stead_core::Kind::Usage => {
                queue = self::queue(false, 1)?;
                let begun = watch.seconds();
                read(&mut queue, source, offset, SMALL)?;
                took.push(watch.seconds() - begun);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(super::median(&mut took))
}

/// Core-seconds of a byte that is taken from a file whose pages are in memory.
fn taken(source: &Arc<dyn Source>, cancel: &Cancel) -> Result<f64> {
    let len = source.len().min(TAKEN_BYTES);
    let mut least = f64::INFINITY;
    // The first time brings it into memory.
    for _ in 0..=TAKEN_TIMES {
        let (mut queue, mut asked, mut sum, watch) = (queue(false, 4)?, 0, 0u64, Watch::start());
        loop {
            while asked < len && !queue.is_full() {
                let next = (len - asked).min(2 * BLOCK as u64);
                queue.submit(0, source, asked, next as usize)?;
                asked += next;
            }
            let Some(done) = queue.next()? else { break };
            cancel.check()?;
            sum = looked_at(&done.buffer, sum);
            queue.recycle(done.buffer)?;
        }
        std::hint::black_box(sum);
        least = least.min(watch.cpu_seconds());
    }
    Ok(least.max(0.0) / len.max(1) as f64)
}

/// Bytes that are mapped come when they are looked at.
fn looked_at(bytes: &[u8], sum: u64) -> u64 {
    bytes.iter().step_by(SMALL).fold(sum, |sum, b| sum.wrapping_add(u64::from(*b)))
}

fn queue(direct: bool, depth: usize) -> Result<ReadQueue> {
    ReadQueue::new(&IoOptions { engine: Engine::Auto, depth, direct })
}

fn read(queue: &mut ReadQueue, source: &Arc<dyn Source>, offset: u64, len: usize) -> Result<()> {
    queue.submit(0, source, offset, len)?;
    while let Some(done) = queue.next()? {
        queue.recycle(done.buffer)?;
    }
    Ok(())
}

/// Bytes in a second, from the start of the file on, with so many reads in flight; once over it, or until the time is over.
fn rate(
    source: &Arc<dyn Source>,
    direct: bool,
    depth: usize,
    seconds: f64,
    cancel: &Cancel,
) -> Result<f64> {
    forget(source);
    let mut queue = queue(direct, depth)?;
    let (watch, mut asked, mut bytes, mut sum) = (Watch::start(), 0, 0, 0u64);
    loop {
        while asked < source.len() && !queue.is_full() && (bytes == 0 || watch.seconds() < seconds)
        {
            let len = (source.len() - asked).min(BLOCK as u64);
            queue.submit(0, source, asked, len as usize)?;
            asked += len;
        }
        let Some(done) = queue.next()? else { break };
        cancel.check()?;
        bytes += done.buffer.len() as u64;
        sum = looked_at(&done.buffer, sum);
        queue.recycle(done.buffer)?;
    }
    std::hint::black_box(sum);
    Ok(bytes as f64 / watch.seconds().max(1e-9))
}
