//! What all ranks do together, built of messages along binomial trees.

use crate::Fabric;
use stead_core::{Error, Result};

/// Collective operations: every rank calls them, in the same order, with tags of the caller's choice.
pub trait FabricExt: Fabric {
    /// Every rank gets the bytes of rank 0. log2(size) steps.
    fn broadcast(&self, tag: u32, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank(), self.size());
        let mut bytes = bytes;
        // A rank receives from the rank that lacks its lowest set bit and serves those above.
        let mut low = 1;
        while low < size && rank & low == 0 {
            low <<= 1;
        }
        if rank != 0 {
            bytes = self.recv(rank - low, tag)?;
        }
        let mut bit = low >> 1;
        while bit > 0 {
            if rank + bit < size {
                self.send(rank + bit, tag, bytes.clone())?;
            }
            bit >>= 1;
        }
        Ok(bytes)
    }

    /// Merges all ranks' bytes into rank 0's, up a binomial tree; the others get `None`.
    /// `merge(mine, theirs)` must be associative; ranks are merged in ascending order.
    fn reduce(
        &self,
        tag: u32,
        bytes: Vec<u8>,
        merge: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let (rank, size) = (self.rank(), self.size());
        let mut bytes = bytes;
        let mut bit = 1;
        while bit < size {
            if rank & bit != 0 {
                self.send(rank - bit, tag, bytes)?;
                return Ok(None);
            }
            if rank + bit < size {
                let theirs = self.recv(rank + bit, tag)?;
                bytes = merge(bytes, theirs)?;
            }
            bit <<= 1;
        }
        Ok(Some(bytes))
    }

    /// [`FabricExt::reduce`], then [`FabricExt::broadcast`]. Uses `tag` and `tag + 1`.
    fn all_reduce(
        &self,
        tag: u32,
        bytes: Vec<u8>,
        merge: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let up = self.reduce(tag, bytes, merge)?.unwrap_or_default();
        self.broadcast(tag + 1, up)
    }

    /// Every rank gets every rank's bytes, by rank. Uses `tag` and `tag + 1`.
    fn all_gather(&self, tag: u32, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let framed = frame(&[bytes]);
        let all = self.all_reduce(tag, framed, &mut |mut a, b| {
            a.extend_from_slice(&b);
            Ok(a)
        })?;
        unframe(&all)
    }
}

impl<F: Fabric + ?Sized> FabricExt for F {}

fn frame(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for p in parts {
        out.extend_from_slice(&(p.len() as u64).to_le_bytes());
        out.extend_from_slice(p);
    }
    out
}

fn unframe(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let bad = || Error::format("a frame from another rank is malformed");
        let (len, rest) = bytes.split_first_chunk::<8>().ok_or_else(bad)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| bad())?;
        if rest.len() < len {
            return Err(bad());
        }
        out.push(rest[..len].to_vec());
        bytes = &rest[len..];
    }
    Ok(out)
}
