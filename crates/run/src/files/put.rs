//! From one file to parts on several nodes.

use super::copy::Copier;
use super::{
    CRC32C, Copied, Put, Word, align, carriers, decode, encode, meet, no_rank, sharers, spaces,
    threads,
};
use crate::clock::Watch;
use crate::exchange::Crew;
use crate::naming::{self, NewLayout};
use crate::news::News;
use crate::outputs::Outputs;
use crate::pass::Observer;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use stead_core::layout::{Checksum, Dataspace, Layout, Part, SUFFIX, nodes, parts_folder};
use stead_core::{Error, Kind, Result};
use stead_fabric::{Fabric, Local};
use stead_store::file::Identity;
use stead_store::{AtomicFile, FileSource, Root, Source, space};

/// Cuts a file into stripes and puts them into dataspaces, of this host alone.
///
/// # Errors
/// As [`put_on`].
pub fn put(put: &Put, observer: Option<&dyn Observer>) -> Result<Copied> {
    put_on(&Local::single(), put, observer)
}

/// Cuts a file into stripes and puts them into dataspaces of the nodes of a job: each part is copied by a rank of its node,
/// from the file system that all see. The layout is written when all parts are there and durable. All ranks call this, with
/// the same request; dataspaces may be in different folders.
///
/// # Errors
/// The same on all ranks; nothing is left then. `Usage` for a node without a rank, a dataspace that is not configured, a
/// layout that is there already; `NotFound` for a dataspace whose folder is not there; `NoSpace`; `Changed` if somebody
/// writes to the file; `Peer` if a rank is gone. If that happens when all parts have their names, they stay: the layout
/// may be there.
pub fn put_on(fabric: &dyn Fabric, put: &Put, observer: Option<&dyn Observer>) -> Result<Copied> {
    put_by(Crew::new(fabric, &put.cancel, observer), put, observer)
}

/// What rank 0 tells the others to do.
#[derive(Serialize, Deserialize)]
struct Plan {
    layout: String,
    /// The layout that is replaced.
    old: Option<String>,
}

/// A part that this rank copies.
struct Mine {
    part: usize,
    root: Root,
    /// Until it has its name.
    file: Option<AtomicFile>,
}

pub(super) fn put_by(
    mut crew: Crew<'_>,
    put: &Put,
    observer: Option<&dyn Observer>,
) -> Result<Copied> {
    let watch = Watch::start();
    let source = FileSource::open(&put.file);
    let watched = observer.is_some_and(Observer::looks);
    let word = source.as_ref().map_or_else(
        |_| None,
        |s| {
            let asked = (&put.over, put.stripe, put.align, put.parts, &put.name, put.force);
            let word = Word::new(&crew, format!("put {asked:?}"), watched);
            let id = s.identity();
            Some(Word { file: Some((id.len, id.mtime)), ..word })
        },
    );
    let (source, word) = match (source, word) {
        (Ok(source), Some(word)) => (Some(source), put.cancel.check().map(|()| word)),
        (Err(e), _) => (None, Err(e)),
        (Ok(_), None) => (None, Err(Error::internal("a file was not looked at"))),
    };
    let words = meet(&mut crew, word)?;
    let source = source.ok_or_else(|| Error::internal("an error was not told"))?;
    let per_node = sharers(&crew);
    let threads = threads(put.threads, per_node);

    let (mut layout_file, mut there) = (None, None);
    let mine = if crew.rank() == 0 {
        plan(&crew, put, &source, threads).and_then(|(plan, file, old)| {
            (layout_file, there) = (Some(file), old);
            encode(&plan)
        })
    } else {
        Ok(Vec::new())
    };
    let told = crew.gather(mine)?;
    let plan: Plan = decode(told.first().map_or(&[][..], Vec::as_slice))?;
    // What rank 0 has made is right everywhere or nowhere.
    let layout = Layout::parse(&plan.layout)?;
    let carriers = carriers(&layout, &crew.hosts);
    if let Some(lone) = carriers.iter().position(Option::is_none) {
        return Err(no_rank(&layout.parts()[lone].node, &crew.hosts));
    }

    let news = News::new(crew.fabric.whole(), words[0].number, 1, words[0].watched);
    let mut parts = Vec::new();
    let copied = make(put, &layout, &carriers, crew.rank(), &mut parts).and_then(|()| {
        let copier = Copier {
            threads,
            cancel: &put.cancel,
            news: &news,
            fabric: crew.fabric.whole(),
            observer,
        };
        copy(&copier, &layout, &source, &parts, put)
    });
    if let Err(e) = &copied {
        news.failed(e);
    }
    let told = crew.gather(copied.and_then(|sums| encode(&sums)));
    let layout = match told.and_then(|told| with_sums(layout.clone(), &told)) {
        Ok(layout) => layout,
        Err(e) => {
            remove(&layout, &mut parts);
            return Err(e);
        }
    };
    // Names are given from here on: who is stopped later is too late.
    crew.fabric.decided();
    let files = parts.iter_mut().filter_map(|m| m.file.take()).collect();
    let write = || {
        let file = layout_file.ok_or_else(|| Error::internal("the layout was not made"))?;
        let new = NewLayout::write(file, &layout, there.as_deref())?;
        Ok((vec![new], Outputs::default()))
    };
    naming::name(&crew, files, write, || remove(&layout, &mut parts))?;
    if let Some(old) = plan.old.and_then(|old| Layout::parse(&old).ok()) {
        forget(&crew, put, &source, &old, &layout);
    }
    let paths = (put.file.clone(), layout_path(put)?);
    Ok(Copied::of(&layout, paths, crew.size(), watch.seconds()))
}

/// The name of the file in its dataspaces.
fn called(put: &Put) -> Result<String> {
    let name = match &put.name {
        Some(name) => Some(name.as_str()),
        None => put.file.file_name().and_then(std::ffi::OsStr::to_str),
    };
    let none = || {
        Error::usage("the name of this file is no text")
            .at_path(&put.file)
            .with_hint("give another one with --name")
    };
    name.map(str::to_owned).ok_or_else(none)
}

fn layout_path(put: &Put) -> Result<PathBuf> {
    match &put.layout {
        Some(path) => Ok(path.clone()),
        None => Ok(put.file.with_file_name(called(put)? + SUFFIX)),
    }
}

/// What is to be done, the file that the layout will be, and what is in its place now.
fn plan(
    crew: &Crew<'_>,
    put: &Put,
    source: &FileSource,
    threads: usize,
) -> Result<(Plan, AtomicFile, Option<Vec<u8>>)> {
    let (name, path) = (called(put)?, layout_path(put)?);
    let wrong = |e: Error| Error::usage(e.message()).with_hint("give another name with --name");
    stead_core::layout::check_relative(&name).map_err(wrong)?;
    if put
        .layout
        .as_ref()
        .and_then(|p| p.file_name()?.to_str())
        .is_some_and(|n| !Layout::is_name(n))
    {
        return Err(Error::usage("this is not the name of a layout")
            .at_path(&path)
            .with_hint(format!("names of layouts end in {SUFFIX}")));
    }
    if is_file(&path, &source.identity()) {
        return Err(Error::usage("the layout would replace the file that it is of")
            .at_path(&path)
            .with_hint("--layout or --name give it another name"));
    }
    let (there, new) = match space::read_layout_bytes(&path) {
        Err(e) if e.kind() == Kind::NotFound => (None, true),
        _ if !put.force => {
            return Err(Error::usage("there is a layout already").at_path(&path).with_hint(
                "--force replaces it and removes its parts; --layout or --name give another name",
            ));
        }
        // What is none is replaced all the same; what cannot be read cannot be put back.
        found => (found.ok(), false),
    };
    let text = there.as_deref().and_then(|there| std::str::from_utf8(there).ok());
    let old = text.filter(|text| Layout::parse(text).is_ok()).map(str::to_owned);
    let file = AtomicFile::create(&path)?;
    let file = if new { file.only_new() } else { file };
    let spaces = over(put, &crew.hosts)?;
    let parts = put.parts.unwrap_or(spaces.len());
    if parts == 0 {
        return Err(Error::usage("a file in no parts").with_hint("--parts 1 is the least"));
    }
    // What is replaced stays whole until the layout of its parts is replaced.
    let (id, folder) = (id(), parts_folder(&name));
    let parts = (0..parts.min(stead_core::limits::MAX_PARTS + 1)).map(|i| {
        let (space, node) = &spaces[i % spaces.len()];
        Part::new(node, format!("{folder}/{id}.{i}")).within(space)
    });
    let (length, parts) = (source.len(), parts.collect());
    let layout = if put.align {
        Layout::cut(name, length, &align::cuts(put, threads)?, None, parts)?
    } else {
        Layout::even(name, length, put.stripe, parts)?
    };
    Ok((Plan { layout: layout.to_string(), old }, file, there))
}

/// What no other file has in its name: 128 bits by chance.
pub(crate) fn id() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

/// True if there is a file of this name, and it is this one.
pub(super) fn is_file(path: &Path, id: &Identity) -> bool {
    std::fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (id.dev, id.inode))
}

/// Dataspaces and their nodes, each of which has a rank.
fn over(put: &Put, hosts: &[String]) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for Dataspace { name, node } in Dataspace::expand(&put.over)? {
        match node {
            Some(node) if hosts.iter().any(|host| nodes::is_host(&node, host)) => {
                found.push((name, node));
            }
            Some(node) => return Err(no_rank(&node, hosts)),
            None => {
                let mut seen: Vec<&String> = Vec::new();
                for host in hosts {
                    if !seen.contains(&host) {
                        seen.push(host);
                        found.push((name.clone(), host.clone()));
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Makes the files of the parts that this rank copies.
fn make(
    put: &Put,
    layout: &Layout,
    carriers: &[Option<usize>],
    rank: usize,
    parts: &mut Vec<Mine>,
) -> Result<()> {
    let mut roots: HashMap<&str, Root> = HashMap::new();
    let mut spaces_here = None;
    for (i, part) in layout.parts().iter().enumerate() {
        if carriers[i] != Some(rank) {
            continue;
        }
        let name = part.space.as_deref().unwrap_or_default();
        if !roots.contains_key(name) {
            let known = match spaces_here.take() {
                Some(known) => known,
                None => spaces(&put.dataspaces)?,
            };
            roots.insert(name, Root::open(&known, name)?);
            spaces_here = Some(known);
        }
        let root = roots.get(name).ok_or_else(|| Error::internal("a dataspace was lost"))?;
        parts.push(Mine { part: i, root: root.clone(), file: None });
        let file = root.create(&part.path)?;
        file.allocate(part.length)?;
        if let Some(mine) = parts.last_mut() {
            mine.file = Some(file);
        }
    }
    Ok(())
}

/// Copies the parts of this rank: their numbers and checksums, when the devices have all of them.
fn copy(
    copier: &Copier<'_>,
    layout: &Layout,
    source: &FileSource,
    parts: &[Mine],
    put: &Put,
) -> Result<Vec<(u64, u32)>> {
    let lengths: Vec<u64> = parts.iter().map(|m| layout.parts()[m.part].length).collect();
    let unmade = || Error::internal("a part was not made");
    let sums = copier.run(&lengths, &|i, at, buffer| {
        let mine = parts.get(i).ok_or_else(unmade)?;
        let file = mine.file.as_ref().ok_or_else(unmade)?;
        fill(layout, source, mine.part, at, buffer)?;
        file.write_at(at, buffer)?;
        file.begin(at, buffer.len() as u64);
        Ok(crc32c::crc32c(buffer))
    })?;
    for mine in parts {
        put.cancel.check()?;
        mine.file.as_ref().ok_or_else(unmade)?.sync()?;
    }
    unchanged(source, &put.file)?;
    Ok(parts.iter().zip(sums).map(|(mine, sum)| (mine.part as u64, sum)).collect())
}

/// An error if the file is not what it was when it was opened, longer ones too.
fn unchanged(source: &FileSource, path: &Path) -> Result<()> {
    source.check()?;
    let (now, then) = (FileSource::open(path)?.identity(), source.identity());
    let what = |id: stead_store::file::Identity| (id.dev, id.inode, id.len, id.mtime);
    if what(now) == what(then) {
        return Ok(());
    }
    Err(Error::new(Kind::Changed, "the file was changed while it was copied")
        .at_path(path)
        .with_hint("put it when nobody writes to it"))
}

/// Fills a buffer with bytes of a part. Small pieces that lie near each other are taken out of one read.
fn fill(
    layout: &Layout,
    source: &dyn Source,
    part: usize,
    at: u64,
    buffer: &mut [u8],
) -> Result<()> {
    const SMALL: u64 = 64 << 10;
    const WINDOW: u64 = 256 << 10;
    let (mut window, mut from) = (Vec::new(), 0u64);
    let mut rest = buffer;
    let mut pieces = layout.part_pieces(part, at..at + rest.len() as u64).peekable();
    while let Some(piece) = pieces.next() {
        let (target, after) =
            rest.split_at_mut(usize::try_from(piece.len).unwrap_or(usize::MAX).min(rest.len()));
        rest = after;
        let end = piece.offset + piece.len;
        if window.is_empty() || piece.offset < from || end > from + window.len() as u64 {
            let near = pieces.peek().is_some_and(|next| next.offset < piece.offset + WINDOW / 2);
            if piece.len >= SMALL || !near {
                source.read_at(piece.offset, target)?;
                continue;
            }
            from = piece.offset;
            window.resize(usize::try_from((source.len() - from).min(WINDOW)).unwrap_or(0), 0);
            source.read_at(from, &mut window)?;
        }
        let skip = usize::try_from(piece.offset - from).unwrap_or(usize::MAX);
        target.copy_from_slice(&window[skip..skip + target.len()]);
    }
    if rest.is_empty() { Ok(()) } else { Err(Error::internal("a part ends before its length")) }
}

/// The layout with the checksums that all ranks have told.
fn with_sums(layout: Layout, told: &[Vec<u8>]) -> Result<Layout> {
    let mut sums = vec![None; layout.parts().len()];
    for told in told {
        let told: Vec<(u64, u32)> = decode(told)?;
        for (part, sum) in told {
            let place = usize::try_from(part).ok().and_then(|i| sums.get_mut(i));
            let digest = sum.to_be_bytes().to_vec();
            *place.ok_or_else(super::malformed)? =
                Some(Checksum { algorithm: CRC32C.to_owned(), digest });
        }
    }
    let sums: Option<Vec<Checksum>> = sums.into_iter().collect();
    layout.with_checksums(sums.ok_or_else(super::malformed)?)
}

/// Removes the parts of this rank, whether they have their names or not.
fn remove(layout: &Layout, parts: &mut [Mine]) {
    for mine in parts {
        // The first of both, if it has no name yet.
        mine.file = None;
        let path = &layout.parts()[mine.part].path;
        let _ = mine.root.remove(path);
        mine.root.prune(path);
    }
}

/// Removes the parts of the layout that was replaced, as far as this rank is on their nodes. Nobody needs them any more, so
/// that what cannot be removed is no error. The file that was put may be one of them, and stays.
fn forget(crew: &Crew<'_>, put: &Put, source: &FileSource, old: &Layout, new: &Layout) {
    let Ok(spaces) = spaces(&put.dataspaces) else { return };
    for (part, carrier) in old.parts().iter().zip(carriers(old, &crew.hosts)) {
        let kept = new.parts().iter().any(|p| (&p.space, &p.path) == (&part.space, &part.path));
        if let Some(space) = part.space.as_ref().filter(|_| carrier == Some(crew.rank()) && !kept)
            && let Ok(root) = Root::open(&spaces, space)
            && let Ok(file) = root.source(&part.path)
        {
            let (a, b) = (file.identity(), source.identity());
            if (a.dev, a.inode) != (b.dev, b.inode) {
                let _ = root.remove(&part.path);
            }
        }
    }
}
