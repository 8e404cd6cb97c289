//! Subscriptions have an end, whatever becomes of writers.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{LONG, Place};
use std::time::Duration;
use stead_core::Kind;
use stead_stream::{Behind, Read, Reader, Subscription, Writer};

#[test]
fn a_subscription_of_a_writer_that_never_ends_a_step_ends_and_says_who_it_is() {
    let place = Place::new();
    let mut writer = Writer::open("hangs", &place.written()).unwrap();
    writer.begin().unwrap();
    writer.end().unwrap();
    writer.begin().unwrap();
    let soon = Read { timeout: Duration::from_millis(300), ..place.read() };
    let (had, told) = std::sync::mpsc::channel();
    let reader = Reader::open("hangs", &soon).unwrap();
    let waits = Subscription::new(reader, move |step| {
        had.send(step.map(|step| step.map(|step| step.number()))).unwrap();
    })
    .unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap().unwrap(), Some(0));
    let e = told.recv_timeout(LONG).unwrap().unwrap_err();
    assert_eq!(e.kind(), Kind::Timeout);
    let who =
        format!("step 1 of stream 'hangs' has not come: writer 0 (process {})", std::process::id());
    assert!(e.message().starts_with(&who), "{e}");
    // It is called no more.
    waits.join();
    assert!(told.recv().is_err());
    writer.end().unwrap();
    writer.close().unwrap();
}

#[test]
fn a_subscription_that_waits_for_another_rank_says_for_which() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let of = Read {
        ranks: 2,
        behind: Behind::Drop,
        timeout: Duration::from_millis(300),
        ..place.read()
    };
    let reader = Reader::open("sim", &of).unwrap();
    let (had, told) = std::sync::mpsc::channel();
    let waits = Subscription::new(reader, move |step| {
        had.send(step.map(|step| step.map(|step| step.number()))).unwrap();
    })
    .unwrap();
    let failed = std::thread::scope(|scope| {
        let failed = scope.spawn(move || told.iter().find_map(Result::err));
        // The other one never comes.
        while !waits.is_over() {
            writer.begin().unwrap();
            writer.end().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        failed.join().unwrap()
    });
    let e = failed.unwrap();
    assert_eq!(e.kind(), Kind::Timeout);
    assert!(e.message().ends_with("rank 1 of the readers 'readers' has not come"), "{e}");
    writer.close().unwrap();
}
