//! Sessions over a source with faults: any operations in any order give the bytes of the file or an error that the
//! faults explain, and always within the deadline.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::time::Duration;
use stead_core::{Error, Kind};
use stead_fuzz::choices;
use stead_read::{File, Options, Read, ReadInto, Session, open_source};
use stead_store::MemorySource;
use stead_store::faulty::{Faults, FaultySource};

/// Longer than anything here takes: whoever gets an error for this has hung.
const DEADLINE: Duration = Duration::from_secs(15);

/// A read under way, and what it must give.
enum Under {
    View(Read, usize, usize),
    Into(ReadInto<Vec<u8>>, Vec<u8>),
}

struct Oracle {
    bytes: Vec<u8>,
    bad: Option<u64>,
    shrinks: bool,
}

impl Oracle {
    fn explains(&self, error: &Error) {
        let kind = error.kind();
        let known = kind == Kind::Io && self.bad.is_some() || kind == Kind::Changed && self.shrinks;
        assert!(known, "{kind:?}: {error}");
    }

    fn take(&self, read: Under) {
        match read {
            Under::View(read, offset, len) => match read.wait() {
                Ok(view) => assert!(view[..] == self.bytes[offset..offset + len]),
                Err(e) => self.explains(&e),
            },
            Under::Into(read, wanted) => match read.wait() {
                Ok(buffer) => assert!(buffer == wanted),
                Err(e) => self.explains(&e),
            },
        }
    }

    /// Pieces as they lie in the file; `None` if they overlap or go past the end.
    fn pieces(&self, offset: usize, len: usize, stride: usize, count: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for i in 0..count {
            let from = offset + i * stride;
            out.extend_from_slice(self.bytes.get(from..from + len)?);
        }
        (count < 2 || len <= stride).then_some(out)
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([size, block, memory, how, readers, bad, shrink, seed], mut data)) =
        choices::<8>(data)
    else {
        return;
    };
    let len = usize::from(size) * 997;
    let bytes: Vec<u8> =
        (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let bad = (bad < 128).then(|| u64::from(bad) * 2048).filter(|b| *b < len as u64);
    let shrinks = shrink >= 192;
    let faults = Faults {
        seed: seed.into(),
        short_percent: if how & 1 == 0 { 0 } else { 50 },
        bad_byte: bad,
        shrink: shrinks.then(|| (u64::from(shrink & 7), len as u64 / 2)),
        slow: (how & 2 != 0).then_some((30, Duration::from_micros(200))),
    };
    let oracle = Oracle { bytes: bytes.clone(), bad, shrinks };
    let source = FaultySource::new(Arc::new(MemorySource::new("m", bytes)), faults);
    let options = Options {
        readers: (how & 4 != 0).then(|| usize::from(readers % 4) + 1),
        block: Some((usize::from(block % 8) + 1) * 4096),
        depth: (how & 8 != 0).then(|| usize::from(readers / 16) + 1),
        memory: u64::from(memory) * 4096,
        deadline: DEADLINE,
        ahead: how & 16 == 0,
        ..Options::default()
    };
    let file: File = open_source(Arc::new(source), &options).expect("a source");
    let mut sessions: Vec<Session> = vec![file.session(..).expect("all of it")];
    let mut under: Vec<Under> = Vec::new();
    while let Some(([op, a, b, c], rest)) = choices::<4>(data) {
        data = rest;
        let offset = usize::from(a) * len / 256;
        let want = (usize::from(b) * usize::from(b)).min(len - offset);
        let session = sessions.get(usize::from(c) % sessions.len().max(1));
        match (op % 10, session) {
            (0 | 1, Some(s)) => under.push(Under::View(s.read(offset as u64, want), offset, want)),
            (2, Some(s)) => {
                let wanted = oracle.bytes[offset..offset + want].to_vec();
                under.push(Under::Into(s.read_into(offset as u64, vec![0; want]), wanted));
            }
            (3, Some(s)) => {
                let (len, stride, count) =
                    (usize::from(b), usize::from(c) * 16, usize::from(op) / 10);
                let read = s.read_strided(offset as u64, len, stride, count);
                match oracle.pieces(offset, len, stride, count) {
                    Some(wanted) => under.push(Under::Into(read, wanted)),
                    // What has no bytes lies anywhere in the session.
                    None if len == 0 => drop(read),
                    None => assert_eq!(read.wait().expect_err("bad pieces").kind(), Kind::Usage),
                }
            }
            (4, Some(s)) => {
                let read = s.read(offset as u64, len - offset + 1 + usize::from(b));
                assert_eq!(read.wait().expect_err("past the end").kind(), Kind::Usage);
            }
            (5, _) if !under.is_empty() => {
                let i = usize::from(a) % under.len();
                oracle.take(under.swap_remove(i));
            }
            (6, _) if !under.is_empty() => {
                // Given up.
                let i = usize::from(a) % under.len();
                under.swap_remove(i);
            }
            (7, _) => {
                let to = offset + want;
                let part = file.session(offset as u64..to as u64).expect("within the file");
                assert_eq!(part.range(), offset as u64..to as u64);
                match part.read(offset as u64, want).wait() {
                    Ok(view) => assert!(view[..] == oracle.bytes[offset..to]),
                    Err(e) => oracle.explains(&e),
                }
                sessions.push(file.session(..).expect("all of it"));
            }
            (8, _) if !sessions.is_empty() => {
                // Reads that are under way are answered all the same.
                let i = usize::from(c) % sessions.len();
                sessions.swap_remove(i).close().expect("nobody writes");
            }
            (9, _) => {
                if let Some(Under::View(read, ..)) = under.last() {
                    read.is_ready();
                }
            }
            _ => {}
        }
    }
    if how & 32 != 0 {
        drop((sessions, file));
    }
    for read in under {
        oracle.take(read);
    }
});
