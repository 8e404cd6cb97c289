use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Debug, Clone, Default)]
struct Page(Rc<Cell<u32>>);

impl Held for Page {
    fn lent(&self) -> bool {
        self.0.get() > 0
    }
}

fn reads(w: &mut Window<Page>) -> Vec<u64> {
    std::iter::from_fn(|| match w.take() {
        Next::Read(block, _) => Some(block),
        Next::Full | Next::Idle => None,
    })
    .collect()
}

#[test]
fn what_is_demanded_goes_before_what_is_read_ahead() {
    let mut w = Window::new(10, 8);
    w.open(0, 0..100);
    assert!(w.ask(1, 7, 10).is_none() && w.ask(2, 9, 3).is_none() && w.ask(3, 7, 1).is_none());
    assert_eq!(reads(&mut w), [7, 9, 0, 1, 2]);
    assert_eq!(w.arrived(7, Page::default()), [1, 3]);
    assert_eq!(w.arrived(0, Page::default()), [0u64; 0]);
    assert!(w.ask(4, 7, 10).is_some() && w.ask(5, 0, 10).is_some());
    // Block 0 was consumed, so that one more may be read ahead.
    assert_eq!(reads(&mut w), [3]);
}

#[test]
fn sessions_take_turns_and_share_blocks() {
    let mut w = Window::new(10, 12);
    w.open(0, 0..50);
    w.open(1, 20..70);
    assert_eq!(reads(&mut w), [0, 2, 1, 3, 4, 5]);
}

#[test]
fn what_was_served_on_demand_is_not_read_ahead_later() {
    let mut w = Window::new(10, 8);
    w.open(0, 0..400);
    let mut seen = Vec::new();
    // Tasks ask for more than the window holds before the read-ahead comes to it, and take it at once.
    for block in 10..30 {
        assert!(w.ask(block, block, 10).is_none());
    }
    for _ in 0..100 {
        for b in reads(&mut w) {
            seen.push(b);
            w.arrived(b, Page::default());
            if !(10..30).contains(&b) {
                assert!(w.ask(b, b, 10).is_some());
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
    // Another session may ask for all of it again.
    w.open(1, 100..140);
    assert_eq!(reads(&mut w), [10, 11, 12, 13]);
}

#[test]
fn a_block_is_covered_as_far_as_sessions_reach() {
    let mut w: Window<Page> = Window::new(10, 4);
    assert_eq!(w.covered(3), 30..40);
    w.open(0, 33..36);
    w.open(1, 38..52);
    w.open(2, 90..99);
    let parts: Vec<_> = [2, 3, 4, 5, 9].map(|b| w.covered(b)).into();
    assert_eq!(parts, [20..30, 33..40, 40..50, 50..52, 90..99]);
    w.close(1);
    assert_eq!(w.covered(3), 33..36);
}

#[test]
fn a_window_slides_over_more_than_it_holds() {
    let mut w = Window::new(10, 4);
    w.open(0, 0..1000);
    let mut seen = Vec::new();
    for block in 0..100 {
        for b in reads(&mut w) {
            seen.push(b);
            w.arrived(b, Page::default());
        }
        assert!(w.counted() <= 4);
        if w.ask(block, block, 10).is_none() {
            panic!("block {block} was not read ahead");
        }
    }
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}

#[test]
fn blocks_that_are_looked_at_stay() {
    let mut w = Window::new(10, 2);
    let (a, b) = (Page::default(), Page::default());
    w.ask(0, 0, 10);
    w.ask(0, 1, 10);
    assert_eq!(reads(&mut w), [0, 1]);
    w.arrived(0, a.clone());
    a.0.set(1);
    assert!(!w.is_lent(), "one of them may yet go");
    w.arrived(1, b.clone());
    b.0.set(1);
    w.ask(1, 2, 10);
    assert!(w.is_lent(), "though nobody has tried to read another one");
    assert!(matches!(w.take(), Next::Full));
    b.0.set(0);
    assert!(!w.is_lent());
    assert!(matches!(w.take(), Next::Read(2, Some(gone)) if Rc::ptr_eq(&gone.0, &b.0)));
    assert!(w.ready(0).is_some() && w.ready(1).is_none());
}

#[test]
fn nobody_reads_what_nobody_waits_for() {
    let mut w = Window::<Page>::new(10, 2);
    w.ask(0, 5, 10);
    w.ask(1, 5, 10);
    w.cancel(0, 5);
    assert_eq!(w.queued(), 1);
    w.cancel(1, 5);
    assert!(matches!(w.take(), Next::Idle) && w.unknown(5));
    // One that is being read comes to nobody and may go.
    w.ask(2, 6, 10);
    assert_eq!(reads(&mut w), [6]);
    w.cancel(2, 6);
    assert!(w.arrived(6, Page::default()).is_empty());
    assert_eq!(w.counted(), 1);
}

#[test]
fn a_block_that_fails_is_tried_again_when_somebody_asks() {
    let mut w = Window::new(10, 4);
    w.open(0, 0..20);
    assert_eq!(reads(&mut w), [0, 1]);
    w.done_with(0);
    w.arrived(1, Page::default());
    assert_eq!(reads(&mut w), [0u64; 0]);
    w.ask(9, 0, 1);
    assert_eq!(reads(&mut w), [0]);
    assert_eq!(w.done_with(0), [9]);
}

#[test]
fn a_closed_session_holds_nothing() {
    let mut w = Window::new(10, 4);
    w.open(0, 0..1000);
    for b in reads(&mut w) {
        w.arrived(b, Page::default());
    }
    w.close(0);
    w.open(1, 500..600);
    assert_eq!(reads(&mut w), [50, 51]);
    for b in [50, 51] {
        w.arrived(b, Page::default());
    }
    for b in 50..60 {
        assert!(w.ask(b, b, 10).is_some(), "{b}");
        for b in reads(&mut w) {
            w.arrived(b, Page::default());
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Open(u64, u64, u64),
    Close(u64),
    Ask(u64, u64),
    Cancel(usize),
    Take,
    Arrive(usize),
    Fail(usize),
    Lend(u64),
    Return(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4u64, 0..120u64, 0..120u64).prop_map(|(i, a, b)| Step::Open(i, a.min(b), a.max(b))),
        (0..4u64).prop_map(Step::Close),
        (0..14u64, 1..11u64).prop_map(|(b, n)| Step::Ask(b, n)),
        any::<usize>().prop_map(Step::Cancel),
        Just(Step::Take),
        Just(Step::Take),
        any::<usize>().prop_map(Step::Arrive),
        any::<usize>().prop_map(Step::Arrive),
        any::<usize>().prop_map(Step::Fail),
        (0..14u64).prop_map(Step::Lend),
        any::<usize>().prop_map(Step::Return),
    ]
}

proptest! {
    /// Whatever happens: nobody is forgotten, nothing is read twice at a time, the budget holds, what is lent stays.
    #[test]
    fn any_order_of_events(most in 1..5usize, steps in prop::collection::vec(step(), 0..200)) {
        let mut w = Window::new(10, most);
        let mut waiting: Vec<(Ticket, u64)> = Vec::new();
        let mut reading: Vec<u64> = Vec::new();
        let mut lent: Vec<(u64, Page)> = Vec::new();
        let answer = |waiting: &mut Vec<(Ticket, u64)>, block: u64, mut got: Vec<Ticket>| {
            let mut due: Vec<Ticket> =
                waiting.iter().filter(|(_, b)| *b == block).map(|(t, _)| *t).collect();
            waiting.retain(|(_, b)| *b != block);
            got.sort_unstable();
            due.sort_unstable();
            assert_eq!(got, due);
        };
        for (ticket, step) in steps.into_iter().enumerate() {
            match step {
                Step::Open(id, a, b) => w.open(id, a..b),
                Step::Close(id) => w.close(id),
                Step::Ask(block, n) => {
                    let waits = w.ask(ticket as u64, block, n).is_none();
                    waiting.extend(waits.then_some((ticket as u64, block)));
                }
                Step::Cancel(i) if !waiting.is_empty() => {
                    let (t, b) = waiting.swap_remove(i % waiting.len());
                    w.cancel(t, b);
                }
                Step::Take => {
                    if let Next::Read(block, gone) = w.take() {
                        prop_assert!(!reading.contains(&block));
                        prop_assert!(gone.is_none_or(|p: Page| !p.lent()));
                        reading.push(block);
                    }
                }
                Step::Arrive(i) if !reading.is_empty() => {
                    let block = reading.swap_remove(i % reading.len());
                    let got = w.arrived(block, Page::default());
                    answer(&mut waiting, block, got);
                }
                Step::Fail(i) if !reading.is_empty() => {
                    let block = reading.swap_remove(i % reading.len());
                    let got = w.done_with(block);
                    answer(&mut waiting, block, got);
                }
                Step::Lend(block) => {
                    if let Some(page) = w.ready(block) {
                        page.0.set(page.0.get() + 1);
                        lent.push((block, page.clone()));
                    }
                }
                Step::Return(i) if !lent.is_empty() => {
                    let (_, page) = lent.swap_remove(i % lent.len());
                    page.0.set(page.0.get() - 1);
                }
                _ => {}
            }
            prop_assert!(w.counted() <= most);
            prop_assert!(w.counted() >= reading.len());
            prop_assert_eq!(w.ahead, w.blocks.values().filter(|b| b.ahead()).count());
            for (block, page) in &lent {
                prop_assert!(w.ready(*block).is_some_and(|p| Rc::ptr_eq(&p.0, &page.0)));
            }
        }
        // With nothing lent, all who wait are served in the end.
        for (_, page) in lent.drain(..) {
            page.0.set(0);
        }
        for block in std::mem::take(&mut reading) {
            let got = w.arrived(block, Page::default());
            answer(&mut waiting, block, got);
        }
        while let Next::Read(block, _) = w.take() {
            let got = w.arrived(block, Page::default());
            answer(&mut waiting, block, got);
        }
        prop_assert!(waiting.is_empty());
    }
}

#[test]
fn some_blocks_go_of_those_that_are_asked_for() {
    let mut w = Window::new(10, 20);
    let pages: Vec<Page> = (0..10).map(|_| Page::default()).collect();
    for (block, page) in (0..10).zip(&pages) {
        assert!(w.ask(block, block, 10).is_none());
        assert_eq!(reads(&mut w), [block]);
        assert_eq!(w.arrived(block, page.clone()), [block]);
    }
    // Somebody looks at it.
    pages[4].0.set(1);
    let left = |w: &Window<Page>| (0..10).filter(|b| w.ready(*b).is_some()).collect::<Vec<_>>();
    assert_eq!(w.give_up(0, |_| true).len(), 0);
    assert_eq!(w.give_up(2, |block| block % 2 == 0).len(), 2);
    assert_eq!(left(&w), [1, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(w.give_up(100, |block| block % 2 == 0).len(), 2);
    assert_eq!(left(&w), [1, 3, 4, 5, 7, 9]);
    assert_eq!((w.counted(), w.give_up(100, |_| true).len()), (6, 5));
    assert_eq!(left(&w), [4]);
}
