//! From parts on several nodes to one file.

use super::copy::Copier;
use super::put::is_file;
use super::{CRC32C, Copied, Get, Word, carriers, meet, no_rank, sharers, spaces, threads};
use crate::clock::Watch;
use crate::exchange::Crew;
use crate::joint::{self, Joint};
use crate::meeting;
use crate::news::News;
use crate::pass::Observer;
use std::ops::Range;
use std::path::{Path, PathBuf};
use stead_core::layout::{Layout, Piece, nodes};
use stead_core::{Error, Kind, Result};
use stead_fabric::{Fabric, Local};
use stead_store::{AtomicFile, FileSource, JointFile, Source, space};

/// Hosts keep pages of a file, and may write whole ones. On some processors these are as large.
const PAGE: u64 = 64 << 10;

/// Brings a file back whose parts are all on this host.
///
/// # Errors
/// As [`get_on`].
pub fn get(get: &Get, observer: Option<&dyn Observer>) -> Result<Copied> {
    get_on(&Local::single(), get, observer)
}

/// Brings a file back: ranks on the nodes that have its parts write them to their places in one temporary file, on a file
/// system that all of them see, and compare their checksums; rank 0 gives it its name. All ranks call this, with the same
/// request.
///
/// # Errors
/// The same on all ranks; nothing is left then. `Usage` for a node without a rank, a file that is there already;
/// `NotFound` for a part that is not there, `Format` for one of another length or another checksum; `NoSpace`; `Peer`.
pub fn get_on(fabric: &dyn Fabric, get: &Get, observer: Option<&dyn Observer>) -> Result<Copied> {
    get_by(Crew::new(fabric, &get.cancel, observer), get, observer)
}

/// A part that this rank copies.
struct Mine {
    part: usize,
    source: FileSource,
}

/// The file as this rank sees it.
enum Out {
    First(AtomicFile),
    Other(JointFile),
}

impl Out {
    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Out::First(file) => {
                file.write_at(at, bytes)?;
                file.begin(at, bytes.len() as u64);
                Ok(())
            }
            Out::Other(file) => file.write_at(at, bytes),
        }
    }

    fn again(&self) -> Result<JointFile> {
        match self {
            Out::First(file) => file.again(),
            Out::Other(file) => file.again(),
        }
    }

    fn sync(&self) -> Result<()> {
        match self {
            Out::First(file) => file.sync(),
            Out::Other(file) => file.sync(),
        }
    }
}

pub(super) fn get_by(
    mut crew: Crew<'_>,
    get: &Get,
    observer: Option<&dyn Observer>,
) -> Result<Copied> {
    let watch = Watch::start();
    let watched = observer.is_some_and(Observer::looks);
    let word = get.cancel.check().map(|()| {
        let asked = (&get.layout, &get.output, get.force);
        Word::new(&crew, format!("get {asked:?}"), watched)
    });
    let words = meet(&mut crew, word)?;
    let mine = match crew.rank() {
        0 => space::read_layout(&get.layout).map(|layout| layout.to_string().into_bytes()),
        _ => Ok(Vec::new()),
    };
    let told = crew.gather(mine)?;
    let text = told.first().map(|t| String::from_utf8_lossy(t).into_owned()).unwrap_or_default();
    let layout = Layout::parse(&text)?;
    let path = output(get, &layout);
    let carriers = carriers(&layout, &crew.hosts);
    // One process alone may have all parts, whatever its host was called when they were put there.
    let lone = carriers.iter().position(Option::is_none).filter(|_| crew.size() > 1);
    if let Some(lone) = lone {
        return Err(no_rank(&layout.parts()[lone].node, &crew.hosts));
    }
    let vacant = |path: &Path| match std::fs::symlink_metadata(path) {
        Ok(_) if !get.force => Err(Error::usage("there is a file of this name already")
            .at_path(path)
            .with_hint("name another one with -o, or replace it with --force")),
        _ => Ok(()),
    };
    let opened = open(get, &layout, &carriers, &crew).and_then(|parts| {
        if crew.rank() == 0 {
            vacant(&path)?;
        }
        let layout = FileSource::open(&get.layout).map(|file| file.identity());
        let layout = layout.into_iter().filter(|_| crew.rank() == 0);
        if layout.chain(parts.iter().map(|m| m.source.identity())).any(|id| is_file(&path, &id)) {
            return Err(Error::usage("the file would replace what it is made of")
                .at_path(&path)
                .with_hint("name another one with -o"));
        }
        Ok(parts)
    });
    let (parts, opened) = match opened {
        Ok(parts) => (parts, Ok(())),
        Err(e) => (Vec::new(), Err(e)),
    };
    crew.agree(opened)?;
    let joints = joint::open(&crew, std::slice::from_ref(&path))?;
    let news = News::new(crew.fabric.whole(), words[0].number, 1, words[0].watched);
    let done = write(&crew, get, &layout, &parts, joints, &news, observer);
    if let Err((_, Some(joint))) = &done
        && crew.fabric.alive(0).is_err()
    {
        // Who has made the temporary name cannot remove it.
        joint.remove();
    }
    done.map_err(|(e, _)| e)?;
    let paths = (path, get.layout.clone());
    Ok(Copied::of(&layout, paths, crew.size(), watch.seconds()))
}

/// Where the file goes.
fn output(get: &Get, layout: &Layout) -> PathBuf {
    match &get.output {
        Some(path) => path.clone(),
        None => get.layout.with_file_name(layout.name()),
    }
}

/// Opens the parts that this rank copies, and compares their lengths.
fn open(
    get: &Get,
    layout: &Layout,
    carriers: &[Option<usize>],
    crew: &Crew<'_>,
) -> Result<Vec<Mine>> {
    let spaces = spaces(&get.dataspaces)?;
    let beside = get.layout.parent().unwrap_or(Path::new(""));
    let mut parts = Vec::new();
    for (i, part) in layout.parts().iter().enumerate() {
        if carriers[i].unwrap_or(0) != crew.rank() {
            continue;
        }
        let source = space::part_source(&spaces, beside, part).map_err(|e| {
            if crew.size() == 1 && !nodes::is_host(&part.node, &crew.host) {
                return no_rank(&part.node, &crew.hosts);
            }
            let said =
                format!("part {i} of '{}', on {}: {}", layout.name(), part.home(), e.message());
            let mut said = Error::new(e.kind(), said);
            if let Some(path) = &e.place().path {
                said = said.at_path(path);
            }
            match e.hint() {
                Some(hint) => said.with_hint(hint),
                None => said,
            }
        })?;
        layout.verify(i, source.len()).map_err(|e| e.at_path(source.path()))?;
        parts.push(Mine { part: i, source });
    }
    Ok(parts)
}

/// Writes the file. With an error comes what this rank had of it, if that was made by another one.
fn write(
    crew: &Crew<'_>,
    get: &Get,
    layout: &Layout,
    parts: &[Mine],
    joints: Vec<Joint>,
    news: &News<'_>,
    observer: Option<&dyn Observer>,
) -> std::result::Result<(), (Error, Option<JointFile>)> {
    let out = joints.into_iter().next().and_then(|joint| match joint {
        Joint::First(_, file) => file.map(Out::First),
        Joint::Other(_, file) => Some(Out::Other(file)),
    });
    let mut out =
        out.ok_or_else(|| (Error::internal("an output of all ranks was not found"), None))?;
    let done = (|| {
        // The mark by which all have found it goes.
        crew.agree(match &mut out {
            Out::First(file) => file.clear().and_then(|()| file.allocate(layout.length())),
            Out::Other(_) => Ok(()),
        })?;
        let hosts = meeting::nodes(&crew.fabric);
        let copier = Copier {
            threads: threads(get.threads, sharers(crew)),
            cancel: &get.cancel,
            news,
            fabric: crew.fabric.whole(),
            observer,
        };
        let copied = copy(&copier, layout, parts, &out, hosts.len() > 1).and_then(|()| out.sync());
        if let Err(e) = &copied {
            news.failed(e);
        }
        crew.agree(copied)?;
        edges(crew, layout, parts, &out, &hosts)?;
        crew.agree(get.cancel.check())?;
        crew.fabric.decided();
        Ok(())
    })();
    match (done, out) {
        (Ok(()), Out::First(file)) => {
            let file = if get.force { file } else { file.only_new() };
            crew.agree(file.commit()).map_err(|e| (e, None))
        }
        (Ok(()), Out::Other(file)) => crew.agree(Ok(())).map_err(|e| (e, Some(file))),
        (Err(e), Out::First(_)) => Err((e, None)),
        (Err(e), Out::Other(file)) => Err((e, Some(file))),
    }
}

/// Copies the parts of this rank, and compares their checksums. Of several hosts each writes the pages that it has whole.
fn copy(
    copier: &Copier<'_>,
    layout: &Layout,
    parts: &[Mine],
    out: &Out,
    several: bool,
) -> Result<()> {
    let lengths: Vec<u64> = parts.iter().map(|m| m.source.len()).collect();
    let unknown = || Error::internal("a part is not there");
    let sums = copier.run(&lengths, &|i, at, buffer| {
        let mine = parts.get(i).ok_or_else(unknown)?;
        mine.source.read_at(at, buffer)?;
        let end = at + buffer.len() as u64;
        for piece in layout.part_pieces(mine.part, at..end) {
            let whole = if several { pages(layout, &piece) } else { 0..piece.len };
            let from = piece.at - at;
            let bytes = usize::try_from(from + whole.start)
                .ok()
                .zip(usize::try_from(from + whole.end).ok());
            let bytes = bytes.and_then(|(a, b)| buffer.get(a..b)).ok_or_else(unknown)?;
            if !bytes.is_empty() {
                out.write_at(piece.offset + whole.start, bytes)?;
            }
        }
        Ok(crc32c::crc32c(buffer))
    })?;
    for (mine, sum) in parts.iter().zip(sums) {
        mine.source.check()?;
        compare(layout, mine, sum)?;
    }
    Ok(())
}

fn compare(layout: &Layout, mine: &Mine, sum: u32) -> Result<()> {
    let part = &layout.parts()[mine.part];
    let Some(want) = &part.checksum else { return Ok(()) };
    let what = || format!("part {} of '{}', on {}", mine.part, layout.name(), part.home());
    if want.algorithm != CRC32C {
        let message = format!(
            "{}, has a checksum by '{}', which this stead does not know",
            what(),
            want.algorithm
        );
        return Err(Error::format(message).at_path(mine.source.path()));
    }
    if want.digest == sum.to_be_bytes() {
        return Ok(());
    }
    let message = format!("{}, has the checksum {CRC32C}:{sum:08x} in place of {want}", what());
    Err(Error::new(Kind::Format, message).at_path(mine.source.path()).with_hint(
        "its bytes are not those that were put there; put the file over the nodes again",
    ))
}

/// The bytes of a piece, counted from its first one, that lie in pages of which its stripe has all bytes.
fn pages(layout: &Layout, piece: &Piece) -> Range<u64> {
    let stripe = layout.stripe_around(piece.offset).unwrap_or(0..0);
    let first = stripe.start.next_multiple_of(PAGE);
    // Nobody has bytes of the last page behind the end of the file.
    let last = if stripe.end == layout.length() { stripe.end } else { stripe.end / PAGE * PAGE };
    let within = |at: u64| at.clamp(piece.offset, piece.offset + piece.len) - piece.offset;
    if first < last { within(first)..within(last) } else { 0..0 }
}

/// Writes what lies in pages of which several hosts have bytes: one host after the other, each of which opens the file anew
/// and so sees what those before it have written.
fn edges(
    crew: &Crew<'_>,
    layout: &Layout,
    parts: &[Mine],
    out: &Out,
    hosts: &[Vec<usize>],
) -> Result<()> {
    let aligned = layout.stripe_size().is_some_and(|stripe| stripe.is_multiple_of(PAGE));
    if hosts.len() < 2 || aligned {
        return Ok(());
    }
    for ranks in hosts {
        crew.agree(if ranks.contains(&crew.rank()) {
            write_edges(layout, parts, out)
        } else {
            Ok(())
        })?;
    }
    Ok(())
}

fn write_edges(layout: &Layout, parts: &[Mine], out: &Out) -> Result<()> {
    let file = out.again()?;
    let mut buffer = Vec::new();
    for mine in parts {
        for piece in layout.part_pieces(mine.part, 0..mine.source.len()) {
            let whole = pages(layout, &piece);
            let edges = if whole.is_empty() {
                [0..piece.len, 0..0]
            } else {
                [0..whole.start, whole.end..piece.len]
            };
            for edge in edges.into_iter().filter(|e| !e.is_empty()) {
                // Less than two pages.
                buffer.resize(usize::try_from(edge.end - edge.start).unwrap_or(0), 0);
                mine.source.read_at(piece.at + edge.start, &mut buffer)?;
                file.write_at(piece.offset + edge.start, &buffer)?;
            }
        }
    }
    file.sync()
}
