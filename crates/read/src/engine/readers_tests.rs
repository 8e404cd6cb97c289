//! Readers that the device keeps.

use super::*;
use crate::finish::AsView;
use crate::options::Options;
use crate::registry;
use crate::request::Read;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use stead_core::Kind;
use stead_store::Source;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 40;

/// Blocks before this one come once they are let go.
#[derive(Debug, Default)]
struct Device {
    kept: u64,
    let_go: (Mutex<bool>, Condvar),
}

impl Source for Device {
    fn path(&self) -> &Path {
        Path::new("device")
    }

    fn len(&self) -> u64 {
        BLOCKS * BLOCK
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let block = offset / BLOCK;
        if block < self.kept {
            let guard = self.let_go.0.lock().unwrap();
            drop(self.let_go.1.wait_while(guard, |let_go| !*let_go).unwrap());
        }
        buf.fill(block as u8);
        Ok(())
    }
}

impl Device {
    fn let_go(&self) {
        *self.let_go.0.lock().unwrap() = true;
        self.let_go.1.notify_all();
    }
}

fn open(kept: u64, readers: usize, depth: usize) -> (Arc<Device>, Arc<Shared>) {
    let device = Arc::new(Device { kept, ..Device::default() });
    let options = Options {
        block: Some(BLOCK as usize),
        readers: Some(readers),
        depth: Some(depth),
        ahead: false,
        memory: BLOCKS * BLOCK,
        ..Options::default()
    };
    let shared = registry::open_source(device.clone(), &options).unwrap();
    (device, shared)
}

fn ask(shared: &Arc<Shared>, block: u64, deadline: Option<Duration>) -> Read {
    Read(shared.ask(block * BLOCK, 10, deadline, AsView::new(block * BLOCK, 10)))
}

fn gives(mut read: Read, block: u64) {
    let view = read.wait_for(Duration::from_secs(20)).expect("it is barred").unwrap();
    assert_eq!(view[..], [block as u8; 10]);
}

#[test]
fn who_comes_behind_what_the_device_keeps_is_answered() {
    for (kept, readers, depth) in [(1, 1, 1), (1, 1, 8), (3, 2, 2), (10, 4, 1), (20, 1, 16)] {
        let (device, shared) = open(kept, readers, depth);
        let late = ask(&shared, 0, Some(Duration::from_millis(600)));
        let hangs: Vec<_> = (0..kept).map(|block| ask(&shared, block, None)).collect();
        let others: Vec<_> = (kept..kept + 5).map(|b| (b, ask(&shared, b, None))).collect();
        for (block, read) in others {
            gives(read, block);
        }
        assert_eq!(late.wait().unwrap_err().kind(), Kind::Timeout);
        // One that comes when those who helped have ended, or not.
        gives(ask(&shared, 39, None), 39);
        assert!(hangs.iter().all(|read| !read.is_ready()));
        device.let_go();
        for (block, read) in hangs.into_iter().enumerate() {
            gives(read, block as u64);
        }
        registry::close(&shared);
    }
}

#[test]
fn readers_are_not_more_than_there_may_be_and_end_when_the_device_lets_go() {
    let (device, shared) = open(30, 1, 2);
    let hangs: Vec<_> = (0..30).map(|block| ask(&shared, block, None)).collect();
    for _ in 0..20 {
        // As if the time had come.
        shared.expire(clock::after(KEPT));
        std::thread::yield_now();
    }
    assert!(shared.lock().readers <= MOST);
    device.let_go();
    for (block, read) in hangs.into_iter().enumerate() {
        gives(read, block as u64);
    }
    registry::close(&shared);
    let gone = |_| {
        std::thread::sleep(Duration::from_millis(5));
        let inner = shared.lock();
        (inner.readers, inner.away.count) == (0, 0)
    };
    assert!((0..10_000).any(gone));
}
