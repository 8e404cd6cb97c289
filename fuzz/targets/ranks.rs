//! A file that two ranks have open, where what one of them says is changed, doubled or lost on its way: the other one
//! gets the bytes of the file, or an error, and never waits past its deadline.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stead_fabric::testing::{Between, Meddle};
use stead_fabric::{Fabric, Local};
use stead_fuzz::choices;
use stead_read::{Options, ranks};
use stead_store::MemorySource;

/// Of everything that waits here.
const DEADLINE: Duration = Duration::from_millis(60);

/// Tags from here on are those of files; of four, the first has what the threads of ranks say to each other.
const FILES: u32 = 0x6000_0000;

/// Says other things than it is told to, by a script: what to do to each message, in turn.
struct Lies(Mutex<Vec<u8>>);

impl Meddle for Lies {
    /// What becomes of a message. It never has the sort of one with the file's bytes, or of one that says where they lie:
    /// nobody could tell those from right ones.
    fn send(&self, _: usize, tag: u32, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let mut script = self.0.lock().expect("no panic");
        let Some(how) = script.pop() else { return vec![bytes] };
        let mut next = || script.pop().unwrap_or(0);
        let threads = tag >= FILES && tag % 4 == 0;
        let gives = |sort: Option<&u8>| threads && matches!(sort, Some(1 | 5));
        let carries = gives(bytes.first());
        match how % 9 {
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
            // A loan or bytes that nobody has asked for, also in a place where nothing lies.
            8 if threads => {
                let sort = if next() % 2 == 0 { 5 } else { 1 };
                let mut foreign = vec![sort];
                // No request has such a number.
                foreign.extend((u64::MAX - u64::from(next())).to_le_bytes());
                foreign.extend((0..3).flat_map(|_| (u64::MAX >> (next() % 64)).to_le_bytes()));
                vec![foreign, bytes]
            }
            _ => vec![bytes],
        }
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
    let liar = Between::new(Arc::new(fabrics.pop().expect("two")), Lies(Mutex::new(script)));
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
