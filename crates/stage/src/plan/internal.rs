//! Names that are nobody's data, and no matter of a plan.

use std::ffi::OsStr;
use std::path::Path;
use stead_core::{Error, Result};
use stead_store::region::is_of_streams;

/// True of what is nobody's data: what transfers have not finished, and what streams have in memory.
pub(crate) fn is_internal(name: &OsStr) -> bool {
    unfinished(name) || is_of_streams(name)
}

/// Refuses what lies in the folder of streams, or is it.
///
/// # Errors
/// `Usage`.
pub(crate) fn refuse_streams(path: &Path) -> Result<()> {
    match path.iter().any(is_of_streams) {
        true => Err(of_streams(path)),
        false => Ok(()),
    }
}

pub(super) fn of_streams(path: &Path) -> Error {
    Error::usage("here streams have their memory, which is no data to stage")
        .at_path(path)
        .with_hint("stead stream ls tells of streams")
}

/// True of the temporary names of transfers, which belong to them alone.
pub(crate) fn unfinished(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let Some(rest) = bytes.strip_prefix(b".stead-") else { return false };
    let hex = |b: &u8| b.is_ascii_hexdigit();
    rest.len() > 17 && rest[..16].iter().all(hex) && rest[16] == b'-' && rest[17..].iter().all(hex)
}
