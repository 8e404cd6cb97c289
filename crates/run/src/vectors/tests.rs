use super::*;
use crate::news::News;
use crate::pass::Keep;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::{Block, Cancel, Columns, Error, Kind, Result};
use stead_fabric::Local;
use stead_format::Scan;

const TURN: Turn = (7, 2);

fn needs() -> Needs {
    Needs { numbers: vec![4], ..Needs::default() }
}

fn block(values: &[f64]) -> Block<'_> {
    let columns =
        Columns { number_ids: &[4], numbers: values, stride: values.len(), ..Columns::default() };
    Block { rows: values.len(), columns, ..Block::empty() }
}

/// All values that come to a rank of this group, which asks.
fn received(fabric: &Local, sending: &Sending) -> Result<Vec<f64>> {
    let (news, cancel, came) = (News::new(fabric, 7, 2, false), Cancel::new(), AtomicU64::new(0));
    let inbox = Inbox::open(fabric, sending, TURN, (needs(), 1), &news, &cancel, &came)?;
    let mut worker = inbox.worker()?;
    let mut all = Vec::new();
    while let Some(block) = worker.next()? {
        all.extend_from_slice(block.numbers(4));
    }
    Ok(all)
}

#[test]
fn each_block_comes_to_one_rank() {
    // More than there is room for at a time.
    let blocks: Vec<Vec<f64>> = (0..200).map(|i| vec![f64::from(i); 3]).collect();
    for (storage, asking) in [(1, 1), (2, 1), (1, 3), (3, 2)] {
        let sending = Sending::new(&[vec![true; storage], vec![false; asking]].concat());
        let group = Local::group(storage + asking);
        let came: Vec<f64> = std::thread::scope(|scope| {
            let (sending, blocks) = (&sending, &blocks);
            let work = |fabric: Local| {
                scope.spawn(move || {
                    if !sending.sends(fabric_rank(&fabric)) {
                        let came = received(&fabric, sending);
                        sending.leave(&fabric, TURN);
                        return came.map(|came| (came, fabric));
                    }
                    let (news, cancel) = (News::new(&fabric, 7, 2, false), Cancel::new());
                    let (needs, sent) = (needs(), AtomicU64::new(0));
                    let outbox = Outbox::new(&fabric, sending, TURN, &needs, &news, &cancel, &sent);
                    for values in blocks {
                        outbox.keep(&block(values))?;
                    }
                    // Nothing is sent of what a filter has left nothing of.
                    outbox.keep(&block(&[]))?;
                    drop(outbox);
                    drop(news);
                    assert!(sent.load(Ordering::Relaxed) > 200 * 24);
                    sending.leave(&fabric, TURN);
                    Ok((Vec::new(), fabric))
                })
            };
            let threads: Vec<_> = group.into_iter().map(work).collect();
            let ends: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
            ends.into_iter().flat_map(|e| e.expect("it goes well").0).collect()
        });
        let mut came = came;
        came.sort_by(f64::total_cmp);
        let mut wanted = vec![blocks.concat(); storage].concat();
        wanted.sort_by(f64::total_cmp);
        assert_eq!(came, wanted);
    }
}

fn fabric_rank(fabric: &Local) -> usize {
    stead_fabric::Fabric::rank(fabric)
}

#[test]
fn who_is_gone_or_wants_no_more_is_not_waited_for() {
    let sending = Sending::new(&[true, false]);
    let (cancel, sent, needs) = (Cancel::new(), AtomicU64::new(0), needs());
    let keep = |fabric: &Local, cancel: &Cancel| {
        let news = News::new(fabric, 7, 2, false);
        let outbox = Outbox::new(fabric, &sending, TURN, &needs, &news, cancel, &sent);
        (0..3).try_for_each(|_| outbox.keep(&block(&[1.0])))
    };
    let mut group = Local::group(2);
    sending.leave(&group[1], TURN);
    keep(&group[0], &cancel).expect("nobody wants any");
    group.pop();
    assert_eq!(keep(&group[0], &cancel).expect_err("rank 1 is gone").kind(), Kind::Peer);
    let mut group = Local::group(2);
    group.remove(0);
    assert_eq!(received(&group[0], &sending).expect_err("rank 0 is gone").kind(), Kind::Peer);
    let group = Local::group(2);
    cancel.cancel();
    assert_eq!(keep(&group[0], &cancel).expect_err("stopped").kind(), Kind::Cancelled);
    // A failure that comes before all else stops both sides.
    let group = Local::group(3);
    let sending = Sending::new(&[true, false, false]);
    News::new(&group[2], 7, 2, false).in_no_order().failed(&Error::limit("too much"));
    assert_eq!(received(&group[1], &sending).expect_err("stopped").kind(), Kind::Cancelled);
    let news = News::new(&group[0], 7, 2, false);
    let going = Cancel::new();
    let outbox = Outbox::new(&group[0], &sending, TURN, &needs, &news, &going, &sent);
    let e = (0..99).try_for_each(|_| outbox.keep(&block(&[1.0]))).expect_err("stopped");
    assert_eq!(e.kind(), Kind::Cancelled);
}

#[test]
fn what_is_of_no_file_or_of_another_pass_is_told_apart() {
    use stead_fabric::Fabric;
    let (sending, group) = (Sending::new(&[true, false]), Local::group(2));
    let vector = |source: u32, turn: Turn| {
        let mut frame = encode(turn, &Tell::Vector);
        let block = Block { source, ..block(&[2.5]) };
        vectors::encode(&block, 0..1, &needs(), &mut frame).expect("encode");
        frame
    };
    let send = |frame: Vec<u8>| group[0].send(1, VECTORS, frame).expect("send");
    send(vector(0, (7, 1)));
    send(vector(0, TURN));
    send(vec![200; 40]);
    sending.leave(&group[0], (6, 2));
    sending.leave(&group[0], TURN);
    assert_eq!(received(&group[1], &sending).expect("one"), [2.5]);
    send(vector(1, TURN));
    let e = received(&group[1], &sending).expect_err("no such file");
    assert!(e.kind() == Kind::Format && e.place().rank == Some(0), "{e}");
}

proptest! {
    #[test]
    fn whatever_comes_is_a_vector_or_an_error(
        tail in prop::collection::vec(any::<u8>(), 0..80), whole in any::<bool>(),
    ) {
        use stead_fabric::Fabric;
        let (sending, group) = (Sending::new(&[true, false]), Local::group(2));
        let head = if whole { encode(TURN, &Tell::Vector) } else { Vec::new() };
        group[0].send(1, VECTORS, [head, tail].concat()).expect("send");
        sending.leave(&group[0], TURN);
        if let Err(e) = received(&group[1], &sending) {
            prop_assert_eq!(e.kind(), Kind::Format);
        }
    }
}

#[test]
fn rooms_that_nobody_has_are_not_believed() {
    use stead_fabric::Fabric;
    let (sending, group) = (Sending::new(&[true, false]), Local::group(2));
    for _ in 0..3 {
        group[1].send(0, ASKS, encode(TURN, &Say::Room(u32::MAX))).expect("send");
    }
    sending.leave(&group[1], TURN);
    let news = News::new(&group[0], 7, 2, false);
    let (needs, sent, cancel) = (needs(), AtomicU64::new(0), Cancel::new());
    let outbox = Outbox::new(&group[0], &sending, TURN, &needs, &news, &cancel, &sent);
    for _ in 0..3 * MOST {
        outbox.keep(&block(&[1.0])).expect("it takes what it said, and then wants no more");
    }
    let mut came = 0;
    while let Ok(Some(_)) = group[1].recv_within(0, VECTORS, Duration::ZERO) {
        came += 1;
    }
    assert!((MOST..=3 * MOST).contains(&came), "{came}");
}
