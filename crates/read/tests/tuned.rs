//! How many readers are best is found while a file is read, told, and remembered for the next program. Programs are this one
//! again, which runs the test `another_program` with something to do.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::path::Path;
use std::process::Command;
use stead_read::{Options, Session, open};

const MIB: u64 = 1 << 20;
/// Of a file that is nowhere on the disk and not in the page cache.
const LEN: u64 = 6 << 30;
/// Of a session, all of which is read ahead: readers do not have to wait for whoever takes it.
const PART: u64 = 256 * MIB;

fn options() -> Options {
    Options { memory: 4 * PART, ..Options::default() }
}

fn plan(session: &Session, name: &str) -> (String, String) {
    let found = session.plan().into_iter().find(|d| d.name == name).unwrap();
    (found.value, found.reason)
}

/// Reads parts of the file, a session each, until that is enough, and tells what was chosen then.
fn read(path: &Path, options: &Options, enough: impl Fn(&Session) -> bool) -> (String, String) {
    let file = open(path, options).unwrap();
    for from in (0..LEN).step_by(PART as usize) {
        let session = file.session(from..from + PART).unwrap();
        for at in (from..from + PART).step_by(MIB as usize) {
            let view = session.read(at, MIB as usize).wait().unwrap();
            assert!(view.iter().step_by(4096).all(|b| *b == 0));
        }
        if enough(&session) {
            let told = plan(&session, "readers");
            drop(session);
            // The program ends with the file open.
            std::mem::forget(file);
            return told;
        }
    }
    panic!("all of the file was read, and nothing was found");
}

#[test]
fn another_program() {
    let Ok(role) = std::env::var("STEAD_TEST_ROLE") else { return };
    let path = std::env::var_os("STEAD_TEST_FILE").unwrap();
    let path = Path::new(&path);
    let found = |session: &Session| plan(session, "readers").1.contains("while reading");
    let (value, reason) = match role.as_str() {
        "finds" => read(path, &options(), found),
        "pins" => read(path, &Options { readers: Some(3), ..options() }, |_| true),
        _ => {
            let file = open(path, &options()).unwrap();
            plan(&file.session(..).unwrap(), "readers")
        }
    };
    println!("\ntold {value}: {reason}");
    std::process::exit(0);
}

/// Runs it, and gives what it told.
fn program(role: &str, file: &Path, cache: &Path) -> String {
    let program = Command::new(std::env::current_exe().unwrap())
        .args(["another_program", "--exact", "--nocapture"])
        .env("STEAD_TEST_ROLE", role)
        .env("STEAD_TEST_FILE", file)
        .env("STEAD_CACHE", cache)
        .output()
        .unwrap();
    let text = String::from_utf8(program.stdout).unwrap();
    let told = text.lines().find_map(|line| line.strip_prefix("told "));
    let errors = String::from_utf8_lossy(&program.stderr);
    told.unwrap_or_else(|| panic!("{role}: {text}{errors}")).to_owned()
}

#[test]
fn what_is_found_while_reading_is_told_and_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cache) = (dir.path().join("sparse"), dir.path().join("cache"));
    std::fs::File::create(&path).unwrap().set_len(LEN).unwrap();
    let tiers = || std::fs::read_to_string(cache.join("tiers"));

    // What somebody wants says nothing of what is best.
    assert_eq!(program("pins", &path, &cache), "3: as asked for");
    assert!(tiers().is_err());
    let before = program("looks", &path, &cache);
    assert!(!before.contains("measured"), "{before}");

    let found = program("finds", &path, &cache);
    assert!(found.contains("while reading"), "{found}");
    let text = tiers().unwrap();
    let line: Vec<&str> = text.lines().nth(1).unwrap().split(' ').collect();
    assert_eq!((text.lines().count(), line.len()), (2, 7), "{text}");
    assert!(["huge", "cache"].contains(&line[1]), "{text}");

    // Another program begins with it, and says so.
    let then = program("looks", &path, &cache);
    let expected = format!("{}: measured before on this tier: ", line[3]);
    assert!(then.starts_with(&expected), "{then} for {text}");
    // A wish goes before, and what it gives is not remembered.
    assert_eq!(program("pins", &path, &cache), "3: as asked for");
    assert_eq!(tiers().unwrap(), text);
}
