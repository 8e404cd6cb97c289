//! Streams whose steps are recorded: read again, read from the first step on while they go on, and read from files by who is behind.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "recorded/damage.rs"]
mod damage;

use common::{LONG, bounds};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Bounds, DType, Kind};
use stead_stream::{
    Attribute, Behind, Definition, Description, Presence, Progress, Read, Reader, Recording, Start,
    Step, Survey, Writer, Written,
};

/// A folder in memory, as the dataspace `memory`, and one for files, as `disk`.
struct Place {
    dir: tempfile::TempDir,
    spaces: Spaces,
}

fn spaces(dir: &Path) -> Spaces {
    let mut spaces = common::memory(&dir.join("own"));
    spaces.give(&format!("disk={}", dir.join("disk").display()), &|_| None).unwrap();
    spaces
}

impl Place {
    fn new() -> Place {
        let dir = common::dir();
        std::fs::create_dir(dir.path().join("disk")).unwrap();
        let spaces = spaces(dir.path());
        Place { dir, spaces }
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.dir.path().join("disk").join(name)
    }

    fn written(&self) -> Written {
        let persist = Some("disk://run".to_owned());
        Written { persist, ..common::written(&self.spaces) }
    }

    fn read(&self) -> Read {
        common::read(&self.spaces)
    }

    fn open(&self) -> Reader {
        Reader::open("disk://run", &self.read()).unwrap()
    }

    fn told(&self, name: &str) -> Description {
        let survey = Survey { spaces: self.spaces.clone(), ..Survey::default() };
        survey.describe(name).unwrap().first
    }
}

/// The element at a place of a step.
fn value(step: u64, at: &[u64]) -> f64 {
    at.iter().fold(step as f64 + 1.0, |sum, n| sum * 1009.0 + *n as f64)
}

fn bytes(step: u64, part: &Bounds) -> Vec<u8> {
    let mut at = part.start().to_vec();
    let mut out = Vec::new();
    for _ in 0..part.elements() {
        out.extend(value(step, &at).to_ne_bytes());
        for d in (0..at.len()).rev() {
            at[d] += 1;
            if at[d] < part.end(d) {
                break;
            }
            at[d] = part.start()[d];
        }
    }
    out
}

/// What the array of a step is: of another shape in each third one.
fn shape(step: u64) -> Vec<u64> {
    vec![12, 40 + step / 3 * 8, 3]
}

fn array(step: u64) -> Definition {
    Definition {
        dims: vec!["y".into(), "x".into(), "c".into()],
        attributes: [("units".to_owned(), Attribute::Text("K".into()))].into(),
        ..Definition::new("T", DType::F64, shape(step))
    }
}

fn whole(shape: &[u64]) -> Bounds {
    bounds(&vec![0; shape.len()], shape)
}

/// A step of one of several writers: rows of an array, one number of all, and many small blocks.
fn put(writer: &mut Writer, rank: u64, writers: u64, step: u64) {
    let shape = shape(step);
    let rows = shape[0] / writers;
    let t = writer.define(array(step)).unwrap();
    let n = writer.define(Definition::new("n", DType::U64, [])).unwrap();
    let small = writer.define(Definition::new("small", DType::F64, [40 * writers])).unwrap();
    assert_eq!(writer.begin().unwrap(), step);
    let part = bounds(&[rank * rows, 0, 0], &[rows, shape[1], shape[2]]);
    writer.put(t, &part, &bytes(step, &part)).unwrap();
    if rank == 0 {
        writer.put(n, &bounds(&[], &[]), &step.to_ne_bytes()).unwrap();
    }
    for i in 0..40 {
        let part = bounds(&[rank * 40 + i], &[1]);
        writer.put(small, &part, &bytes(step, &part)).unwrap();
    }
    writer.end().unwrap();
}

/// All of a step, and parts of it in other layouts, are what was put.
fn look(step: &Step, writers: u64) {
    let number = step.number();
    let shape = shape(number);
    let t = step.variable("T").unwrap();
    assert_eq!(*t, array(number));
    assert_eq!(step.get("T", &whole(&shape)).unwrap().bytes(), bytes(number, &whole(&shape)));
    for part in [
        bounds(&[0, 5, 0], &[12, 1, 3]),
        bounds(&[0, 0, 1], &[12, shape[1], 1]),
        bounds(&[3, 7, 0], &[6, 11, 2]),
        bounds(&[11, shape[1] - 1, 2], &[1, 1, 1]),
    ] {
        let array = step.get("T", &part).unwrap();
        let mut copy = vec![0; part.elements() as usize * 8];
        step.get_into("T", &part, &mut copy).unwrap();
        assert!(copy == bytes(number, &part), "{part}");
        assert!(!array.is_contiguous() || array.bytes()[..copy.len()] == copy, "{part}");
    }
    assert_eq!(step.get("n", &bounds(&[], &[])).unwrap().bytes()[..8], number.to_ne_bytes());
    let all = bounds(&[0], &[40 * writers]);
    assert_eq!(step.get("small", &all).unwrap().bytes(), bytes(number, &all));
    assert_eq!(step.parts("small").unwrap().len() as u64, 40 * writers);
}

fn write(place: &Place, writers: u64, steps: u64, options: &(dyn Fn(Written) -> Written + Sync)) {
    std::thread::scope(|scope| {
        for rank in 0..writers {
            scope.spawn(move || {
                let written = options(Written { rank, writers, ..place.written() });
                let mut writer = Writer::open("sim", &written).unwrap();
                for step in 0..steps {
                    put(&mut writer, rank, writers, step);
                }
                writer.close().unwrap();
            });
        }
    });
}

#[test]
fn what_was_recorded_is_read_as_the_stream_was() {
    for writers in [1, 3] {
        let place = Place::new();
        write(&place, writers, 7, &|written| written);
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let place = &place;
                scope.spawn(move || {
                    let read = Read { rank, ranks: 2, group: "a".into(), ..place.read() };
                    let mut reader = Reader::open("disk://run", &read).unwrap();
                    assert_eq!(reader.steps().unwrap(), [0, 1, 2, 3, 4, 5, 6]);
                    let mut had = 0;
                    while let Some(step) = reader.next_step().unwrap() {
                        assert_eq!((step.number(), step.dropped()), (had, 0));
                        assert!(step.completed_at() > 1_600_000_000_000_000_000);
                        look(&step, writers);
                        had += 1;
                    }
                    assert!(had == 7 && reader.is_over());
                    // Any of them again, in any order, while others are held.
                    let (last, first) = (reader.at(6).unwrap(), reader.at(0).unwrap());
                    look(&first, writers);
                    look(&last, writers);
                    assert_eq!(reader.at(7).unwrap_err().kind(), Kind::NotFound);
                });
            }
        });
        let reader = place.open();
        let step = reader.wait_for("T", 4, LONG).unwrap();
        look(&step, writers);
        // A path of the system leads to the same.
        let path = place.disk("run").to_str().unwrap().to_owned();
        let mut reader = Reader::open(&path, &place.read()).unwrap();
        look(&reader.next_step().unwrap().unwrap(), writers);
        let told = place.told(&path);
        assert_eq!((told.name.as_str(), told.state, told.complete), ("sim", Progress::Ended, 7));
        assert!(told.writers.iter().all(|w| w.presence == Presence::Left && w.step == 7));
        assert!(stead_stream::remove(&path, &place.spaces, false).unwrap());
        assert!(!place.disk("run").exists());
        let error = Reader::open(&path, &place.read()).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }
}

#[test]
fn a_large_block_is_read_by_parts() {
    let place = Place::new();
    let shape = [900u64, 1100];
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let t = writer.define(Definition::new("T", DType::F64, shape)).unwrap();
    writer.begin().unwrap();
    let all = bytes(0, &whole(&shape));
    writer.put(t, &whole(&shape), &all).unwrap();
    writer.end().unwrap();
    writer.close().unwrap();
    let step = place.open().next_step().unwrap().unwrap();
    for part in [
        whole(&shape),
        bounds(&[0, 1099], &[900, 1]),
        bounds(&[1, 1], &[898, 1098]),
        bounds(&[450, 0], &[1, 1100]),
        bounds(&[899, 1099], &[1, 1]),
        bounds(&[10, 10], &[0, 5]),
    ] {
        let mut copy = vec![0; part.elements() as usize * 8];
        step.get_into("T", &part, &mut copy).unwrap();
        assert!(copy == bytes(0, &part), "{part}");
    }
}

#[test]
fn steps_are_read_while_they_are_recorded() {
    let place = Place::new();
    std::thread::scope(|scope| {
        // Nobody waits for who reads files, who has all steps all the same.
        let mut writer = Writer::open("sim", &place.written()).unwrap();
        let mut reader = place.open();
        let next =
            Reader::open("disk://run", &Read { start: Start::Next, ..place.read() }).unwrap();
        let error = next.wait_for("T", 0, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout);
        assert!(error.message().contains("writer 0 has not recorded it"), "{error}");
        scope.spawn(move || {
            for step in 0..30 {
                put(&mut writer, 0, 1, step);
            }
            writer.close().unwrap();
        });
        let mut had = 0;
        while let Some(step) = reader.next_step().unwrap() {
            assert_eq!((step.number(), step.dropped()), (had, 0));
            look(&step, 1);
            had += 1;
        }
        assert_eq!(had, 30);
    });
}

#[test]
fn who_comes_late_begins_with_the_first_step_and_misses_none() {
    for behind in [Behind::Block, Behind::Spill] {
        let place = Place::new();
        let writers = 2;
        std::thread::scope(|scope| {
            let mut late = Vec::new();
            let (told, hears) = std::sync::mpsc::channel();
            for rank in 0..writers {
                let (place, told) = (&place, told.clone());
                scope.spawn(move || {
                    let options = Written { rank, writers, ..place.written() };
                    let mut writer = Writer::open("sim", &options).unwrap();
                    for step in 0..60 {
                        put(&mut writer, rank, writers, step);
                        if step == 20 {
                            told.send(()).unwrap();
                        }
                    }
                    writer.close().unwrap();
                });
            }
            hears.recv_timeout(2 * LONG).unwrap();
            for rank in 0..2 {
                let place = &place;
                late.push(scope.spawn(move || {
                    let start = Start::First;
                    let read = Read { start, behind, rank, ranks: 2, ..place.read() };
                    let mut reader = Reader::open("sim", &read).unwrap();
                    let mut held = Vec::new();
                    for had in 0..60 {
                        let step = reader.next_step().unwrap().unwrap();
                        assert_eq!((step.number(), step.dropped()), (had, 0));
                        look(&step, writers);
                        if had % 7 == 0 {
                            held.push(step);
                        }
                        held.drain(..held.len().saturating_sub(3));
                    }
                    assert!(reader.next_step().unwrap().is_none());
                    held.iter().for_each(|step| look(step, writers));
                    look(&reader.at(3).unwrap(), writers);
                    assert_eq!(reader.steps().unwrap().len(), 60);
                }));
            }
            late.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// Memory is not kept for steps that are still on their way to files.
#[test]
fn no_complete_step_is_missing_between_memory_and_files() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &Written { keep: 1, ..place.written() }).unwrap();
    let large = bounds(&[0], &[1 << 19]);
    let t = writer.define(Definition::new("T", DType::F64, [1 << 19])).unwrap();
    let read = Read { start: Start::First, ..place.read() };
    let mut reader = None;
    let values: Vec<_> = (0..6).map(|n| f64::from(n).to_ne_bytes().repeat(1 << 19)).collect();
    for n in 0..24u64 {
        writer.begin().unwrap();
        writer.put(t, &large, &values[n as usize % 6]).unwrap();
        writer.end().unwrap();
        let reader = reader.get_or_insert_with(|| Reader::open("sim", &read).unwrap());
        // It is done with it, so that memory is not kept.
        assert_eq!(reader.next_step().unwrap().unwrap().number(), n);
        if n % 6 == 5 {
            for before in (n - 5..n).rev() {
                let step = reader.at(before).unwrap();
                let had = step.get("T", &bounds(&[7], &[1])).unwrap();
                // It may be looked at where it lies, with what is behind it.
                assert!(had.bytes().starts_with(&((before % 6) as f64).to_ne_bytes()), "{before}");
            }
        }
        if n % 6 == 3 {
            assert_eq!(reader.steps().unwrap(), (0..=n).collect::<Vec<_>>());
        }
    }
    writer.close().unwrap();
}

#[test]
fn writers_do_not_wait_for_who_reads_from_files_and_nothing_is_lost() {
    for (persist, writers, memory) in
        [(true, 1, 0), (false, 1, 0), (false, 3, 0), (false, 2, 600 << 10)]
    {
        let place = Place::new();
        let options = |written: Written| Written {
            persist: persist.then(|| "disk://run".to_owned()),
            spill: (!persist).then(|| "disk://run".to_owned()),
            memory: if memory > 0 { memory } else { written.memory },
            readers: 2,
            // Far less than they would wait for who never comes on.
            timeout: LONG,
            ..written
        };
        let steps = 120;
        let (stopped, goes) = std::sync::mpsc::channel::<()>();
        let (place, options) = (&place, &options);
        // With the end that lets the reader go on: it is not to wait for who has failed.
        std::thread::scope(move |scope| {
            let slow = scope.spawn(move || {
                let read = Read { behind: Behind::Spill, group: "slow".into(), ..place.read() };
                let mut reader = Reader::open("sim", &read).unwrap();
                let first = reader.next_step().unwrap().unwrap();
                // It goes on when the writers have closed the stream.
                goes.recv().unwrap();
                look(&first, writers);
                drop(first);
                let mut held = None;
                for had in 1..steps {
                    let step = reader.next_step().unwrap().unwrap();
                    assert_eq!((step.number(), step.dropped()), (had, 0));
                    look(&step, writers);
                    if had % 10 == 3 {
                        held = Some(step);
                    }
                    if let Some(step) = held.as_ref().filter(|_| had % 10 == 9) {
                        // What is held stays, also when it is done with.
                        look(step, writers);
                    }
                }
                assert!(reader.next_step().unwrap().is_none());
            });
            let fast = scope.spawn(move || {
                let read = Read { behind: Behind::Spill, group: "fast".into(), ..place.read() };
                let mut reader = Reader::open("sim", &read).unwrap();
                for had in 0..steps {
                    let step = reader.next_step().unwrap().unwrap();
                    assert_eq!((step.number(), step.dropped()), (had, 0));
                    look(&step, writers);
                }
            });
            write(place, writers, steps, options);
            fast.join().unwrap();
            stopped.send(()).unwrap();
            slow.join().unwrap();
        });
        // What spilled goes with the stream, and what is to be kept does not.
        assert_eq!(place.disk("run").exists(), persist);
    }
}

#[test]
fn what_all_have_had_is_freed() {
    let place = Place::new();
    let spill = Some("disk://run".to_owned());
    let options = Written { persist: None, spill, queue: 1, keep: 0, ..place.written() };
    let mut writer = Writer::open("sim", &options).unwrap();
    let read = Read { behind: Behind::Spill, ..place.read() };
    let mut reader = Reader::open("sim", &read).unwrap();
    let t = writer.define(Definition::new("T", DType::F64, [1 << 17])).unwrap();
    let part = bounds(&[0], &[1 << 17]);
    let mut most = 0;
    let room = || {
        let meta = std::fs::metadata(place.disk("run").join("0.data")).unwrap();
        std::os::unix::fs::MetadataExt::blocks(&meta) * 512
    };
    let mut had = 0;
    for step in 0..150u64 {
        writer.begin().unwrap();
        writer.put(t, &part, &bytes(step, &part)).unwrap();
        writer.end().unwrap();
        if step >= 40 {
            let next = reader.next_step().unwrap().unwrap();
            assert_eq!(next.number(), had);
            assert!(next.get("T", &part).unwrap().bytes() == bytes(had, &part));
            had += 1;
            most = most.max(room());
        }
    }
    let length = std::fs::metadata(place.disk("run").join("0.data")).unwrap().len();
    assert!(length > 100 << 20, "{length}");
    // It is behind by forty steps of a MiB at any time.
    assert!((20 << 20..70 << 20).contains(&most), "{most}");
}

#[test]
fn files_of_what_spills_have_a_limit_and_then_writers_wait() {
    let place = Place::new();
    let options = Written {
        persist: None,
        spill: Some("disk://run".to_owned()),
        spill_limit: Some(9 << 20),
        memory: 4 << 20,
        keep: 0,
        // It is waited for in vain once, and before that until one step is in files.
        timeout: Duration::from_secs(10),
        ..place.written()
    };
    let mut writer = Writer::open("sim", &options).unwrap();
    let mut reader = Reader::open("sim", &Read { behind: Behind::Spill, ..place.read() }).unwrap();
    let t = writer.define(Definition::new("T", DType::F64, [1 << 17])).unwrap();
    let part = bounds(&[0], &[1 << 17]);
    let write = |writer: &mut Writer, step| {
        writer.begin()?;
        writer.put(t, &part, &bytes(step, &part))?;
        writer.end()
    };
    let room = || {
        let meta = std::fs::metadata(place.disk("run").join("0.data")).unwrap();
        std::os::unix::fs::MetadataExt::blocks(&meta) * 512
    };
    let mut error = None;
    let full = (0..40).find(|step| match write(&mut writer, *step) {
        Ok(()) => false,
        Err(e) => error.replace(e).is_none(),
    });
    // Eight in files, with what is said of them, and four in memory.
    let (full, error) = (full.unwrap(), error.unwrap());
    assert_eq!((full, error.kind()), (12, Kind::Timeout), "{error}");
    let says =
        "step 8 is not recorded yet, and the readers 'readers' have not had it (files have 8";
    assert!(error.message().contains(says), "{error}");
    assert!((8 << 20..9 << 20).contains(&room()), "{}", room());
    // What it has had makes room, and nothing is lost.
    let next = |reader: &mut Reader, had| {
        let step = reader.next_step().unwrap().unwrap();
        assert_eq!((step.number(), step.dropped()), (had, 0));
        assert!(step.get("T", &part).unwrap().bytes() == bytes(had, &part));
    };
    (0..5).for_each(|had| next(&mut reader, had));
    writer.put(t, &part, &bytes(full, &part)).unwrap();
    writer.end().unwrap();
    (13..16).for_each(|step| write(&mut writer, step).unwrap());
    assert!(room() < 9 << 20, "{}", room());
    (5..16).for_each(|had| next(&mut reader, had));
    let alone = Written { spill: None, persist: None, ..options };
    let error = Writer::open("other", &alone).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage, "{error}");
    assert!(error.message().contains("a limit for what spills"), "{error}");
}

#[test]
fn a_reader_that_keeps_up_has_nothing_written_for_it() {
    let place = Place::new();
    let spill = Some("disk://run".to_owned());
    let mut writer =
        Writer::open("sim", &Written { persist: None, spill, ..place.written() }).unwrap();
    let read = Read { behind: Behind::Spill, ..place.read() };
    let mut reader = Reader::open("sim", &read).unwrap();
    for step in 0..40 {
        put(&mut writer, 0, 1, step);
        look(&reader.next_step().unwrap().unwrap(), 1);
    }
    assert_eq!(std::fs::metadata(place.disk("run").join("0.data")).unwrap().len(), 0);
    drop(reader);
    // Nor for nobody.
    (40..80).for_each(|step| put(&mut writer, 0, 1, step));
    assert_eq!(std::fs::metadata(place.disk("run").join("0.data")).unwrap().len(), 0);
    writer.close().unwrap();
}

#[test]
fn what_cannot_be_is_said() {
    let place = Place::new();
    let usage = |error: stead_core::Error, says: &str| {
        assert_eq!(error.kind(), Kind::Usage, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    let open = |written: Written| Writer::open("sim", &written).unwrap_err();
    let to = |place: &Place, at: &str| Written { persist: Some(at.to_owned()), ..place.written() };
    usage(open(to(&place, "node7:/scratch/run")), "is on node node7");
    usage(open(to(&place, "s3://bucket/run")), "is a bucket");
    usage(open(to(&place, "disk://../run")), "..");
    usage(open(Written { spill: Some("disk://x".into()), ..place.written() }), "spills there, too");
    let plain = Written { persist: None, ..place.written() };
    let writer = Writer::open("plain", &plain).unwrap();
    let first = Read { start: Start::First, ..place.read() };
    usage(Reader::open("plain", &first).unwrap_err(), "which is not recorded");
    let spill = Read { behind: Behind::Spill, ..place.read() };
    usage(Reader::open("plain", &spill).unwrap_err(), "which is not recorded");
    drop(writer);
    let spills = Written { persist: None, spill: Some("disk://spill".into()), ..place.written() };
    let writer = Writer::open("spills", &spills).unwrap();
    usage(Reader::open("spills", &first).unwrap_err(), "are not kept");
    usage(Reader::open("disk://spill", &place.read()).unwrap_err(), "are behind by");
    drop(writer);
    // There are steps already: of another run of the stream, and of another stream.
    write(&place, 1, 2, &|written| written);
    for name in ["sim", "other"] {
        let error = Writer::open(name, &place.written()).unwrap_err();
        usage(error, "steps of stream 'sim' were recorded here before");
    }
    look(&place.open().next_step().unwrap().unwrap(), 1);
    // Writers that say another place.
    let one = Writer::open("two", &Written { writers: 2, ..to(&place, "disk://two") }).unwrap();
    let other = Written { writers: 2, rank: 1, ..to(&place, "disk://three") };
    usage(Writer::open("two", &other).unwrap_err(), "persist in folder");
    drop(one);
    for at in ["disk://none", "/nowhere/at/all", "./none"] {
        assert_eq!(Reader::open(at, &place.read()).unwrap_err().kind(), Kind::NotFound, "{at}");
    }
    usage(Reader::open("disk://run", &Read { rank: 1, ..place.read() }).unwrap_err(), "none of 1");
    // Names of streams are none of places, and the other way round.
    usage(Writer::open("a/b", &plain).unwrap_err(), "is no name for a stream");
    let link = place.disk("link");
    std::os::unix::fs::symlink("/tmp", link).unwrap();
    assert_eq!(open(to(&place, "disk://link/x")).kind(), Kind::Permission);
}

#[test]
fn what_was_recorded_in_a_folder_is_listed() {
    let place = Place::new();
    let to = |at: &str| {
        let at = Some(at.to_owned());
        move |written| Written { persist: at.clone(), ..written }
    };
    write(&place, 2, 3, &to("disk://runs/b"));
    write(&place, 1, 2, &to("disk://runs/a"));
    // One writer has not closed it, and has a step more than the other one.
    let open = |rank| {
        let written = Written { rank, writers: 2, ..place.written() };
        Writer::open("live", &to("disk://runs/c")(written)).unwrap()
    };
    let (mut ahead, behind) = (open(0), open(1));
    put(&mut ahead, 0, 2, 0);
    let spill = Some("disk://runs/d".to_owned());
    let spills = Written { persist: None, spill, ..place.written() };
    let spills = Writer::open("spills", &spills).unwrap();
    std::fs::create_dir(place.disk("runs").join("e")).unwrap();
    std::fs::write(place.disk("runs").join("file"), "x").unwrap();
    let list = |at: &str| stead_stream::recordings(at, &place.spaces).unwrap();
    let all = list("disk://runs");
    let seen: Vec<_> = all
        .iter()
        .map(|r| (r.location.as_str(), r.name.as_str(), r.writers, r.steps, r.is_whole))
        .collect();
    assert_eq!(
        seen,
        [
            ("disk://runs/a", "sim", 1, 2, true),
            ("disk://runs/b", "sim", 2, 3, true),
            ("disk://runs/c", "live", 2, 0, false),
        ]
    );
    assert!(all.iter().all(|r| r.damage.is_none()));
    let len = |name: &str| std::fs::metadata(place.disk(name)).unwrap().len();
    assert_eq!(all[1].bytes, len("runs/b/0.data") + len("runs/b/1.data"));
    assert_eq!((&all[1].state, &all[2].state), (&Progress::Ended, &Progress::Live));
    // What is listed is read by what is said of it, and the folder itself is one.
    let mut reader = Reader::open(&all[0].location, &place.read()).unwrap();
    look(&reader.next_step().unwrap().unwrap(), 1);
    let alone = Recording { location: "disk://runs/a/".into(), ..all[0].clone() };
    assert_eq!(list("disk://runs/a/"), [alone]);
    assert_eq!(list(&format!("{}/", place.disk("runs").display())).len(), 3);
    assert!(list("disk://runs/e").is_empty());
    // The others are listed beside one that cannot be read.
    std::fs::write(place.disk("runs").join("a").join("stream.json"), "{").unwrap();
    let all = list("disk://runs");
    assert!(all.len() == 3 && all[0].damage.as_ref().unwrap().contains("stream.json"));
    let error = stead_stream::recordings("disk://none", &place.spaces).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    drop((spills, ahead, behind));
    // A writer that closed it before the other one: what is complete is there, and it is not whole.
    let all = list("disk://runs");
    assert_eq!((all[2].steps, &all[2].state, all[2].is_whole), (0, &Progress::Ended, false));
}

/// This program again, as a writer.
fn child(dir: &Path, rank: u64) -> Child {
    common::child(&format!("{rank} {}", dir.display()))
}

/// What [`child`] does.
#[test]
fn another_process() {
    let Some(said) = common::told() else { return };
    let (rank, dir) = said.split_once(' ').unwrap();
    let rank = rank.parse().unwrap();
    let persist = Some("disk://run".to_owned());
    let spaces = spaces(Path::new(dir));
    let options = Written { spaces, rank, writers: 2, persist, ..Written::default() };
    let mut writer = Writer::open("sim", &options).unwrap();
    for step in 0.. {
        put(&mut writer, rank, 2, step);
    }
}

#[test]
fn what_a_killed_writer_has_recorded_is_read_and_no_more() {
    for victim in [0, 1] {
        let place = Place::new();
        let mut writers: Vec<Child> = (0..2).map(|rank| child(place.dir.path(), rank)).collect();
        let run = place.disk("run");
        let until = |rank: u64, steps: u64| {
            let index = run.join(format!("{rank}.index"));
            let long = || std::fs::metadata(&index).map_or(0, |meta| meta.len());
            let is_there = |_| {
                std::thread::sleep(Duration::from_millis(1));
                long() >= 64 * (steps + 1)
            };
            assert!((0..120_000).any(is_there), "writer {rank} has recorded {} bytes", long());
        };
        // Both: either may be some steps ahead of the other one.
        (0..2).for_each(|rank| until(rank, 25));
        writers[victim as usize].kill().unwrap();
        for mut writer in writers {
            assert!(!writer.wait().unwrap().success());
        }
        let mut reader = place.open();
        let mut had = 0;
        let error = loop {
            match reader.next_step() {
                Ok(Some(step)) => {
                    assert_eq!(step.number(), had);
                    look(&step, 2);
                    had += 1;
                }
                Ok(None) => panic!("it did not end well"),
                Err(e) => break e,
            }
        };
        assert!(had >= 24 && error.kind() == Kind::Peer, "{had} {error}");
        let last = format!("after step {}", had - 1);
        assert!(error.message().contains(&last), "{error}");
        assert!(error.message().contains("has ended without closing it"), "{error}");
        let told = place.told("disk://run");
        assert!(!told.variables.is_empty());
        assert_eq!(told.state, Progress::Failed { writer: victim as usize });
        assert_eq!((told.writers[victim as usize].presence, told.complete), (Presence::Died, had));
    }
}
