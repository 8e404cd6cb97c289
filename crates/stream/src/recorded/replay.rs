//! Recorded steps, as a reader has them: what its boxes need is read from files, and never mapped, since others may cut them off.

use super::form;
use super::spot::{self, Card};
use super::track::{Blocks, Progress, Track};
use crate::clock;
use crate::describe::{self, Description, Peer, Presence};
use crate::gather::{self, Plan};
use crate::index::{BlockEntry, Definition, Definitions, Place};
use crate::merge::merge_step;
use crate::noted::Got;
use crate::options::{Read, Start, Stop};
use crate::report::MemoryReport;
use crate::source::{Coming, Fetch, Part, Said, Source, Told, Which};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::layout::Spaces;
use stead_core::{Bounds, Error, Kind, Result};
use stead_store::arena::View;
use stead_store::{Folder, Watch};

/// Bytes that are read at once for fewer that are wanted.
const TOGETHER: u64 = 4 << 20;
/// How long it is waited at first, and at last, before files are looked at again.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Replay {
    name: String,
    folder: Folder,
    card: Card,
    /// The writers whose files are read, in order; all of them where nothing is said.
    ranks: Option<Vec<u64>>,
    /// One for each writer that has begun.
    tracks: Mutex<HashMap<u64, Arc<Track>>>,
    /// Steps that are held.
    pages: Mutex<HashMap<u64, Arc<Page>>>,
    /// Definitions of the step that was read last.
    known: Mutex<HashMap<u64, Arc<Definitions>>>,
    from: u64,
    stop: Stop,
}

/// A step that is held.
#[derive(Debug)]
struct Page {
    told: Arc<Told>,
    /// Of each writer.
    sums: Vec<Sums>,
}

/// Checksums of blocks, and where those of each begin.
#[derive(Debug)]
struct Sums {
    all: Vec<[u8; 8]>,
    first: Vec<usize>,
}

/// Whether a step is there.
enum Ready {
    Yes,
    No,
    Over(Option<Error>),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replay {
    /// Reads what was recorded at a place.
    ///
    /// # Errors
    /// `NotFound` if nothing was; `Usage` for a rank that the group has not; those of the place.
    pub(crate) fn open(name: &str, options: &Read) -> Result<Replay> {
        let folder = spot::folder(name, &options.spaces, false)?;
        let card = spot::read(&folder)?;
        if card.spills {
            let message =
                format!("'{name}' has only what readers of stream '{}' are behind by", card.name);
            return Err(Error::usage(message).with_hint("read the stream itself, by its name"));
        }
        if options.rank >= options.ranks {
            let Read { group, rank, ranks, .. } = options;
            let message = format!(
                "rank {rank} of the readers '{group}' of stream '{name}' is none of {ranks}"
            );
            return Err(Error::usage(message));
        }
        let mut replay = Replay::of(name, folder, card, &options.stop);
        replay.from = match options.start {
            Start::Oldest | Start::First => 0,
            Start::Next => replay.complete()?,
        };
        Ok(replay)
    }

    /// The same, in a folder that was found.
    pub(crate) fn of(name: &str, folder: Folder, card: Card, stop: &Stop) -> Replay {
        Replay {
            name: name.to_owned(),
            folder,
            card,
            ranks: None,
            tracks: Mutex::default(),
            pages: Mutex::default(),
            known: Mutex::default(),
            from: 0,
            stop: stop.clone(),
        }
    }

    /// Reads the files of these writers alone.
    pub(crate) fn of_ranks(self, ranks: Vec<u64>) -> Replay {
        Replay { ranks: Some(ranks), ..self }
    }

    /// The writers whose files are read.
    fn ranks(&self) -> impl Iterator<Item = u64> + '_ {
        let all = if self.ranks.is_some() { 0 } else { self.card.writers };
        self.ranks.iter().flatten().copied().chain(0..all)
    }

    /// The files of a writer, if it has begun.
    fn track(&self, rank: u64) -> Result<Option<Arc<Track>>> {
        if let Some(track) = locked(&self.tracks).get(&rank) {
            return Ok(Some(track.clone()));
        }
        let Some(track) = Track::open(&self.folder, rank, &self.card)? else { return Ok(None) };
        Ok(Some(locked(&self.tracks).entry(rank).or_insert(Arc::new(track)).clone()))
    }

    fn tracks(&self) -> Result<Vec<Option<Arc<Track>>>> {
        self.ranks().map(|rank| self.track(rank)).collect()
    }

    /// Steps that all writers have recorded, from the first one on.
    fn complete(&self) -> Result<u64> {
        let mut least = u64::MAX;
        for rank in self.ranks() {
            least = match self.track(rank)? {
                Some(track) => least.min(track.look()?.steps),
                None => 0,
            };
            if least == 0 {
                break;
            }
        }
        Ok(least)
    }

    /// True if only what readers are behind by is there.
    pub(crate) fn spills(&self) -> bool {
        self.card.spills
    }

    /// True if all writers have recorded a step.
    pub(crate) fn has(&self, step: u64) -> Result<bool> {
        for rank in self.ranks() {
            let Some(track) = self.track(rank)? else { return Ok(false) };
            if track.find(step)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether all writers have recorded a step, or will not.
    fn ready(&self, step: u64) -> Result<Ready> {
        let name = &self.name;
        let (mut lacking, mut ahead, mut ended, mut absent) = (Vec::new(), false, 0, None);
        for rank in self.ranks() {
            let Some(track) = self.track(rank)? else {
                absent = absent.or(Some(rank));
                continue;
            };
            if track.is_past(step) {
                ahead = true;
                continue;
            }
            let mut progress = track.look()?;
            let mut died = false;
            if progress.steps <= step && progress.closed.is_none() && track.has_died() {
                // What it has written before that.
                progress = track.look()?;
                died = progress.closed.is_none();
            }
            let Progress { steps, closed, .. } = progress;
            ahead |= steps > step;
            ended += u64::from(closed.is_some() || died);
            if steps <= step {
                lacking.push((rank, closed, died));
            }
        }
        if lacking.is_empty() && absent.is_none() {
            return Ok(Ready::Yes);
        }
        let after = match step {
            0 => "before a step was recorded".to_owned(),
            n => format!("after step {}", n - 1),
        };
        let over =
            |message: String| {
                Ok(Ready::Over(Some(Error::new(Kind::Peer, message).with_hint(
                    "steps that are complete can be read; see what that writer has said",
                ))))
            };
        if lacking.iter().any(|(.., closed, died)| *died || closed.is_some_and(|(_, fails)| fails))
        {
            // Others give it up because of one that has died.
            for track in self.tracks()?.into_iter().flatten() {
                if track.has_died() && track.look()?.closed.is_none() {
                    let (rank, number) = (track.rank, track.number());
                    return over(format!(
                        "writer {rank} of stream '{name}' has ended without closing it (process {number}), {after}"
                    ));
                }
            }
        }
        for (rank, closed, _) in &lacking {
            match closed {
                Some((_, true)) => {
                    return over(format!(
                        "writer {rank} of stream '{name}' has given it up, or could not record it, {after}"
                    ));
                }
                Some((_, false)) if ahead => {
                    return over(format!(
                        "writer {rank} of stream '{name}' has closed it before the others, {after}"
                    ));
                }
                _ => {}
            }
        }
        // Of those that are past it, it does not matter.
        match absent {
            None if ended == lacking.len() as u64 => Ok(Ready::Over(None)),
            Some(rank) if !lacking.is_empty() && ended == lacking.len() as u64 => over(format!(
                "writer {rank} of stream '{name}' has recorded nothing in this folder"
            )),
            _ => Ok(Ready::No),
        }
    }

    /// The step, as soon as all writers have recorded it.
    ///
    /// # Errors
    /// Those of the files, and of what ends waits.
    pub(crate) fn wait(&self, step: u64, until: Instant) -> Result<Coming> {
        let mut pause = SOON;
        loop {
            match self.ready(step)? {
                Ready::Yes => return Ok(Coming::Step(step)),
                Ready::Over(why) => return Ok(Coming::Over(why)),
                Ready::No => {}
            }
            self.stop.check()?;
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Ok(Coming::Nothing);
            }
            // File systems of several nodes tell nobody that a file has grown.
            Watch::new(&self.folder)?.wait(self.stop.at_most(pause.min(left)));
            pause = (pause * 2).min(LATER);
        }
    }

    /// Reads what all writers say of a step.
    fn page(&self, step: u64) -> Result<Page> {
        let (mut told, mut all) = (Told::default(), Vec::new());
        let mut used = HashMap::new();
        for track in self.tracks()? {
            let gone = || {
                Error::internal(format!("step {step} of stream '{}' is not recorded", self.name))
            };
            let track = track.ok_or_else(gone)?;
            let page = track.page(track.find(step)?.ok_or_else(gone)?)?;
            let by = |e: Error| {
                let rank = usize::try_from(track.rank).unwrap_or(usize::MAX);
                e.at_path(&track.data_path).at_rank(rank)
            };
            let odd = || by(Error::format(format!("what is said of step {step} is damaged")));
            let head = page.head().ok_or_else(odd)?;
            let known = used.get(&head.hash).or(locked(&self.known).get(&head.hash)).cloned();
            let definitions = match known {
                Some(definitions) => definitions,
                None => {
                    let bytes = track.definitions(step, head.definitions)?;
                    if Definitions::hash_of(&bytes) != head.hash {
                        return Err(odd());
                    }
                    Arc::new(Definitions::decode(&bytes).map_err(by)?)
                }
            };
            used.insert(head.hash, definitions.clone());
            let blocks = definitions.decode_blocks(head.blocks).map_err(by)?;
            let mut first = Vec::with_capacity(blocks.len());
            let mut sum = 0u64;
            for block in &blocks {
                first.push(usize::try_from(sum).map_err(|_| odd())?);
                sum = sum.saturating_add(form::chunks(block.place.len));
            }
            if sum != head.sums.len() as u64 {
                return Err(odd());
            }
            all.push(Sums { all: head.sums.to_vec(), first });
            told.at = told.at.max(page.entry.at);
            told.bytes = told.bytes.saturating_add(page.entry.bytes);
            told.said.push(Said { rank: track.rank, definitions, blocks });
        }
        *locked(&self.known) = used;
        Ok(Page { told: Arc::new(told), sums: all })
    }

    /// The variables of the last step.
    ///
    /// # Errors
    /// Those of the files.
    fn variables(&self) -> Result<Vec<Definition>> {
        let Some(last) = self.complete()?.checked_sub(1) else { return Ok(Vec::new()) };
        let told = self.page(last)?.told;
        let rank = |rank| u32::try_from(rank).unwrap_or(u32::MAX);
        let said: Vec<(u32, Arc<Definitions>)> =
            told.said.iter().map(|said| (rank(said.rank), said.definitions.clone())).collect();
        let blocks: Vec<&[BlockEntry]> =
            told.said.iter().map(|said| said.blocks.as_slice()).collect();
        let (merged, _) = merge_step(&said, &blocks)?;
        Ok(merged.definitions.iter().cloned().collect())
    }

    /// Why not all can be read that was recorded, as far as the ends of files tell.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn damage(&self) -> Result<Option<String>> {
        for track in self.tracks()?.into_iter().flatten() {
            match track.reaches() {
                Err(e) if e.kind() == Kind::Format => return Ok(Some(e.to_string())),
                reaches => reaches?,
            }
        }
        Ok(None)
    }

    /// What there is to know of it, but for its variables.
    ///
    /// # Errors
    /// Those of the files.
    pub(crate) fn describe(&self) -> Result<Description> {
        let mut writers = Vec::new();
        let (mut all, mut died, mut bad, mut used) = (true, None, None, 0u64);
        for rank in self.ranks() {
            let track = self.track(rank)?;
            let progress = track.as_ref().map_or(Ok(Progress::default()), |track| track.look())?;
            let presence = match (&track, progress.closed) {
                (None, _) => Presence::Awaited,
                (Some(_), Some(_)) => Presence::Left,
                (Some(track), None) if track.has_died() => Presence::Died,
                _ => Presence::Here,
            };
            all &= progress.closed.is_some();
            // Others give it up because of one that has died.
            if presence == Presence::Died {
                died = died.or(Some(rank));
            } else if progress.closed.is_some_and(|(_, fails)| fails) {
                bad = bad.or(Some(rank));
            }
            let bytes = track.as_ref().map_or(Ok(0), |track| track.bytes())?;
            used = used.saturating_add(bytes);
            writers.push(Peer {
                group: None,
                rank,
                process: track.as_ref().map(|track| track.number()),
                presence,
                step: progress.steps,
                had: 0,
                had_ranges: Vec::new(),
                had_before: 0,
                dropped: 0,
                bytes,
                memory: 0,
                waited_s: 0.0,
                copy_cpu_s: 0.0,
                is_elsewhere: false,
                node: None,
                rank_of_job: None,
            });
        }
        let complete = self.complete()?;
        let state = match died.or(bad) {
            Some(writer) => {
                describe::Progress::Failed { writer: usize::try_from(writer).unwrap_or(usize::MAX) }
            }
            None if all => describe::Progress::Ended,
            None => describe::Progress::Live,
        };
        let created = self.folder.meta(std::ffi::OsStr::new(spot::CARD))?;
        let created = created.and_then(|meta| {
            let seconds = u64::try_from(meta.mtime.seconds).ok()?;
            seconds.checked_mul(1_000_000_000)?.checked_add(u64::from(meta.mtime.nanos))
        });
        Ok(Description {
            name: self.card.name.clone(),
            node: None,
            state,
            created: created.unwrap_or(0),
            complete,
            steps: (0..complete).collect(),
            keep: complete,
            queue: 0,
            memory: 0,
            used,
            peak: used,
            budget: None,
            variables: Vec::new(),
            damage: None,
            all_writers: writers.len() as u64,
            writers,
            groups: Vec::new(),
            readers: Vec::new(),
        })
    }
}

impl Source for Replay {
    fn position(&self) -> u64 {
        self.from
    }

    fn expect(&self, _: u64, _: bool, _: Instant) -> Result<()> {
        Ok(())
    }

    fn next(&self, from: u64, _: bool, until: Instant) -> Result<Coming> {
        self.wait(from, until)
    }

    fn hold(&self, step: u64) -> Result<bool> {
        if locked(&self.pages).contains_key(&step) {
            return Ok(true);
        }
        if !self.has(step)? {
            return Ok(false);
        }
        let page = Arc::new(self.page(step)?);
        locked(&self.pages).insert(step, page);
        Ok(true)
    }

    fn let_go(&self, step: u64, _: bool) {
        locked(&self.pages).remove(&step);
    }

    fn steps(&self) -> Result<Vec<u64>> {
        Ok((0..self.complete()?).collect())
    }

    fn told(&self, step: u64) -> Result<Arc<Told>> {
        let told = locked(&self.pages).get(&step).map(|page| page.told.clone());
        told.ok_or_else(|| Error::internal(format!("step {step} is not held")))
    }

    fn late(&self, step: u64) -> Vec<String> {
        let lacks = |rank: &u64| match self.track(*rank) {
            Ok(Some(track)) => track.look().is_ok_and(|progress| progress.steps <= step),
            _ => true,
        };
        self.ranks()
            .filter(lacks)
            .take(8)
            .map(|rank| format!("writer {rank} has not recorded it"))
            .collect()
    }

    fn look(&self, _: Which, _: &Place) -> Result<Option<View>> {
        Ok(None)
    }

    fn fetch(&self) -> Option<Box<dyn Fetch + '_>> {
        Some(Box::new(Parts { replay: self, asked: VecDeque::new() }))
    }

    fn count(&self, _: u64, _: &Got<'_>, _: u64) {}

    fn given(&self, _: u64, _: u64, _: u64) {}

    fn memory(&self) -> Option<MemoryReport> {
        None
    }

    fn done(&self) {}
}

/// Parts that are to be read.
struct Parts<'r> {
    replay: &'r Replay,
    asked: VecDeque<(Which, Bounds)>,
}

impl Fetch for Parts<'_> {
    fn ask(&mut self, block: Which, part: &Bounds) -> Result<()> {
        self.asked.push_back((block, part.clone()));
        Ok(())
    }

    fn hear(&mut self) -> Result<Part> {
        let (which, part) =
            self.asked.pop_front().ok_or_else(|| Error::internal("nothing was asked for"))?;
        let Which { step, writer, number } = which;
        let page = locked(&self.replay.pages).get(&step).cloned();
        let page = page.ok_or_else(|| Error::internal(format!("step {step} is not held")))?;
        let none = || Error::internal("a part of a block that there is not");
        let (said, sums) =
            page.told.said.get(writer).zip(page.sums.get(writer)).ok_or_else(none)?;
        let (block, first) =
            said.blocks.get(number).zip(sums.first.get(number)).ok_or_else(none)?;
        let definition = said.definitions.get(block.variable).ok_or_else(none)?;
        let track = self.replay.track(said.rank)?.ok_or_else(none)?;
        let sums = sums.all.get(*first..).ok_or_else(none)?;
        let element = definition.dtype.size();
        let mut blocks = track.blocks()?;
        if let Some(range) = one_run(&block.bounds, &part, element) {
            // It is had as it was read.
            let place = (block.place.offset, block.place.len);
            let from = blocks.read(step, place, sums, range)?.1;
            return Ok(Part::new(blocks.into_bytes(), from));
        }
        let bytes = usize::try_from(part.elements()).ok().and_then(|n| n.checked_mul(element));
        let mut bytes = vec![0; bytes.ok_or_else(none)?];
        let mut of = Of { step, block, sums, element, blocks };
        of.read(&part, &part, &mut bytes)?;
        Ok(Part::new(bytes, 0))
    }
}

/// Which bytes of a block a part of it is, if they lie one after the other.
fn one_run(block: &Bounds, part: &Bounds, element: usize) -> Option<std::ops::Range<u64>> {
    let run = Plan::new(block, part, element).ok()?.one_run()?;
    Some(run.start as u64..run.end as u64)
}

/// A block of which something is read.
struct Of<'b> {
    step: u64,
    block: &'b BlockEntry,
    /// From those of the block on.
    sums: &'b [[u8; 8]],
    element: usize,
    blocks: Blocks<'b>,
}

impl Of<'_> {
    /// Reads a piece of a part into the bytes of the part: at once, with what lies between its runs, if that is little, and else one half
    /// after the other.
    fn read(&mut self, piece: &Bounds, part: &Bounds, to: &mut [u8]) -> Result<()> {
        let element = self.element as u64;
        let whole = &self.block.bounds;
        // It lies in one run from here on, with all of the dimensions behind the first that has more than one index.
        let along = piece.count().iter().position(|n| *n > 1).unwrap_or(piece.ndim());
        let (mut start, mut count) = (piece.start().to_vec(), piece.count().to_vec());
        for (d, side) in whole.sides().enumerate().skip(along + 1) {
            let sides = start.get_mut(d).zip(count.get_mut(d));
            if let Some((start, count)) = sides {
                (*start, *count) = (side.start, side.end - side.start);
            }
        }
        let run = Bounds::new(&start, &count)?;
        let (wanted, bytes) = (piece.elements() * element, run.elements() * element);
        let times = piece.count().get(along).copied().unwrap_or(1).max(1);
        let dense = bytes <= wanted.saturating_mul(4) || bytes / times <= form::CHUNK;
        if bytes > wanted && !(dense && bytes <= TOGETHER) {
            let side = piece.sides().nth(along).unwrap_or(0..0);
            let middle = side.start + times / 2;
            for half in [side.start..middle, middle..side.end] {
                if let Some(half) = piece.slab(along, half).filter(|half| !half.is_empty()) {
                    self.read(&half, part, to)?;
                }
            }
            return Ok(());
        }
        let mut stride = element;
        let mut from = 0u64;
        let sides = run.start().iter().zip(whole.start()).zip(whole.count());
        for ((at, start), count) in sides.rev() {
            from = from.saturating_add((at - start).saturating_mul(stride));
            stride = stride.saturating_mul(*count);
        }
        let Place { offset, len, .. } = self.block.place;
        let read = self.blocks.read(self.step, (offset, len), self.sums, from..from + bytes)?.0;
        gather::copy(read, &run, to, part, self.element).map(|_| ())
    }
}

/// True if somebody may still be recording there.
fn is_live(replay: &Replay) -> Result<bool> {
    Ok(replay.describe()?.state == describe::Progress::Live)
}

/// What there is to know of recorded steps.
///
/// # Errors
/// As [`Replay::open`].
pub(crate) fn describe(name: &str, spaces: &Spaces) -> Result<Description> {
    let folder = spot::folder(name, spaces, false)?;
    let card = spot::read(&folder)?;
    let replay = Replay::of(name, folder, card, &Stop::default());
    let told = replay.describe()?;
    let mut damage = replay.damage()?;
    // How far it is, is to be seen also where what was said is damaged.
    let variables = match replay.variables() {
        Ok(variables) => variables,
        Err(e) => {
            damage = damage.or(Some(e.to_string()));
            Vec::new()
        }
    };
    Ok(Description { variables, damage, ..told })
}

/// Removes recorded steps. False if there are none.
///
/// # Errors
/// `Usage` if they are still being recorded, unless it is forced; system errors.
pub(crate) fn remove(name: &str, spaces: &Spaces, force: bool) -> Result<bool> {
    let none = |e: &Error| e.kind() == Kind::NotFound;
    let found =
        spot::folder(name, spaces, false).and_then(|f| spot::read(&f).map(|card| (f, card)));
    let (folder, card) = match found {
        Err(e) if none(&e) => return Ok(false),
        Err(e) if e.kind() == Kind::Format && e.hint().is_none() => {
            let path = e.place().path.as_ref().and_then(|path| path.parent());
            let at = path.unwrap_or(Path::new(name)).display().to_string();
            let hint = format!(
                "it is not known which files are those of a stream: look at the folder, and remove it by hand: {at}"
            );
            return Err(e.with_hint(hint));
        }
        found => found?,
    };
    let is_live = || is_live(&Replay::of(name, folder.clone(), card, &Stop::default()));
    let live = match force {
        true => false,
        false => is_live().map_err(|e| match e.kind() {
            Kind::Format => e.with_hint("it cannot be told whether it goes on: force it if not"),
            _ => e,
        })?,
    };
    if live {
        let message = format!("steps are still being recorded in '{name}'");
        return Err(Error::usage(message).with_hint("wait until they are done, or force it"));
    }
    spot::remove(&folder).map(|()| true)
}
