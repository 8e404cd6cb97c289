//! What a user can say about a dataset instead of having it detected.

use crate::tipsy::Species;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use stead_core::{ByteOrder, DType, Error, Order, Result};

/// Tokens that mean "no value" in delimited text, unless the user names others.
pub const DEFAULT_MISSING: [&str; 7] = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"];

/// How the bytes of a dataset are to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FormatType {
    /// Delimited text; a comma unless another delimiter is named or found.
    Csv,
    /// Delimited text with tabs.
    Tsv,
    /// Lines of text without columns.
    Lines,
    /// Records of one length in bytes.
    Records,
    /// NumPy's `.npy`.
    Npy,
    /// A raw n-d array: nothing but elements.
    Raw,
    /// Particles in a Tipsy file.
    Tipsy,
}

impl FormatType {
    /// The name used in options.
    pub const fn name(self) -> &'static str {
        match self {
            FormatType::Csv => "csv",
            FormatType::Tsv => "tsv",
            FormatType::Lines => "lines",
            FormatType::Records => "records",
            FormatType::Npy => "npy",
            FormatType::Raw => "raw",
            FormatType::Tipsy => "tipsy",
        }
    }

    /// True for formats whose bytes are text.
    pub const fn is_text(self) -> bool {
        matches!(self, FormatType::Csv | FormatType::Tsv | FormatType::Lines)
    }
}

impl FromStr for FormatType {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        use FormatType as F;
        [F::Csv, F::Tsv, F::Lines, F::Records, F::Npy, F::Raw, F::Tipsy]
            .into_iter()
            .find(|f| f.name() == s)
            .ok_or_else(|| {
                Error::usage(format!("unknown format '{s}'"))
                    .with_hint("use one of csv tsv lines records npy raw tipsy")
            })
    }
}

/// How files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, of one member or several.
    Gzip,
    /// Zstandard, of one frame or several.
    Zstd,
}

impl Compression {
    /// The name used in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "none" => Ok(Compression::None),
            "gzip" | "gz" => Ok(Compression::Gzip),
            "zstd" | "zst" => Ok(Compression::Zstd),
            _ => Err(Error::usage(format!("unknown compression '{s}'"))
                .with_hint("use one of none gzip zstd")),
        }
    }
}

/// Which byte quotes fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Quote {
    /// The double quote.
    #[default]
    Auto,
    /// No byte does: every byte stands for itself.
    None,
    /// This byte.
    Byte(u8),
}

/// Whether the first record of each file names the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Header {
    /// As detected.
    #[default]
    Auto,
    /// It does.
    Yes,
    /// It is data.
    No,
}

/// What a column is declared to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColumnType {
    /// Numbers.
    Number,
    /// Text.
    Text,
}

impl FromStr for ColumnType {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "number" => Ok(ColumnType::Number),
            "text" => Ok(ColumnType::Text),
            _ => Err(Error::usage(format!("unknown column type '{s}'"))
                .with_hint("use 'number' or 'text', as in --column-type NAME=number")),
        }
    }
}

/// How to open a dataset. What is `None`, `Auto` or empty is detected.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenOptions {
    /// The format.
    pub format: Option<FormatType>,
    /// Byte between fields of delimited text.
    pub delimiter: Option<u8>,
    /// Byte around fields of delimited text.
    pub quote: Quote,
    /// Whether delimited text begins with column names.
    pub header: Header,
    /// Lines of delimited text that begin with this byte are no records.
    pub comment: Option<u8>,
    /// Tokens that mean "no value"; [`DEFAULT_MISSING`] if `None`.
    pub missing: Option<Vec<String>>,
    /// Column names, in place of those in the header or of positions.
    pub names: Option<Vec<String>>,
    /// Declared types of columns, by name or zero-based position.
    pub column_types: Vec<(String, ColumnType)>,
    /// Element type of raw arrays.
    pub dtype: Option<DType>,
    /// Shape of raw arrays.
    pub shape: Option<Vec<u64>>,
    /// Index order of raw arrays.
    pub order: Option<Order>,
    /// Byte order of raw arrays.
    pub byte_order: Option<ByteOrder>,
    /// Bytes before the first element of raw arrays, or before the first fixed record.
    pub skip: Option<u64>,
    /// Length of fixed records in bytes.
    pub record_length: Option<u64>,
    /// Compression of the files.
    pub compression: Option<Compression>,
    /// The only particles of a Tipsy file that are looked at.
    pub species: Option<Species>,
    /// Folders of dataspaces of this node, `nvme=/mnt/nvme/me`, before those that are configured: for parts of layouts.
    pub dataspaces: Vec<String>,
    /// Hosts whose ranks have the data, if not all ranks of a job have them: `node[1-4]`; `layout`, the nodes of the layouts that
    /// are opened, which the first rank reads; `layout:FILE`, those of another layout.
    pub storage_hosts: Option<String>,
}

impl OpenOptions {
    /// Refuses options that contradict each other.
    pub fn check(&self) -> Result<()> {
        use FormatType as F;
        let f = self.format;
        let wrong = |option: &str, f: F| {
            Err(Error::usage(format!("{option} makes no sense for format '{}'", f.name())))
        };
        if let Some(f) = f {
            let delimited = matches!(f, F::Csv | F::Tsv);
            for (set, option) in [
                (self.delimiter.is_some(), "a delimiter"),
                (self.quote != Quote::Auto, "a quote"),
                (self.header != Header::Auto, "a header"),
                (self.comment.is_some(), "a comment prefix"),
                (!self.column_types.is_empty(), "a column type"),
                (self.missing.is_some(), "a list of missing tokens"),
            ] {
                if set && !delimited {
                    return wrong(option, f);
                }
            }
            for (set, option) in [
                (self.dtype.is_some(), "an element type"),
                (self.shape.is_some(), "a shape"),
                (self.order.is_some(), "an index order"),
                (self.byte_order.is_some(), "a byte order"),
            ] {
                if set && f != F::Raw {
                    return wrong(option, f);
                }
            }
            if self.skip.is_some() && !matches!(f, F::Raw | F::Records) {
                return wrong("a number of bytes to skip", f);
            }
            if self.record_length.is_some() && f != F::Records {
                return wrong("a record length", f);
            }
            if self.species.is_some() && f != F::Tipsy {
                return wrong("a species", f);
            }
            if self.names.is_some() && matches!(f, F::Lines | F::Records | F::Tipsy) {
                return wrong("a list of column names", f);
            }
            if f == F::Tsv && self.delimiter.is_some_and(|d| d != b'\t') {
                return Err(Error::usage("format 'tsv' has the tab as its delimiter")
                    .with_hint("use format 'csv' with the delimiter you want"));
            }
        }
        if self.is_delimited_hinted() && (self.is_raw_hinted() || self.record_length.is_some()) {
            return Err(Error::usage(
                "options of delimited text and options of binary data contradict each other",
            ));
        }
        if self.record_length.is_some() && self.is_raw_hinted() {
            return Err(Error::usage("a record length contradicts options of raw arrays"));
        }
        if self.record_length == Some(0) {
            return Err(Error::usage("a record length must be at least 1"));
        }
        self.check_bytes()
    }

    /// Bytes with a role in delimited text must differ and be no line ends.
    fn check_bytes(&self) -> Result<()> {
        let quote = match self.quote {
            Quote::Byte(b) => Some(b),
            Quote::Auto => Some(b'"'),
            Quote::None => None,
        };
        let roles =
            [(self.delimiter, "delimiter"), (quote, "quote"), (self.comment, "comment prefix")];
        for (i, (a, name)) in roles.iter().enumerate() {
            let Some(a) = a else { continue };
            if matches!(a, b'\n' | b'\r') || !a.is_ascii() {
                return Err(Error::usage(format!(
                    "the {name} must be one ASCII character and no line end"
                )));
            }
            if let Some((_, other)) = roles[..i].iter().find(|(b, _)| b == &Some(*a)) {
                return Err(Error::usage(format!(
                    "the {other} and the {name} are the same character '{}'",
                    a.escape_ascii()
                )));
            }
        }
        Ok(())
    }

    /// True if something is set that only delimited text has.
    pub fn is_delimited_hinted(&self) -> bool {
        self.delimiter.is_some()
            || self.quote != Quote::Auto
            || self.header != Header::Auto
            || self.comment.is_some()
            || !self.column_types.is_empty()
    }

    /// True if something is set that only raw arrays have.
    pub fn is_raw_hinted(&self) -> bool {
        self.dtype.is_some()
            || self.shape.is_some()
            || self.order.is_some()
            || self.byte_order.is_some()
    }

    /// The tokens that mean "no value".
    pub fn missing_tokens(&self) -> Vec<Vec<u8>> {
        match &self.missing {
            Some(v) => v.iter().map(|s| s.as_bytes().to_vec()).collect(),
            None => DEFAULT_MISSING.iter().map(|s| s.as_bytes().to_vec()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::Kind;

    #[test]
    fn contradictions_are_refused() {
        let ok = OpenOptions { delimiter: Some(b';'), ..Default::default() };
        assert!(ok.check().is_ok());
        for bad in [
            OpenOptions {
                format: Some(FormatType::Tsv),
                delimiter: Some(b','),
                ..Default::default()
            },
            OpenOptions {
                format: Some(FormatType::Lines),
                header: Header::Yes,
                ..Default::default()
            },
            OpenOptions {
                format: Some(FormatType::Csv),
                record_length: Some(4),
                ..Default::default()
            },
            OpenOptions { delimiter: Some(b','), dtype: Some(DType::F32), ..Default::default() },
            OpenOptions { delimiter: Some(b'"'), ..Default::default() },
            OpenOptions { delimiter: Some(b'\n'), ..Default::default() },
            OpenOptions { record_length: Some(0), ..Default::default() },
        ] {
            assert_eq!(bad.check().map_err(|e| e.kind()), Err(Kind::Usage), "{bad:?}");
        }
    }
}
