//! What was measured of each tier, in a small file that outlives the process: `tiers` in the folder that
//! `STEAD_CACHE` names, else `stead` in the user's cache folder. It is a hint and nothing more: a file that is not just
//! as it should be is taken as none, and one that cannot be written is left alone.

use crate::process::PerProcess;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use stead_core::limits;
use stead_store::AtomicFile;

/// Lines and bytes that the file may have.
const MOST: usize = 64;
const MOST_BYTES: usize = 16 << 10;
const HEAD: &str = "stead tiers 1";

/// How one tier was read best with blocks of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measured {
    /// [`stead_store::Tier::name`].
    pub(crate) tier: String,
    /// Past the page cache.
    pub(crate) direct: bool,
    /// Bytes of a block.
    pub(crate) block: u64,
    /// Blocks in flight, all readers together.
    pub(crate) flying: usize,
    /// Bytes in a second.
    pub(crate) rate: u64,
}

/// The folder; `None` if the user has none, or wants none (`STEAD_CACHE` is empty).
fn path() -> Option<PathBuf> {
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
pub(crate) fn of(tier: Option<&str>, direct: bool) -> Vec<Measured> {
    let Some(tier) = tier else { return Vec::new() };
    let mut known = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(load);
    known.iter().filter(|m| m.tier == tier && m.direct == direct).cloned().collect()
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
    let same = |m: &Measured| (&m.tier, m.direct, m.block) == (&new.tier, new.direct, new.block);
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
        let _ = file.commit();
    }
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
        let direct = u8::from(m.direct);
        text.push_str(&format!("{} {direct} {} {} {}\n", m.tier, m.block, m.flying, m.rate));
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
    let direct = match words.next()? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let mut number = || words.next()?.parse::<u64>().ok();
    let (block, flying, rate) = (number()?, number()?, number()?);
    let most = limits::MAX_QUEUE_DEPTH * limits::MAX_THREADS;
    let flying = usize::try_from(flying).ok().filter(|n| (1..=most).contains(n))?;
    let sound = (4096..=limits::MAX_READ_BLOCK as u64).contains(&block) && block % 4096 == 0;
    if !sound || words.next().is_some() {
        return None;
    }
    Some(Measured { tier: tier.to_owned(), direct, block, flying, rate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measured() -> impl Strategy<Value = Measured> {
        ("[a-z0-9:-]{1,64}", any::<bool>(), 1..1000u64, 1..500usize, any::<u64>()).prop_map(
            |(tier, direct, pages, flying, rate)| Measured {
                tier,
                direct,
                block: pages * 4096,
                flying,
                rate,
            },
        )
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
    fn odd_files_are_none() {
        let good = "stead tiers 1\next4-8:1 0 1048576 16 900\n";
        assert_eq!(parse(good).unwrap().len(), 1);
        for (old, new) in [
            ("tiers 1", "tiers 2"),
            ("ext4", "ext4\n"),
            (" 0 ", " 2 "),
            ("1048576", "1048577"),
            ("1048576", "0"),
            ("16", "0"),
            ("16", "99999999999999999999"),
            ("900\n", "900"),
            ("900", "900 1"),
            ("900", "-1"),
            ("900", ""),
        ] {
            assert_eq!(parse(&good.replace(old, new)), None, "{old} {new}");
        }
    }
}
