//! Records of one fixed length: opaque bytes without columns.

use crate::api::{Format, Scan, ScanOptions};
use crate::grid::{GridScan, Layout};
use std::sync::Arc;
use stead_core::{Error, RecordKind, Result, Schema, Value};
use stead_store::Source;

/// The format of files that are nothing but records of `length` bytes, after `skip` other bytes. A newline
/// at the end of each record, where there is one, is part of it.
pub struct RecordFormat {
    length: u64,
    skip: u64,
    schema: Schema,
}

impl RecordFormat {
    /// # Errors
    /// `Usage` for records of no bytes.
    pub fn new(length: u64, skip: u64) -> Result<Self> {
        if length == 0 {
            return Err(Error::usage("a record length must be at least 1"));
        }
        let schema =
            Schema { records: RecordKind::Fixed(length), columns: Vec::new(), shape: None };
        Ok(RecordFormat { length, skip, schema })
    }
}

impl Format for RecordFormat {
    fn name(&self) -> &'static str {
        "records"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn details(&self) -> Vec<(String, Value)> {
        vec![
            ("record length".into(), Value::Int(self.length)),
            ("bytes skipped".into(), Value::Int(self.skip)),
        ]
    }

    /// # Errors
    /// `Format`, with the remainder, if a file does not end with a whole record.
    fn scan(&self, sources: &[Arc<dyn Source>], options: &ScanOptions) -> Result<Box<dyn Scan>> {
        let mut files = Vec::with_capacity(sources.len());
        for source in sources {
            let len = source.len();
            let Some(data) = len.checked_sub(self.skip) else {
                return Err(Error::usage(format!(
                    "{} bytes to skip, and the file has {len} in all",
                    self.skip
                ))
                .at_path(source.path()));
            };
            let rest = data % self.length;
            if rest != 0 {
                return Err(Error::format(format!(
                    "the file does not end with a whole record: {} records of {} bytes, and {rest} \
                     bytes are left",
                    data / self.length,
                    self.length
                ))
                .at_path(source.path())
                .at_offset(len - rest)
                .with_hint(format!(
                    "check the record length; if the file begins with a header, skip it ({} bytes \
                     would fit)",
                    self.skip + rest
                )));
            }
            let layout = Layout {
                head: self.skip,
                rows: data / self.length,
                row_bytes: self.length,
                elements: None,
            };
            files.push((source.clone(), layout));
        }
        Ok(Box::new(GridScan::new(files, options)?))
    }
}
