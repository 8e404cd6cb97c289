//! Data that some ranks have and others ask for: plain files, which become sources that can be fetched from, and what is this
//! rank's if those without data compute.

use super::Whole;
use crate::exchange::Crew;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
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
    let part = |k: usize| even(&lengths, k, asking.len());
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

/// The `k`th of `of` equal parts of files of these lengths, one after the other.
fn even(lengths: &[u64], k: usize, of: usize) -> Vec<Held> {
    let total = lengths.iter().fold(0u64, |n, l| n.saturating_add(*l));
    let part = Share::of(total, k, of);
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

    proptest! {
        #[test]
        fn even_parts_are_each_byte_once(
            lengths in prop::collection::vec(prop_oneof![Just(0u64), 0u64..9, 0u64..1000], 0..7), of in 1usize..6,
        ) {
            let mut next = (0usize, 0u64);
            for k in 0..of {
                for h in even(&lengths, k, of) {
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
