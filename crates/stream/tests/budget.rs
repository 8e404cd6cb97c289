//! What all streams of a user may have of memory together.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{dir, says, wait_until, written};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Bounds, DType, Kind, Result};
use stead_stream::{Budget, Definition, Home, Read, Reader, Stop, Writer, Written};

const MIB: u64 = 1 << 20;

/// The dataspace `memory` in a folder, with terms.
fn spaces(dir: &Path, terms: &str) -> Spaces {
    let path = dir.join("own");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let text = format!("[dataspace.memory]\npath = \"{}\"\nmemory = true\n{terms}", path.display());
    Spaces::parse(&text, &|_| None).unwrap()
}

/// A step of so many bytes.
fn put(writer: &mut Writer, bytes: u64) -> Result<()> {
    let t = writer.define(Definition::new("T", DType::U8, [bytes])).unwrap();
    let step = writer.begin()?;
    let whole = Bounds::new([0], [bytes]).unwrap();
    let put = writer.put(t, &whole, &vec![step as u8; bytes as usize]);
    put.and_then(|()| writer.end())
}

fn budget(home: &Home, name: &str) -> Budget {
    home.describe(name).unwrap().budget.unwrap()
}

/// Waits are counted, and end when they are told to.
fn counted() -> (Stop, Arc<AtomicU64>) {
    let waits = Arc::new(AtomicU64::new(0));
    let count = waits.clone();
    let stop = Stop::when(move || {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    (stop, waits)
}

/// Until somebody who does nothing else has begun to wait: it is asked twenty times a second whether it is to stop.
fn until_it_waits(waits: &AtomicU64) {
    let before = waits.load(Ordering::SeqCst);
    while waits.load(Ordering::SeqCst) < before + 3 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn streams_together_have_no_more_than_is_agreed_and_the_error_names_them() {
    let dir = dir();
    let spaces = spaces(dir.path(), "size = \"8MiB\"\nuser_quota = \"1GiB\"\n");
    let home = Home::open(&spaces).unwrap();
    let mut a = Writer::open("a", &Written { keep: 3, ..written(&spaces) }).unwrap();
    (0..3).for_each(|_| put(&mut a, 2 * MIB).unwrap());
    let timeout = Duration::from_millis(100);
    let mut b = Writer::open("b", &Written { timeout, ..written(&spaces) }).unwrap();
    put(&mut b, 2 * MIB).unwrap();
    assert_eq!(budget(&home, "a"), Budget { most: 8 * MIB, used: 8 * MIB });
    let error = put(&mut b, MIB).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert_eq!(
        error.message(),
        "writer 0 of stream 'b' has no room for 1.0 MiB in step 1: the streams of this user have 8.0 MiB of the 8.0 MiB of dataspace 'memory' on this node: 'a' 6.0 MiB, 'b' 2.0 MiB"
    );
    assert!(error.hint().unwrap().contains("stead stream rm"), "{error:?}");
    let waits = b.report().waits;
    assert!(waits.iter().any(|wait| wait.who == "memory of other streams"), "{waits:?}");
    assert_eq!(budget(&home, "b").used, 8 * MIB);
    // One that has ended has its memory as long as it is there.
    a.close().unwrap();
    assert_eq!(budget(&home, "b").used, 8 * MIB);
    assert!(home.remove("a", false).unwrap());
    let t = b.define(Definition::new("T", DType::U8, [MIB])).unwrap();
    b.put(t, &Bounds::new([0], [MIB]).unwrap(), &vec![1; MIB as usize]).unwrap();
    b.end().unwrap();
    let used = budget(&home, "b").used;
    assert!((MIB..=3 * MIB).contains(&used), "{used}");
}

#[test]
fn a_step_that_the_budget_never_has_room_for_is_refused_at_once() {
    let dir = dir();
    for (terms, at) in [("size = \"4MiB\"\n", 0), ("user_quota = \"4MiB\"\n", 1)] {
        let spaces = spaces(dir.path(), terms);
        let mut writer = Writer::open("sim", &written(&spaces)).unwrap();
        // A kept step stays.
        (0..at).for_each(|_| put(&mut writer, 3 * MIB).unwrap());
        let error = put(&mut writer, if at == 0 { 5 * MIB } else { 3 * MIB }).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit);
        let more = if at == 0 { "1.0 MiB" } else { "2.0 MiB" };
        assert_eq!(
            error.message(),
            format!(
                "step {at} of stream 'sim' does not fit: {more} more than the 4.0 MiB of dataspace 'memory' that the streams of this user may have on this node, of which 1 kept steps have a part"
            )
        );
        assert!(error.hint().unwrap().contains("[dataspace.memory]"), "{error:?}");
        writer.abandon().unwrap();
        assert!(Home::open(&spaces).unwrap().remove("sim", true).unwrap());
    }
    // Nothing is agreed, and nothing told.
    let spaces = spaces(dir.path(), "");
    let mut writer = Writer::open("sim", &written(&spaces)).unwrap();
    put(&mut writer, 5 * MIB).unwrap();
    assert_eq!(Home::open(&spaces).unwrap().describe("sim").unwrap().budget, None);
}

#[test]
fn a_writer_waits_until_readers_of_another_stream_have_had_its_steps() {
    let dir = dir();
    let spaces = spaces(dir.path(), "size = \"8MiB\"\n");
    let options = Written { keep: 0, queue: 4, readers: 1, ..written(&spaces) };
    let read = Read { spaces: spaces.clone(), ..Read::default() };
    let mut a = Writer::open("a", &options).unwrap();
    let mut reader = Reader::open("a", &read).unwrap();
    (0..3).for_each(|_| put(&mut a, 2 * MIB).unwrap());
    let (stop, waits) = counted();
    let mut b = Writer::open("b", &Written { keep: 1, stop, ..written(&spaces) }).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            put(&mut b, 4 * MIB).unwrap();
            b.report().waits.iter().any(|wait| wait.who == "memory of other streams")
        });
        until_it_waits(&waits);
        assert!(!other.is_finished());
        // Its writer does nothing more, and gives back what has gone all the same.
        for step in 0..3 {
            assert_eq!(reader.next_step().unwrap().unwrap().number(), step);
        }
        drop(reader);
        assert!(other.join().unwrap());
    });
    // What it needs not is given back by a thread of its process, in its own time.
    let home = Home::open(&spaces).unwrap();
    let used = || budget(&home, "b").used;
    wait_until(|| used() <= 5 * MIB);
    assert!((4 * MIB..=5 * MIB).contains(&used()), "{}", used());
    a.close().unwrap();
}

#[test]
fn a_writer_that_waits_is_told_to_stop() {
    let dir = dir();
    let spaces = spaces(dir.path(), "size = \"4MiB\"\n");
    let mut a = Writer::open("a", &written(&spaces)).unwrap();
    put(&mut a, 3 * MIB).unwrap();
    let asked = AtomicU64::new(0);
    let stop = Stop::when(move || match asked.fetch_add(1, Ordering::SeqCst) {
        0..8 => Ok(()),
        _ => Err(stead_core::Error::new(Kind::Cancelled, "enough")),
    });
    let mut b = Writer::open("b", &Written { stop, ..written(&spaces) }).unwrap();
    assert_eq!(put(&mut b, 2 * MIB).unwrap_err().kind(), Kind::Cancelled);
}

#[test]
fn pages_that_are_kept_for_the_next_step_are_few() {
    let dir = dir();
    let spaces = spaces(dir.path(), "size = \"16MiB\"\n");
    let home = Home::open(&spaces).unwrap();
    let idle: Vec<Writer> = (0..4)
        .map(|i| {
            let options = Written { keep: 0, ..written(&spaces) };
            let mut writer = Writer::open(&format!("s{i}"), &options).unwrap();
            // It has gone at once.
            (0..2).for_each(|_| put(&mut writer, 3 * MIB).unwrap());
            writer
        })
        .collect();
    // The first one was alone, and is told by nobody that it is no longer.
    let few = || budget(&home, "s0").used <= 2 * MIB && pages(dir.path()) <= 2 * MIB;
    wait_until(few);
    assert!(few(), "{:?} {}", budget(&home, "s0"), pages(dir.path()));
    let mut last = Writer::open("last", &written(&spaces)).unwrap();
    put(&mut last, 14 * MIB).unwrap();
    drop(idle);
}

/// Bytes of pages that files with arrays have.
fn pages(dir: &Path) -> u64 {
    let mut sum = 0;
    let own = dir.join("own");
    let folders = std::fs::read_dir(own).unwrap().map(|streams| streams.unwrap().path());
    for streams in folders {
        for stream in std::fs::read_dir(streams).unwrap().flatten() {
            // They come and go.
            let Ok(files) = std::fs::read_dir(stream.path()) else { continue };
            for file in files.flatten() {
                let name = file.file_name().into_string().unwrap();
                if name.starts_with('w')
                    && let Ok(meta) = file.metadata()
                {
                    sum += meta.blocks() * 512;
                }
            }
        }
    }
    sum
}

/// This program again, which does something with a stream of a name.
fn child(what: &str, name: &str, dir: &Path) -> Child {
    common::child(&format!("{what} {name} {}", dir.display()))
}

const SHARED: &str = "size = \"16MiB\"\n";
const STEPS: u64 = 60;

/// What [`child`] does.
#[test]
fn another_process() {
    let Some(said) = common::told() else { return };
    let words: Vec<&str> = said.splitn(3, ' ').collect();
    let spaces = spaces(Path::new(words[2]), SHARED);
    match words[0] {
        "write" => {
            let options = Written { keep: 0, queue: 8, readers: 1, ..written(&spaces) };
            let mut writer = Writer::open(words[1], &options).unwrap();
            (0..STEPS).for_each(|_| put(&mut writer, 2 * MIB).unwrap());
            writer.close().unwrap();
        }
        "read" => {
            let options = Read { spaces, ..Read::default() };
            let mut reader = Reader::open(words[1], &options).unwrap();
            let whole = Bounds::new([0], [2 * MIB]).unwrap();
            while let Some(step) = reader.next_step().unwrap() {
                let all = step.get("T", &whole).unwrap();
                assert!(all.bytes().iter().all(|byte| *byte == step.number() as u8));
                // Writers are ahead of it, which is seen.
                wait_until(|| Path::new(words[2]).join("seen").exists());
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        "keep" => {
            let options = Written { keep: 6, ..written(&spaces) };
            let mut writer = Writer::open(words[1], &options).unwrap();
            (0..6).for_each(|_| put(&mut writer, 2 * MIB).unwrap());
            let options = Read { spaces, ..Read::default() };
            let mut reader = Reader::open(words[1], &options).unwrap();
            let step = reader.next_step().unwrap().unwrap();
            println!("step {}", step.number());
            std::thread::sleep(Duration::from_secs(600));
            drop((step, writer));
        }
        other => panic!("{other}"),
    }
    println!("done");
}

#[test]
fn streams_of_many_processes_share_what_is_agreed() {
    let dir = dir();
    let home = Home::open(&spaces(dir.path(), SHARED)).unwrap();
    let names = ["a", "b", "c"];
    let mut all: Vec<Child> = names
        .iter()
        .flat_map(|name| ["read", "write"].map(|what| child(what, name, dir.path())))
        .collect();
    let mut most = 0;
    while all.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        most = most.max(pages(dir.path()));
        if most >= 4 * MIB {
            std::fs::write(dir.path().join("seen"), []).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for child in &mut all {
        assert!(child.wait().unwrap().success());
    }
    // Each may take a block before it gives up pages that are none of it.
    assert!(most <= 16 * MIB + 3 * 4 * MIB, "{most}");
    assert!(most >= 4 * MIB, "{most}");
    assert_eq!(home.list().unwrap(), Vec::<String>::new());
}

#[test]
fn the_memory_of_those_who_are_killed_is_had_again() {
    let dir = dir();
    let spaces = spaces(dir.path(), SHARED);
    let mut other = child("keep", "other", dir.path());
    assert!(says(&mut other, "step 0"));
    let (stop, waits) = counted();
    let mut mine = Writer::open("mine", &Written { stop, ..written(&spaces) }).unwrap();
    std::thread::scope(|scope| {
        let writes = scope.spawn(move || put(&mut mine, 10 * MIB));
        until_it_waits(&waits);
        assert!(!writes.is_finished());
        other.kill().unwrap();
        other.wait().unwrap();
        writes.join().unwrap().unwrap();
    });
    assert_eq!(Home::open(&spaces).unwrap().list().unwrap(), ["mine"]);
}
