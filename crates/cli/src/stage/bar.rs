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
        // On a terminal on which nothing can be drawn it would be hidden, with all that it is to tell.
        let drawn = std::io::stderr().is_terminal().then(drawn).filter(|bar| !bar.is_hidden());
        match (when, drawn) {
            (When::Never, _) => None,
            (_, Some(bar)) => Some(Bar(Shown::Drawn(bar))),
            (When::Always, None) => Some(Bar(Shown::Lines(Mutex::default()))),
            (When::Auto, None) => Some(Bar(Shown::Retries)),
        }
    }

    pub fn end(&self) {
        if let Shown::Drawn(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }

    /// How far one is that another process does, as it has written it down.
    pub fn far(&self, s: &Status) {
        let part = part((s.bytes_done, s.bytes), (s.files_done, s.files));
        let line = || format!("{} %, {}/{} names", percent(part), s.files_done, s.files);
        match &self.0 {
            Shown::Drawn(bar) => draw(bar, part, line()),
            // Before it is planned there is nothing to tell.
            Shown::Lines(last) if s.files > 0 => now_and_then(last, line),
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
            // Of one name that is all there is.
            Shown::Drawn(bar) => draw(bar, part_of(p), line(p, p.files > 1)),
            Shown::Lines(last) => now_and_then(last, || line(p, true)),
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
    if let Ok(style) = ProgressStyle::with_template("{wide_bar:.cyan/dim} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn draw(bar: &ProgressBar, (done, all): (u64, u64), said: String) {
    bar.set_length(all);
    bar.set_position(done);
    bar.set_message(said);
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
fn line(p: &Progress, with_names: bool) -> String {
    let size = units::format_size;
    let names = match with_names {
        true => format!("{}/{} names, ", p.files_done, p.files),
        false => String::new(),
    };
    if !p.planned {
        // More may come, and what is left to be copied nobody knows.
        let rate = if p.seconds > 0.0 { p.bytes_done as f64 / p.seconds } else { 0.0 };
        return format!(
            "compared {} of {}, {names}{}/s",
            size(p.bytes_done),
            size(p.bytes),
            size(rate as u64)
        );
    }
    format!(
        "{} %, {} of {}, {names}{}/s, {} left",
        percent(part_of(p)),
        size(p.bytes_done),
        size(p.bytes),
        size(p.rate() as u64),
        range(&p.left)
    )
}

fn part_of(p: &Progress) -> (u64, u64) {
    part((p.bytes_done, p.bytes), (p.files_done, p.files))
}

/// How much is done, of how much: bytes, or names where there are no bytes.
fn part(bytes: (u64, u64), names: (u64, u64)) -> (u64, u64) {
    if bytes.1 > 0 { bytes } else { names }
}

fn percent((done, all): (u64, u64)) -> u64 {
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
            line(&p, true),
            "25 %, 1.0 MiB of 4.0 MiB, 3/7 names, 512.0 KiB/s, 6.00 s (5.00 s to 8.00 s) left"
        );
        assert_eq!(
            line(&p, false),
            "25 %, 1.0 MiB of 4.0 MiB, 512.0 KiB/s, 6.00 s (5.00 s to 8.00 s) left"
        );
        p.planned = false;
        assert_eq!(line(&p, true), "compared 1.0 MiB of 4.0 MiB, 3/7 names, 512.0 KiB/s");
        assert_eq!(line(&p, false), "compared 1.0 MiB of 4.0 MiB, 512.0 KiB/s");
        p.planned = true;
        (p.bytes_done, p.bytes, p.moved) = (0, 0, 0);
        let said = line(&p, true);
        assert!(said.starts_with("42 %, 0 B of 0 B, 3/7 names"), "{said}");
        assert_eq!(part_of(&p), (3, 7));
        assert_eq!(percent((0, 0)), 0);
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
