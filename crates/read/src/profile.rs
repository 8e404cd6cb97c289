//! What was measured of each tier, in a small file that outlives the process: `tiers` in the folder that
//! `STEAD_CACHE` names, else `stead` in the user's cache folder. It is a hint and nothing more: a file that is not just
//! as it should be is taken as none, and one that cannot be written is left alone.

use crate::process::PerProcess;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use stead_core::limits;
use stead_store::{AtomicFile, Engine, IoOptions};

/// Lines and bytes that the file may have.
const MOST: usize = 64;
const MOST_BYTES: usize = 16 << 10;
const HEAD: &str = "stead tiers 3";

/// How bytes of a tier come, by name: what is best for one says nothing of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way(&'static str);

/// All there are: the page cache, in huge pages or not, and blocks in memory by each engine, also past the page cache.
const WAYS: [&str; 8] =
    ["huge", "cache", "auto", "auto-direct", "uring", "uring-direct", "pread", "pread-direct"];

impl Way {
    /// Into the page cache, or into blocks in memory. Files in the page cache of which `whole` blocks are best read have
    /// other readers than those beside them of which they are not, as those of other users.
    pub(crate) fn of(cached: bool, whole: bool, io: &IoOptions) -> Way {
        Way(match (cached, io.engine, io.direct) {
            (true, ..) if whole => "huge",
            (true, ..) => "cache",
            (_, Engine::Auto, false) => "auto",
            (_, Engine::Auto, true) => "auto-direct",
            (_, Engine::Uring, false) => "uring",
            (_, Engine::Uring, true) => "uring-direct",
            (_, Engine::Pread, false) => "pread",
            (_, Engine::Pread, true) => "pread-direct",
        })
    }
}

/// How one tier was read best with blocks of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measured {
    /// [`stead_store::Tier::name`].
    pub(crate) tier: String,
    pub(crate) way: Way,
    /// Bytes of a block.
    pub(crate) block: u64,
    /// Reader threads.
    pub(crate) readers: usize,
    /// Blocks in flight for each.
    pub(crate) depth: usize,
    /// Bytes in a second.
    pub(crate) rate: u64,
    /// Other numbers of readers and blocks in flight were tried, and are no better.
    pub(crate) settled: bool,
}

impl Measured {
    /// Of the same, and about so; or more than the other one, which was not found to its end.
    fn says(&self, other: &Measured) -> bool {
        let near = self.rate.abs_diff(other.rate) <= self.rate / 8;
        let more = self.settled && !other.settled;
        more || (near && *self == Measured { rate: self.rate, ..other.clone() })
    }
}

/// The folder; `None` if the user has none, or wants none (`STEAD_CACHE` is empty), or has not the rights of this process.
fn path() -> Option<PathBuf> {
    if stead_store::space::has_rights_of_others() {
        return None;
    }
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let folder = match folder("STEAD_CACHE") {
        Some(own) if own.as_os_str().is_empty() => return None,
        Some(own) => own,
        None => folder("XDG_CACHE_HOME")
            .filter(|f| f.is_absolute())
            .or_else(|| folder("HOME").map(|home| home.join(".cache")))?
            .join("stead"),
    };
    Some(folder.join("tiers"))
}

/// What is known of a tier. The file is read once.
pub(crate) fn of(tier: Option<&str>, way: Way) -> Vec<Measured> {
    let Some(tier) = tier else { return Vec::new() };
    let mut known = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(load);
    known.iter().filter(|m| m.tier == tier && m.way == way).cloned().collect()
}

static KNOWN: PerProcess<Mutex<Option<Vec<Measured>>>> = PerProcess::new();

fn load() -> Vec<Measured> {
    let Some(file) = path().and_then(|p| File::open(p).ok()) else { return Vec::new() };
    let mut bytes = vec![0; MOST_BYTES + 1];
    let mut read = 0;
    while read < bytes.len() {
        match file.take_some(&mut bytes[read..]) {
            Some(0) => break,
            Some(n) => read += n,
            None => return Vec::new(),
        }
    }
    match bytes.get(..read).filter(|b| b.len() <= MOST_BYTES).map(std::str::from_utf8) {
        Some(Ok(text)) => parse(text).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Adds what was measured, in place of what was known of the same.
pub(crate) fn note(new: Measured) {
    let Some(path) = path() else { return };
    let mut all = load();
    let same = |m: &Measured| (&m.tier, m.way, m.block) == (&new.tier, new.way, new.block);
    if all.iter().any(|m| same(m) && m.says(&new)) {
        // Nothing new.
        return;
    }
    all.retain(|m| !same(m));
    all.push(new);
    all.drain(..all.len().saturating_sub(MOST));
    let text = write(&all);
    *KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner) = Some(all);
    // A hint: whoever has no place for it goes on without.
    let _ = path.parent().map(std::fs::create_dir_all);
    if let Ok(mut file) = AtomicFile::create(&path)
        && file.write_all(text.as_bytes()).is_ok()
    {
        let _ = file.commit_hint();
    }
}

/// As [`note`], for this process only.
#[cfg(test)]
pub(crate) fn learn(new: Measured) {
    let mut known = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_with(load).push(new);
}

trait TakeSome {
    /// Some bytes; `None` if they are not to be had.
    fn take_some(&self, to: &mut [u8]) -> Option<usize>;
}

impl TakeSome for File {
    fn take_some(&self, to: &mut [u8]) -> Option<usize> {
        let mut file = self;
        file.read(to).ok()
    }
}

fn write(all: &[Measured]) -> String {
    let mut text = format!("{HEAD}\n");
    for m in all {
        let Measured { tier, way: Way(way), block, readers, depth, rate, settled } = m;
        let settled = u8::from(*settled);
        text.push_str(&format!("{tier} {way} {block} {readers} {depth} {rate} {settled}\n"));
    }
    text
}

fn parse(text: &str) -> Option<Vec<Measured>> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != HEAD {
        return None;
    }
    let all: Option<Vec<Measured>> = lines.map(line).collect();
    all.filter(|a| a.len() <= MOST)
}

fn line(text: &str) -> Option<Measured> {
    let mut words = text.split(' ');
    let tier = words.next()?;
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b':' || c == b'-';
    if tier.is_empty() || tier.len() > 64 || !tier.bytes().all(plain) {
        return None;
    }
    let way = words.next()?;
    let way = WAYS.iter().find(|w| **w == way).map(|way| Way(way))?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (block, readers, depth, rate) = (number()?, number()?, number()?, number()?);
    let up_to = |n: u64, most| usize::try_from(n).ok().filter(|n| (1..=most).contains(n));
    let readers = up_to(readers, limits::MAX_THREADS)?;
    let depth = up_to(depth, limits::MAX_QUEUE_DEPTH)?;
    let settled = match words.next()? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let sound = (4096..=limits::MAX_READ_BLOCK as u64).contains(&block) && block % 4096 == 0;
    if !sound || words.next().is_some() {
        return None;
    }
    Some(Measured { tier: tier.to_owned(), way, block, readers, depth, rate, settled })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measured() -> impl Strategy<Value = Measured> {
        let tier = "[a-z0-9:-]{1,64}";
        let found = (1..500usize, 1..200usize, any::<u64>(), any::<bool>());
        (tier, 0..WAYS.len(), 1..1000u64, found).prop_map(|(tier, way, pages, found)| {
            let (readers, depth, rate, settled) = found;
            let way = Way(WAYS[way]);
            Measured { tier, way, block: pages * 4096, readers, depth, rate, settled }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(all in prop::collection::vec(measured(), 0..MOST)) {
            let text = write(&all);
            prop_assert!(text.len() <= MOST_BYTES);
            prop_assert_eq!(parse(&text), Some(all));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = parse(&text);
            let _ = parse(&format!("{HEAD}\n{text}\n"));
        }
    }

    #[test]
    fn what_is_about_the_same_is_nothing_new() {
        let m = |readers, rate, settled| {
            let way = Way::of(true, false, &IoOptions::default());
            let tier = "ext4-8:1".to_owned();
            Measured { tier, way, block: 1 << 20, readers, depth: 1, rate, settled }
        };
        let known = m(4, 1000, true);
        assert!(known.says(&m(4, 1125, true)) && known.says(&m(4, 875, true)));
        for other in [m(4, 1126, true), m(4, 874, true), m(5, 1000, true)] {
            assert!(!known.says(&other), "{other:?}");
        }
        // What was found to its end stays until something else is, too.
        let open = [m(4, 1000, false), m(4, 500, false), m(8, 2000, false)];
        assert!(open.iter().all(|open| known.says(open) && !open.says(&known)));
        assert!(!open[0].says(&open[2]));
    }

    #[test]
    fn huge_pages_are_a_way_of_their_own() {
        let io = IoOptions::default();
        let of = |cached, whole| Way::of(cached, whole, &io);
        assert_ne!(of(true, true), of(true, false));
        assert_eq!(of(false, true), of(false, false));
    }

    #[test]
    fn odd_files_are_none() {
        let good = "stead tiers 3\next4-8:1 cache 1048576 16 3 900 1\n";
        assert_eq!(parse(good).unwrap().len(), 1);
        for (old, new) in [
            ("tiers 3", "tiers 2"),
            ("ext4", "ext4\n"),
            ("cache", "cash"),
            ("1048576", "1048577"),
            ("1048576", "0"),
            (" 16", " 0"),
            (" 16", " 99999999999999999999"),
            (" 3", " 0"),
            (" 3", " 257"),
            ("1\n", "1"),
            (" 1\n", "\n"),
            (" 1\n", " 2\n"),
            (" 1\n", " 1 1\n"),
            ("900", "-1"),
            ("900", ""),
        ] {
            assert_eq!(parse(&good.replace(old, new)), None, "{old} {new}");
        }
    }
}
