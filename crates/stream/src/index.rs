//! What a writer says of a step: which variables there are, and where its blocks of them lie.
//!
//! Definitions are apart from blocks. They seldom change from one step to the next, so that they have a hash by which everybody
//! knows that they are the same, and need not be read again. Blocks are said anew in every step, in a flat form that is written
//! and read in some nanoseconds each: there may be 100,000 of them.
//!
//! Both come from other processes. What is decoded is believed in nothing: it is checked as a whole, before anybody uses a part.

use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use stead_core::{Bounds, DType, Error, Result, Shape, Value, limits};

pub use stead_store::arena::Place;

/// The form of the bytes, which is their first one. It changes with the order of the variants of [`DType`], too.
const VERSION: u8 = 1;
/// Before the blocks: the version, three zeros, and how many there are.
const HEADER: usize = 8;
/// The bytes of a block without its bounds.
const ENTRY: usize = 32;

/// Something that is said of a variable beside its data: a unit, a long name, a time.
///
/// In texts such as JSON it is the plain value, with `"NaN"`, `"Infinity"` and `"-Infinity"`; in bytes its kind comes first, which is the
/// only form that is read here.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Attribute {
    /// Text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Several texts.
    Texts(Vec<String>),
    /// Several whole numbers.
    Ints(Vec<i64>),
    /// Several numbers.
    Floats(Vec<f64>),
}

impl PartialEq for Attribute {
    /// Numbers are the same if their bits are: one that is none is itself.
    fn eq(&self, other: &Attribute) -> bool {
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        match (self, other) {
            (Attribute::Text(a), Attribute::Text(b)) => a == b,
            (Attribute::Int(a), Attribute::Int(b)) => a == b,
            (Attribute::Float(a), Attribute::Float(b)) => same((a, b)),
            (Attribute::Texts(a), Attribute::Texts(b)) => a == b,
            (Attribute::Ints(a), Attribute::Ints(b)) => a == b,
            (Attribute::Floats(a), Attribute::Floats(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(same)
            }
            _ => false,
        }
    }
}

impl Eq for Attribute {}

impl Serialize for Attribute {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        if !s.is_human_readable() {
            // As it is derived: with its kind.
            return Attribute::serialize(self, s);
        }
        match self {
            Attribute::Text(a) => s.serialize_str(a),
            Attribute::Int(a) => s.serialize_i64(*a),
            Attribute::Float(a) => Value::Float(*a).serialize(s),
            Attribute::Texts(a) => a.serialize(s),
            Attribute::Ints(a) => a.serialize(s),
            Attribute::Floats(a) => Value::floats(a.iter().copied()).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Attribute, D::Error> {
        Attribute::deserialize(d)
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Text(a) => write!(f, "{a:?}"),
            Attribute::Int(a) => write!(f, "{a}"),
            Attribute::Float(a) => write!(f, "{a:?}"),
            Attribute::Texts(a) => write!(f, "{a:?}"),
            Attribute::Ints(a) => write!(f, "{a:?}"),
            Attribute::Floats(a) => write!(f, "{a:?}"),
        }
    }
}

/// A variable: an array that all writers of a stream put blocks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// By which readers ask for it.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The lengths of the whole array, of which blocks are parts; none for a scalar.
    pub shape: Vec<u64>,
    /// The names of its dimensions, or none.
    pub dims: Vec<String>,
    /// What else is said of it.
    pub attributes: BTreeMap<String, Attribute>,
}

/// As it stands in an error: a text that may be long, or not fit to be shown.
pub(crate) fn shown(text: &str) -> String {
    let few: String = text.chars().take(81).collect();
    start(&few.chars().flat_map(char::escape_debug).collect::<String>())
}

/// Of a long text only the start.
pub(crate) fn start(text: &str) -> String {
    let dots = if text.chars().nth(80).is_some() { "..." } else { "" };
    text.chars().take(80).chain(dots.chars()).collect()
}

/// Whether something can have this name.
fn check_name(what: &str, name: &str) -> Result<()> {
    let most = limits::MAX_VARIABLE_NAME;
    let wrong = if name.is_empty() {
        "is empty".to_string()
    } else if name.len() > most {
        format!("'{}' is longer than {most} bytes", shown(name))
    } else if name.chars().any(char::is_control) {
        format!("'{}' has a control character", shown(name))
    } else {
        return Ok(());
    };
    Err(Error::usage(format!("the name of {what} {wrong}")))
}

impl Definition {
    /// An array without names of dimensions and without attributes.
    pub fn new(name: &str, dtype: DType, shape: impl Into<Vec<u64>>) -> Definition {
        let (name, shape) = (name.to_owned(), shape.into());
        Definition { name, dtype, shape, dims: Vec::new(), attributes: BTreeMap::new() }
    }

    /// Whether it can be one.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check(&self) -> Result<()> {
        check_name("a variable", &self.name)?;
        let of =
            |e: Error| Error::usage(format!("variable '{}': {}", shown(&self.name), e.message()));
        let shape = Shape::new(self.shape.clone()).map_err(of)?;
        if shape.elements().checked_mul(self.dtype.size() as u64).is_none() {
            return Err(of(Error::usage(format!(
                "{shape} elements have more bytes than 64 bits can count"
            ))));
        }
        if !self.dims.is_empty() && self.dims.len() != self.shape.len() {
            return Err(of(Error::usage(format!(
                "{} names for {} dimensions",
                self.dims.len(),
                self.shape.len()
            )))
            .with_hint("name each dimension, or none"));
        }
        for (d, dim) in self.dims.iter().enumerate() {
            check_name("a dimension", dim).map_err(of)?;
            // No more than a few.
            if self.dims.iter().take(d).any(|before| before == dim) {
                let dim = shown(dim);
                return Err(of(Error::usage(format!("two dimensions have the name '{dim}'"))));
            }
        }
        if self.attributes.len() > limits::MAX_ATTRIBUTES {
            return Err(of(Error::limit(format!(
                "{} attributes; at most {} are supported",
                self.attributes.len(),
                limits::MAX_ATTRIBUTES
            ))));
        }
        self.attributes.keys().try_for_each(|a| check_name("an attribute", a).map_err(of))
    }

    /// What all writers must say alike.
    pub(crate) fn form(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(|d| shown(d)).collect();
        let dims = if dims.is_empty() { String::new() } else { format!(" ({})", dims.join(", ")) };
        format!("{} {:?}{dims}", self.dtype, self.shape)
    }
}

/// What a block of a variable must fit.
#[derive(Clone)]
struct Form {
    /// Bytes of an element.
    element: u64,
    /// Where the shape is, of all lengths.
    lengths: Range<usize>,
}

/// Variables in the order of their numbers, with different names, each of which can be one.
#[derive(Clone)]
pub struct Definitions {
    list: Vec<Definition>,
    /// What blocks are checked with, of each: together, so that little memory is touched.
    forms: Vec<Form>,
    /// The shapes of all, one after the other.
    lengths: Vec<u64>,
    /// The number of each name.
    names: HashMap<String, u32>,
    /// Of the bytes that they are as a whole.
    digest: Digest,
    /// How many those are.
    bytes: usize,
    /// False if some were replaced since the digest was made.
    is_settled: bool,
}

impl Default for Definitions {
    fn default() -> Self {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(&[VERSION]);
        Definitions {
            list: Vec::new(),
            forms: Vec::new(),
            lengths: Vec::new(),
            names: HashMap::new(),
            digest,
            bytes: 1,
            is_settled: true,
        }
    }
}

impl fmt::Debug for Definitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

impl PartialEq for Definitions {
    fn eq(&self, other: &Definitions) -> bool {
        self.list == other.list
    }
}

impl Eq for Definitions {}

impl Definitions {
    /// None yet.
    pub fn new() -> Definitions {
        Definitions::default()
    }

    /// Adds a variable and tells its number.
    ///
    /// # Errors
    /// `Usage` for one that can be none and for a name that is there already, `Limit` where there are too many, or too much is
    /// said of them.
    pub fn add(&mut self, definition: Definition) -> Result<u32> {
        let bytes = encoded(&definition)?;
        self.insert(definition, &bytes)
    }

    /// Adds a variable that is these bytes.
    fn insert(&mut self, definition: Definition, bytes: &[u8]) -> Result<u32> {
        definition.check()?;
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        if self.list.len() >= limits::MAX_VARIABLES {
            return Err(Error::limit(format!(
                "more than {} variables in a step",
                limits::MAX_VARIABLES
            ))
            .with_hint("put what belongs together into one array with one more dimension"));
        }
        let total = self.bytes.saturating_add(bytes.len());
        if total > limits::MAX_DEFINITIONS_BYTES {
            return Err(too_much());
        }
        let Entry::Vacant(free) = self.names.entry(definition.name.clone()) else {
            let name = shown(&definition.name);
            return Err(Error::usage(format!("variable '{name}' is defined twice")));
        };
        free.insert(number);
        self.bytes = total;
        self.digest.update(bytes);
        let first = self.lengths.len();
        self.lengths.extend(&definition.shape);
        let element = definition.dtype.size() as u64;
        self.forms.push(Form { element, lengths: first..self.lengths.len() });
        self.list.push(definition);
        Ok(number)
    }

    /// Says anew what a variable is, by the name of the new one. [`Definitions::settle`] is to follow before others are told.
    ///
    /// # Errors
    /// As [`Definitions::add`]; nothing is changed then. `Usage` if there is none of the name.
    pub fn replace(&mut self, definition: Definition) -> Result<u32> {
        definition.check()?;
        let there = self.find(&definition.name).map(|(number, old)| (number, old.clone()));
        let Some((number, old)) = there else {
            let name = shown(&definition.name);
            return Err(Error::usage(format!("there is no variable '{name}'")));
        };
        let without = self.bytes.saturating_sub(encoded(&old)?.len());
        let total = without.saturating_add(encoded(&definition)?.len());
        if total > limits::MAX_DEFINITIONS_BYTES {
            return Err(too_much());
        }
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some((form, listed)) = self.forms.get_mut(place).zip(self.list.get_mut(place)) {
            form.element = definition.dtype.size() as u64;
            if form.lengths.len() == definition.shape.len() {
                let lengths = self.lengths.get_mut(form.lengths.clone()).unwrap_or_default();
                for (length, now) in lengths.iter_mut().zip(&definition.shape) {
                    *length = *now;
                }
            } else {
                let first = self.lengths.len();
                self.lengths.extend(&definition.shape);
                form.lengths = first..self.lengths.len();
            }
            *listed = definition;
            self.bytes = total;
            self.is_settled = false;
        }
        // Who does so again and again is to take no more memory.
        if self.lengths.len() > self.list.len().saturating_mul(limits::MAX_DIMS) {
            self.settle()?;
        }
        Ok(number)
    }

    /// Makes the [`Definitions::hash`] that of what there is after some were [replaced](Definitions::replace): of all at once, since it
    /// takes as long as for one.
    ///
    /// # Errors
    /// `Internal` if they cannot be written.
    pub fn settle(&mut self) -> Result<()> {
        if self.is_settled {
            return Ok(());
        }
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(&self.encode()?);
        self.digest = digest;
        // Shapes of those that were before lie between the others.
        self.lengths.clear();
        for (form, definition) in self.forms.iter_mut().zip(&self.list) {
            let first = self.lengths.len();
            self.lengths.extend(&definition.shape);
            form.lengths = first..self.lengths.len();
        }
        self.is_settled = true;
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them; the number of each is its place.
    pub fn iter(&self) -> std::slice::Iter<'_, Definition> {
        self.list.iter()
    }

    /// The one of this number.
    pub fn get(&self, number: u32) -> Option<&Definition> {
        usize::try_from(number).ok().and_then(|n| self.list.get(n))
    }

    /// The one of this name, and its number.
    pub fn find(&self, name: &str) -> Option<(u32, &Definition)> {
        let number = *self.names.get(name)?;
        Some((number, self.get(number)?))
    }

    /// Changes if they do: the checksum of the bytes that they are. No two sets of definitions have the same by a change of eight
    /// bytes or fewer that lie together; others with a chance of one in 2^64.
    pub fn hash(&self) -> u64 {
        self.digest.finalize()
    }

    /// The [`Definitions::hash`] of what [`Definitions::encode`] gave, without decoding it.
    pub fn hash_of(bytes: &[u8]) -> u64 {
        crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
    }

    /// As bytes for other processes.
    ///
    /// # Errors
    /// `Internal` if they cannot be written.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.bytes);
        bytes.push(VERSION);
        for definition in &self.list {
            bytes = postcard::to_extend(definition, bytes).map_err(unwritten)?;
        }
        Ok(bytes)
    }

    /// What [`Definitions::encode`] wrote.
    ///
    /// # Errors
    /// `Format` for bytes that are nothing of the kind.
    pub fn decode(bytes: &[u8]) -> Result<Definitions> {
        let mut rest = version(bytes)?;
        let mut all = Definitions::new();
        // About as many as there are: of a name and what belongs to it, not of what somebody says.
        let about = (rest.len() / 48).min(limits::MAX_VARIABLES);
        all.list.reserve(about);
        all.names.reserve(about);
        while !rest.is_empty() {
            // Postcard compares a count with the bytes that are left before it takes memory for it.
            let (definition, after) = postcard::take_from_bytes::<Definition>(rest)
                .map_err(|e| malformed(format!("definition {}: {e}", all.len())))?;
            let mine = rest.get(..rest.len() - after.len()).unwrap_or_default();
            all.insert(definition, mine).map_err(|e| malformed(e.message()))?;
            rest = after;
        }
        Ok(all)
    }

    /// Whether a block can be one: of a variable, within its shape, and as many bytes as it has elements.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check(&self, block: &BlockEntry) -> Result<()> {
        let BlockEntry { variable, bounds, place } = block;
        let Some((element, shape)) = self.form(u64::from(*variable)) else {
            return Err(Error::usage(format!(
                "a block of variable {variable}, and there are {}",
                self.len()
            )));
        };
        let name = || self.get(*variable).map(|d| shown(&d.name)).unwrap_or_default();
        let inside = bounds.ndim() == shape.len()
            && bounds.sides().zip(shape).all(|(side, n)| side.end <= *n);
        if !inside {
            return Err(Error::usage(format!(
                "block {bounds} of variable '{}' does not lie in its shape {shape:?}",
                name()
            ))
            .with_hint("the shape is that of the whole array, of which each writer puts parts"));
        }
        let bytes = bounds.elements().checked_mul(element);
        if bytes != Some(place.len) || place.offset.checked_add(place.len).is_none() {
            return Err(Error::usage(format!(
                "block {bounds} of variable '{}' with elements of {element} bytes lies in {} bytes at {}",
                name(),
                place.len,
                place.offset
            )));
        }
        Ok(())
    }

    /// Bytes of an element of a variable, and its shape.
    fn form(&self, variable: u64) -> Option<(u64, &[u64])> {
        let form = self.forms.get(usize::try_from(variable).ok()?)?;
        Some((form.element, self.lengths.get(form.lengths.clone())?))
    }

    /// Blocks as bytes for other processes.
    ///
    /// # Errors
    /// `Usage` for blocks that can be none, `Limit` for too many.
    pub fn encode_blocks(&self, blocks: &[BlockEntry]) -> Result<Vec<u8>> {
        let most = limits::MAX_BLOCKS;
        let Some(count) = u32::try_from(blocks.len()).ok().filter(|_| blocks.len() <= most) else {
            return Err(Error::limit(format!("{} blocks in a step", blocks.len()))
                .with_hint(format!("a writer can put {most}; put larger ones")));
        };
        blocks.iter().try_for_each(|block| self.check(block))?;
        Ok(flat(blocks, count))
    }

    /// What [`Definitions::encode_blocks`] of the same definitions wrote.
    ///
    /// # Errors
    /// `Format` for bytes that are nothing of the kind, and for blocks that can be none.
    pub fn decode_blocks(&self, bytes: &[u8]) -> Result<Vec<BlockEntry>> {
        version(bytes)?;
        let cut_off = || malformed("the list of blocks is cut off");
        let (header, mut rest) = bytes.split_first_chunk::<HEADER>().ok_or_else(cut_off)?;
        let [_, zeros @ .., a, b, c, d] = *header;
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        if zeros != [0; 3] || count > limits::MAX_BLOCKS {
            return Err(malformed(format!("a list of {count} blocks")));
        }
        if count > rest.len() / ENTRY {
            return Err(cut_off());
        }
        let mut blocks = Vec::with_capacity(count);
        let mut numbers = [0u64; 2 * limits::MAX_DIMS];
        for _ in 0..count {
            let (entry, after) = rest.split_first_chunk::<ENTRY>().ok_or_else(cut_off)?;
            let [variable, segment, offset, len] = words(entry);
            let known = u32::try_from(variable).ok().zip(self.form(variable));
            let Some((variable, (_, shape))) = known else {
                let there = self.len();
                return Err(malformed(format!("a block of variable {variable} of {there}")));
            };
            // No more than MAX_DIMS.
            let ndim = shape.len();
            let (sides, after) = after.split_at_checked(16 * ndim).ok_or_else(cut_off)?;
            for (number, word) in numbers.iter_mut().zip(sides.as_chunks().0) {
                *number = u64::from_le_bytes(*word);
            }
            let (start, counts) = numbers.split_at(ndim);
            let counts = counts.get(..ndim).unwrap_or_default();
            let bounds = Bounds::new(start, counts).map_err(|e| malformed(e.message()))?;
            let block = BlockEntry { variable, bounds, place: Place { segment, offset, len } };
            self.check(&block).map_err(|e| malformed(e.message()))?;
            blocks.push(block);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(malformed(format!(
                "{} bytes after the last of {count} blocks",
                rest.len()
            )));
        }
        Ok(blocks)
    }
}

/// Blocks that were checked, as bytes: there are `count` of them.
fn flat(blocks: &[BlockEntry], count: u32) -> Vec<u8> {
    let numbers: usize = blocks.iter().map(|b| 2 * b.bounds.ndim()).sum();
    let mut bytes = Vec::with_capacity(HEADER + ENTRY * blocks.len() + 8 * numbers);
    bytes.extend([VERSION, 0, 0, 0]);
    bytes.extend(count.to_le_bytes());
    for BlockEntry { variable, bounds, place } in blocks {
        let words = [u64::from(*variable), place.segment, place.offset, place.len];
        for word in words.iter().chain(bounds.start()).chain(bounds.count()) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// Blocks that were checked with their definitions before, and lie elsewhere now.
pub(crate) fn moved(blocks: &[BlockEntry]) -> Vec<u8> {
    flat(blocks, u32::try_from(blocks.len()).unwrap_or(u32::MAX))
}

/// Little-endian numbers.
fn words(bytes: &[u8; ENTRY]) -> [u64; ENTRY / 8] {
    let mut words = [0; ENTRY / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn too_much() -> Error {
    Error::limit(format!(
        "what is said of variables beside their data takes more than {} bytes",
        limits::MAX_DEFINITIONS_BYTES
    ))
    .with_hint("put large attributes into variables of their own")
}

fn encoded(definition: &Definition) -> Result<Vec<u8>> {
    postcard::to_stdvec(definition).map_err(unwritten)
}

fn unwritten(e: postcard::Error) -> Error {
    Error::internal(format!("cannot write the definition of a variable: {e}"))
}

fn malformed(why: impl AsRef<str>) -> Error {
    Error::format(format!("what a writer says of a step is damaged: {}", why.as_ref()))
        .with_hint("all that take part in a stream must be of the same version of stead")
}

/// The bytes after the first one, which is the version.
fn version(bytes: &[u8]) -> Result<&[u8]> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((other, _)) => Err(malformed(format!("its form is {other}, {VERSION} is known"))),
        None => Err(malformed("there is nothing")),
    }
}

/// A part of a variable that a writer has put, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockEntry {
    /// The number of the variable, in the definitions of the writer.
    pub variable: u32,
    /// Which part of the whole array it is.
    pub bounds: Bounds,
    /// Its bytes, in C order.
    pub place: Place,
}

#[cfg(test)]
#[path = "index_tests.rs"]
pub(crate) mod tests;
