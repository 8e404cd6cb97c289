//! What quotas of dataspaces leave is kept to by streams that are recorded there, or spill; and steps spill where there is room.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{LONG, bounds, wait_until};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{DType, Kind, Result};
use stead_stream::{Behind, Definition, Read, Reader, Writer, Written};

/// Of a block, which is a step of a writer: a MiB.
const ELEMENTS: u64 = 1 << 17;
const MIB: u64 = 1 << 20;

/// A folder in memory, as the dataspace `memory`, and others.
struct Place {
    dir: tempfile::TempDir,
    spaces: Spaces,
}

impl Place {
    /// With `disk`, of which this is agreed.
    fn new(agreed: &str) -> Place {
        let dir = common::dir();
        let disk = dir.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let text = format!("[dataspace.disk]\npath = \"{}\"\n{agreed}\n", disk.display());
        Place::of(dir, &text)
    }

    fn of(dir: tempfile::TempDir, text: &str) -> Place {
        let mut spaces = Spaces::parse(text, &|_| None).unwrap();
        spaces.imply("memory", dir.path().join("own").to_str().unwrap());
        Place { dir, spaces }
    }

    fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn written(&self) -> Written {
        Written { memory: 8 * MIB, ..common::written(&self.spaces) }
    }

    fn read(&self) -> Read {
        common::read(&self.spaces)
    }
}

/// Bytes that what lies in a folder takes.
fn room(folder: &Path) -> u64 {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let of = |entry: std::fs::DirEntry| {
        let meta = entry.metadata().unwrap();
        meta.blocks() * 512 + if meta.is_dir() { room(&entry.path()) } else { 0 }
    };
    all.map(of).sum()
}

fn value(rank: u64, step: u64) -> Vec<u8> {
    (rank as f64 * 1000.0 + step as f64).to_ne_bytes().repeat(ELEMENTS as usize)
}

/// Puts the block of a writer into the step that is open.
fn put_block(writer: &mut Writer, rank: u64, writers: u64) -> Result<()> {
    let t = writer.define(Definition::new("T", DType::F64, [writers, ELEMENTS]))?;
    let step = writer.step();
    writer.put(t, &bounds(&[rank, 0], &[1, ELEMENTS]), &value(rank, step))?;
    writer.end()
}

fn put(writer: &mut Writer, rank: u64, writers: u64) -> Result<()> {
    writer.begin()?;
    put_block(writer, rank, writers)
}

/// The next step is this one, and has what was put.
fn next(reader: &mut Reader, number: u64, writers: u64) {
    let step = reader.next_step().unwrap().unwrap();
    assert_eq!((step.number(), step.dropped()), (number, 0));
    for rank in 0..writers {
        let part = step.get("T", &bounds(&[rank, 0], &[1, ELEMENTS])).unwrap();
        let bytes = part.bytes();
        assert!(bytes[..(8 * ELEMENTS) as usize] == value(rank, number), "{number} {rank}");
    }
}

#[test]
fn what_is_recorded_keeps_to_quotas_and_what_was_before_can_be_read() {
    let all = "all users together";
    for (agreed, whose, by_path) in [
        ("quota = \"6MiB\"", all, false),
        ("user_quota = \"6MiB\"", "each user", false),
        ("quota = \"100GiB\"\nuser_quota = \"6MiB\"", "each user", true),
    ] {
        let place = Place::new(agreed);
        // By whatever name the folder is found.
        let path = place.disk().join("run").to_str().unwrap().to_owned();
        let at = if by_path { path } else { "disk://run".to_owned() };
        let options = Written { persist: Some(at), ..place.written() };
        let mut writer = Writer::open("sim", &options).unwrap();
        let error = (0..10_000).find_map(|_| put(&mut writer, 0, 1).err()).unwrap();
        assert_eq!(error.kind(), Kind::NoSpace, "{error}");
        let says = format!(
            "stream 'sim' is recorded no more: step 5: 1.0 MiB are needed in dataspace 'disk', which has 6.0 MiB for {whose}: "
        );
        assert!(error.message().contains(&says), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("remove something")), "{error}");
        drop(writer);
        let used = room(&place.disk());
        assert!((5 * MIB..=6 * MIB).contains(&used), "{used}");
        let mut reader = Reader::open("disk://run", &place.read()).unwrap();
        (0..5).for_each(|step| next(&mut reader, step, 1));
        assert_eq!(reader.next_step().unwrap_err().kind(), Kind::Peer);
    }
}

#[test]
fn writers_of_a_node_share_what_a_quota_leaves() {
    let place = Place::new("user_quota = \"10MiB\"");
    let writers = 3;
    let errors: Vec<Kind> = std::thread::scope(|scope| {
        let place = &place;
        let write = move |rank| {
            let persist = Some("disk://run".to_owned());
            let options = Written { persist, rank, writers, ..place.written() };
            let mut writer = Writer::open("sim", &options).unwrap();
            (0..10_000).find_map(|_| put(&mut writer, rank, writers).err()).unwrap().kind()
        };
        let all: Vec<_> = (0..writers).map(|rank| scope.spawn(move || write(rank))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // The others are told that one has ended, or find no room themselves.
    assert!(errors.contains(&Kind::NoSpace), "{errors:?}");
    assert!(errors.iter().all(|kind| matches!(kind, Kind::NoSpace | Kind::Peer)), "{errors:?}");
    // Beside what each has to say of itself.
    let used = room(&place.disk());
    assert!(used <= 10 * MIB + (64 << 10), "{used}");
}

#[test]
fn without_a_quota_there_is_as_much_as_there_is() {
    let place = Place::new("limit = \"1kB/s\"\ntransfers = 1");
    let options = Written { persist: Some("disk://run".to_owned()), ..place.written() };
    let mut writer = Writer::open("sim", &options).unwrap();
    (0..12).for_each(|_| put(&mut writer, 0, 1).unwrap());
    writer.close().unwrap();
    assert!(room(&place.disk()) >= 12 * MIB);
}

#[test]
fn writers_wait_where_a_quota_leaves_no_room_for_what_spills() {
    let place = Place::new("user_quota = \"9MiB\"");
    let other = place.disk().join("other");
    std::fs::write(&other, vec![1; 4 << 20]).unwrap();
    let options = Written {
        spill: Some("disk://run".to_owned()),
        memory: 4 * MIB,
        keep: 0,
        // It is waited for in vain once, and before that until one step is in files.
        timeout: Duration::from_secs(10),
        ..place.written()
    };
    let mut writer = Writer::open("sim", &options).unwrap();
    let mut reader = Reader::open("sim", &Read { behind: Behind::Spill, ..place.read() }).unwrap();
    let (mut full, mut error) = (0, None);
    while error.is_none() && full < 40 {
        match put(&mut writer, 0, 1) {
            Ok(()) => full += 1,
            Err(e) => error = Some(e),
        }
    }
    // Four in files, with what is said of them, and four in memory.
    let error = error.unwrap();
    assert_eq!((full, error.kind()), (8, Kind::Timeout), "{error}");
    let says =
        "step 4 is not recorded yet, and the readers 'readers' have not had it; quotas leave ";
    assert!(error.message().contains(says), "{error}");
    assert!(error.message().contains(" in dataspace 'disk' (9.0 MiB)"), "{error}");
    assert!(room(&place.disk()) <= 9 * MIB, "{}", room(&place.disk()));
    // What others remove is seen after a while.
    std::fs::remove_file(&other).unwrap();
    let went_on = (0..12).any(|_| put_block(&mut writer, 0, 1).is_ok());
    assert!(went_on);
    (9..12).for_each(|_| put(&mut writer, 0, 1).unwrap());
    assert!(room(&place.disk()) <= 9 * MIB, "{}", room(&place.disk()));
    // What it has had makes room, and nothing is lost.
    (0..5).for_each(|had| next(&mut reader, had, 1));
    (12..16).for_each(|_| put(&mut writer, 0, 1).unwrap());
    assert!(room(&place.disk()) <= 9 * MIB, "{}", room(&place.disk()));
    (5..16).for_each(|had| next(&mut reader, had, 1));
    writer.close().unwrap();
    assert!(reader.next_step().unwrap().is_none());
}

/// A folder that lies in no memory; `None` if the machine has none for tests.
fn on_a_device() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = std::fs::File::open(dir.path()).unwrap();
    (!stead_store::tier::is_memory(&file)).then_some(dir)
}

/// Folders of streams that have spilled to a dataspace.
fn spilled(space: &Path) -> Vec<PathBuf> {
    let folders = |at: &Path| -> Vec<PathBuf> {
        let all = std::fs::read_dir(at).into_iter().flatten();
        all.map(|entry| entry.unwrap().path()).collect()
    };
    folders(space).iter().flat_map(|of_user| folders(of_user)).collect()
}

#[test]
fn steps_spill_to_the_first_dataspace_that_has_room() {
    let Some(device) = on_a_device() else { return };
    let at = |name: &str| device.path().join(name);
    let text = |name: &str, more: &str| {
        std::fs::create_dir_all(at(name)).unwrap();
        format!("[dataspace.{name}]\npath = \"{}\"\n{more}\n", at(name).display())
    };
    let dir = common::dir();
    let in_memory = format!("[dataspace.b]\npath = \"{}\"\n", dir.path().display());
    let all = [
        text("all", "shared = true"),
        in_memory,
        text("few", "user_quota = \"1MiB\""),
        text("node", ""),
    ];
    let place = Place::of(dir, &all.concat());
    let options = |rank| Written {
        spill: Some("auto".to_owned()),
        spill_limit: Some(64 * MIB),
        memory: 6 * MIB,
        keep: 0,
        rank,
        writers: 2,
        ..place.written()
    };
    let mut writers = [0, 1].map(|rank| Writer::open("sim", &options(rank)).unwrap());
    let mut reader = Reader::open("sim", &Read { behind: Behind::Spill, ..place.read() }).unwrap();
    for _ in 0..12 {
        (0..).zip(&mut writers).for_each(|(rank, writer)| put(writer, rank, 2).unwrap());
    }
    let folders = spilled(&at("node"));
    assert_eq!(folders.len(), 1, "{folders:?}");
    let name = folders[0].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("sim-"), "{name}");
    for file in ["stream.json", "0.index", "0.data", "1.index", "1.data"] {
        assert!(folders[0].join(file).exists(), "{file}");
    }
    // Nobody else looks into them.
    let mode = folders[0].parent().unwrap().metadata().unwrap().mode();
    assert_eq!(mode & 0o077, 0);
    assert!(room(&folders[0]) > 0);
    assert!(spilled(&at("all")).is_empty() && spilled(&at("few")).is_empty());
    (0..12).for_each(|step| next(&mut reader, step, 2));
    writers.into_iter().for_each(|writer| writer.close().unwrap());
    assert!(reader.next_step().unwrap().is_none());
    drop(reader);
    wait_until(|| spilled(&at("node")).is_empty());
    assert!(spilled(&at("node")).is_empty());
    // What is not there is left out, and what all nodes see comes last.
    std::fs::remove_dir_all(at("node")).unwrap();
    let alone = |name: &str, limit| {
        let limit = Some(limit);
        Writer::open(name, &Written { writers: 1, spill_limit: limit, ..options(0) })
    };
    let writer = alone("late", 64 * MIB).unwrap();
    assert_eq!(spilled(&at("all")).len(), 1);
    let error = alone("large", u64::MAX).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    assert!(error.message().contains("that stream 'large' may spill: 'b': "), "{error}");
    assert!(error.message().contains("'few' has ") && error.message().contains("'all' has "));
    drop(writer);
    let none = Place::of(common::dir(), "");
    let options = Written { spill: Some("auto".into()), timeout: LONG, ..none.written() };
    let error = Writer::open("sim", &options).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage, "{error}");
    assert!(error.message().contains("there is no dataspace"), "{error}");
}
