//! Loans between ranks of one node, as threads.

use super::tests::{contents, file, meet, mortal, on_ranks, small};
use super::*;
use crate::{File, Options, Place};
use std::time::Duration;
use stead_store::Engine;

const BLOCK: usize = 4096;

fn options(blocks: u64) -> Options {
    // Of the memory of the node, half is for blocks that ranks read.
    Options { memory: blocks * BLOCK as u64, ..small(Engine::Pread) }
}

fn plan(file: &File, name: &str) -> (String, String) {
    let session = file.session(..).unwrap();
    let found = session.plan().into_iter().find(|d| d.name == name).unwrap();
    (found.value, found.reason)
}

#[test]
fn neighbours_look_at_blocks_where_they_lie() {
    let (_dir, path, bytes) = file(1 << 20);
    let read = on_ranks(&[0, 0, 0, 0, 0, 0], |fabric| {
        let file = open(fabric.clone(), &path, &options(4096)).unwrap();
        let session = file.session(..).unwrap();
        // Each rank all of it: the device gives it once, and messages none of it.
        for offset in (0..bytes.len()).step_by(BLOCK) {
            let view = session.read(offset as u64, BLOCK).wait().unwrap();
            assert!(view[..] == bytes[offset..offset + BLOCK]);
            assert_eq!(view.place(), Place::Block);
        }
        meet(&*fabric);
        let (value, reason) = plan(&file, "blocks of the node");
        assert_eq!(value, "shared by 6 ranks");
        // Ranks that read have their own part.
        let looked = if fabric.rank() < 4 { "768.0 KiB" } else { "1.0 MiB" };
        assert!(reason.starts_with(looked), "{reason}");
        assert_eq!(plan(&file, "fetched").0, "0 B");
        meet(&*fabric);
        file.counts().bytes
    });
    assert_eq!(read.iter().sum::<u64>(), 1 << 20);
}

#[test]
fn the_same_bytes_are_at_one_place_in_memory_for_all() {
    let (_dir, path, _) = file(1 << 20);
    let places = on_ranks(&[0, 0, 0], |fabric| {
        let file = open(fabric.clone(), &path, &options(4096)).unwrap();
        let session = file.session(..).unwrap();
        // Of rank 0, whose own place is that in its mapping; the others have mappings of their own of the same pages.
        let view = session.read(0, BLOCK).wait().unwrap();
        let page = pages(view.as_ptr().addr());
        meet(&*fabric);
        page
    });
    assert!(places.iter().all(|p| *p == places[0]), "{places:?}");
}

/// Which memory an address is of: device, inode and offset in it.
fn pages(address: usize) -> (String, String, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (from, to) = words[0].split_once('-').unwrap();
        let number = |hex: &str| usize::from_str_radix(hex, 16).unwrap();
        if (number(from)..number(to)).contains(&address) {
            return (words[3].into(), words[4].into(), number(words[2]) + address - number(from));
        }
    }
    panic!("not mapped");
}

#[test]
fn views_that_neighbours_hold_leave_room_and_are_bounded() {
    let (_dir, path, bytes) = file(400 * BLOCK);
    on_ranks(&[0, 0], |fabric| {
        let rank = fabric.rank();
        // 2 x 32 blocks that ranks read.
        let file = open(fabric.clone(), &path, &options(128)).unwrap();
        let session = file.session(..).unwrap();
        let mut held = Vec::new();
        if rank == 1 {
            // About as many as its own budget has room for.
            for i in 0..18 {
                held.push((i, session.read(i * BLOCK as u64, BLOCK).wait().unwrap()));
            }
        }
        meet(&*fabric);
        // The owner reads on, all of its part, several times.
        for _ in 0..3 {
            for i in 0..400u64 {
                let view = session.read(i * BLOCK as u64, BLOCK).wait().unwrap();
                assert!(view[..] == bytes[i as usize * BLOCK..][..BLOCK], "{i}");
            }
        }
        assert!(file.counts().held <= 128 * BLOCK as u64, "{:?}", file.counts());
        meet(&*fabric);
        for (i, view) in held {
            assert!(view[..] == bytes[i as usize * BLOCK..][..BLOCK], "{i}");
        }
    });
}

#[test]
fn what_neighbours_only_keep_is_given_back_when_it_is_wanted() {
    let (_dir, path, bytes) = file(200 * BLOCK);
    on_ranks(&[0, 0], |fabric| {
        let rank = fabric.rank();
        let file = open(fabric.clone(), &path, &options(128)).unwrap();
        let session = file.session(..).unwrap();
        if rank == 1 {
            // It keeps them, for the case that somebody asks again.
            for i in 0..30 {
                drop(session.read(i * BLOCK as u64, BLOCK).wait().unwrap());
            }
        }
        meet(&*fabric);
        if rank == 0 {
            // The owner's tasks hold all that it has room for, beside what its own part is read ahead.
            let begun = crate::clock::now();
            let held: Vec<_> =
                (50..98).map(|i| session.read(i * BLOCK as u64, BLOCK).wait().unwrap()).collect();
            for (i, view) in held.iter().enumerate() {
                assert!(view[..] == bytes[(50 + i) * BLOCK..][..BLOCK]);
            }
            // Far from the deadline.
            assert!(crate::clock::now().duration_since(begun) < Duration::from_secs(30));
        }
        meet(&*fabric);
    });
}

#[test]
fn an_owner_that_may_have_fewer_blocks_than_it_has_lent_reads_on() {
    const LARGE: usize = 64 << 10;
    // More than what a file has for itself, so that it becomes less when there are more files.
    const MEMORY: u64 = 48 << 20;
    let (_dir, path, bytes) = file(300 * LARGE);
    let right = |offset: u64, view: &[u8]| view == &bytes[offset as usize..][..view.len()];
    on_ranks(&[0, 0], |fabric| {
        let options = Options {
            block: Some(LARGE),
            memory: MEMORY,
            deadline: Duration::from_secs(60),
            ahead: false,
            ..small(Engine::Pread)
        };
        let file = open(fabric.clone(), &path, &options).unwrap();
        let session = file.session(..).unwrap();
        let read = |block: usize, count: usize| {
            let offset = (block * LARGE) as u64;
            let view = session.read(offset, count * LARGE).wait().unwrap();
            assert!(right(offset, &view), "{block}");
            view
        };
        // Some of the first half, which rank 0 reads, and which it has lent.
        let held: Vec<_> = (0..70 * fabric.rank()).map(|block| read(block, 1)).collect();
        meet(&*fabric);
        if fabric.rank() == 0 {
            let others: Vec<_> = (0..40)
                .map(|_| {
                    let source = std::sync::Arc::new(stead_store::MemorySource::new("m", vec![1]));
                    let options = Options { memory: MEMORY / 2, ..small(Engine::Auto) };
                    let file = crate::open_source(source, &options).unwrap();
                    let session = file.session(..).unwrap();
                    (file, session)
                })
                .collect();
            for block in 75..145 {
                drop(read(block, 1));
                drop(read(block, 4));
            }
            drop(others);
        }
        meet(&*fabric);
        assert!(held.iter().enumerate().all(|(i, view)| right((i * LARGE) as u64, view)));
    });
}

#[test]
fn views_stay_valid_when_everything_is_closed() {
    let (_dir, path, bytes) = file(300 * BLOCK);
    for first in 0..2 {
        on_ranks(&[0, 0], |fabric| {
            let rank = fabric.rank();
            let file = open(fabric.clone(), &path, &options(128)).unwrap();
            let session = file.session(..).unwrap();
            // Of the other one.
            let mine: Vec<u64> = (0..10).map(|i| i + 150 * (1 - rank as u64)).collect();
            let views: Vec<_> = mine
                .iter()
                .map(|i| session.read(i * BLOCK as u64, BLOCK).wait().unwrap())
                .collect();
            meet(&*fabric);
            if rank == first {
                drop((session, file));
                meet(&*fabric);
            } else {
                // The blocks of these views are not used for others.
                for i in 0..300u64 {
                    let view = session.read(i * BLOCK as u64, BLOCK).wait();
                    drop(view);
                }
                drop((session, file));
                meet(&*fabric);
            }
            // Others are read into new memory.
            let again = open(fabric.clone(), &path, &options(128)).unwrap();
            let session = again.session(..).unwrap();
            let mut all = vec![0; bytes.len()];
            all = session.read_into(0, all).wait().unwrap();
            assert!(all == bytes);
            meet(&*fabric);
            drop((session, again));
            for (i, view) in mine.iter().zip(&views) {
                assert!(view[..] == bytes[*i as usize * BLOCK..][..BLOCK], "{i}");
            }
            meet(&*fabric);
        });
    }
}

#[test]
fn a_rank_that_is_lost_with_loans_takes_no_room_for_ever() {
    let (_dir, path, bytes) = file(400 * BLOCK);
    on_ranks(&[0, 0, 0], |fabric| {
        let rank = fabric.rank();
        if rank == 2 {
            let mute = mortal(fabric);
            let file = open(mute.clone(), &path, &options(192)).unwrap();
            let session = file.session(..).unwrap();
            let views: Vec<_> = (0..16)
                .map(|i| (i, session.read(i * BLOCK as u64, BLOCK).wait().unwrap()))
                .collect();
            meet(&*mute);
            mute.meddle.die();
            drop((session, file));
            // It was taken for dead and looks at its views all the same.
            std::thread::scope(|_| {
                for (i, view) in &views {
                    assert!(view[..] == bytes[*i as usize * BLOCK..][..BLOCK]);
                }
            });
            return;
        }
        let file = open(fabric.clone(), &path, &options(192)).unwrap();
        let session = file.session(..).unwrap();
        meet(&*fabric);
        for round in 0..3 {
            for i in 0..266u64 {
                let view = session.read(i * BLOCK as u64, BLOCK).wait().unwrap();
                assert!(view[..] == bytes[i as usize * BLOCK..][..BLOCK], "{i} in round {round}");
            }
        }
    });
}

#[test]
fn ranks_of_other_nodes_and_those_alone_get_messages() {
    let (_dir, path, bytes) = file(1 << 20);
    on_ranks(&[0, 1, 1], |fabric| {
        let rank = fabric.rank();
        let file = open(fabric.clone(), &path, &options(1024)).unwrap();
        let session = file.session(..).unwrap();
        assert!(session.read_into(0, vec![0; 1 << 20]).wait().unwrap() == bytes);
        meet(&*fabric);
        let shared = plan(&file, "blocks of the node").0;
        let expected = if rank == 0 { "not shared" } else { "shared by 2 ranks" };
        assert_eq!(shared, expected);
        assert_ne!(plan(&file, "fetched").0, "0 B");
        meet(&*fabric);
    });
    assert!(contents(10) == bytes[..10]);
}

#[test]
fn who_is_silent_with_loans_does_not_keep_the_owner_from_reading() {
    let (_dir, path, bytes) = file(300 * BLOCK);
    on_ranks(&[0, 0], |fabric| {
        if fabric.rank() == 1 {
            let mute = mortal(fabric);
            let file = open(mute.clone(), &path, &options(128)).unwrap();
            let session = file.session(..).unwrap();
            let views: Vec<_> = (0..18)
                .map(|i| (i, session.read(i * BLOCK as u64, BLOCK).wait().unwrap()))
                .collect();
            meet(&*mute);
            mute.meddle.die();
            drop((session, file));
            for (i, view) in &views {
                assert!(view[..] == bytes[*i as usize * BLOCK..][..BLOCK]);
            }
            return;
        }
        let file = open(fabric.clone(), &path, &options(128)).unwrap();
        let session = file.session(..).unwrap();
        meet(&*fabric);
        // All that is left, and more: nothing of it is asked for by the other one, so that nothing is refused.
        let begun = crate::clock::now();
        let mut held = Vec::new();
        for i in 20..20 + 60 {
            held.push(session.read(i * BLOCK as u64, BLOCK).wait().unwrap());
        }
        assert!(crate::clock::now().duration_since(begun) < Duration::from_secs(30));
    });
}
