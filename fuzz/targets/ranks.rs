//! A file that two ranks have open, where what one of them says is changed, doubled or lost on its way: the other one
//! gets the bytes of the file, or an error, and never waits past its deadline.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stead_core::Result;
use stead_fabric::{Fabric, Local};
use stead_fuzz::choices;
use stead_read::{Options, ranks};
use stead_store::MemorySource;

/// Of everything that waits here.
const DEADLINE: Duration = Duration::from_millis(60);

/// Says other things than it is told to, by a script: what to do to each message, in turn.
struct Liar {
    inner: Local,
    script: Mutex<Vec<u8>>,
    said: AtomicUsize,
}

impl Liar {
    /// What becomes of a message. It never has the sort of one with the file's bytes, or of one that says where they lie:
    /// nobody could tell those from right ones.
    fn twist(&self, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        self.said.fetch_add(1, Ordering::Relaxed);
        let mut script = self.script.lock().expect("no panic");
        let Some(how) = script.pop() else { return vec![bytes] };
        let mut next = || script.pop().unwrap_or(0);
        let gives = |sort: Option<&u8>| matches!(sort, Some(1 | 5));
        let carries = gives(bytes.first());
        match how % 8 {
            0 | 1 => vec![bytes],
            2 => vec![],
            3 => vec![bytes.clone(), bytes],
            4 => {
                let cut = usize::from(next()) % (bytes.len() + 1);
                bytes.truncate(cut);
                vec![bytes]
            }
            5 if !carries => {
                let (at, to) = (usize::from(next()), next());
                if let Some(b) = bytes.get_mut(at)
                    && !(at == 0 && gives(Some(&to)))
                {
                    *b = to;
                }
                vec![bytes]
            }
            6 => {
                let n = usize::from(next());
                let foreign: Vec<u8> = (0..n % 64).map(|_| next()).collect();
                if gives(foreign.first()) { vec![bytes] } else { vec![foreign, bytes] }
            }
            7 if !carries => {
                bytes.extend((0..next() % 32).map(|i| i));
                vec![bytes]
            }
            _ => vec![bytes],
        }
    }
}

impl Fabric for Liar {
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn size(&self) -> usize {
        self.inner.size()
    }
    fn node_of(&self, rank: usize) -> usize {
        self.inner.node_of(rank)
    }
    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }
    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        for bytes in self.twist(bytes) {
            self.inner.send(to, tag, bytes)?;
        }
        Ok(())
    }
    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.inner.recv_within(from, tag, within)
    }
    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.inner.recv_any(tag, within)
    }
    fn alive(&self, rank: usize) -> Result<()> {
        self.inner.alive(rank)
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([size, honest, same], script)) = choices::<3>(data) else { return };
    let len = usize::from(size) * 331;
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 / 5) as u8).collect();
    let options = Options { block: Some(4096), deadline: DEADLINE, ..Options::default() };
    let nodes = [0, usize::from(same & 1)];
    let mut fabrics = Local::over_nodes(&nodes, DEADLINE);
    // Opening goes well in some runs, so that what follows is reached.
    let mut script: Vec<u8> = script.iter().rev().copied().collect();
    script.extend(std::iter::repeat_n(0, usize::from(honest % 16)));
    let liar = Liar {
        inner: fabrics.pop().expect("two"),
        script: Mutex::new(script),
        said: AtomicUsize::new(0),
    };
    let other = fabrics.pop().expect("two");
    std::thread::scope(|scope| {
        for (lies, fabric) in [(false, Arc::new(other) as Arc<dyn Fabric>), (true, Arc::new(liar))]
        {
            let (bytes, options) = (&bytes, &options);
            scope.spawn(move || {
                let source = Arc::new(MemorySource::new("m", bytes.clone()));
                let begun = Instant::now();
                let Ok(file) = ranks::open_source(fabric, "m", Ok(source), options) else { return };
                let Ok(session) = file.session(..) else { return };
                let len = bytes.len();
                let reads: Vec<_> = (0..8)
                    .map(|i| {
                        let (from, to) = (len * i / 8, len * (i + 1) / 8);
                        (from, to, session.read(from as u64, to - from))
                    })
                    .collect();
                for (from, to, read) in reads {
                    // Who asks for other bytes than it wants gets them.
                    if let Ok(view) = read.wait()
                        && !lies
                    {
                        assert!(view[..] == bytes[from..to], "{from}");
                    }
                }
                drop((session, file));
                assert!(begun.elapsed() < 200 * DEADLINE, "it hung");
            });
        }
    });
});
