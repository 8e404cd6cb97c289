//! Where records begin in a file, so that stripes end there.

use super::Put;
use std::sync::{Arc, Mutex, PoisonError};
use stead_core::layout::aligned;
use stead_core::{Cancel, Error, Needs, RecordKind, Result};
use stead_format::{Dataset, ScanOptions};
use stead_store::{FileSource, Source};

/// Cuts between stripes of about `put.stripe` bytes, at which records begin. Costs one scan where quotes decide that, and
/// next to nothing elsewhere.
///
/// # Errors
/// Those of opening the file as a dataset; `Usage` if it is compressed or its records are not in one piece.
pub fn cuts(put: &Put, threads: usize) -> Result<Vec<u64>> {
    let source: Arc<dyn Source> = Arc::new(FileSource::open(&put.file)?);
    let length = source.len();
    // The first stripe has all.
    if length <= put.stripe {
        return aligned(length, put.stripe, Ok);
    }
    let dataset = Dataset::from_sources(vec![source.clone()], &put.options)?;
    let unfit = |message: &str| {
        Err(Error::usage(message).at_path(&put.file).with_hint("put it without --align"))
    };
    if dataset.describe(0)?.compression != "none" {
        return unfit("stripes cannot end where records end: the file is compressed");
    }
    let mut options = ScanOptions::new(Needs { records: true, ..Needs::default() });
    options.lenient = true;
    options.cancel = put.cancel.clone();
    match dataset.schema().records {
        RecordKind::Fixed(_) | RecordKind::Items => {
            options.chunk = 64 << 10;
            options.io.depth = 1;
            let Some((first, row)) = first_record(&dataset, &options)? else {
                return unfit("stripes cannot end where rows end: each row lies in several pieces");
            };
            aligned(length, put.stripe, |at| {
                let rows = at.saturating_sub(first).div_ceil(row);
                Ok(rows.checked_mul(row).and_then(|n| n.checked_add(first)).unwrap_or(length))
            })
        }
        RecordKind::Lines => aligned(length, put.stripe, |at| line_after(source.as_ref(), at)),
        _ => {
            let mut starts = scan(&dataset, &options, put.stripe, threads, &put.cancel)?;
            starts.sort_unstable();
            aligned(length, put.stripe, |at| {
                Ok(starts.get(starts.partition_point(|s| *s < at)).copied().unwrap_or(length))
            })
        }
    }
}

/// Place and length of the first record; `None` if it has no bytes, or there is none.
fn first_record(dataset: &Dataset, options: &ScanOptions) -> Result<Option<(u64, u64)>> {
    let scan = dataset.scan(options)?;
    let mut worker = scan.worker()?;
    while let Some(block) = worker.next()? {
        if let Some(record) = block.records.first() {
            let place = (block.offset + u64::from(record.start), u64::from(record.len));
            return Ok(Some(place).filter(|(_, len)| *len > 0));
        }
    }
    Ok(None)
}

/// Where the first line at or after `at`, which is not 0, begins.
fn line_after(source: &dyn Source, at: u64) -> Result<u64> {
    const WINDOW: u64 = 64 << 10;
    let mut from = at.saturating_sub(1);
    let mut window = Vec::new();
    while from < source.len() {
        let len = (source.len() - from).min(WINDOW);
        window.resize(usize::try_from(len).unwrap_or(0), 0);
        source.read_at(from, &mut window)?;
        if let Some(found) = window.iter().position(|c| *c == b'\n') {
            return Ok(from + found as u64 + 1);
        }
        from += len;
    }
    Ok(source.len())
}

/// Among others, the first start of a record at or after each multiple of `stripe`, in any order.
fn scan(
    dataset: &Dataset,
    options: &ScanOptions,
    stripe: u64,
    threads: usize,
    cancel: &Cancel,
) -> Result<Vec<u64>> {
    let scan = dataset.scan(options)?;
    let all = Mutex::new(Vec::new());
    let work = || {
        let mut mine = Vec::new();
        let mut worker = scan.worker()?;
        while let Some(block) = worker.next()? {
            cancel.check()?;
            let mut stripe_before = None;
            for record in block.records {
                let start = block.offset + u64::from(record.start);
                // It is the first one after the beginning of its stripe, as far as this block shows.
                let of = start / stripe;
                if stripe_before != Some(of) {
                    mine.push(start);
                }
                stripe_before = Some(of);
            }
        }
        all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut mine);
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let ended = workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|_| Err(Error::internal("a worker panicked"))));
        ended.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    })
    .map_err(|e| dataset.locate(e))?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}
