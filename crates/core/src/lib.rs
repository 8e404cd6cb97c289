//! The words that every room of stead shares: sizes, extents, shapes, types, blocks, errors, limits.
//!
//! Nothing in here does I/O, reads a clock or starts a thread.

pub mod block;
pub mod bounds;
pub mod bucket;
pub mod cancel;
pub mod dtype;
pub mod error;
pub mod extent;
pub mod layout;
pub mod limits;
pub mod location;
pub mod missing;
pub mod schema;
pub mod shape;
pub mod units;
pub mod value;
pub mod view;

pub use block::{Block, Brick, Columns, Matrix, Needs, Selection, Span, TextColumn};
pub use bounds::Bounds;
pub use bucket::BucketUrl;
pub use cancel::{Cancel, Stops};
pub use dtype::{ByteOrder, DType};
pub use error::{Error, Kind, Place, Result};
pub use extent::Extent;
pub use location::{Location, is_node};
pub use missing::{MISSING, is_missing};
pub use schema::{ColumnInfo, ColumnKind, RecordKind, Schema};
pub use shape::{Order, Shape};
pub use value::Value;
pub use view::View;
