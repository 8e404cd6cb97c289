//! Formats: from files to blocks.
//!
//! A [`Dataset`] is files plus a [`Format`], which knows how records lie in the bytes. A [`Scan`] hands
//! every byte of the dataset, as [`stead_core::Block`]s of whole records, to any number of workers, each
//! exactly once.

pub mod api;
pub mod arrays;
pub mod convert;
pub mod dataset;
pub mod decode;
pub mod delimited;
pub mod detect;
mod fields;
mod grid;
mod held;
pub mod lines;
pub mod npy;
pub mod options;
pub mod parallel;
pub mod records;
mod sections;
pub mod table;
mod text;
pub mod textscan;
pub mod tipsy;
pub mod vectors;

pub use api::{
    Apart, Format, Held, Holding, Near, Progress, Scan, ScanOptions, Share, Traffic, Worker,
};
pub use dataset::{Dataset, Description};
pub use options::{ColumnType, Compression, FormatType, Header, OpenOptions, Quote};
pub use table::TableColumn;
pub use textscan::quotes::{Before, Quotes, States};
