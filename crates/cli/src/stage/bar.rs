//! How far a transfer is, on the error stream: a bar on a terminal, and lines elsewhere.

use super::range;
use crate::args::When;
use crate::clock;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use stead::stage::{Progress, Status, Watcher};
use stead::{Error, units};

/// Transfers shorter than this show nothing.
const PATIENCE_S: f64 = 0.5;
/// Where there is no redrawing, a line comes so often.
const EVERY: Duration = Duration::from_secs(1);

/// What is shown of a transfer.
pub struct Bar(Shown);

enum Shown {
    /// A bar with rate and remaining time.
    Drawn(ProgressBar),
    /// Lines, into a file or a pipe.
    Lines(Mutex<Last>),
    /// What is tried again: nobody has asked for more, and there is no terminal.
    Retries,
}

/// The line before.
#[derive(Default)]
struct Last {
    when: Option<Instant>,
    /// What it said that the transfer waits for.
    waits: String,
}

impl Last {
    /// True if it is so long ago that there may be another one.
    fn is_old(&self) -> bool {
        self.when.is_none_or(|when| clock::now().saturating_duration_since(when) >= EVERY)
    }
}

impl Bar {
    /// Nothing if nothing is to be told.
    pub fn new(when: When) -> Option<Bar> {
        match (when, std::io::stderr().is_terminal()) {
            (When::Never, _) => None,
            (_, true) => Some(Bar(Shown::Drawn(drawn()))),
            (When::Always, false) => Some(Bar(Shown::Lines(Mutex::default()))),
            (When::Auto, false) => Some(Bar(Shown::Retries)),
        }
    }

    pub fn end(&self) {
        if let Shown::Drawn(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }

    /// How far one is that another process does, as it has written it down.
    pub fn far(&self, s: &Status) {
        let names = format!("{}/{} names", s.files_done, s.files);
        match &self.0 {
            Shown::Drawn(bar) => {
                bar.set_length(s.bytes);
                bar.set_position(s.bytes_done);
                bar.set_message(names);
            }
            // Before it is planned there is nothing to tell.
            Shown::Lines(last) if s.files > 0 => {
                let percent = percent((s.bytes_done, s.bytes), (s.files_done, s.files));
                now_and_then(last, || format!("{percent} %, {names}"));
            }
            Shown::Lines(_) | Shown::Retries => {}
        }
    }
}

impl Watcher for Bar {
    fn progress(&self, p: &Progress) {
        if p.seconds < PATIENCE_S {
            return;
        }
        match &self.0 {
            Shown::Drawn(bar) => {
                bar.set_length(p.bytes);
                bar.set_position(p.bytes_done);
                let (done, all) = (p.files_done, p.files);
                bar.set_message(format!("{done}/{all} names, {} left", range(&p.left)));
            }
            Shown::Lines(last) => now_and_then(last, || line(p)),
            Shown::Retries => {}
        }
    }

    fn waits(&self, why: &str) {
        match &self.0 {
            Shown::Drawn(bar) => bar.set_message(format!("waits: {why}")),
            Shown::Lines(last) => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                // It may wait for hours: the same is told once, and what changes all the time now and then.
                if last.waits != why && (last.waits.is_empty() || last.is_old()) {
                    *last = Last { when: Some(clock::now()), waits: why.to_owned() };
                    drop(last);
                    say(&format!("waits: {why}"));
                }
            }
            Shown::Retries => {}
        }
    }

    fn retry(&self, error: &Error) {
        let line = format!("stead: tried again: {error}");
        match &self.0 {
            Shown::Drawn(bar) => bar.println(line),
            Shown::Lines(_) | Shown::Retries => say(&line),
        }
    }
}

fn drawn() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    let style = "{wide_bar:.cyan/dim} {bytes}/{total_bytes}  {binary_bytes_per_sec}  {msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// Writes a line, if the last one is old.
fn now_and_then(last: &Mutex<Last>, line: impl FnOnce() -> String) {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_old() {
        *last = Last { when: Some(clock::now()), waits: String::new() };
        drop(last);
        say(&line());
    }
}

fn say(line: &str) {
    // An error stream that takes no text is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// How far one is that this process does, or a daemon.
fn line(p: &Progress) -> String {
    let size = units::format_size;
    format!(
        "{} %, {} of {}, {}/{} names, {}/s, {} left",
        percent((p.bytes_done, p.bytes), (p.files_done, p.files)),
        size(p.bytes_done),
        size(p.bytes),
        p.files_done,
        p.files,
        size(p.rate() as u64),
        range(&p.left)
    )
}

/// Of bytes; where there are none, of names.
fn percent(bytes: (u64, u64), names: (u64, u64)) -> u64 {
    let (done, all) = if bytes.1 > 0 { bytes } else { names };
    done.saturating_mul(100) / all.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead::stage::{Action, Remaining};

    #[test]
    fn a_line_has_what_a_bar_shows() {
        let mut p = Progress {
            action: Action::Copy,
            files_done: 3,
            files: 7,
            bytes_done: 1 << 20,
            bytes: 4 << 20,
            planned: true,
            seconds: 2.0,
            moved: 1 << 20,
            left: Remaining { seconds: 6.0, low: 5.0, high: 8.0 },
        };
        assert_eq!(
            line(&p),
            "25 %, 1.0 MiB of 4.0 MiB, 3/7 names, 512.0 KiB/s, 6.00 s (5.00 s to 8.00 s) left"
        );
        (p.bytes_done, p.bytes, p.moved) = (0, 0, 0);
        assert!(line(&p).starts_with("42 %, 0 B of 0 B, 3/7 names"), "{}", line(&p));
        assert_eq!(percent((0, 0), (0, 0)), 0);
    }

    #[test]
    fn lines_come_now_and_then() {
        let is_told = |last: Last| {
            let (last, mut told) = (Mutex::new(last), false);
            now_and_then(&last, || {
                told = true;
                "a test tells this".to_owned()
            });
            told
        };
        let hence = clock::now() + 100 * EVERY;
        assert!(is_told(Last::default()));
        assert!(!is_told(Last { when: Some(hence), waits: String::new() }));
    }

    #[test]
    fn nothing_is_told_where_nothing_is_to_be() {
        assert!(Bar::new(When::Never).is_none());
        assert!(Bar::new(When::Auto).is_some() && Bar::new(When::Always).is_some());
    }
}
