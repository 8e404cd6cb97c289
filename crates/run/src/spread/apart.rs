//! Data that some ranks have and others ask for: plain files, which become sources that can be fetched from, and what is this
//! rank's if those without data compute.

use super::Whole;
use crate::exchange::Crew;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use stead_core::layout::{Layout, Part};
use stead_core::{Cancel, Error, Kind, Result, limits};
use stead_format::{Apart, Held, Share};
use stead_store::{FileSource, Source, Tier, resident_share};

/// Pages of each part, and parts, that are looked at for what is in memory.
const PAGES: u64 = 64;
const PARTS: usize = 16;

/// Opens files that this rank sees.
pub(super) fn files(inputs: &[String], cancel: &Cancel) -> Result<Vec<FileSource>> {
    let paths = stead_store::expand(inputs)?;
    if paths.len() > limits::MAX_SOURCES {
        return Err(Error::limit(format!("more than {} files", limits::MAX_SOURCES)));
    }
    let mut opened = Vec::with_capacity(paths.len());
    for path in paths {
        cancel.check()?;
        opened.push(FileSource::open(path)?);
    }
    Ok(opened)
}

/// What a rank says of files: all that have some see the same, and the first one lists them.
#[derive(Serialize, Deserialize)]
struct Said {
    /// Of lengths and times, where there are files.
    seen: Option<u64>,
    list: Option<Vec<(Vec<u8>, u64)>>,
}

/// The words of a rank that has opened these, if it has data at all, and is the first of those that have or not.
pub(super) fn said(opened: &[FileSource], has: bool, first: bool) -> Result<Vec<u8>> {
    let mut seen = std::hash::DefaultHasher::new();
    for file in opened {
        file.path().hash(&mut seen);
        (file.len(), file.identity().mtime).hash(&mut seen);
    }
    let list = || {
        let name = |f: &FileSource| (f.path().as_os_str().as_bytes().to_vec(), f.len());
        opened.iter().map(name).collect()
    };
    let said = Said { seen: has.then(|| seen.finish()), list: first.then(list) };
    postcard::to_stdvec(&said).map_err(|e| Error::internal(format!("cannot encode names: {e}")))
}

/// One file for each that the first rank with data has told, each with one part that all ranks with data reach: `mine` are those
/// of this one.
pub(super) fn wholes(
    all: &[Vec<u8>],
    storage: &[usize],
    mine: Vec<FileSource>,
) -> Result<Vec<Whole>> {
    let malformed = || Error::format("a message from another rank is malformed");
    let said: Vec<Said> = all
        .iter()
        .map(|w| postcard::from_bytes(w).map_err(|_| malformed()))
        .collect::<Result<_>>()?;
    let first = *storage.first().ok_or_else(malformed)?;
    let seen = |rank: usize| said.get(rank).and_then(|s| s.seen);
    if let Some(other) = storage.iter().find(|rank| seen(**rank) != seen(first)) {
        let message = format!("ranks {first} and {other}, which have data, see different files");
        return Err(Error::new(Kind::Changed, message).with_hint(
            "if somebody writes to them, wait; files of which each host has a part are named by a layout, or as out.%r.bin",
        ));
    }
    let list = said.into_iter().nth(first).and_then(|s| s.list).ok_or_else(malformed)?;
    if !mine.is_empty() && mine.len() != list.len() {
        return Err(malformed());
    }
    let mut mine = mine.into_iter();
    let whole = |(path, length): (Vec<u8>, u64)| {
        let part = Part::new("storage", "data");
        Ok(Whole {
            path: PathBuf::from(OsStr::from_bytes(&path)),
            described: None,
            layout: Layout::even("data", length, length.max(1), vec![part])?,
            parts: vec![mine.next().map(|file| Arc::new(file) as Arc<dyn Source>)],
            homes: vec![0],
        })
    };
    list.into_iter().map(whole).collect()
}

/// What ranks of two kinds have, for this one of them.
pub(super) fn of(crew: &Crew<'_>, storage: &[usize], wholes: &[Arc<Whole>]) -> Result<Apart> {
    let has: Arc<[bool]> = (0..crew.size()).map(|rank| storage.contains(&rank)).collect();
    let asking: Vec<usize> = (0..crew.size()).filter(|rank| !has[*rank]).collect();
    let place = asking.iter().position(|rank| *rank == crew.rank());
    let lengths: Vec<u64> = wholes.iter().map(|w| w.layout.length()).collect();
    let ends = ends(wholes, asking.len());
    let part = |k: usize| between(&lengths, ends[k]..ends[k + 1]);
    let pulled = place.map_or(Vec::new(), part);
    let begin = |k: usize| part(k).first().map(|h| (h.source, h.bytes.start));
    let cuts = (0..asking.len()).filter_map(begin).collect();
    let here = || wholes.iter().flat_map(|w| w.parts.iter().flatten());
    let (mut resident, mut looked) = (0.0, 0);
    for part in here().take(PARTS) {
        if let Some(file) = part.file() {
            resident += resident_share(file, part.len(), PAGES);
            looked += 1;
        }
    }
    Ok(Apart {
        storage: has,
        pulled: Share::held(pulled)?,
        cuts,
        tier: here().find_map(|part| Tier::of(&**part)).map(|tier| tier.name),
        cached: if looked > 0 { resident / f64::from(looked) } else { 0.0 },
    })
}

/// The most stretches that are looked at for a good place to end.
const LOOKED: usize = 1024;
/// Parts differ in length by no more than this part of theirs.
const UNEVEN: u64 = 16;

/// Where `of` parts of files, one after the other, begin and end: equal parts, as far as those who have the bytes take turns. For
/// each of several ranks that ask another one is the first to be asked, and as all get on alike they are not all at the same one later.
fn ends(wholes: &[Arc<Whole>], of: usize) -> Vec<u64> {
    let total = wholes.iter().fold(0u64, |n, w| n.saturating_add(w.layout.length()));
    let mut homes: Vec<usize> = wholes.iter().flat_map(|w| w.homes.iter().copied()).collect();
    homes.sort_unstable();
    homes.dedup();
    let most = total / of.max(1) as u64 / UNEVEN;
    let mut ends = vec![0];
    for k in 1..of {
        let end = Share::of(total, k, of).start;
        let later = || turn(wholes, end, most, *homes.get(k % homes.len().max(1))?);
        ends.push(if homes.len() > 1 { later().unwrap_or(end) } else { end });
    }
    ends.push(total);
    ends
}

/// The first place from `at` on, within `most` bytes, where bytes of one home begin, in the file in which `at` is.
fn turn(wholes: &[Arc<Whole>], at: u64, most: u64, home: usize) -> Option<u64> {
    let mut before = 0u64;
    let whole = wholes.iter().find(|w| {
        let end = before.saturating_add(w.layout.length());
        let within = at < end;
        before = if within { before } else { end };
        within
    })?;
    let from = at - before;
    let to = from.saturating_add(most).min(whole.layout.length());
    let mut pieces = whole.layout.pieces(from..to).skip(1).take(LOOKED);
    let found = pieces.find(|piece| whole.homes.get(piece.part) == Some(&home))?;
    Some(before + found.offset)
}

/// What lies between two places of files, one after the other.
fn between(lengths: &[u64], part: Range<u64>) -> Vec<Held> {
    let mut before = 0u64;
    let mut held = Vec::new();
    for (source, length) in (0u32..).zip(lengths) {
        let within = |at: u64| at.clamp(before, before.saturating_add(*length)) - before;
        held.push(Held { source, bytes: within(part.start)..within(part.end) });
        before = before.saturating_add(*length);
    }
    held.retain(|h| h.bytes.start < h.bytes.end);
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_with_data_see_the_same_files_or_are_told() {
        let dir = tempfile::tempdir().expect("dir");
        let open = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).expect("write");
            vec![FileSource::open(path).expect("open")]
        };
        let (one, other) = (open("a", b"four"), open("b", b"three"));
        // Rank 0 asks, ranks 1 and 2 have data.
        let word = |files: &[FileSource], first| said(files, true, first).expect("word");
        let none = said(&[], false, false).expect("word");
        let same = [none.clone(), word(&one, true), word(&one, false)];
        let whole = wholes(&same, &[1, 2], Vec::new()).expect("files").pop().expect("a file");
        assert_eq!((whole.path, whole.layout.length()), (dir.path().join("a"), 4));
        assert!(whole.parts.iter().all(Option::is_none) && whole.homes == [0]);
        let mine = wholes(&same, &[1, 2], one).expect("files").pop().expect("a file");
        assert!(mine.parts.iter().all(Option::is_some));
        let (a, b) = (open("a", b"four"), word(&other, false));
        let differ = [none.clone(), word(&a, true), b];
        let e = wholes(&differ, &[1, 2], Vec::new()).expect_err("different");
        assert_eq!(e.kind(), Kind::Changed);
        assert!(e.to_string().contains("ranks 1 and 2"), "{e}");
        for bad in [vec![], vec![none.clone(); 3], vec![vec![9; 3]; 3]] {
            assert_eq!(wholes(&bad, &[1, 2], Vec::new()).expect_err("bad").kind(), Kind::Format);
        }
    }

    /// A file in stripes over parts, each of another home.
    fn striped(length: u64, stripe: u64, parts: usize) -> Arc<Whole> {
        let of: Vec<Part> =
            (0..parts).map(|p| Part::new(format!("n{p}"), format!("p{p}"))).collect();
        let layout = Layout::even("f", length, stripe, of).expect("layout");
        let (path, parts) = (PathBuf::from("f"), vec![None; parts]);
        let homes = (0..parts.len()).collect();
        Arc::new(Whole { path, described: None, layout, parts, homes })
    }

    #[test]
    fn those_who_ask_begin_at_different_ones() {
        // Equal parts would all begin at the same one.
        let whole = [striped(1 << 20, 1 << 10, 4)];
        let ends = ends(&whole, 4);
        let first = |at: &u64| whole[0].layout.pieces(*at..*at + 1).next().map(|p| p.part);
        assert_eq!(
            ends[..4].iter().map(first).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        assert_eq!((ends[0], ends[4]), (0, 1 << 20));
        assert!(ends.windows(2).all(|e| (e[1] - e[0]).abs_diff(1 << 18) <= 4 << 10), "{ends:?}");
        // Stripes that are long beside the parts make no part longer.
        let long = super::ends(&[striped(1 << 20, 1 << 18, 4)], 4);
        assert_eq!(long, [0, 1 << 18, 2 << 18, 3 << 18, 1 << 20]);
        assert_eq!(super::ends(&[], 2), [0, 0, 0]);
    }

    proptest! {
        #[test]
        fn parts_of_those_who_ask_are_each_byte_once(
            lengths in prop::collection::vec(prop_oneof![Just(0u64), 0u64..9, 0u64..1000], 0..7), of in 1usize..6,
            stripe in 1u64..40, parts in 1usize..5,
        ) {
            let wholes: Vec<_> = lengths.iter().map(|l| striped(*l, stripe, parts)).collect();
            let ends = ends(&wholes, of);
            let total: u64 = lengths.iter().sum();
            let even = total / of as u64;
            prop_assert!(ends.windows(2).all(|e| e[1] - e[0] <= even + 1 + even / UNEVEN), "{:?}", ends);
            let mut next = (0usize, 0u64);
            for k in 0..of {
                for h in between(&lengths, ends[k]..ends[k + 1]) {
                    while next.1 == lengths[next.0] {
                        next = (next.0 + 1, 0);
                    }
                    prop_assert_eq!((h.source as usize, h.bytes.start), next);
                    prop_assert!(h.bytes.start < h.bytes.end && h.bytes.end <= lengths[next.0]);
                    next.1 = h.bytes.end;
                }
            }
            let left: u64 = lengths.iter().skip(next.0).sum::<u64>() - next.1;
            prop_assert_eq!(left, 0);
        }
    }
}
