//! The text formats: lines and delimited text as [`Format`]s.

use crate::api::{Format, Scan, ScanOptions};
use crate::textscan::{Layout, TextScan};
use std::sync::Arc;
use stead_core::{Result, Schema, Value};
use stead_store::Source;

impl Format for Layout {
    fn name(&self) -> &'static str {
        match self {
            Layout::Lines(_) => "lines",
            Layout::Delimited(d) if d.syntax.delimiter == b'\t' => "tsv",
            Layout::Delimited(_) => "csv",
        }
    }

    fn schema(&self) -> &Schema {
        match self {
            Layout::Lines(l) => &l.schema,
            Layout::Delimited(d) => &d.schema,
        }
    }

    fn details(&self) -> Vec<(String, Value)> {
        match self {
            Layout::Lines(_) => Vec::new(),
            Layout::Delimited(d) => d.details(),
        }
    }

    fn scan(&self, sources: &[Arc<dyn Source>], options: &ScanOptions) -> Result<Box<dyn Scan>> {
        Ok(Box::new(TextScan::new(self.clone(), sources, options)?))
    }
}
