//! Who is answered when: each request as soon as its own bytes are there, and what somebody waits for before what is read
//! ahead. And nothing is left of those who wait no more.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};
use stead_core::Result;
use stead_read::{File, Options, Read, open_source};
use stead_store::Source;

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

/// A device that keeps some blocks back, and notes which it was asked for.
#[derive(Debug, Default)]
struct Gate {
    held: Mutex<BTreeSet<usize>>,
    moved: Condvar,
    asked: Mutex<Vec<usize>>,
}

impl Gate {
    fn holding(blocks: impl IntoIterator<Item = usize>) -> Arc<Gate> {
        Arc::new(Gate { held: Mutex::new(blocks.into_iter().collect()), ..Gate::default() })
    }

    fn free(&self, block: usize) {
        self.held.lock().unwrap().remove(&block);
        self.moved.notify_all();
    }

    /// Waits until it was asked for so many.
    fn until_asked(&self, blocks: usize) {
        let asked = self.asked.lock().unwrap();
        drop(self.moved.wait_while(asked, |asked| asked.len() < blocks).unwrap());
    }

    fn asked(&self) -> Vec<usize> {
        self.asked.lock().unwrap().clone()
    }
}

fn byte(at: usize) -> u8 {
    (at / BLOCK * 31 + at % 251) as u8
}

impl Source for Gate {
    fn path(&self) -> &Path {
        Path::new("gate")
    }

    fn len(&self) -> u64 {
        (BLOCKS * BLOCK) as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let from = offset as usize;
        let blocks = from / BLOCK..(from + buf.len()).div_ceil(BLOCK);
        self.asked.lock().unwrap().extend(blocks.clone());
        self.moved.notify_all();
        let held = self.held.lock().unwrap();
        let is_held = |held: &mut BTreeSet<usize>| held.range(blocks.clone()).next().is_some();
        drop(self.moved.wait_while(held, is_held).unwrap());
        buf.iter_mut().enumerate().for_each(|(i, b)| *b = byte(from + i));
        Ok(())
    }
}

/// One block in flight for each of so many readers.
fn file(gate: &Arc<Gate>, readers: usize, ahead: bool) -> File {
    let (block, depth) = (Some(BLOCK), Some(1));
    let readers = Some(readers);
    let options = Options { block, depth, readers, ahead, memory: 1 << 20, ..Options::default() };
    open_source(gate.clone(), &options).unwrap()
}

fn right(read: Read, from: usize, len: usize) {
    let view = read.wait().unwrap();
    assert!(view.len() == len && view.iter().enumerate().all(|(i, b)| *b == byte(from + i)));
}

#[test]
fn a_block_that_does_not_come_keeps_nobody_from_the_others() {
    let gate = Gate::holding([3, 5]);
    let file = file(&gate, 2, false);
    let session = file.session(..).unwrap();
    let hangs = session.read((3 * BLOCK + 10) as u64, 100);
    gate.until_asked(1);
    // All others come by the other reader, also those that were asked for after it.
    let others: Vec<_> =
        (6..BLOCKS).map(|b| (b * BLOCK, session.read((b * BLOCK) as u64, 77))).collect();
    let before = session.read((2 * BLOCK) as u64, BLOCK);
    others.into_iter().for_each(|(at, read)| right(read, at, 77));
    right(before, 2 * BLOCK, BLOCK);
    // What is there already is there at once, in the same thread.
    assert!(session.read((7 * BLOCK + 1) as u64, 5).is_ready());
    assert!(!hangs.is_ready());
    // It has blocks 2 to 5, and comes with the last of them.
    let spans = session.read((2 * BLOCK + 1) as u64, 4 * BLOCK - 2);
    gate.free(3);
    right(hangs, 3 * BLOCK + 10, 100);
    right(session.read((4 * BLOCK) as u64, BLOCK), 4 * BLOCK, BLOCK);
    assert!(!spans.is_ready());
    gate.free(5);
    right(spans, 2 * BLOCK + 1, 4 * BLOCK - 2);
}

#[test]
fn what_somebody_waits_for_goes_before_what_is_read_ahead() {
    let gate = Gate::holding([0]);
    let file = file(&gate, 1, true);
    let session = file.session(..).unwrap();
    gate.until_asked(1);
    let (first, second) = (50 * BLOCK, 40 * BLOCK - 1);
    let reads = [(first, session.read(first as u64, 10)), (second, session.read(second as u64, 2))];
    gate.free(0);
    reads.into_iter().for_each(|(at, read)| right(read, at, if at == first { 10 } else { 2 }));
    let asked = gate.asked();
    assert_eq!(asked[..4], [0, 50, 39, 40]);
    // The rest comes ahead, each once.
    gate.until_asked(BLOCKS);
    let mut asked = gate.asked();
    assert_eq!(asked[4..8], [1, 2, 3, 4]);
    asked.sort_unstable();
    assert!(asked.into_iter().eq(0..BLOCKS));
}

#[test]
fn who_waits_no_more_leaves_nothing_behind() {
    let gate = Gate::holding(0..BLOCKS);
    let file = file(&gate, 2, false);
    let session = file.session(..).unwrap();
    // Each is of two blocks, for which it has memory of its own.
    let at = |i: usize| (i * 2 * BLOCK + 100) as u64;
    let (told, tells) = mpsc::channel::<usize>();
    let mut dropped: Vec<_> = (0..20).map(|i| session.read(at(i), 5000)).collect();
    let (a, b) =
        (session.read_into(at(3), vec![0; 5000]), session.read_strided(at(5), 10, 20, 300));
    session.read(at(30), 5000).then(move |answer| told.send(answer.unwrap().len()).unwrap());
    gate.until_asked(2);
    let held = file.counts().held;
    assert!(held > 20 * 5000, "{held}");
    dropped.pop().unwrap().cancel();
    drop((dropped, a, b));
    // What has gone is no longer counted; what is being read, and what the function waits for, is.
    let held = file.counts().held;
    assert!(held <= 2 * BLOCK as u64 + 2 * 5000, "{held}");
    (0..BLOCKS).for_each(|b| gate.free(b));
    assert_eq!(tells.recv_timeout(Duration::from_secs(60)).unwrap(), 5000);
    // Of the others, at most those that were being read.
    right(session.read((63 * BLOCK) as u64, 1), 63 * BLOCK, 1);
    assert!(gate.asked().len() <= 6, "{:?}", gate.asked());
    // The function's own answer goes in the thread that it was called in.
    let own = || !file.counts().held.is_multiple_of(BLOCK as u64);
    let patience = Instant::now() + Duration::from_secs(60);
    while own() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!own() && file.counts().held <= 6 * BLOCK as u64, "{:?}", file.counts());
}
