//! What all ranks do together, built of messages along binomial trees.

use crate::{Fabric, kinds};
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

    /// [`FabricExt::reduce`], then [`FabricExt::broadcast`]. Uses `tag` and `tag + 1`. Where one rank fails, or is gone,
    /// all others hear of it: nobody waits for one who has given up.
    fn all_reduce(
        &self,
        tag: u32,
        bytes: Vec<u8>,
        merge: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank(), self.size());
        let hear = |from: usize, tag: u32| self.recv(from, tag).and_then(|said| heard(&said));
        let mut all = Ok(bytes);
        let mut low = 1;
        while low < size && rank & low == 0 {
            if rank + low < size {
                let theirs = hear(rank + low, tag);
                all = all.and_then(|mine| merge(mine, theirs?));
            }
            low <<= 1;
        }
        if rank != 0 {
            let told = self.send(rank - low, tag, say(&all));
            let failed = all.err();
            all = told.and_then(|()| hear(rank - low, tag + 1));
            // The first cause, where the ranks below have not heard of it.
            if let (Ok(_), Some(error)) = (&all, failed) {
                all = Err(error);
            }
        }
        let mut bit = low >> 1;
        while bit > 0 {
            if rank + bit < size {
                let told = self.send(rank + bit, tag + 1, say(&all));
                all = all.and_then(|bytes| told.map(|()| bytes));
            }
            bit >>= 1;
        }
        all
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

/// What a rank tells another one: bytes, or the kind, the rank and the text of an error.
fn say(outcome: &Result<Vec<u8>>) -> Vec<u8> {
    match outcome {
        Ok(bytes) => [&[0], bytes.as_slice()].concat(),
        Err(e) => {
            let rank = e.place().rank.map_or(u64::MAX, |rank| rank as u64);
            let mut said = vec![kinds::number(e.kind())];
            said.extend_from_slice(&rank.to_le_bytes());
            said.extend_from_slice(e.message().as_bytes());
            said
        }
    }
}

fn heard(said: &[u8]) -> Result<Vec<u8>> {
    let bad = || Error::format("a frame from another rank is malformed");
    let (number, rest) = said.split_first().ok_or_else(bad)?;
    if *number == 0 {
        return Ok(rest.to_vec());
    }
    let (rank, text) = rest.split_first_chunk().ok_or_else(bad)?;
    let error = Error::new(kinds::kind(*number), String::from_utf8_lossy(text));
    Err(match usize::try_from(u64::from_le_bytes(*rank)) {
        Ok(usize::MAX) | Err(_) => error,
        Ok(rank) => error.at_rank(rank),
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Local;
    use std::time::Duration;
    use stead_core::Kind;

    #[test]
    fn what_one_rank_cannot_do_is_told_to_all() {
        for (size, dead) in [(2, 1), (3, 0), (4, 2), (7, 5), (8, 0), (8, 4), (8, 7)] {
            // Nobody waits so long: who hears of it from the deadline fails with another text.
            let mut ranks = Local::group_with_deadline(size, Duration::from_secs(20));
            drop(ranks.remove(dead));
            let threads: Vec<_> = ranks
                .into_iter()
                .map(|f| std::thread::spawn(move || (f.all_gather(5, vec![1]), f)))
                .collect();
            for (outcome, _fabric) in threads.into_iter().map(|t| t.join().unwrap()) {
                let e = outcome.unwrap_err();
                let told = (e.kind(), e.place().rank, e.message());
                assert_eq!(told, (Kind::Peer, Some(dead), "the rank has ended early"), "{size}");
            }
        }
    }

    #[test]
    fn what_ranks_tell_each_other_is_heard() {
        assert_eq!(heard(&say(&Ok(vec![1, 2]))).unwrap(), [1, 2]);
        for rank in [None, Some(3)] {
            let e = Error::new(Kind::Changed, "so");
            let e = rank.into_iter().fold(e, Error::at_rank);
            let h = heard(&say(&Err(e))).unwrap_err();
            assert_eq!((h.kind(), h.message(), h.place().rank), (Kind::Changed, "so", rank));
        }
        assert!(heard(&[]).is_err() && heard(&[5, 1]).is_err());
    }
}
