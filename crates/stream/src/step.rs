//! A step that readers look at.

use crate::cover::covered;
use crate::finder::Finder;
use crate::gather;
use crate::head;
use crate::index::{BlockEntry, Definition, Definitions, Place, shown};
use crate::merge::{Merged, merge};
use crate::reader::Shared;
use std::sync::{Arc, OnceLock};
use stead_core::{Bounds, DType, Error, Kind, Result};
use stead_store::arena::View;

/// Copies of fewer bytes are those of one thread.
const SHARE: usize = 16 << 20;
/// Threads at most, unless there are to be more.
const THREADS: usize = 4;

/// Definitions of all writers together, and what they were put together of.
#[derive(Debug)]
pub(crate) struct Known {
    hashes: Vec<u64>,
    merged: Merged,
}

/// A block, and whose it is.
#[derive(Debug)]
struct Block {
    writer: usize,
    bounds: Bounds,
    place: Place,
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
        self.strides == strides(self.bounds.count(), self.dtype.size())
    }
}

/// Those of a whole array in C order.
fn strides(count: &[u64], element: usize) -> Vec<usize> {
    let mut step = element;
    let mut strides: Vec<usize> = count
        .iter()
        .rev()
        .map(|n| {
            let mine = step;
            step = step.saturating_mul(usize::try_from(*n).unwrap_or(usize::MAX));
            mine
        })
        .collect();
    strides.reverse();
    strides
}

impl Step {
    /// Of a step that is held.
    pub(crate) fn new(shared: Arc<Shared>, step: u64, dropped: u64) -> Result<Step> {
        match open(&shared, step) {
            Ok((known, blocks)) => {
                let facts = shared.party.board.facts(step).unwrap_or_default();
                Ok(Step(Arc::new(Inner { shared, step, dropped, facts, known, blocks })))
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

    /// What there is in it.
    pub fn variables(&self) -> impl Iterator<Item = &Definition> {
        self.definitions().iter()
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
        Ok(self.blocks_of(variable).iter().map(|b| (b.writer, b.bounds.clone())).collect())
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
        {
            return self.within(dtype, block, bounds);
        }
        let bytes =
            usize::try_from(bounds.elements()).ok().and_then(|n| n.checked_mul(dtype.size()));
        let bytes = bytes
            .filter(|b| isize::try_from(*b).is_ok())
            .ok_or_else(|| Error::limit(format!("box {bounds} is more than memory can have")))?;
        self.check_covered(name, bounds, &blocks)?;
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes)
            .map_err(|_| Error::limit(format!("no memory for box {bounds}")))?;
        copy.resize(bytes, 0);
        self.copy(dtype, bounds, &blocks, &mut copy)?;
        let strides = strides(bounds.count(), dtype.size());
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
        self.copy(dtype, bounds, &blocks, to)?;
        Ok(to.len())
    }

    /// As [`Step::get_into`], of what writers have put: the rest stays as it is.
    ///
    /// # Errors
    /// As [`Step::get_into`], but for parts that nobody has put.
    pub fn get_what_there_is(&self, name: &str, bounds: &Bounds, to: &mut [u8]) -> Result<usize> {
        let (dtype, blocks) = self.meeting(name, bounds)?;
        self.copy(dtype, bounds, &blocks, to)
    }

    /// As [`Step::get`], if it lies in one block: `None` of what would be copied.
    ///
    /// # Errors
    /// As [`Step::get`], but for parts that nobody has put.
    pub fn view(&self, name: &str, bounds: &Bounds) -> Result<Option<Array>> {
        let (dtype, blocks) = self.meeting(name, bounds)?;
        match blocks.iter().find(|block| block.bounds.contains(bounds)) {
            Some(block) if !bounds.is_empty() => self.within(dtype, block, bounds).map(Some),
            _ => Ok(None),
        }
    }

    /// A box that lies in one block.
    fn within(&self, dtype: DType, block: &Block, bounds: &Bounds) -> Result<Array> {
        let view = self.0.shared.look(block.writer, &block.place)?;
        let strides = strides(block.bounds.count(), dtype.size());
        let offsets = bounds.start().iter().zip(block.bounds.start()).zip(&strides);
        let from = offsets.fold(0usize, |sum, ((at, start), stride)| {
            let along = usize::try_from(at.saturating_sub(*start)).unwrap_or(usize::MAX);
            sum.saturating_add(along.saturating_mul(*stride))
        });
        let looked = bounds.elements().saturating_mul(dtype.size() as u64);
        self.0.shared.party.board.count_bytes(self.0.shared.seat, 0, looked);
        let bytes = Bytes::There(view, from, self.clone());
        Ok(Array { dtype, bounds: bounds.clone(), strides, bytes })
    }

    /// Copies what blocks have of a box.
    fn copy(
        &self,
        dtype: DType,
        bounds: &Bounds,
        blocks: &[&Block],
        to: &mut [u8],
    ) -> Result<usize> {
        let (shared, element) = (&self.0.shared, dtype.size());
        let views: Vec<(&Bounds, View)> = blocks
            .iter()
            .map(|block| Ok((&block.bounds, shared.look(block.writer, &block.place)?)))
            .collect::<Result<_>>()?;
        let one = |bounds: &Bounds, to: &mut [u8]| -> Result<usize> {
            let mut sum = 0;
            for (block, view) in &views {
                if block.meets(bounds) {
                    sum += gather::copy(view, block, to, bounds, element)?;
                }
            }
            Ok(sum)
        };
        let threads = match shared.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS),
            n => n,
        };
        let threads = threads.min(to.len() / SHARE).max(1);
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
        shared.party.board.count_bytes(shared.seat, copied as u64, 0);
        Ok(copied)
    }
}

/// Reads what all writers say of a step.
fn open(shared: &Arc<Shared>, step: u64) -> Result<(Arc<Known>, Blocks)> {
    let (board, name) = (&shared.party.board, &shared.party.name);
    let malformed = |writer: usize| {
        Error::format(format!(
            "what writer {writer} says of step {step} of stream '{name}' is damaged"
        ))
        .with_hint("all that take part in a stream must be of the same version of stead")
    };
    let mut said: Vec<(u32, Arc<Definitions>)> = Vec::with_capacity(board.writers());
    let mut each: Vec<Vec<BlockEntry>> = Vec::with_capacity(board.writers());
    for writer in 0..board.writers() {
        let gone = || {
            Error::internal(format!("step {step} of stream '{name}' is gone while it is looked at"))
        };
        let entry = board.entry(step, writer).ok_or_else(gone)?;
        let place = Place { segment: entry.segment, offset: entry.offset, len: entry.len };
        let bytes = shared.hear(writer, &place)?;
        let (place, hash, blocks) = head::decode(&bytes).ok_or_else(|| malformed(writer))?;
        let definitions = shared.definitions(writer, &place, hash)?;
        each.push(definitions.decode_blocks(blocks).map_err(|e| e.at_rank(writer))?);
        said.push((u32::try_from(writer).unwrap_or(u32::MAX), definitions));
    }
    let hashes: Vec<u64> = said.iter().map(|(_, definitions)| definitions.hash()).collect();
    let before = shared.merged().clone().filter(|known| known.hashes == hashes);
    let known = match before {
        Some(known) => known,
        None => {
            let known = Arc::new(Known { hashes, merged: merge(&said)? });
            *shared.merged() = Some(known.clone());
            known
        }
    };
    let blocks = Blocks::new(&known.merged, each)?;
    Ok((known, blocks))
}

impl Blocks {
    /// Those of each writer, by variables.
    fn new(merged: &Merged, each: Vec<Vec<BlockEntry>>) -> Result<Blocks> {
        let odd = || Error::format("a block of a variable that nobody has defined");
        let variables = merged.definitions.len();
        let mut starts = vec![0usize; variables + 1];
        let mut list = Vec::with_capacity(each.iter().map(Vec::len).sum());
        let mut of = Vec::with_capacity(list.capacity());
        for (writer, blocks) in each.into_iter().enumerate() {
            for BlockEntry { variable, bounds, place } in blocks {
                let number = merged.number(writer, variable).ok_or_else(odd)?;
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                *starts.get_mut(number + 1).ok_or_else(odd)? += 1;
                of.push(number);
                list.push(Block { writer, bounds, place });
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        // They mostly are in order: of one writer, in the order in which its variables were defined.
        let mut numbered: Vec<(usize, Block)> = of.into_iter().zip(list).collect();
        if !numbered.is_sorted_by_key(|(number, _)| *number) {
            numbered.sort_by_key(|(number, _)| *number);
        }
        let list = numbered.into_iter().map(|(_, block)| block).collect();
        let finders = (0..variables).map(|_| OnceLock::new()).collect();
        Ok(Blocks { list, starts, finders })
    }
}
