//! The bytes that other ranks read, as a source: reading it asks for them.

use super::group::Map;
use super::service::Service;
use std::path::Path;
use std::sync::Arc;
use stead_core::{Error, Result};
use stead_store::{Buffer, Source};

/// See the module's documentation.
pub(crate) struct Far {
    pub(crate) map: Arc<Map>,
    pub(crate) service: Arc<Service>,
    /// The file as this rank sees it, for bytes that need not be asked for.
    pub(crate) here: Option<Arc<dyn Source>>,
    pub(crate) path: std::path::PathBuf,
    pub(crate) len: u64,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Far({})", self.path.display())
    }
}

impl Far {
    /// Gets bytes of one reader, who gives no more than a block at a time.
    fn fetch(&self, reader: usize, offset: u64, into: &mut [u8]) -> Result<()> {
        let block = usize::try_from(self.map.block).unwrap_or(usize::MAX);
        let mut at = offset;
        for piece in into.chunks_mut(block) {
            self.service.fetch(reader, at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

impl Source for Far {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let parts = self.map.parts(offset..end);
        let mut at = 0;
        for part in parts {
            let len = (part.bytes.end - part.bytes.start) as usize;
            if part.bytes.start != offset + at as u64 {
                break;
            }
            let into = &mut buf[at..at + len];
            at += len;
            match &self.here {
                Some(here) if self.map.is_here(part.reader) => {
                    here.read_at(part.bytes.start, into)?;
                }
                _ => self
                    .fetch(part.reader, part.bytes.start, into)
                    .map_err(|e| e.at_path(&self.path))?,
            }
        }
        if at < buf.len() {
            // Sessions cover whole blocks, and ask for what they cover; this is somebody without one.
            let error =
                Error::usage("this rank does not have the file, and no session covers it here");
            let error = error.at_path(&self.path).at_offset(offset + at as u64);
            return Err(error.with_hint("begin a session over these bytes"));
        }
        Ok(())
    }

    fn lend(&self, offset: u64, len: usize) -> Option<Result<Buffer>> {
        // Runs of readers begin and end where blocks do.
        let parts = self.map.parts(offset..offset.checked_add(len as u64)?);
        let [part] = parts.as_slice() else { return None };
        let whole = part.bytes.end - part.bytes.start == len as u64;
        if !whole || (self.here.is_some() && self.map.is_here(part.reader)) {
            return None;
        }
        let lent = self.service.borrow(part.reader, offset, len);
        Some(lent.map_err(|e| e.at_path(&self.path)))
    }

    fn check(&self) -> Result<()> {
        self.here.as_ref().map_or(Ok(()), |here| here.check())
    }
}

/// The error for a rank without the file where all are without it.
pub(crate) fn nowhere(path: &Path) -> Error {
    Error::new(stead_core::Kind::NotFound, "no rank can open it").at_path(path)
}
