//! Watching a run, and stopping it by a flag that another thread or a signal handler sets (`Cancel::flag` is for crates
//! of signals).

#![allow(clippy::print_stdout)]

use std::sync::atomic::{AtomicBool, Ordering};
use stead::{Cancel, Kind, Observer, Request, Result, Snapshot};

#[derive(Default)]
struct Watch {
    whole: AtomicBool,
}

impl Observer for Watch {
    /// About ten times a second, and once at the end of each pass.
    fn progress(&self, now: &Snapshot) {
        self.whole.store(now.bytes == now.total_bytes, Ordering::Relaxed);
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "flights.csv".into());
    let flights = stead::open(&[path])?;
    let cancel = Cancel::new();
    let request =
        Request { kernels: vec!["entropy".into()], cancel: cancel.clone(), ..Request::default() };
    let watch = Watch::default();
    stead::run(&flights, &request, Some(&watch))?;
    println!(
        "watched to the end: {}",
        if watch.whole.load(Ordering::Relaxed) { "yes" } else { "no" }
    );

    cancel.cancel();
    match stead::run(&flights, &request, None) {
        Err(e) if e.kind() == Kind::Cancelled => println!("cancelled: {e}"),
        other => drop(other?),
    }

    // A flag stays set: the next run has one of its own.
    let again = Request { cancel: Cancel::new(), ..request };
    stead::run(&flights, &again, None)?;
    println!("and again: ok");
    Ok(())
}
