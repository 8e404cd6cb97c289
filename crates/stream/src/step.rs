//! A step that readers look at.

use crate::cover::covered;
use crate::finder::Finder;
use crate::gather::{self, PART};
use crate::index::{BlockEntry, Definition, Definitions, Place, shown};
use crate::merge::{Merged, merge_step, put_by};
use crate::noted::Got;
use crate::reader::Shared;
use crate::report::{self, Gets, StepReport, seconds};
use crate::source::{Fetch, Source, Told, Which};
use crate::threads;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use stead_core::{Bounds, DType, Error, Kind, Result};
use stead_store::arena::View;

/// Bytes that are on their way from all nodes together; but so many are from each of them, so that a link is not idle from one part to the
/// next.
const AHEAD: usize = 4 * PART;
const LEAST: usize = 2 * PART;
/// Parts that are on their way from a node at most: small ones are many, for the same reason.
const MOST: usize = 512;

/// Definitions of all writers together, and what they were put together of.
#[derive(Debug)]
pub(crate) struct Known {
    hashes: Vec<u64>,
    /// Where writers do not agree but for what they put: which variables each has put.
    put: Option<Vec<Vec<u64>>>,
    merged: Merged,
}

/// A block, and whose it is.
#[derive(Debug)]
struct Block {
    /// Whence it is, the place of its writer there, and its number among those of the writer.
    source: usize,
    writer: usize,
    number: usize,
    /// Which of the writers on all nodes that is.
    rank: usize,
    bounds: Bounds,
    place: Place,
}

impl Block {
    fn which(&self, step: u64) -> Which {
        Which { step, writer: self.writer, number: self.number }
    }
}

/// What the blocks of a variable are found by.
#[derive(Debug)]
struct Blocks {
    /// Of all variables, those of one after those of another.
    list: Vec<Block>,
    /// Where those of each begin, and where the last ones end.
    starts: Vec<usize>,
    /// Made when they are looked for.
    finders: Vec<OnceLock<Finder>>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    step: u64,
    dropped: u64,
    /// When it was complete, in nanoseconds since 1970, and bytes of its arrays.
    facts: (u64, u64),
    known: Arc<Known>,
    blocks: Blocks,
    /// Which variables are in it, once somebody has asked.
    there: OnceLock<Vec<usize>>,
    /// What was got of it.
    gets: Gets,
    /// Nanoseconds that were waited for it.
    waited: u64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.let_go(self.step);
    }
}

/// A step of a stream, complete. It stays as it is as long as this, or an array of it, is had.
#[derive(Debug, Clone)]
pub struct Step(Arc<Inner>);

/// An array, or a part of one: where it lies in the memory of a writer, or copied together.
#[derive(Debug, Clone)]
pub struct Array {
    /// The type of its elements.
    pub dtype: DType,
    /// Which part of its variable it is.
    pub bounds: Bounds,
    /// Bytes from one element to the next, for each dimension.
    pub strides: Vec<usize>,
    bytes: Bytes,
}

#[derive(Debug, Clone)]
enum Bytes {
    /// With the step, which stays as it is meanwhile.
    There(View, usize, #[allow(dead_code)] Step),
    Copied(Arc<Vec<u8>>),
}

impl Array {
    /// Its bytes from its first element on: in C order if it [is contiguous](Array::is_contiguous), and by its strides else.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::There(view, from, _) => view.get(*from..).unwrap_or(&[]),
            Bytes::Copied(bytes) => bytes,
        }
    }

    /// True if it was not copied.
    pub fn is_view(&self) -> bool {
        matches!(self.bytes, Bytes::There(..))
    }

    /// True if its elements lie one after the other.
    pub fn is_contiguous(&self) -> bool {
        self.strides == self.bounds.strides(self.dtype.size())
    }
}

impl Step {
    /// Of a step that is held.
    pub(crate) fn new(shared: Arc<Shared>, step: u64, dropped: u64, waited: u64) -> Result<Step> {
        match open(&shared, step) {
            Ok((known, blocks, facts)) => {
                let gets = Gets::default();
                let there = OnceLock::new();
                let inner =
                    Inner { shared, step, dropped, facts, known, blocks, there, gets, waited };
                Ok(Step(Arc::new(inner)))
            }
            Err(e) => {
                shared.let_go(step);
                Err(e)
            }
        }
    }

    /// Its number, from 0 on.
    pub fn number(&self) -> u64 {
        self.0.step
    }

    /// Steps before it that this reader was not given, since they went before it came to them.
    pub fn dropped(&self) -> u64 {
        self.0.dropped
    }

    /// When the last writer ended it, in nanoseconds since 1970.
    pub fn completed_at(&self) -> u64 {
        self.0.facts.0
    }

    /// Bytes of the arrays that writers have put into it.
    pub fn bytes(&self) -> u64 {
        self.0.facts.1
    }

    /// What it has cost so far.
    pub fn report(&self) -> StepReport {
        let Inner { step, dropped, facts: (_, bytes), gets, waited, .. } = &*self.0;
        let [copies, copied, looked, fetched, copying] = gets.get();
        StepReport {
            step: *step,
            dropped: *dropped,
            bytes: *bytes,
            copies,
            copied,
            looked,
            fetched,
            copy_cpu_s: seconds(copying),
            waited_s: seconds(*waited),
            peak_steps: self.peak_steps(),
        }
    }

    /// How often what writers of this node have put into it goes into the most memory that they have taken; without writers here, that of all
    /// nodes which it comes from.
    fn peak_steps(&self) -> Option<f64> {
        let sources = &self.0.shared.sources;
        let told = |source: &dyn Source| source.told(self.0.step).ok();
        let here = sources.iter().find_map(|source| Some((source, source.memory()?.peak)));
        let (peak, bytes) = match here {
            Some((source, peak)) => (peak, told(&**source)?.bytes),
            None => {
                let all: Option<Vec<Arc<Told>>> = sources.iter().map(|s| told(&**s)).collect();
                all?.iter().fold((0u64, 0u64), |(peak, bytes), told| {
                    (peak.saturating_add(told.peak), bytes.saturating_add(told.bytes))
                })
            }
        };
        (bytes > 0 && (peak > 0 || here.is_some())).then(|| peak as f64 / bytes as f64)
    }

    /// Counts what was got of a box, for the step and for the reader.
    fn count(&self, copied: u64, looked: u64, fetched: u64, copying: u64) {
        self.0.gets.add(copied, looked, fetched, copying);
        self.0.shared.gets.add(copied, looked, fetched, copying);
    }

    /// What there is in it: variables of which somebody has put a part, or that have no elements.
    pub fn variables(&self) -> impl Iterator<Item = &Definition> {
        (0..self.variable_count()).filter_map(|i| self.variable_at(i))
    }

    /// How many variables are in it.
    pub fn variable_count(&self) -> usize {
        self.there().len()
    }

    /// One of them, from 0 on.
    pub fn variable_at(&self, i: usize) -> Option<&Definition> {
        self.there().get(i).and_then(|n| self.definitions().iter().nth(*n))
    }

    fn there(&self) -> &[usize] {
        let is_put = |(n, definition): &(usize, &Definition)| self.is_put(*n, definition);
        self.0.there.get_or_init(|| {
            self.definitions().iter().enumerate().filter(is_put).map(|(n, _)| n).collect()
        })
    }

    /// True if there is a variable of this name in it.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    fn is_put(&self, variable: usize, definition: &Definition) -> bool {
        !self.blocks_of(variable).is_empty() || definition.shape.contains(&0)
    }

    fn definitions(&self) -> &Definitions {
        &self.0.known.merged.definitions
    }

    /// What a variable is.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn variable(&self, name: &str) -> Result<&Definition> {
        self.find(name).map(|(_, definition)| definition)
    }

    fn find(&self, name: &str) -> Result<(usize, &Definition)> {
        let found = self.definitions().find(name);
        let found = found.and_then(|(n, d)| Some((usize::try_from(n).ok()?, d)));
        // Others are defined, and nobody has put anything of them.
        let found = found.filter(|(n, definition)| self.is_put(*n, definition));
        found.ok_or_else(|| {
            let names: Vec<&str> = self.variables().take(12).map(|d| d.name.as_str()).collect();
            let (name, step) = (shown(name), self.0.step);
            let there = match names.is_empty() {
                true => "there is none".to_owned(),
                false => format!("there are {}", names.join(", ")),
            };
            Error::new(Kind::NotFound, format!("no variable '{name}' is in step {step}: {there}"))
        })
    }

    fn blocks_of(&self, variable: usize) -> &[Block] {
        let Blocks { list, starts, .. } = &self.0.blocks;
        let ends = starts.get(variable).zip(starts.get(variable + 1));
        ends.and_then(|(from, to)| list.get(*from..*to)).unwrap_or(&[])
    }

    /// Which parts of a variable writers have put: the rank of each and its box.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn parts(&self, name: &str) -> Result<Vec<(usize, Bounds)>> {
        let (variable, _) = self.find(name)?;
        Ok(self.blocks_of(variable).iter().map(|b| (b.rank, b.bounds.clone())).collect())
    }

    /// Those of them that lie in memory of this node.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn parts_here(&self, name: &str) -> Result<Vec<Bounds>> {
        let (variable, _) = self.find(name)?;
        let mut here = Vec::new();
        for block in self.blocks_of(variable) {
            let look = self.source(block)?.look(block.which(self.0.step), &block.place);
            // What cannot be looked at is told when it is needed.
            if let Ok(Some(_)) = look {
                here.push(block.bounds.clone());
            }
        }
        Ok(here)
    }

    /// The blocks that have something of a box, which is to be covered by them.
    fn meeting(&self, name: &str, bounds: &Bounds) -> Result<(DType, Vec<&Block>)> {
        let (variable, definition) = self.find(name)?;
        let shape = &definition.shape;
        let within =
            bounds.ndim() == shape.len() && bounds.sides().zip(shape).all(|(s, n)| s.end <= *n);
        if !within {
            let name = shown(name);
            return Err(Error::usage(format!(
                "box {bounds} is not within variable '{name}' of shape {shape:?}"
            ))
            .with_hint("give a start and a count for each dimension"));
        }
        let blocks = self.blocks_of(variable);
        // One block after the other is quick where there are few.
        let meeting: Vec<&Block> = if blocks.len() <= 8 {
            blocks.iter().filter(|block| block.bounds.meets(bounds)).collect()
        } else {
            let finder = self.0.blocks.finders.get(variable).map(|finder| {
                finder.get_or_init(|| Finder::new(shape.len(), blocks.iter().map(|b| &b.bounds)))
            });
            let found = finder.map_or_else(Vec::new, |finder| finder.find(bounds));
            found.into_iter().filter_map(|i| blocks.get(i)).collect()
        };
        Ok((definition.dtype, meeting))
    }

    fn check_covered(&self, name: &str, bounds: &Bounds, blocks: &[&Block]) -> Result<()> {
        covered(bounds, blocks.iter().map(|block| &block.bounds)).map_err(|part| {
            let (name, step) = (shown(name), self.0.step);
            Error::new(
                Kind::NotFound,
                format!("nobody has put {part} of variable '{name}' in step {step}"),
            )
            .with_hint(
                "ask for parts that writers have put, or give what is to stand in their place",
            )
        })
    }

    /// A box of a variable. Where it lies in one block it is that block's memory, and nothing is copied; what lies in several is copied
    /// together, from each of them once.
    ///
    /// # Errors
    /// `NotFound` if nobody has put a part of it, or there is no such variable; `Usage` for a box out of its shape; `Peer` if the stream
    /// was removed.
    pub fn get(&self, name: &str, bounds: &Bounds) -> Result<Array> {
        let (dtype, blocks) = self.meeting(name, bounds)?;
        if let Some(block) = blocks.iter().find(|block| block.bounds.contains(bounds))
            && !bounds.is_empty()
            && let Some(array) = self.within(name, dtype, block, bounds)?
        {
            return Ok(array);
        }
        let bytes =
            usize::try_from(bounds.elements()).ok().and_then(|n| n.checked_mul(dtype.size()));
        let bytes = bytes
            .filter(|b| isize::try_from(*b).is_ok())
            .ok_or_else(|| Error::limit(format!("box {bounds} is more than memory can have")))?;
        self.check_covered(name, bounds, &blocks)?;
        Vec::<u8>::new()
            .try_reserve_exact(bytes)
            .map_err(|_| Error::limit(format!("no memory for box {bounds}")))?;
        // The system gives it zeroed, page by page, to the threads that copy.
        let mut copy = vec![0; bytes];
        self.copy(name, dtype, bounds, &blocks, &mut copy)?;
        let strides = bounds.strides(dtype.size());
        Ok(Array { dtype, bounds: bounds.clone(), strides, bytes: Bytes::Copied(Arc::new(copy)) })
    }

    /// As [`Step::get`], into memory of the caller, in C order. Tells how many bytes it is.
    ///
    /// # Errors
    /// As [`Step::get`]; `Usage` if the memory has another size.
    pub fn get_into(&self, name: &str, bounds: &Bounds, to: &mut [u8]) -> Result<usize> {
        let (dtype, blocks) = self.meeting(name, bounds)?;
        let bytes = bounds.elements().saturating_mul(dtype.size() as u64);
        if u64::try_from(to.len()) != Ok(bytes) {
            return Err(Error::usage(format!(
                "box {bounds} of variable '{}' has {bytes} bytes, and the memory for it {}",
                shown(name),
                to.len()
            )));
        }
        self.check_covered(name, bounds, &blocks)?;
        self.copy(name, dtype, bounds, &blocks, to)?;
        Ok(to.len())
    }

    /// As [`Step::get_into`], of what writers have put: the rest stays as it is.
    ///
    /// # Errors
    /// As [`Step::get_into`], but for parts that nobody has put.
    pub fn get_what_there_is(&self, name: &str, bounds: &Bounds, to: &mut [u8]) -> Result<usize> {
        let (dtype, blocks) = self.meeting(name, bounds)?;
        self.copy(name, dtype, bounds, &blocks, to)
    }

    /// As [`Step::get`], if it lies in one block: `None` of what would be copied.
    ///
    /// # Errors
    /// As [`Step::get`], but for parts that nobody has put.
    pub fn view(&self, name: &str, bounds: &Bounds) -> Result<Option<Array>> {
        let (dtype, blocks) = self.meeting(name, bounds)?;
        match blocks.iter().find(|block| block.bounds.contains(bounds)) {
            Some(block) if !bounds.is_empty() => self.within(name, dtype, block, bounds),
            _ => Ok(None),
        }
    }

    fn source(&self, block: &Block) -> Result<&dyn Source> {
        let source = self.0.shared.sources.get(block.source).map(|source| &**source);
        source.ok_or_else(|| Error::internal("a block is of no node"))
    }

    /// A box that lies in one block; `None` if that is on another node.
    fn within(
        &self,
        name: &str,
        dtype: DType,
        block: &Block,
        bounds: &Bounds,
    ) -> Result<Option<Array>> {
        let source = self.source(block)?;
        let which = block.which(self.0.step);
        let Some(view) = source.look(which, &block.place)? else { return Ok(None) };
        let strides = block.bounds.strides(dtype.size());
        let offsets = bounds.start().iter().zip(block.bounds.start()).zip(&strides);
        let from = offsets.fold(0usize, |sum, ((at, start), stride)| {
            let along = usize::try_from(at.saturating_sub(*start)).unwrap_or(usize::MAX);
            sum.saturating_add(along.saturating_mul(*stride))
        });
        let looked = bounds.elements().saturating_mul(dtype.size() as u64);
        self.count(0, looked, 0, 0);
        source.count(self.0.step, &Got { name, bounds, is_fixed: false, copied: 0, looked }, 0);
        let bytes = Bytes::There(view, from, self.clone());
        Ok(Some(Array { dtype, bounds: bounds.clone(), strides, bytes }))
    }

    /// Copies what blocks have of a box.
    fn copy(
        &self,
        name: &str,
        dtype: DType,
        bounds: &Bounds,
        blocks: &[&Block],
        to: &mut [u8],
    ) -> Result<usize> {
        let (shared, element) = (&self.0.shared, dtype.size());
        let copying = AtomicU64::new(0);
        let (mut views, mut far) = (Vec::with_capacity(blocks.len()), Vec::new());
        for block in blocks {
            match self.source(block)?.look(block.which(self.0.step), &block.place)? {
                Some(view) => views.push((&block.bounds, view)),
                None => far.push(*block),
            }
        }
        let fetched = self.fetch(&far, bounds, element, to, &copying)?;
        if views.is_empty() {
            self.count(0, 0, fetched as u64, copying.into_inner());
            return Ok(fetched);
        }
        let one = |bounds: &Bounds, to: &mut [u8]| -> Result<usize> {
            report::timed(to.len(), &copying, || {
                let mut sum = 0;
                for (block, view) in &views {
                    if block.meets(bounds) {
                        sum += gather::copy(view, block, to, bounds, element)?;
                    }
                }
                Ok(sum)
            })
        };
        let threads = threads::of_use(to.len(), shared.threads, 1);
        let copied = if threads == 1 {
            one(bounds, to)?
        } else {
            let parts = gather::parts(to, bounds, element, threads)?;
            let sums: Vec<Result<usize>> = std::thread::scope(|scope| {
                let one = &one;
                let each = |(bounds, to)| scope.spawn(move || one(&bounds, to));
                let copying: Vec<_> = parts.into_iter().map(each).collect();
                let joined = copying.into_iter().map(|thread| thread.join());
                let panicked = || Err(Error::internal("a thread that copies panicked"));
                joined.map(|sum| sum.unwrap_or_else(|_| panicked())).collect()
            });
            sums.into_iter().sum::<Result<usize>>()?
        };
        let copying = copying.into_inner();
        self.count(copied as u64, 0, fetched as u64, copying);
        // Those of this node are of one source.
        let mut near = blocks.iter().filter(|block| !far.iter().any(|f| std::ptr::eq(*f, **block)));
        let is_fixed = near.clone().any(|block| block.bounds.contains(bounds));
        if let Some(block) = near.next() {
            let got = Got { name, bounds, is_fixed, copied: copied as u64, looked: 0 };
            self.source(block)?.count(self.0.step, &got, copying);
        }
        Ok(copied + fetched)
    }

    /// Copies what blocks of other nodes have of a box. All nodes send at the same time.
    fn fetch(
        &self,
        blocks: &[&Block],
        bounds: &Bounds,
        element: usize,
        to: &mut [u8],
        copying: &AtomicU64,
    ) -> Result<usize> {
        let mut wanted: Vec<Vec<(Which, Bounds)>> = Vec::new();
        for block in blocks {
            let Some(both) = block.bounds.intersection(bounds) else { continue };
            if wanted.len() <= block.source {
                wanted.resize_with(block.source + 1, Vec::new);
            }
            if let Some(of) = wanted.get_mut(block.source) {
                of.push((block.which(self.0.step), both));
            }
        }
        // In the order of the sources: nobody waits for one that somebody has who waits for another one.
        let mut ways: Vec<Way<'_>> = Vec::new();
        for (source, wanted) in self.0.shared.sources.iter().zip(wanted) {
            if !wanted.is_empty()
                && let Some(fetch) = source.fetch()
            {
                let small = |(which, both): &(Which, Bounds)| {
                    let (which, small) = (*which, gather::small(both, element, fetch.part()));
                    small.into_iter().map(move |part| (which, part))
                };
                let parts = wanted.iter().flat_map(small).collect();
                ways.push(Way { fetch, element, parts, asked: VecDeque::new(), bytes: 0 });
            }
        }
        let mut copied = 0;
        while !ways.is_empty() {
            // Those that are left have the share of those that are through.
            let ahead = ahead(ways.len());
            for way in &mut ways {
                way.ask(ahead)?;
            }
            for way in &mut ways {
                if let Some(part) = way.asked.pop_front() {
                    let came = way.fetch.hear()?;
                    let bytes = way.bytes_of(&part);
                    way.bytes = way.bytes.saturating_sub(bytes);
                    if came.bytes().len() != bytes {
                        return Err(Error::format(
                            "a part of a block of another node has another size",
                        ));
                    }
                    let copy = || gather::copy(came.bytes(), &part, to, bounds, element);
                    copied += report::timed(bytes, copying, copy)?;
                    way.fetch.give_back(came);
                }
            }
            ways.retain(|way| !(way.parts.is_empty() && way.asked.is_empty()));
        }
        Ok(copied)
    }
}

/// Parts of blocks of another node, that are still to be asked for, and that were.
struct Way<'s> {
    fetch: Box<dyn Fetch + 's>,
    /// Bytes of an element.
    element: usize,
    parts: VecDeque<(Which, Bounds)>,
    asked: VecDeque<Bounds>,
    /// Bytes of those that were asked for.
    bytes: usize,
}

/// Bytes that are on their way from each of so many nodes.
fn ahead(nodes: usize) -> usize {
    (AHEAD / nodes.max(1)).max(LEAST)
}

impl Way<'_> {
    /// Asks for more, as long as no more bytes than these are on their way.
    fn ask(&mut self, ahead: usize) -> Result<()> {
        while let Some((block, part)) = self.parts.pop_front() {
            let bytes = self.bytes_of(&part);
            let is_full = self.bytes.saturating_add(bytes) > ahead || self.asked.len() >= MOST;
            if is_full && !self.asked.is_empty() {
                self.parts.push_front((block, part));
                break;
            }
            self.fetch.ask(block, &part)?;
            self.bytes = self.bytes.saturating_add(bytes);
            self.asked.push_back(part);
        }
        Ok(())
    }

    fn bytes_of(&self, part: &Bounds) -> usize {
        let elements = usize::try_from(part.elements()).unwrap_or(usize::MAX);
        elements.saturating_mul(self.element)
    }
}

/// When a step was complete, in nanoseconds since 1970, and bytes of its arrays.
type Facts = (u64, u64);

/// Reads what all writers say of a step.
fn open(shared: &Arc<Shared>, step: u64) -> Result<(Arc<Known>, Blocks, Facts)> {
    let told: Vec<Arc<Told>> =
        shared.sources.iter().map(|source| source.told(step)).collect::<Result<_>>()?;
    let facts = told
        .iter()
        .fold((0, 0u64), |(at, bytes), told| (told.at.max(at), bytes.saturating_add(told.bytes)));
    // In the order of the writers, wherever they are.
    let mut order: Vec<(u64, usize, usize)> = Vec::new();
    for (source, told) in told.iter().enumerate() {
        order
            .extend(told.said.iter().enumerate().map(|(writer, said)| (said.rank, source, writer)));
    }
    order.sort_unstable();
    let of = |source: usize, writer: usize| told.get(source).and_then(|t| t.said.get(writer));
    let all = || order.iter().filter_map(|(_, source, writer)| of(*source, *writer));
    let hashes: Vec<u64> = all().map(|said| said.definitions.hash()).collect();
    let rank = |rank| u32::try_from(rank).unwrap_or(u32::MAX);
    let said = || all().map(|s| (rank(s.rank), s.definitions.clone())).collect::<Vec<_>>();
    let blocks = || all().map(|said| said.blocks.as_slice()).collect::<Vec<_>>();
    let is_same = |known: &Arc<Known>| {
        let has_put = |put: &Vec<Vec<u64>>| *put == put_by(&said(), &blocks());
        known.hashes == hashes && known.put.as_ref().is_none_or(has_put)
    };
    let before = shared.merged().clone().filter(is_same);
    let known = match before {
        Some(known) => known,
        None => {
            let (merged, put) = merge_step(&said(), &blocks())?;
            let known = Arc::new(Known { hashes, put, merged });
            *shared.merged() = Some(known.clone());
            known
        }
    };
    let each = order.iter().filter_map(|(rank, source, writer)| {
        let said = of(*source, *writer)?;
        let rank = usize::try_from(*rank).unwrap_or(usize::MAX);
        Some(((rank, *source, *writer), said.blocks.as_slice()))
    });
    let blocks = Blocks::new(&known.merged, each)?;
    Ok((known, blocks, facts))
}

impl Blocks {
    /// Those of each writer, by variables.
    fn new<'b>(
        merged: &Merged,
        each: impl Iterator<Item = ((usize, usize, usize), &'b [BlockEntry])>,
    ) -> Result<Blocks> {
        let odd = || Error::format("a block of a variable that nobody has defined");
        let variables = merged.definitions.len();
        let mut starts = vec![0usize; variables + 1];
        // They mostly are in order: of one writer, in the order in which its variables were defined.
        let mut numbered: Vec<(usize, Block)> = Vec::new();
        for (at, ((rank, source, writer), blocks)) in each.enumerate() {
            numbered.reserve(blocks.len());
            for (number, BlockEntry { variable, bounds, place }) in blocks.iter().enumerate() {
                let of = merged.number(at, *variable).ok_or_else(odd)?;
                let of = usize::try_from(of).unwrap_or(usize::MAX);
                *starts.get_mut(of.saturating_add(1)).ok_or_else(odd)? += 1;
                let (bounds, place) = (bounds.clone(), *place);
                numbered.push((of, Block { source, writer, number, rank, bounds, place }));
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        if !numbered.is_sorted_by_key(|(of, _)| *of) {
            numbered.sort_by_key(|(of, _)| *of);
        }
        let list = numbered.into_iter().map(|(_, block)| block).collect();
        let finders = (0..variables).map(|_| OnceLock::new()).collect();
        Ok(Blocks { list, starts, finders })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::source::Part;

    /// A node that has told of nothing yet: what it was asked for, in elements.
    struct Node<'n>(&'n std::cell::RefCell<Vec<u64>>);

    impl Fetch for Node<'_> {
        fn ask(&mut self, _: Which, part: &Bounds) -> Result<()> {
            self.0.borrow_mut().push(part.elements());
            Ok(())
        }

        fn hear(&mut self) -> Result<Part> {
            Err(Error::internal("nothing is heard here"))
        }
    }

    #[test]
    fn so_much_is_asked_of_all_nodes_together_and_enough_of_each() {
        assert_eq!([1, 2, 3, 100].map(ahead), [AHEAD, AHEAD / 2, LEAST, LEAST]);
        let which = Which { step: 0, writer: 0, number: 0 };
        for (part, ahead, asked) in [
            (PART as u64, AHEAD, 4),
            (PART as u64, LEAST, 2),
            // One at least, and many if they are small.
            (AHEAD as u64 * 2, LEAST, 1),
            (1, LEAST, MOST),
        ] {
            let heard = std::cell::RefCell::default();
            let parts = (0..2 * MOST as u64).map(|_| (which, Bounds::new([0], [part]).unwrap()));
            let (fetch, parts) = (Box::new(Node(&heard)), parts.collect());
            let mut way = Way { fetch, element: 1, parts, asked: VecDeque::new(), bytes: 0 };
            way.ask(ahead).unwrap();
            assert_eq!((way.asked.len(), heard.borrow().len()), (asked, asked), "{part}");
        }
    }
}
