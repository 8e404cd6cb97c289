//! What ranks say to each other: when they open a file, when they begin a session, and when they make what they read it by.
//!
//! All hear all, so that all come to the same: a rank that fails says so, and nobody waits for it.

use super::far::nowhere;
use super::group::Group;
use crate::opened::Opened;
use crate::options::Options;
use crate::session::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stead_core::{Error, Kind, Result};
use stead_fabric::kinds::{kind, number};
use stead_fabric::{Fabric, FabricExt};
use stead_store::{Announcement, FileSource, Segment, Source};

/// Readers of one node at most: more would only disturb each other.
pub(super) const READERS: usize = 4;

/// Tags of opening, two of them.
pub(super) const OPEN: u32 = 0x5EAD_0000;
/// Tags of files and of what is made for their sessions begin here, so many for each: the first one is that of a service, and
/// the next two those of what all ranks of a file do together.
pub(super) const FILES: u32 = 0x6000_0000;
pub(super) const TAGS: u32 = 4;
/// Of so many bits. A process that has used half a thousand million of them begins anew.
const FILES_MASK: u32 = 0x7FFF_FFFC;

/// Added to the number of an error that concerns all ranks.
const ALL: u8 = 0x80;

/// What all ranks know alike of a file that is open, and each of itself.
pub(crate) struct Agreed {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    /// The first rank that has the file. The blocks that it would choose are those of all.
    pub(super) first: usize,
    /// Of each node some ranks that have the file, in the order of nodes.
    pub(super) readers: Vec<usize>,
    /// For each rank, the number of its node, and whether that is this one.
    pub(super) nodes: Vec<usize>,
    pub(super) here: Vec<bool>,
    /// Ranks of one node that share its page cache: they need no messages.
    pub(super) alone: bool,
    /// For what all ranks do together.
    pub(super) tag: u32,
}

impl Agreed {
    /// Ranks on the node of a rank.
    pub(super) fn neighbours(&self, rank: usize) -> u64 {
        let node = self.nodes.get(rank);
        self.nodes.iter().filter(|n| Some(*n) == node).count().max(1) as u64
    }

    /// Of the ranks that may read, those that are to read a range of so many bytes: as many as have 8 blocks or 16 MiB each,
    /// spread over the nodes.
    pub(super) fn readers_for(&self, bytes: u64, block: u64) -> Vec<usize> {
        let each = block.saturating_mul(8).clamp(1, 16 << 20);
        let count = usize::try_from(bytes / each).unwrap_or(usize::MAX).max(1);
        // Of each node the first one, then of each the second one, and so on.
        let mut turns: Vec<(usize, usize)> = Vec::new();
        for (i, rank) in self.readers.iter().enumerate() {
            let same = |other: &&usize| self.nodes.get(**other) == self.nodes.get(*rank);
            turns.push((self.readers.iter().take(i).filter(same).count(), i));
        }
        turns.sort_unstable();
        let mut some: Vec<usize> = turns.into_iter().take(count).map(|(_, i)| i).collect();
        some.sort_unstable();
        some.into_iter().filter_map(|i| self.readers.get(i).copied()).collect()
    }
}

/// What that begins with: builds of other sources say other things.
pub(super) const NAME: &str =
    concat!("stead ", env!("CARGO_PKG_VERSION"), " (build ", env!("STEAD_BUILD"), ")");

/// What each rank says when a file is opened.
struct Hello {
    /// Length, or kind and text of the error.
    opened: std::result::Result<u64, (Kind, String)>,
    /// That error is one for all ranks.
    refused: bool,
    /// It has the page cache.
    maps: bool,
    /// The tag that rank 0 has chosen.
    tag: u32,
    /// The file that this rank means.
    path: Vec<u8>,
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![NAME.len() as u8];
        out.extend_from_slice(NAME.as_bytes());
        out.extend_from_slice(&self.tag.to_le_bytes());
        out.push(u8::from(self.maps));
        out.extend_from_slice(&(self.path.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.path);
        match &self.opened {
            Ok(len) => {
                out.push(u8::MAX);
                out.extend_from_slice(&len.to_le_bytes());
            }
            Err((kind, text)) => {
                out.push(number(*kind) + if self.refused { ALL } else { 0 });
                out.extend_from_slice(text.as_bytes());
            }
        }
        out
    }

    /// What rank `r` has said.
    fn heard(r: usize, bytes: &[u8]) -> Result<Hello> {
        let (len, rest) = bytes.split_first().ok_or_else(malformed)?;
        let (name, rest) = rest.split_at_checked(usize::from(*len)).ok_or_else(malformed)?;
        if name == NAME.as_bytes() {
            return Hello::decode(rest).ok_or_else(malformed);
        }
        let theirs = String::from_utf8_lossy(name);
        let plain = !theirs.is_empty() && theirs.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if !plain {
            return Err(malformed());
        }
        let message = format!("ranks run different versions of stead: {theirs} there, {NAME} here");
        Err(Error::usage(message).at_rank(r).with_hint("start the same version on all ranks"))
    }

    fn decode(bytes: &[u8]) -> Option<Hello> {
        let (tag, rest) = bytes.split_first_chunk()?;
        let (maps, rest) = rest.split_first()?;
        let (path, rest) = rest.split_first_chunk()?;
        let path = usize::try_from(u64::from_le_bytes(*path)).ok()?;
        let (path, rest) = rest.split_at_checked(path)?;
        let (sort, rest) = rest.split_first()?;
        let opened = match sort {
            &u8::MAX => Ok(u64::from_le_bytes(rest.try_into().ok()?)),
            n => Err((kind(*n & !ALL), String::from_utf8_lossy(rest).into_owned())),
        };
        let refused = opened.is_err() && *sort & ALL != 0;
        let maps = [false, true].get(usize::from(*maps)).copied()?;
        let tag = u32::from_le_bytes(*tag);
        Some(Hello { opened, refused, maps, tag, path: path.to_owned() })
    }
}

/// Opens a file on all ranks: each gives the same path and options. Ranks that cannot open it get its bytes from those
/// that can. The sessions of the file are collective; its memory is a budget of the node, shared among its ranks.
///
/// A rank may drop the file before others have: a thread goes on to answer them.
///
/// # Errors
/// As [`crate::open`] if no rank can open it; `Usage` on all if they give different paths; `Changed` if ranks see files of
/// different lengths; `Peer` if a rank is gone.
pub fn open(fabric: Arc<dyn Fabric>, path: impl AsRef<Path>, options: &Options) -> Result<File> {
    let path = path.as_ref();
    let source = FileSource::open(path).map(|s| Arc::new(s) as Arc<dyn Source>);
    open_source(fabric, path, source, options)
}

/// As [`open`], for any source of bytes, or the error that this rank got when it looked for one.
///
/// # Errors
/// As [`open`].
pub fn open_source(
    fabric: Arc<dyn Fabric>,
    path: impl AsRef<Path>,
    source: Result<Arc<dyn Source>>,
    options: &Options,
) -> Result<File> {
    let path = path.as_ref();
    let (rank, size) = (fabric.rank(), fabric.size());
    let opened = source.and_then(|source| Opened::look(source, options));
    let said = opened.as_ref().map(|o| (o.source().len(), o.maps()));
    let all = hello(&*fabric, path, said, false)?;
    let first = all.iter().position(|hello| hello.opened.is_ok());
    let (Some(first), true) = (first, all.len() == size) else {
        return Err(opened.err().unwrap_or_else(|| nowhere(path)));
    };
    let len = *all[first].opened.as_ref().map_err(|_| malformed())?;
    for (r, hello) in all.iter().enumerate() {
        if let Ok(other) = hello.opened
            && other != len
        {
            let message = format!("the file has {other} bytes here and {len} on rank {first}");
            return Err(Error::new(Kind::Changed, message)
                .at_path(path)
                .at_rank(r)
                .with_hint("give all ranks the same file"));
        }
    }
    let nodes: Vec<usize> = (0..size).map(|r| fabric.node_of(r)).collect();
    let here: Vec<bool> = nodes.iter().map(|n| *n == nodes[rank]).collect();
    let maps = all.iter().all(|hello| hello.opened.is_ok() && hello.maps);
    let agreed = Agreed {
        path: path.to_owned(),
        len,
        first,
        readers: readers(&nodes, &all),
        alone: maps && here.iter().all(|h| *h),
        nodes,
        here,
        tag: all[0].tag + 1,
    };
    let group = Group::new(fabric, agreed, opened.ok(), options);
    Ok(File::of_ranks(group, path.to_owned()))
}

/// Takes part in [`open`] with an error that concerns all ranks, as arguments that make no sense: all get it, and none
/// waits for this one. Returns it.
///
/// Collective: the other ranks call this, [`open`] or [`open_source`].
pub fn refuse(fabric: &dyn Fabric, error: Error) -> Error {
    // That others refuse too, or are gone, is no matter here.
    let _ = hello(fabric, Path::new(""), Err(&error), true);
    error
}

/// Hears what all ranks say when a file is opened.
fn hello(
    fabric: &dyn Fabric,
    path: &Path,
    opened: std::result::Result<(u64, bool), &Error>,
    refused: bool,
) -> Result<Vec<Hello>> {
    let mine = Hello {
        opened: opened.map(|(len, _)| len).map_err(|e| (e.kind(), e.message().to_owned())),
        refused,
        maps: opened.is_ok_and(|(_, maps)| maps),
        tag: new_tag(),
        path: path.as_os_str().as_bytes().to_owned(),
    };
    let all: Vec<Hello> = fabric
        .all_gather(OPEN, mine.encode())?
        .iter()
        .enumerate()
        .map(|(r, bytes)| Hello::heard(r, bytes))
        .collect::<Result<_>>()?;
    for (r, hello) in all.iter().enumerate().filter(|(_, hello)| hello.refused) {
        if let Err((kind, text)) = &hello.opened {
            return Err(Error::new(*kind, text.clone()).at_path(path).at_rank(r));
        }
    }
    // Threads that open several files at once may do so in another order on another rank: nobody gets bytes of another
    // file than the one it named.
    if let Some((r, other)) = all.iter().enumerate().find(|(_, hello)| hello.path != mine.path) {
        let other = String::from_utf8_lossy(&other.path);
        return Err(Error::usage(format!("ranks open different files: that rank '{other}'"))
            .at_path(path)
            .at_rank(r)
            .with_hint("all ranks must open the same files by the same names in the same order"));
    }
    // Rank 0 has chosen it.
    all.first().map(|first| sound(first.tag)).ok_or_else(malformed)??;
    Ok(all)
}

/// Tags that nobody has, if this is rank 0.
fn new_tag() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    FILES.wrapping_add(NEXT.fetch_add(TAGS, Ordering::Relaxed) & FILES_MASK)
}

/// A tag that may come of [`new_tag`].
fn sound(tag: u32) -> Result<u32> {
    match tag.checked_sub(FILES) {
        Some(n) if n & !FILES_MASK == 0 => Ok(tag),
        _ => Err(malformed()),
    }
}

pub(super) fn malformed() -> Error {
    Error::format("a message from another rank is malformed")
}

/// Of each node, some ranks that could open the file, in the order of nodes.
fn readers(nodes: &[usize], all: &[Hello]) -> Vec<usize> {
    let mut readers: Vec<(usize, Vec<usize>)> = Vec::new();
    for (rank, _) in all.iter().enumerate().filter(|(_, hello)| hello.opened.is_ok()) {
        let node = nodes[rank];
        match readers.iter_mut().find(|(n, _)| *n == node) {
            Some((_, ranks)) if ranks.len() < READERS => ranks.push(rank),
            Some(_) => {}
            None => readers.push((node, vec![rank])),
        }
    }
    readers.into_iter().flat_map(|(_, ranks)| ranks).collect()
}

/// What each rank says when a session begins.
pub(super) struct Begin {
    /// Its range, and how many sessions have begun: the same on all ranks, or it is an error.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) number: u64,
    /// How often something was made for sessions.
    pub(super) made: u64,
    /// Of what there is already, from the first bit on: sessions of this rank use it.
    pub(super) busy: u64,
    /// The block that this rank would choose; 0 if it has no file.
    pub(super) block: u64,
}

impl Begin {
    pub(super) fn say(&self, fabric: &dyn Fabric, tag: u32) -> Result<Vec<Begin>> {
        let Begin { start, end, number, made, busy, block } = *self;
        let numbers = [start, end, number, made, busy, block];
        let mine = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let all = fabric.all_gather(tag, mine)?;
        all.iter().map(|bytes| Begin::decode(bytes).ok_or_else(malformed)).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Begin> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
        match (&*numbers, rest) {
            (&[start, end, number, made, busy, block], []) => {
                Some(Begin { start, end, number, made, busy, block })
            }
            _ => None,
        }
    }

    /// What all ranks have said, of which this is what one said. Fails unless all begin the same session.
    pub(super) fn with_all(&self, all: &[Begin], path: &Path) -> Result<()> {
        let same = |b: &Begin| (b.start, b.end, b.number) == (self.start, self.end, self.number);
        if let Some(other) = all.iter().position(|b| !same(b)) {
            let (start, end) = (self.start, self.end);
            let message = format!("ranks begin different sessions: bytes {start} to {end} here");
            return Err(Error::usage(message)
                .at_path(path)
                .at_rank(other)
                .with_hint("all ranks must begin the same session"));
        }
        match all.iter().position(|b| b.made != self.made) {
            // It was alone with its error, or without it.
            Some(other) => {
                Err(Error::new(Kind::Peer, "an earlier session has failed on some ranks")
                    .at_path(path)
                    .at_rank(other)
                    .with_hint("open the file again"))
            }
            None => Ok(()),
        }
    }
}

/// Says what memory this rank shares, and hears of that of the others, and the tag of the service that they make.
pub(super) fn announce(
    fabric: &dyn Fabric,
    tag: u32,
    segment: Option<&Segment>,
) -> Result<(u32, Vec<Option<Announcement>>)> {
    let mut mine = new_tag().to_le_bytes().to_vec();
    mine.extend(segment.into_iter().flat_map(|s| s.announcement().encode()));
    let all = fabric.all_gather(tag, mine)?;
    let tag = all.first().and_then(|said| said.first_chunk()).copied().ok_or_else(malformed)?;
    let announced = |said: &Vec<u8>| Announcement::decode(said.get(size_of::<u32>()..)?);
    Ok((sound(u32::from_le_bytes(tag))?, all.iter().map(announced).collect()))
}

/// Says whether this rank has all that it needs: nobody asks one who cannot answer. The first error of another one, if
/// there is any.
pub(super) fn agree(
    fabric: &dyn Fabric,
    tag: u32,
    path: &Path,
    mine: std::result::Result<(), &Error>,
) -> Result<()> {
    let said = mine.map_or_else(
        |error| [&[number(error.kind())], error.message().as_bytes()].concat(),
        |()| Vec::new(),
    );
    for (r, said) in fabric.all_gather(tag, said)?.iter().enumerate() {
        if let Some((number, text)) = said.split_first() {
            let text = String::from_utf8_lossy(text).into_owned();
            return Err(Error::new(kind(*number), text).at_path(path).at_rank(r));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(nodes: &[usize], readers: &[usize]) -> Agreed {
        Agreed {
            path: PathBuf::new(),
            len: 1 << 40,
            first: 0,
            readers: readers.to_vec(),
            nodes: nodes.to_vec(),
            here: Vec::new(),
            alone: false,
            tag: 0,
        }
    }

    #[test]
    fn small_ranges_have_few_readers_on_as_many_nodes_as_can_be() {
        const MIB: u64 = 1 << 20;
        let agreed = agreed(&[0, 0, 0, 0, 1, 1, 1, 1], &[0, 1, 2, 3, 4, 5, 6, 7]);
        let readers = |bytes, block| agreed.readers_for(bytes, block);
        assert_eq!(readers(0, 65_536), [0]);
        assert_eq!(readers(MIB, 65_536), [0, 4]);
        assert_eq!(readers(MIB - 1, 65_536), [0]);
        assert_eq!(readers(47 * MIB, 2 * MIB), [0, 4]);
        assert_eq!(readers(64 * MIB, 2 * MIB), [0, 1, 4, 5]);
        assert_eq!(readers(90 * MIB, 64 * MIB), [0, 1, 2, 4, 5]);
        assert_eq!(readers(u64::MAX, 2 * MIB), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(agreed.neighbours(3), 4);
    }

    #[test]
    fn what_ranks_say_is_understood_or_not() {
        for opened in [Ok(7), Err((Kind::Permission, "no".to_owned()))] {
            for (refused, maps) in [(false, true), (true, false)] {
                let path = b"/a/b".to_vec();
                let hello = Hello { opened: opened.clone(), refused, maps, tag: 9, path };
                let heard = Hello::heard(0, &hello.encode()).unwrap();
                assert_eq!((&heard.opened, heard.maps, heard.tag), (&opened, maps, 9));
                assert_eq!(heard.path, b"/a/b");
                assert_eq!(heard.refused, refused && opened.is_err());
            }
        }
        for bytes in [&[][..], &[0; 5], &[0; 13], &[255; 50]] {
            assert!(Hello::decode(bytes).is_none(), "{bytes:?}");
            assert_eq!(Hello::heard(0, bytes).err().map(|e| e.kind()), Some(Kind::Format));
        }
        let hello = Hello { opened: Ok(7), refused: false, maps: true, tag: 9, path: vec![] };
        let mut other = hello.encode();
        other[7] ^= 1;
        let e = Hello::heard(3, &other).map(drop).unwrap_err();
        assert_eq!((e.kind(), e.place().rank), (Kind::Usage, Some(3)));
        assert!(e.message().contains("different versions of stead: stead "), "{e}");
        assert!(Begin::decode(&[0; 47]).is_none() && Begin::decode(&[0; 56]).is_none());
        assert_eq!(Begin::decode(&[1; 48]).unwrap().block, 0x0101_0101_0101_0101);
    }

    #[test]
    fn ranks_that_go_apart_are_told() {
        let begin = |start, made| Begin { start, end: 9, number: 1, made, busy: start, block: 0 };
        let kind = |all: &[Begin]| begin(0, 1).with_all(all, Path::new("f")).map_err(|e| e.kind());
        assert_eq!(kind(&[begin(0, 1), begin(0, 1)]), Ok(()));
        assert_eq!(kind(&[begin(0, 1), begin(1, 1)]), Err(Kind::Usage));
        assert_eq!(kind(&[begin(0, 1), begin(0, 2)]), Err(Kind::Peer));
    }
}
