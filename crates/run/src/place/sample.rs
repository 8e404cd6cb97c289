//! What the beginning of the data says of the columns that are asked for.

use super::Asked;
use stead_core::{Result, Selection};
use stead_format::{Before, Dataset, Held, ScanOptions, Share, vectors};
use stead_kernel::expr::Scratch;

/// Bytes that are looked at: a slow device parses them in a millisecond.
const LOOKED_AT: u64 = 64 << 10;
/// The longest record of these.
const RECORD: usize = 1 << 20;

/// Bytes of columns for each byte of a file whose beginning is `held` here, of the records that the filter leaves. `None` if no
/// beginning is, or columns cannot be sent; errors in the data are found when they are computed on.
pub fn look(dataset: &Dataset, held: &[Held], asked: &Asked<'_>) -> Option<f64> {
    if vectors::refusal(&asked.needs).is_some() {
        return None;
    }
    let first = held.iter().find(|h| h.bytes.start == 0)?;
    let bytes = 0..first.bytes.end.min(LOOKED_AT);
    let sample = Held { source: first.source, bytes };
    look_at(dataset, sample, asked).ok().flatten()
}

fn look_at(dataset: &Dataset, sample: Held, asked: &Asked<'_>) -> Result<Option<f64>> {
    let mut needs = asked.needs.clone();
    asked.filter.iter().for_each(|f| needs.add(&f.needs()));
    let mut options = ScanOptions::new(needs);
    options.chunk = LOOKED_AT as usize;
    options.io.depth = 1;
    options.lenient = true;
    options.max_record = RECORD;
    options.before = Some(Before::beginnings(1));
    options.share = Share::held([sample.clone()])?;
    let scan = dataset.scan(&options)?;
    let mut worker = scan.worker()?;
    let (mut keep, mut scratch, mut selection) =
        (Vec::new(), Scratch::default(), Selection::default());
    let (mut columns, mut seen) = (0, 0);
    while let Some(block) = worker.next()? {
        let text = block.text.len() as u64;
        let block = match asked.filter {
            None => block,
            Some(filter) => {
                keep.clear();
                filter.eval(&block, &mut scratch, &mut keep)?;
                block.select(&keep, &mut selection)
            }
        };
        columns += vectors::size(&block, &asked.needs);
        seen += text;
        // A compressed file goes on behind the sample.
        if seen >= LOOKED_AT {
            break;
        }
    }
    drop(worker);
    let read = scan.progress().bytes.load(std::sync::atomic::Ordering::Relaxed);
    // Of arrays there is no text, and that of compressed files is not what lies in them.
    let bytes = if seen == 0 || dataset.is_compressed()? { read } else { seen };
    Ok((bytes > 0).then(|| columns as f64 / bytes as f64))
}
