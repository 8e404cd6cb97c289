//! Records of particles: what is in them, and arrays of it.

use super::header::{Header, Species};
use stead_core::{ByteOrder, DType, Error, Result};

/// One number of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name: `mass`, `x`, `rho`, ...
    pub name: &'static str,
    /// `f32` or `f64`.
    pub dtype: DType,
    /// Bytes before it in the record.
    pub offset: usize,
}

/// What every particle has, in the order of the file; `phi` comes last.
const FRONT: [&str; 7] = ["mass", "x", "y", "z", "vx", "vy", "vz"];

/// What follows it.
const fn rest(species: Species) -> &'static [&'static str] {
    match species {
        Species::Gas => &["rho", "temp", "hsmooth", "metals", "phi"],
        Species::Dark => &["eps", "phi"],
        Species::Star => &["metals", "tform", "eps", "phi"],
    }
}

pub(super) fn fields(species: Species, positions: DType, velocities: DType) -> Vec<Field> {
    let mut offset = 0;
    let all = FRONT.iter().enumerate().map(|(i, name)| match i {
        0 => (*name, DType::F32),
        1..=3 => (*name, positions),
        _ => (*name, velocities),
    });
    let all = all.chain(rest(species).iter().map(|name| (*name, DType::F32)));
    all.map(|(name, dtype)| {
        let field = Field { name, dtype, offset };
        offset += dtype.size();
        field
    })
    .collect()
}

pub(super) fn bytes(species: Species, positions: DType, velocities: DType) -> u64 {
    let single = 1 + rest(species).len();
    (4 * single + 3 * positions.size() + 3 * velocities.size()) as u64
}

/// The values of a field, in this machine's byte order.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Of four bytes each.
    F32(Vec<f32>),
    /// Of eight bytes each.
    F64(Vec<f64>),
}

impl Values {
    /// None yet.
    pub fn new(dtype: DType) -> Values {
        match dtype {
            DType::F64 => Values::F64(Vec::new()),
            _ => Values::F32(Vec::new()),
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(v) => v.len(),
            Values::F64(v) => v.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value `i` as a double, which holds it exactly.
    pub fn get(&self, i: usize) -> Option<f64> {
        match self {
            Values::F32(v) => v.get(i).map(|x| f64::from(*x)),
            Values::F64(v) => v.get(i).copied(),
        }
    }
}

/// Some particles of one species, as arrays.
#[derive(Debug, Clone, PartialEq)]
pub struct Particles {
    /// Their kind.
    pub species: Species,
    /// Number of the first one within its species.
    pub first: u64,
    /// Names and values, in the order of the file.
    pub columns: Vec<(&'static str, Values)>,
    byte_order: ByteOrder,
    record: usize,
    fields: Vec<Field>,
}

impl Particles {
    /// None yet of those from number `first` on; `names` are the columns wanted, all if there are none.
    ///
    /// # Errors
    /// `Usage` for a column that the species does not have.
    pub fn new(header: &Header, species: Species, first: u64, names: &[&str]) -> Result<Particles> {
        let mut fields = header.fields(species);
        if let Some(odd) = names.iter().find(|n| fields.iter().all(|f| f.name != **n)) {
            let known: Vec<&str> = fields.iter().map(|f| f.name).collect();
            return Err(Error::usage(format!("{species} particles have no column '{odd}'"))
                .with_hint(format!("the columns are: {}", known.join(", "))));
        }
        fields.retain(|f| names.is_empty() || names.contains(&f.name));
        let record = bytes(species, header.positions, header.velocities);
        Ok(Particles {
            species,
            first,
            columns: fields.iter().map(|f| (f.name, Values::new(f.dtype))).collect(),
            byte_order: header.byte_order,
            // At most 72.
            record: record as usize,
            fields,
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |(_, v)| v.len())
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets them and keeps the memory.
    pub fn clear(&mut self) {
        for (_, values) in &mut self.columns {
            match values {
                Values::F32(v) => v.clear(),
                Values::F64(v) => v.clear(),
            }
        }
    }

    /// The values of a column.
    pub fn column(&self, name: &str) -> Option<&Values> {
        self.columns.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// Makes room for `n` particles more, whose number has been compared with the length of the file.
    ///
    /// # Errors
    /// `Limit` if there is not so much memory.
    pub fn reserve(&mut self, n: u64) -> Result<()> {
        let species = self.species;
        let large = || {
            Error::limit(format!("{n} {species} particles do not fit the memory"))
                .with_hint("load them in more tasks, or fewer columns")
        };
        let n = usize::try_from(n).map_err(|_| large())?;
        for (_, values) in &mut self.columns {
            match values {
                Values::F32(v) => v.try_reserve_exact(n),
                Values::F64(v) => v.try_reserve_exact(n),
            }
            .map_err(|_| large())?;
        }
        Ok(())
    }

    /// Adds the particles of whole records, as they lie in the file. Cost: one pass over the bytes, which stay in the
    /// cache if they are up to some hundred KiB at a time.
    ///
    /// # Errors
    /// `Usage` if a record is not whole.
    pub fn add(&mut self, records: &[u8]) -> Result<()> {
        if !records.len().is_multiple_of(self.record) {
            return Err(Error::usage(format!(
                "{} bytes are no whole number of records of {} bytes",
                records.len(),
                self.record
            )));
        }
        // So few at a time that the records stay in the first-level cache from column to column.
        for records in records.chunks(128 * self.record) {
            for (field, (_, values)) in self.fields.iter().zip(&mut self.columns) {
                let big = self.byte_order == ByteOrder::Big;
                let rows = records.chunks_exact(self.record);
                let at = field.offset;
                match (values, big) {
                    (Values::F32(v), true) => {
                        v.extend(rows.map(|r| f32::from_be_bytes(chunk(r, at))));
                    }
                    (Values::F32(v), false) => {
                        v.extend(rows.map(|r| f32::from_le_bytes(chunk(r, at))));
                    }
                    (Values::F64(v), true) => {
                        v.extend(rows.map(|r| f64::from_be_bytes(chunk(r, at))));
                    }
                    (Values::F64(v), false) => {
                        v.extend(rows.map(|r| f64::from_le_bytes(chunk(r, at))));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The bytes of a field; records are whole, so there are always so many.
#[inline(always)]
fn chunk<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or([0; N])
}
