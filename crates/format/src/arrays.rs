//! Arrays of numbers: `.npy` files and raw elements.
//!
//! | dimensions | records | columns |
//! |---|---|---|
//! | 2: n rows of d | rows | `0` to `d-1` |
//! | any other | elements, as they lie in the file | `value` |
//!
//! Names that the user gives stand in place of these. An array without elements has no records. Several files are one dataset if they have the same number
//! of dimensions and of columns; element types and orders may differ.

use crate::api::{Format, Scan, ScanOptions};
use crate::grid::{Elements, GridScan, Layout};
use crate::npy;
use std::collections::HashSet;
use std::sync::Arc;
use stead_core::{
    ByteOrder, ColumnInfo, ColumnKind, DType, Error, Order, RecordKind, Result, Schema, Shape,
    Value, limits,
};
use stead_store::Source;

/// The format of `.npy` files and of raw arrays.
pub struct ArrayFormat {
    kind: Kind,
    /// Of the first file.
    array: Array,
    schema: Schema,
}

#[derive(PartialEq)]
enum Kind {
    Npy,
    /// The shape is the same in every file, or the files are 1-d and tell by their length.
    Raw {
        shape: Option<Shape>,
    },
}

/// One file's array.
#[derive(Debug, Clone)]
struct Array {
    dtype: DType,
    byte_order: ByteOrder,
    order: Order,
    shape: Shape,
    offset: u64,
}

impl ArrayFormat {
    /// `.npy`, from the header of the dataset's first file.
    ///
    /// # Errors
    /// `Format` as [`npy::read_header`], and if the file is longer or shorter than its header says.
    pub fn npy(source: &dyn Source) -> Result<Self> {
        Self::new(Kind::Npy, read_npy(source)?)
    }

    /// Elements of one type without a header: `skip` bytes, then the array.
    ///
    /// Without a shape it is 1-d and as long as the file. With one the file must have exactly its size.
    ///
    /// # Errors
    /// `Usage`, with the shape or the number of bytes to skip that would fit.
    pub fn raw(
        source: &dyn Source,
        dtype: DType,
        shape: Option<Vec<u64>>,
        order: Order,
        byte_order: ByteOrder,
        skip: u64,
    ) -> Result<Self> {
        let shape = shape.map(Shape::new).transpose()?;
        let fixed = Raw { dtype, order, byte_order, skip };
        let array = fixed.array(source, shape.as_ref())?;
        Self::new(Kind::Raw { shape }, array)
    }

    fn new(kind: Kind, array: Array) -> Result<Self> {
        let dims = array.shape.dims();
        let binary = ColumnKind::Binary(array.dtype);
        let columns = match dims {
            [_, d] => {
                let too_many = || {
                    let max = limits::MAX_COLUMNS;
                    Error::limit(format!("a 2-d array of {d} columns; at most {max} are supported"))
                        .with_hint("read it as --type raw with another shape, or transpose it")
                };
                let d = usize::try_from(*d).ok().filter(|d| *d <= limits::MAX_COLUMNS);
                let d = d.ok_or_else(too_many)?;
                (0..d).map(|i| ColumnInfo { name: i.to_string(), kind: binary }).collect()
            }
            _ => vec![ColumnInfo { name: "value".into(), kind: binary }],
        };
        let schema = Schema {
            records: RecordKind::Items,
            columns,
            shape: Some(array.shape.clone().with_order(array.order)),
        };
        Ok(ArrayFormat { kind, array, schema })
    }

    /// The same with these column names, in place of positions.
    ///
    /// # Errors
    /// `Usage` if there are not as many as columns, or two are the same.
    pub fn named(mut self, names: &[String]) -> Result<Self> {
        let columns = &mut self.schema.columns;
        if names.len() != columns.len() {
            return Err(Error::usage(format!(
                "{} column names were given, and the array has {} columns",
                names.len(),
                columns.len()
            )));
        }
        let mut seen = HashSet::new();
        if let Some(n) = names.iter().find(|n| !seen.insert(n.as_str())) {
            return Err(Error::usage(format!("two columns are to have the name '{n}'"))
                .with_hint("give each column its own name"));
        }
        columns.iter_mut().zip(names).for_each(|(c, n)| c.name.clone_from(n));
        Ok(self)
    }

    fn read(&self, source: &dyn Source) -> Result<Array> {
        match &self.kind {
            Kind::Npy => read_npy(source),
            Kind::Raw { shape } => {
                let Array { dtype, order, byte_order, offset: skip, .. } = self.array;
                Raw { dtype, order, byte_order, skip }.array(source, shape.as_ref())
            }
        }
    }
}

impl Array {
    fn layout(&self) -> Layout {
        let size = self.dtype.size() as u64;
        let dims = self.shape.dims();
        let (rows, columns, apart) = match dims {
            // One row or one column lies the same way in both orders.
            [n, d] => (*n, *d, self.order == Order::Fortran && *n > 1 && *d > 1),
            _ => (self.shape.elements(), 1, false),
        };
        let grid = match (dims, self.order) {
            ([a, b, c], Order::C) => Some(([*a, *b, *c], Order::C)),
            ([a, b, c], Order::Fortran) => Some(([*c, *b, *a], Order::Fortran)),
            _ => None,
        };
        Layout {
            head: self.offset,
            rows: if columns == 0 { 0 } else { rows },
            // `check_size` compared the product with the length of the file.
            row_bytes: columns.saturating_mul(size),
            elements: Some(Elements {
                dtype: self.dtype,
                byte_order: self.byte_order,
                columns: usize::try_from(columns).unwrap_or(usize::MAX),
                apart,
                grid,
            }),
        }
    }

    /// The array's bytes, if 64 bits can count them.
    fn bytes(&self) -> Option<u64> {
        self.shape.elements().checked_mul(self.dtype.size() as u64)
    }
}

fn read_npy(source: &dyn Source) -> Result<Array> {
    let h = npy::read_header(source)?;
    let array = Array {
        dtype: h.dtype,
        byte_order: h.byte_order,
        order: h.order,
        shape: h.shape,
        offset: h.data_offset,
    };
    let found = source.len() - array.offset;
    match array.bytes() {
        Some(expected) if expected == found => Ok(array),
        expected => {
            let expected = expected.map_or("more than 64 bits can count".into(), |n| n.to_string());
            let (what, hint) = if expected.parse().is_ok_and(|n: u64| n < found) {
                (
                    "extra bytes after the array",
                    "the file holds more than one array; save them apart",
                )
            } else {
                (
                    "truncated .npy file",
                    "the file was not written or copied to its end; make it again",
                )
            };
            Err(Error::format(format!(
                "{what}: shape {} of {} takes {expected} bytes, found {found}",
                array.shape, array.dtype
            ))
            .at_path(source.path())
            .at_offset(array.offset)
            .with_hint(hint))
        }
    }
}

/// What is the same in every file of a raw dataset.
struct Raw {
    dtype: DType,
    order: Order,
    byte_order: ByteOrder,
    skip: u64,
}

impl Raw {
    fn array(&self, source: &dyn Source, shape: Option<&Shape>) -> Result<Array> {
        let Raw { dtype, order, byte_order, skip } = *self;
        let size = dtype.size() as u64;
        let wrong = |message: String| Error::usage(message).at_path(source.path());
        let Some(found) = source.len().checked_sub(skip) else {
            return Err(wrong(format!(
                "{skip} bytes to skip, and the file has {} in all",
                source.len()
            )));
        };
        if found % size != 0 && shape.is_none_or(|s| s.elements() <= found / size) {
            return Err(wrong(format!(
                "{found} bytes are no whole number of {dtype} elements: {} are left over",
                found % size
            ))
            .with_hint(format!(
                "check the element type, or skip a header of {} bytes (--skip)",
                skip + found % size
            )));
        }
        let whole = found / size;
        let shape = match shape {
            Some(s) => s.clone(),
            None => Shape::new(vec![whole])?,
        };
        let array = Array { dtype, byte_order, order, shape, offset: skip };
        let expected = array.bytes();
        if expected == Some(found) {
            return Ok(array);
        }
        let e = wrong(format!(
            "shape {} of {dtype} takes {} bytes, and the file has {found}{}",
            array.shape,
            expected.map_or("more than 64 bits can count".into(), |n| n.to_string()),
            if skip > 0 { format!(" after the {skip} skipped") } else { String::new() },
        ));
        let mut hints = Vec::new();
        // The dimension that grows with the file is the slowest one.
        let dims = array.shape.dims();
        let slowest = if order == Order::C { 0 } else { dims.len().saturating_sub(1) };
        let rest: Option<u64> = dims
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != slowest)
            .try_fold(1u64, |n, (_, d)| n.checked_mul(*d));
        if let Some(rest) = rest.filter(|r| *r > 0 && !dims.is_empty() && whole.is_multiple_of(*r))
        {
            let mut fits = dims.to_vec();
            fits[slowest] = whole / rest;
            let fits: Vec<String> = fits.iter().map(u64::to_string).collect();
            hints.push(format!("shape {} would fit", fits.join(",")));
        } else {
            hints.push(format!("it holds {whole} elements of {dtype}"));
        }
        if let Some(more) = expected.and_then(|n| found.checked_sub(n)) {
            hints.push(format!("or skip {} bytes (--skip)", skip + more));
        }
        Err(e.with_hint(hints.join("; ")))
    }
}

impl Format for ArrayFormat {
    fn name(&self) -> &'static str {
        if self.kind == Kind::Npy { "npy" } else { "raw" }
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn details(&self) -> Vec<(String, Value)> {
        let a = &self.array;
        let order = if a.order == Order::C { "C" } else { "Fortran" };
        let byte_order = if a.byte_order == ByteOrder::Little { "little" } else { "big" };
        vec![
            ("element type".into(), Value::Text(a.dtype.name().into())),
            ("byte order".into(), Value::Text(byte_order.into())),
            ("index order".into(), Value::Text(order.into())),
            ("shape".into(), Value::Text(a.shape.to_string())),
            ("data offset".into(), Value::Int(a.offset)),
        ]
    }

    fn scan(&self, sources: &[Arc<dyn Source>], options: &ScanOptions) -> Result<Box<dyn Scan>> {
        let mut files = Vec::with_capacity(sources.len());
        for source in sources {
            let array = self.read(source.as_ref())?;
            let (mine, first) = (array.shape.dims(), self.array.shape.dims());
            if mine.len() != first.len() || (mine.len() == 2 && mine[1] != first[1]) {
                return Err(Error::format(format!(
                    "the array is {}, and the first file's is {}; files of one dataset need the same \
                     columns",
                    array.shape, self.array.shape
                ))
                .at_path(source.path())
                .with_hint("read the files apart"));
            }
            files.push((source.clone(), array.layout()));
        }
        Ok(Box::new(GridScan::new(files, options)?))
    }
}
