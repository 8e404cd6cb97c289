//! Outputs of kernels that map blocks, of data that lie between those of other ranks: each rank writes what it makes of its own to
//! a part near them, and a layout says which piece of the output is where. Nothing moves but the lengths of the pieces.
//!
//! Blocks have numbers that all ranks understand, so that the pieces of all ranks in the order of these are the output. Each rank
//! makes its part before the data are read, names it when all ranks have theirs whole and on their devices, and rank 0 writes
//! the layout last.

#[cfg(test)]
mod tests;

use crate::exchange::Crew;
use crate::files::{self, CRC32C};
use crate::naming::{self, NewLayout};
use crate::outputs::Outputs;
use crate::sink::{Ordered, Part, Run, too_many_runs};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_core::layout::{self, Checksum, Layout, SUFFIX, nodes, parts_folder};
use stead_core::{Error, Kind, Result, limits};
use stead_format::{Dataset, Held, Holding};
use stead_kernel::Sink;
use stead_store::{AtomicFile, FileSource, Root, space};

/// What the names of parts of outputs begin with, and those of files that were put do not: an output is made again, and a file
/// that was put may be the only one.
const MARK: &str = "out-";

/// An output of which each rank with data has a part.
pub struct Scatter {
    /// As its kernel names it.
    path: PathBuf,
    layout: PathBuf,
    name: String,
    /// The parts that ranks may have, without their lengths.
    parts: Vec<Option<layout::Part>>,
    /// The rank whose part has the header: the first one with a part.
    first: usize,
    mine: Option<Mine>,
    /// The text of the layout that it replaces.
    old: Option<String>,
    /// All of it, when all parts are whole.
    whole: Option<Layout>,
}

/// The part of this rank.
struct Mine {
    root: Root,
    /// Within the folder.
    path: String,
    /// Until its pass takes it, and from its end until it has its name.
    file: Option<AtomicFile>,
}

impl Drop for Mine {
    fn drop(&mut self) {
        self.file = None;
        // If nothing has come of it.
        self.root.prune(&self.path);
    }
}

/// What a rank tells first.
#[derive(Serialize, Deserialize)]
struct Word {
    /// Where it makes files: node, dataspace and folder.
    near: Option<(String, Option<String>, String)>,
    /// Of rank 0: for each output what its parts have in their names, and the layout that is there.
    outputs: Vec<(String, Option<String>)>,
}

/// What a rank tells of its part: the length of its header, and its pieces.
type Pieces = (u64, Vec<(u64, u64)>);

/// The layout of the output of this name.
pub fn layout_path(path: &Path) -> PathBuf {
    if path.file_name().and_then(|n| n.to_str()).is_some_and(Layout::is_name) {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// What the file is called that the layout is of.
fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|n| n.to_str());
    let name = name.ok_or_else(|| Error::usage("the name of this output is no text").at_path(path));
    name.map(|n| n.strip_suffix(SUFFIX).filter(|n| !n.is_empty()).unwrap_or(n).to_owned())
}

/// The layout that is there, if it may be replaced: one whose parts are those of an output of this name.
fn replaced(path: &Path, name: &str) -> Result<Option<String>> {
    let its_folder = parts_folder(name);
    let its = |part: &layout::Part| {
        let mut steps = part.path.rsplit('/');
        let (file, folder) = (steps.next().unwrap_or_default(), steps.next());
        let id = file.strip_prefix(MARK).and_then(|file| file.split_once('.'));
        let id = id.filter(|(_, n)| n.bytes().all(|c| c.is_ascii_digit()));
        let hex = |id: &str| id.len() >= 8 && id.bytes().all(|c| c.is_ascii_hexdigit());
        folder == Some(&*its_folder) && id.is_some_and(|(id, _)| hex(id))
    };
    let other = |why: &str| {
        Error::usage(format!("there is a layout already, {why}"))
            .at_path(path)
            .with_hint("give the output another name with out=PATH, or remove that layout")
    };
    let text = match space::read_layout_text(path) {
        Err(e) if e.kind() == Kind::NotFound => return Ok(None),
        Err(e) if matches!(e.kind(), Kind::Format | Kind::Limit) => {
            return Err(other(&format!("and it cannot be read: {}", e.message())));
        }
        text => text?,
    };
    match Layout::parse(&text) {
        Ok(old) if old.parts().iter().all(its) => Ok(Some(text)),
        Ok(_) => Err(other("and it is of something else than an output of this name")),
        Err(e) => Err(other(&format!("and it cannot be read: {}", e.message()))),
    }
}

/// An error if there is a file of the name of the output: whoever named it would get that, and not what its layout is of.
fn not_hidden(path: &Path, layout: &Path) -> Result<()> {
    if path == layout || std::fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let what = "there is a file of this name, and the output is a layout beside it, which nobody would find by this name";
    Err(Error::usage(what)
        .at_path(path)
        .with_hint("remove the file, or give the output another name with out=PATH"))
}

/// Makes the parts of these outputs, each rank near its data.
pub fn open(crew: &Crew<'_>, holding: &Holding, paths: &[PathBuf]) -> Result<Vec<Scatter>> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let near = holding.near.as_ref().map(|near| {
        let folder = near.folder.to_str().map(str::to_owned).ok_or_else(|| {
            Error::usage("the name of a folder of data is no UTF-8 text").at_path(&near.folder)
        });
        folder.map(|folder| (near.node.clone(), near.space.clone(), folder))
    });
    let mine = near.transpose().and_then(|near| {
        let output = |path: &PathBuf| {
            let layout = layout_path(path);
            not_hidden(path, &layout)?;
            let old = replaced(&layout, &name_of(path)?)?;
            Ok((files::id(), old))
        };
        let mine = if crew.rank() == 0 { paths } else { &[] };
        let outputs = mine.iter().map(output).collect::<Result<_>>()?;
        files::encode(&Word { near, outputs })
    });
    let words = crew.gather(mine)?;
    let words: Vec<Word> = words.iter().map(|w| files::decode(w)).collect::<Result<_>>()?;
    let mut all = Vec::with_capacity(paths.len());
    let made = make(crew, &words, paths, &mut all);
    crew.agree(made)?;
    Ok(all)
}

fn make(crew: &Crew<'_>, words: &[Word], paths: &[PathBuf], all: &mut Vec<Scatter>) -> Result<()> {
    let outputs = words.first().map_or(&[][..], |w| w.outputs.as_slice());
    if outputs.len() != paths.len() {
        return Err(files::malformed());
    }
    let first = words.iter().position(|w| w.near.is_some());
    let first = first.ok_or_else(|| Error::internal("no rank has data"))?;
    for (path, (id, old)) in paths.iter().zip(outputs) {
        let name = name_of(path)?;
        let within = |rank: usize| format!("{}/{MARK}{id}.{rank}", parts_folder(&name));
        let part = |(rank, word): (usize, &Word)| {
            let (node, space, folder) = word.near.as_ref()?;
            let path = within(rank);
            Some(match space {
                Some(space) => layout::Part::new(node, path).within(space),
                None => layout::Part::new(node, Path::new(folder).join(path).to_string_lossy()),
            })
        };
        let parts: Vec<Option<layout::Part>> = words.iter().enumerate().map(part).collect();
        // What no layout can say is told before the data are read.
        Layout::even(name.clone(), 0, 1, parts.iter().flatten().cloned().collect())
            .map_err(|e| e.at_path(path))?;
        let near = words.get(crew.rank()).and_then(|w| w.near.as_ref());
        let mine = near.map(|(_, space, folder)| {
            let root = Root::at(space.as_deref(), Path::new(folder))?;
            let mut mine = Mine { root, path: within(crew.rank()), file: None };
            mine.file = Some(mine.root.create(&mine.path)?);
            Ok::<_, Error>(mine)
        });
        all.push(Scatter {
            path: path.clone(),
            layout: layout_path(path),
            parts,
            name: name.clone(),
            first,
            mine: mine.transpose()?,
            old: old.clone(),
            whole: None,
        });
    }
    Ok(())
}

impl Scatter {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the output of this rank's blocks goes in this pass; `None` if it has no data.
    pub fn sink(
        &mut self,
        sink: &Sink,
        rank: usize,
        (threads, pending): (usize, usize),
        held: Arc<[Held]>,
    ) -> Result<Option<Ordered>> {
        let Some(mine) = &mut self.mine else { return Ok(None) };
        let file = mine.file.take();
        let mut file = file.ok_or_else(|| Error::internal("an output is written twice"))?;
        file.clear()?;
        Ordered::of_held(sink, file, (threads, pending), held, rank == self.first).map(Some)
    }

    /// The layout of the pieces that ranks have told of, without checksums; and the ranks of its parts.
    fn layout(&self, told: &[&Pieces]) -> Result<(Layout, Vec<usize>)> {
        let mut pieces: Vec<(u64, usize, u64)> = Vec::new();
        for (rank, (_, runs)) in told.iter().enumerate() {
            pieces.extend(runs.iter().map(|(seq, len)| (*seq, rank, *len)));
        }
        pieces.sort_unstable();
        if pieces.windows(2).any(|w| w[0].0 == w[1].0) {
            return Err(files::malformed());
        }
        // Neighbours of one part are one piece: they are neighbours there, too.
        let header = told.get(self.first).map_or(0, |(start, _)| *start);
        let mut stripes: Vec<(usize, u64)> = Vec::new();
        let all = std::iter::once((self.first, header));
        for (rank, len) in all.chain(pieces.into_iter().map(|(_, rank, len)| (rank, len))) {
            match stripes.last_mut() {
                _ if len == 0 => {}
                Some((last, sum)) if *last == rank => *sum = sum.saturating_add(len),
                _ => stripes.push((rank, len)),
            }
        }
        let mut ranks: Vec<usize> = stripes.iter().map(|(rank, _)| *rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.is_empty() {
            ranks.push(self.first);
            stripes.push((self.first, 0));
        }
        let part = |rank: &usize| self.parts.get(*rank).cloned().flatten();
        let parts = ranks.iter().map(part).collect::<Option<Vec<_>>>();
        let parts = parts.ok_or_else(files::malformed)?;
        let on = stripes.iter().map(|(rank, _)| ranks.partition_point(|r| r < rank) as u32);
        let on: Vec<u32> = on.collect();
        let mut length = 0u64;
        let mut cuts = Vec::with_capacity(stripes.len());
        for (_, len) in &stripes {
            length = length
                .checked_add(*len)
                .ok_or_else(|| Error::limit("the output is longer than 64 bits can say"))?;
            cuts.push(length);
        }
        cuts.pop();
        let layout = Layout::cut(self.name.clone(), length, &cuts, Some(&on), parts)?;
        Ok((layout, ranks))
    }
}

/// What this rank tells of the parts of these outputs, in their order.
fn told<'p>(written: &[PathBuf], parts: &'p [Part]) -> Vec<Option<&'p Part>> {
    written.iter().map(|path| parts.iter().find(|part| part.path == *path)).collect()
}

/// Ends the parts of all ranks of these outputs, which are the same on all ranks. The error is that of all ranks.
pub fn assemble(
    crew: &Crew<'_>,
    parts: Result<Vec<Part>>,
    written: &[PathBuf],
    scatters: &mut [Scatter],
) -> Result<()> {
    let counted = parts.and_then(|parts| {
        let count = |part: &Option<&Part>| part.map_or(0, |part| part.runs.len() as u64);
        let counts: Vec<u64> = told(written, &parts).iter().map(count).collect();
        Ok((files::encode(&counts)?, parts))
    });
    let (counts, mut parts) = match counted {
        Ok((counts, parts)) => (Ok(counts), parts),
        Err(e) => (Err(e), Vec::new()),
    };
    // First of all how many pieces there are: with them come more bytes than some have room for.
    let mut sums = vec![0u64; written.len()];
    for word in crew.gather(counts)? {
        let counts: Vec<u64> = files::decode(&word)?;
        sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum = sum.saturating_add(n));
    }
    if sums.iter().any(|sum| *sum > limits::MAX_CUTS as u64) {
        return Err(too_many_runs());
    }
    let pieces = |part: Option<&Part>| -> Pieces {
        let pair = |run: &Run| (run.seq, run.len);
        part.map_or((0, Vec::new()), |p| (p.start, p.runs.iter().map(pair).collect()))
    };
    let mine: Vec<Pieces> = told(written, &parts).into_iter().map(pieces).collect();
    let words = crew.gather(files::encode(&mine))?;
    let words: Vec<Vec<Pieces>> = words.iter().map(|w| files::decode(w)).collect::<Result<_>>()?;
    // From the same words all ranks make the same layouts.
    let mut layouts = Vec::with_capacity(written.len());
    for (i, path) in written.iter().enumerate() {
        let scatter = scatters.iter().position(|s| s.path == *path);
        let scatter = scatter.ok_or_else(|| Error::internal("an output was not made"))?;
        let told = words.iter().map(|w| w.get(i)).collect::<Option<Vec<_>>>();
        let found = scatters[scatter].layout(&told.ok_or_else(files::malformed)?)?;
        layouts.push((scatter, found));
    }
    let mut end = || {
        let mut sums = Vec::new();
        for (i, (scatter, (layout, ranks))) in layouts.iter().enumerate() {
            let part = parts.iter().position(|p| p.path == written[i]);
            let place = ranks.iter().position(|rank| *rank == crew.rank());
            let (Some(part), Some(place)) = (part, place) else { continue };
            let part = parts.swap_remove(part);
            let (start, body, sum) = (part.start, part.body, part.sum);
            let first = scatters[*scatter].first;
            let file = match crew.rank() == first {
                true => part.end(layout.length().saturating_sub(header(&words, i, first)))?,
                false => part.file,
            };
            if layout.parts().get(place).map(|p| p.length) != Some(start + body) {
                return Err(Error::internal("a part has another length than it should"));
            }
            let mut head = vec![0; usize::try_from(start).unwrap_or(0)];
            file.read_at(0, &mut head)?;
            file.sync()?;
            let body = usize::try_from(body).map_err(|_| files::malformed())?;
            sums.push((
                i as u64,
                place as u64,
                crc32c::crc32c_combine(crc32c::crc32c(&head), sum, body),
            ));
            if let Some(mine) = &mut scatters[*scatter].mine {
                mine.file = Some(file);
            }
        }
        files::encode(&sums)
    };
    let ended = end();
    let words = crew.gather(ended)?;
    let mut found: Vec<Vec<Option<Checksum>>> =
        layouts.iter().map(|(_, (layout, _))| vec![None; layout.parts().len()]).collect();
    for word in &words {
        let told: Vec<(u64, u64, u32)> = files::decode(word)?;
        for (i, place, sum) in told {
            let of = usize::try_from(i).ok().and_then(|i| found.get_mut(i));
            let at = of.and_then(|sums| sums.get_mut(usize::try_from(place).ok()?));
            let digest = sum.to_be_bytes().to_vec();
            *at.ok_or_else(files::malformed)? =
                Some(Checksum { algorithm: CRC32C.to_owned(), digest });
        }
    }
    for ((scatter, (layout, _)), sums) in layouts.into_iter().zip(found) {
        let sums = sums.into_iter().collect::<Option<Vec<_>>>().ok_or_else(files::malformed)?;
        scatters[scatter].whole = Some(layout.with_checksums(sums)?);
    }
    Ok(())
}

/// Bytes of the header of an output.
fn header(words: &[Vec<Pieces>], output: usize, first: usize) -> u64 {
    words.get(first).and_then(|w| w.get(output)).map_or(0, |(start, _)| *start)
}

/// Gives the parts of all ranks, the layouts and the other outputs of rank 0 their names.
pub fn commit(
    crew: &Crew<'_>,
    dataset: &Dataset,
    outputs: Outputs,
    scatters: &mut [Scatter],
) -> Result<()> {
    let file = |s: &mut Scatter| s.mine.as_mut().filter(|_| s.whole.is_some())?.file.take();
    let files = scatters.iter_mut().filter_map(file).collect();
    let write = || {
        let mut layouts = Vec::new();
        for scatter in &*scatters {
            let Some(whole) = &scatter.whole else { continue };
            let file = AtomicFile::create(&scatter.layout)?;
            let file = if scatter.old.is_none() { file.only_new() } else { file };
            layouts.push(NewLayout::write(file, whole, scatter.old.as_deref().map(str::as_bytes))?);
        }
        Ok((layouts, outputs))
    };
    let remove = || {
        for mine in scatters.iter().filter_map(|s| s.mine.as_ref()) {
            let _ = mine.root.remove(&mine.path);
        }
    };
    naming::name(crew, files, write, remove)?;
    scatters.iter().for_each(|scatter| scatter.forget(dataset));
    Ok(())
}

impl Scatter {
    /// Removes the parts of the layout that was replaced, as far as they are on this node and none of the data. Nobody needs them
    /// any more, so that what cannot be removed is no error.
    fn forget(&self, dataset: &Dataset) {
        let old = self.old.as_deref().and_then(|text| Layout::parse(text).ok());
        let (Some(old), Some(holding)) = (old, dataset.holding()) else { return };
        let files = dataset.sources().iter().flat_map(|s| s.files());
        let data = files.filter_map(|f| std::fs::metadata(f).ok()).map(|m| (m.dev(), m.ino()));
        let data: HashSet<(u64, u64)> = data.collect();
        let spaces = files::spaces(&holding.dataspaces).unwrap_or_default();
        for part in old.parts().iter().filter(|p| nodes::is_host(&p.node, &holding.host)) {
            let whole = Path::new(&part.path);
            // Above that of the parts.
            let folder = whole.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
            let (root, path) = match &part.space {
                Some(space) => (Root::open(&spaces, space), Some(whole)),
                None if whole.is_absolute() => {
                    (Root::at(None, folder), whole.strip_prefix(folder).ok())
                }
                None => continue,
            };
            let (Ok(root), Some(path)) = (root, path.and_then(Path::to_str)) else { continue };
            let id = |file: FileSource| (file.identity().dev, file.identity().inode);
            if root.source(path).is_ok_and(|file| !data.contains(&id(file))) {
                let _ = root.remove(path);
            }
        }
    }
}
