//! Tipsy: snapshots of particles, as codes for gravity and gas (Gasoline, ChaNGa, PKDGRAV) write them.
//!
//! A file is a header and three tables, one for each [`Species`], whose records have different fields. To kernels it is
//! one table with a row for each particle, in the order of the file:
//!
//! | columns | |
//! |---|---|
//! | `species` | text: `gas`, `dark` or `star` |
//! | `mass x y z vx vy vz phi` | of all particles |
//! | `eps metals rho temp hsmooth tform` | of those that have it; missing for the others |
//! | `gas.mass`, `dark.x`, `star.tform`, ... | of one species; missing for the others |
//!
//! The columns are the same for every file, whatever species it has, so that a run over many snapshots has one schema.
//! With a species chosen it is the table of that species alone, in the order of its fields, and the text is its records.
//! Records of species that nobody asks for are not read.
//!
//! The fields: <https://github.com/N-BodyShop/tipsy>, file `tipsydefs.h`. The reading of files larger than 2^32
//! particles is that of PKDGRAV and pynbody.

mod header;
mod record;

pub use header::{HEADER_BYTES, Header, Part, Species};
pub use record::{Field, Particles, Values};

use crate::api::{Format, Scan, ScanOptions};
use crate::sections::{Content, Place, Records, Section, SectionScan};
use std::sync::Arc;
use stead_core::{
    ByteOrder, ColumnInfo, ColumnKind, Error, RecordKind, Result, Schema, Span, Value,
};
use stead_store::Source;

/// Columns of all species that have them, in the order of the schema.
const SHARED: [&str; 14] = [
    "mass", "x", "y", "z", "vx", "vy", "vz", "phi", "eps", "metals", "rho", "temp", "hsmooth",
    "tform",
];
/// What the values of the column `species` are spans of.
const NAMES: &[u8] = b"gasdarkstar";

/// The format of Tipsy files.
pub struct TipsyFormat {
    /// Of the first file.
    header: Header,
    /// The only one that is looked at.
    species: Option<Species>,
    columns: Vec<Column>,
    schema: Schema,
}

/// What a column of the schema is.
#[derive(Debug, Clone, Copy)]
struct Column {
    /// `None`: the name of the species.
    field: Option<&'static str>,
    /// Of which species; `None`: of all that have it.
    species: Option<Species>,
}

impl TipsyFormat {
    /// From the dataset's first file. `species`: only the particles of one species.
    ///
    /// # Errors
    /// As [`Header::read`].
    pub fn new(source: &dyn Source, species: Option<Species>) -> Result<Self> {
        let header = Header::read(source)?;
        let mut columns = Vec::new();
        if let Some(k) = species {
            let fields = header.fields(k).into_iter();
            columns.extend(fields.map(|f| Column { field: Some(f.name), species }));
        } else {
            columns.push(Column { field: None, species: None });
            columns.extend(SHARED.map(|name| Column { field: Some(name), species: None }));
            for k in Species::ALL {
                let fields = header.fields(k).into_iter();
                columns.extend(fields.map(|f| Column { field: Some(f.name), species: Some(k) }));
            }
        }
        let info = |c: &Column| {
            let Some(field) = c.field else {
                return ColumnInfo { name: "species".into(), kind: ColumnKind::Text };
            };
            let name = match c.species.filter(|_| species.is_none()) {
                Some(k) => format!("{k}.{field}"),
                None => field.to_string(),
            };
            // Of all species a field has one type.
            let of = Species::ALL.into_iter().filter(|k| c.species.is_none_or(|s| s == *k));
            let place = of.flat_map(|k| header.fields(k)).find(|f| f.name == field);
            let dtype = place.map_or(stead_core::DType::F32, |f| f.dtype);
            ColumnInfo { name, kind: ColumnKind::Binary(dtype) }
        };
        let schema = Schema {
            records: RecordKind::Fields,
            columns: columns.iter().map(info).collect(),
            shape: None,
        };
        Ok(TipsyFormat { header, species, columns, schema })
    }

    /// The header of the first file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What of a file is scanned, in its order.
    fn sections(&self, source: usize, header: &Header) -> Vec<Section> {
        let mut sections = Vec::with_capacity(4);
        if self.species.is_none() {
            let content = Content::Bytes;
            sections.push(Section { source, offset: 0, count: header.bytes, content });
        }
        for k in Species::ALL.into_iter().filter(|k| self.species.is_none_or(|s| s == *k)) {
            let fields = header.fields(k);
            let place = |c: &Column| {
                let field = fields.iter().find(|f| Some(f.name) == c.field)?;
                let mine = c.species.is_none_or(|s| s == k);
                mine.then_some(Place { offset: field.offset, dtype: field.dtype })
            };
            let start = match k {
                Species::Gas => 0,
                Species::Dark => 3,
                Species::Star => 7,
            };
            let records = Records {
                bytes: header.record_bytes(k),
                byte_order: header.byte_order,
                places: self.columns.iter().map(place).collect(),
                text: NAMES,
                value: Span { start, len: k.name().len() as u32 },
            };
            sections.push(Section {
                source,
                offset: header.offset(k),
                count: header.count(k),
                content: Content::Records(Arc::new(records)),
            });
        }
        sections
    }
}

impl Format for TipsyFormat {
    fn name(&self) -> &'static str {
        "tipsy"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn details(&self) -> Vec<(String, Value)> {
        let h = &self.header;
        let order = match h.byte_order {
            ByteOrder::Big => "big (standard)",
            ByteOrder::Little => "little (native)",
        };
        let mut details = vec![
            ("time".into(), Value::Float(h.time)),
            ("byte order".into(), Value::Text(order.into())),
            ("header bytes".into(), Value::Int(h.bytes)),
            ("positions".into(), Value::Text(h.positions.name().into())),
            ("velocities".into(), Value::Text(h.velocities.name().into())),
        ];
        details.extend(Species::ALL.map(|k| (k.name().to_string(), Value::Int(h.count(k)))));
        if let Some(k) = self.species {
            details.push(("species".into(), Value::Text(k.name().into())));
        }
        details
    }

    /// # Errors
    /// As [`Header::read`], for each file; `Usage` for bricks.
    fn scan(&self, sources: &[Arc<dyn Source>], options: &ScanOptions) -> Result<Box<dyn Scan>> {
        let mut sections = Vec::new();
        for (i, source) in sources.iter().enumerate() {
            let header = Header::read(source.as_ref())?;
            sections.extend(self.sections(i, &header));
        }
        let texts = &options.needs.texts;
        if texts.iter().any(|id| self.columns.get(*id).is_none_or(|c| c.field.is_some())) {
            return Err(Error::usage("binary columns cannot be used as text")
                .with_hint("the column 'species' is text"));
        }
        if options.needs.brick.is_some() {
            return Err(Error::usage("this kernel needs a 3-d array, and particles are none"));
        }
        Ok(Box::new(SectionScan::new(sources, sections, options)?))
    }
}

#[cfg(test)]
mod tests;
