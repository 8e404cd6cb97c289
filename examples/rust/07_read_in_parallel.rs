//! A file that a thousand tasks read, each its own part, from a few threads of the program. How it is cut into tasks
//! and how it is read have nothing to do with each other: readers of the session fetch large blocks.

#![allow(clippy::print_stdout)]

use stead::read::Options;
use stead::{Error, Result};

const TASKS: u64 = 1000;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "flights.csv".into());
    let file = stead::read::open(path, &Options::default())?;
    let session = file.session(..)?;
    let share = file.len().div_ceil(TASKS);

    // All tasks ask, in any order and from any thread; each answer comes as soon as its own bytes are there.
    let reads: Vec<_> = (0..TASKS)
        .map(|task| {
            let from = (task * share).min(file.len());
            let to = (from + share).min(file.len());
            session.read(from, (to - from) as usize)
        })
        .collect();
    let mut lines = 0;
    for read in reads {
        // A view of memory that all tasks share: nothing is copied.
        let view = read.wait()?;
        lines += view.iter().filter(|byte| **byte == b'\n').count();
    }
    println!("{TASKS} tasks: {lines} lines");

    // The answer may come to a function, and the bytes to a buffer of the program's own.
    let (send, receive) = std::sync::mpsc::channel();
    session.read_into(0, vec![0; 4]).then(move |answer| drop(send.send(answer)));
    let first = receive.recv().map_err(|_| Error::usage("the read was dropped"))??;
    println!("the first bytes: {}", String::from_utf8_lossy(&first));

    // An error is that of one request, and the session goes on.
    match session.read(file.len(), 1).wait() {
        Ok(_) => println!("past the end: bytes"),
        Err(_) => println!("past the end: an error"),
    }
    session.close()
}
