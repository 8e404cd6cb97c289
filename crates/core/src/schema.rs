//! What a dataset's records look like.

use crate::{DType, Error, Result, Shape};
use serde::Serialize;

/// How the bytes fall into records.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// Lines of text without columns.
    Lines,
    /// Rows of delimited text.
    Delimited,
    /// Records of that many bytes.
    Fixed(u64),
    /// Items of an array: rows of a 2-d array, elements of any other.
    Items,
    /// Records of binary fields, of one kind or several.
    Fields,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// Numbers written as text.
    Number,
    /// Numbers in binary.
    Binary(DType),
    /// Text.
    Text,
}

impl ColumnKind {
    /// True if the column can be asked for as numbers.
    pub fn is_number(self) -> bool {
        !matches!(self, ColumnKind::Text)
    }
}

/// One column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColumnInfo {
    /// Name from the header, or the zero-based position.
    pub name: String,
    /// What it holds, as declared or as found in the first records.
    pub kind: ColumnKind,
}

/// Columns and record structure of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schema {
    /// How bytes fall into records.
    pub records: RecordKind,
    /// The columns, in file order. Empty for lines and opaque records.
    pub columns: Vec<ColumnInfo>,
    /// Shape, for arrays.
    pub shape: Option<Shape>,
}

impl Schema {
    /// The index of the column that `name` means: an exact name, or, where no column has that name,
    /// a zero-based position.
    pub fn column(&self, name: &str) -> Result<usize> {
        if let Some(i) = self.columns.iter().position(|c| c.name == name) {
            return Ok(i);
        }
        if let Ok(i) = name.parse::<usize>()
            && i < self.columns.len()
        {
            return Ok(i);
        }
        let e = Error::usage(format!("no column '{name}'"));
        if self.columns.is_empty() {
            return Err(e.with_hint(
                "this dataset has no columns; name its format if it was not recognised (--type)",
            ));
        }
        let close = self
            .columns
            .iter()
            .map(|c| (distance(&c.name.to_lowercase(), &name.to_lowercase()), &c.name))
            .min()
            .filter(|(d, _)| *d <= name.len() / 2);
        let mut names: Vec<&str> = self.columns.iter().take(12).map(|c| c.name.as_str()).collect();
        if self.columns.len() > names.len() {
            names.push("...");
        }
        Err(e.with_hint(match close {
            Some((_, c)) => format!("did you mean '{c}'? the columns are: {}", names.join(", ")),
            None => format!("the columns are: {}", names.join(", ")),
        }))
    }

    /// As [`Schema::column`], and an error if it holds text.
    pub fn number(&self, name: &str) -> Result<usize> {
        let i = self.column(name)?;
        if self.columns[i].kind.is_number() {
            Ok(i)
        } else {
            Err(Error::data(format!("column '{name}' holds text, and this kernel needs numbers"))
                .with_hint("see 'stead describe' for the columns; --column-type NAME=number forces a column"))
        }
    }

    /// Indices of all numeric columns.
    pub fn numbers(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|i| self.columns[*i].kind.is_number()).collect()
    }
}

/// Levenshtein distance, for "did you mean".
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let c = |n: &str, kind| ColumnInfo { name: n.into(), kind };
        Schema {
            records: RecordKind::Delimited,
            columns: vec![
                c("arr_delay", ColumnKind::Number),
                c("carrier", ColumnKind::Text),
                c("1", ColumnKind::Number),
            ],
            shape: None,
        }
    }

    #[test]
    fn names_win_over_positions() {
        let s = schema();
        assert_eq!(s.column("1").ok(), Some(2));
        assert_eq!(s.column("0").ok(), Some(0));
        assert!(s.number("carrier").is_err());
    }

    #[test]
    fn a_wrong_name_gets_a_suggestion() {
        let e = schema().column("arrdelay").unwrap_err();
        assert!(e.hint().is_some_and(|h| h.contains("'arr_delay'")));
    }
}
