//! `stead stage` as a command: what its words do, and what it says.

#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods)] // Ages of files count from now.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

/// A folder in memory, where no blocks are shared and a copy takes its time, with the journal of its own. No daemon is asked.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Lab {
        Lab(tempfile::tempdir_in("/dev/shm").unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file that was changed last so many days ago.
    fn write(&self, name: &str, bytes: &[u8], days: u32) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - DAY * days).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("STEAD_") || text.starts_with("XDG_") {
                command.env_remove(&name);
            }
        }
        command.env("HOME", self.0.path()).env("STEAD_SOCKET", "none");
        command.env("STEAD_STATE", self.path("state")).current_dir(self.0.path());
        command.arg("stage").args(words).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn done(&self, words: &[&str]) {
        let done = self.run(words);
        assert!(done.status.success(), "{words:?}: {}", said(&done));
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn pipes_and_their_like_are_errors_or_left_out() {
    let lab = Lab::new();
    lab.write("run/f", b"x", 0);
    let _socket = UnixListener::bind(lab.path("run/socket")).unwrap();
    let refused = lab.run(&["run", "to"]);
    assert!(!refused.status.success() && said(&refused).contains("--skip-special"));
    assert!(!lab.path("to").exists());
    lab.done(&["run", "to", "--skip-special"]);
    assert!(lab.path("to/f").exists() && !lab.path("to/socket").exists());
}

#[test]
fn newer_files_replace_older_ones() {
    let lab = Lab::new();
    for (name, from, to) in [("newer", 1, 2), ("older", 2, 1)] {
        lab.write(&format!("run/{name}"), b"source", from);
        lab.write(&format!("to/{name}"), b"target", to);
    }
    assert!(!lab.run(&["run/", "to"]).status.success());
    lab.done(&["run/", "to", "--exists", "newer"]);
    assert_eq!((&*lab.read("to/newer"), &*lab.read("to/older")), ("source", "target"));
}

#[test]
fn what_is_too_old_is_left_out() {
    let lab = Lab::new();
    lab.write("run/new", b"x", 6);
    lab.write("run/old", b"x", 8);
    lab.done(&["run", "to", "--max-age", "7d"]);
    assert!(lab.path("to/new").exists() && !lab.path("to/old").exists());
}

#[test]
fn what_may_pass_is_tried_again_as_often_as_is_said() {
    let lab = Lab::new();
    lab.write("busy", &vec![1; 1 << 20], 0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::File::options().write(true).open(lab.path("busy")).unwrap();
            let mut bytes = [0];
            while !over.load(Ordering::Relaxed) {
                bytes[0] = !bytes[0];
                file.write_all_at(&bytes, 0).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let tries = ["0", "2"]
            .map(|retries| lab.run(&["busy", "to", "--limit", "4MiB", "--retries", retries]));
        over.store(true, Ordering::Relaxed);
        for (tried, times) in tries.iter().zip([0, 2]) {
            let said = said(tried);
            assert_eq!(tried.status.code(), Some(1), "{said}");
            assert_eq!(said.matches("tried again: ").count(), times, "{said}");
        }
    });
    assert!(!lab.path("to").exists());
}

/// What is said of a transfer that Ctrl-C has stopped.
fn stopped(lab: &Lab, words: &[&str]) -> String {
    let to = lab.path("to");
    fs::create_dir_all(&to).unwrap();
    let mut words = words.to_vec();
    words.extend(["large", "to/", "--limit", "64KiB"]);
    let child = lab.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..6000 {
        if fs::read_dir(&to).unwrap().next().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", said(&ended));
    said(&ended)
}

#[test]
fn what_was_stopped_is_gone_on_with_by_whoever_has_begun_it() {
    let lab = Lab::new();
    lab.write("large", &vec![1; 4 << 20], 0);
    let here = stopped(&lab, &["--here"]);
    assert!(here.contains("--resume 1 --here;") && here.contains("--cancel 1 --here"), "{here}");
    lab.done(&["--cancel", "1", "--here"]);
    let plain = stopped(&lab, &[]);
    assert!(plain.contains("--resume 2;") && !plain.contains("--here"), "{plain}");
}

#[test]
fn what_is_no_number_and_no_list_is_told() {
    let lab = Lab::new();
    for word in ["--cancel", "--resume", "--wait"] {
        let odd = lab.run(&[word, "abc"]);
        assert_eq!(odd.status.code(), Some(2));
        assert!(said(&odd).contains("no number of a transfer"), "{}", said(&odd));
    }
    fs::create_dir(lab.path("run")).unwrap();
    let none = lab.run(&["run/", "to", "--files-from", "-"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(said(&none).contains("the standard input lists no name"), "{}", said(&none));
}

#[test]
fn a_journal_that_would_be_another_one_in_each_folder_is_refused() {
    let lab = Lab::new();
    lab.write("f", b"x", 0);
    let done = lab.command(&["f", "g"]).env("STEAD_STATE", "state").output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{}", said(&done));
    assert!(said(&done).contains("STEAD_STATE is 'state'"), "{}", said(&done));
    assert!(!lab.path("g").exists());
}
