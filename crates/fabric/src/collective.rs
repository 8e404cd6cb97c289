//! What all ranks do together, built of messages along binomial trees.

use crate::rounds::{Round, lock};
use crate::{Fabric, kinds};
use std::cell::Cell;
use stead_core::{Error, Result};

/// What came from a rank: bytes, or the error that it told; or why nothing came.
pub type Heard = Result<Result<Vec<u8>>>;

/// Collective operations: every rank calls them, in the same order, with tags of the caller's choice.
///
/// Each call is a round of its tag, and threads of a rank come one after the other. What is left of a round that others
/// have given up is dropped.
pub trait FabricExt: Fabric {
    /// Every rank gets the bytes of rank 0. log2(size) steps.
    fn broadcast(&self, tag: u32, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank(), self.size());
        let rounds = self.rounds().of(tag);
        let mut round = lock(&rounds);
        round.number += 1;
        let mut bytes = bytes;
        // A rank receives from the rank that lacks its lowest set bit and serves those above.
        let mut low = 1;
        while low < size && rank & low == 0 {
            low <<= 1;
        }
        if rank != 0 {
            bytes = hear(self, &mut round, rank - low, tag)?;
        }
        let mut bit = low >> 1;
        while bit > 0 {
            if rank + bit < size {
                self.send(rank + bit, tag, numbered(round.number, &bytes))?;
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
        let rounds = self.rounds().of(tag);
        let mut round = lock(&rounds);
        round.number += 1;
        let mut bytes = bytes;
        let mut bit = 1;
        while bit < size {
            if rank & bit != 0 {
                self.send(rank - bit, tag, numbered(round.number, &bytes))?;
                return Ok(None);
            }
            if rank + bit < size {
                let theirs = hear(self, &mut round, rank + bit, tag)?;
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
        let all = Cell::new(bytes);
        let mut take = |theirs| merge(all.take(), theirs).map(|both| all.set(both));
        self.all_reduce_by(tag, &mut take, &mut || Ok(all.take()))
    }

    /// [`FabricExt::all_reduce`] of something that is bytes on its way alone: `take` adds another rank's to this rank's, in
    /// the order of ranks, and `give` is asked once, for the bytes of what has come together.
    fn all_reduce_by(
        &self,
        tag: u32,
        take: &mut dyn FnMut(Vec<u8>) -> Result<()>,
        give: &mut dyn FnMut() -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank(), self.size());
        let rounds = self.rounds().of(tag);
        let mut round = lock(&rounds);
        round.number += 1;
        let number = round.number;
        let mut told =
            |from: usize, tag: u32| hear(self, &mut round, from, tag).and_then(|said| heard(&said));
        let tell = |to: usize, tag: u32, all: &Result<Vec<u8>>| {
            self.send(to, tag, numbered(number, &say(all)))
        };
        let mut taken = Ok(());
        let mut low = 1;
        while low < size && rank & low == 0 {
            if rank + low < size {
                let theirs = told(rank + low, tag);
                taken = taken.and_then(|()| take(theirs?));
            }
            low <<= 1;
        }
        let mut all = taken.and_then(|()| give());
        if rank != 0 {
            let sent = tell(rank - low, tag, &all);
            let failed = all.err();
            all = sent.and_then(|()| told(rank - low, tag + 1));
            // The first cause, where the ranks below have not heard of it.
            if let (Ok(_), Some(error)) = (&all, failed) {
                all = Err(error);
            }
        }
        let mut bit = low >> 1;
        while bit > 0 {
            if rank + bit < size {
                // Who is gone after it has contributed is missed when all are together again: an error of this rank alone would
                // have others wonder why it does not come.
                let _ = tell(rank + bit, tag + 1, &all);
            }
            bit >>= 1;
        }
        all
    }

    /// The ranks of a group give each other something: `mine` is what this rank has for each of them, in the order of the
    /// group, and what comes back is what each of them has for this rank. An error that stands in for something is told
    /// to that rank, so that nobody waits for one who has failed. All ranks of the group call it, with the same group, and
    /// all ranks of the fabric call it as often, or [`FabricExt::abstain`]. `mine` must be as long as the group, which has
    /// this rank in it.
    fn swap(&self, tag: u32, group: &[usize], mine: Vec<Result<Vec<u8>>>) -> Vec<Heard> {
        let rounds = self.rounds().of(tag);
        let mut round = lock(&rounds);
        round.number += 1;
        let mut own = None;
        let mut failed: Vec<Option<Error>> = Vec::with_capacity(group.len());
        for (rank, bytes) in group.iter().zip(mine) {
            if *rank == self.rank() {
                own = Some(bytes);
                failed.push(None);
            } else {
                let frame = numbered(round.number, &say(&bytes));
                // All of the bytes at once would be twice what they take.
                drop(bytes);
                failed.push(self.send(*rank, tag, frame).err());
            }
        }
        let hears = |(rank, failed): (&usize, Option<Error>)| match (*rank == self.rank(), failed) {
            (true, _) => own.take().map_or_else(|| Err(malformed()), Ok),
            (false, Some(e)) => Err(e),
            (false, None) => hear(self, &mut round, *rank, tag).map(|said| heard(&said)),
        };
        group.iter().zip(failed).map(hears).collect()
    }

    /// Takes no part in a [`FabricExt::swap`] of these ranks, or in a [`FabricExt::collect`] by the only one of them that there
    /// is: tells them why, if they are there, and waits for nobody.
    fn abstain(&self, tag: u32, group: &[usize], error: &Error) {
        let rounds = self.rounds().of(tag);
        let mut round = lock(&rounds);
        round.number += 1;
        let why = say(&Err(Error::new(error.kind(), error.message())));
        for rank in group.iter().filter(|rank| **rank != self.rank()) {
            // Who is gone need not be told.
            let _ = self.send(*rank, tag, numbered(round.number, &why));
        }
    }

    /// Rank 0 gets the bytes of every rank, by rank, or the error that stands in for them; the others get nothing.
    fn collect(&self, tag: u32, mine: Result<Vec<u8>>) -> Result<Vec<Heard>> {
        let rounds = self.rounds().of(tag);
        let mut round = lock(&rounds);
        round.number += 1;
        if self.rank() != 0 {
            self.send(0, tag, numbered(round.number, &say(&mine)))?;
            return Ok(Vec::new());
        }
        let others =
            (1..self.size()).map(|from| hear(self, &mut round, from, tag).map(|said| heard(&said)));
        Ok(std::iter::once(Ok(mine)).chain(others).collect())
    }

    /// Every rank gets every rank's bytes, by rank. Uses `tag` and `tag + 1`.
    fn all_gather(&self, tag: u32, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let framed = frame(&[bytes]);
        let all = self.all_reduce(tag, framed, &mut |mut a, b| {
            a.extend_from_slice(&b);
            Ok(a)
        })?;
        let parts = unframe(&all)?;
        if parts.len() != self.size() {
            return Err(malformed());
        }
        Ok(parts.into_iter().map(<[u8]>::to_vec).collect())
    }
}

impl<F: Fabric + ?Sized> FabricExt for F {}

fn malformed() -> Error {
    Error::format("a frame from another rank is malformed")
}

/// A frame of a round.
fn numbered(round: u64, bytes: &[u8]) -> Vec<u8> {
    [round.to_le_bytes().as_slice(), bytes].concat()
}

/// Waits for a frame of this round. Those of rounds that were given up here, one of each at most, are dropped; one of a later
/// round is an error, and kept for that.
fn hear<F: Fabric + ?Sized>(
    fabric: &F,
    round: &mut Round,
    from: usize,
    tag: u32,
) -> Result<Vec<u8>> {
    let number = round.number;
    for _ in 0..number {
        let mut said = match round.take(from, tag) {
            Some(said) => said,
            None => fabric.recv(from, tag)?,
        };
        let theirs = *said.first_chunk().ok_or_else(malformed)?;
        let theirs = u64::from_le_bytes(theirs);
        if theirs == number {
            said.drain(..size_of::<u64>());
            return Ok(said);
        }
        if theirs > number {
            round.keep(from, tag, said);
            let message = format!(
                "the rank is at round {theirs} of what all ranks do together, this one at {number}"
            );
            return Err(Error::usage(message)
                .at_rank(from)
                .with_hint("all ranks must make the same collective calls in the same order"));
        }
    }
    Err(malformed())
}

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
    let bad = malformed;
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

/// Several byte strings as one.
pub fn frame(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    frame_after(&mut out, parts);
    out
}

/// Appends several byte strings as one.
pub fn frame_after(out: &mut Vec<u8>, parts: &[Vec<u8>]) {
    out.reserve(parts.iter().map(|p| size_of::<u64>() + p.len()).sum());
    for p in parts {
        out.extend_from_slice(&(p.len() as u64).to_le_bytes());
        out.extend_from_slice(p);
    }
}

/// What [`frame`] has made one of. An error of kind `Format` for what is none.
pub fn unframe(mut bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_first_chunk().ok_or_else(malformed)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| malformed())?;
        let (part, rest) = rest.split_at_checked(len).ok_or_else(malformed)?;
        out.push(part);
        bytes = rest;
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
            let mut ranks = Local::group_with_deadline(size, Duration::from_secs(120));
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

    /// Two ranks; the first one waits for nothing longer than a moment.
    fn hasty() -> (Local, Local) {
        let mut ranks = Local::group_with_deadline(2, Duration::from_millis(300));
        let mut slow = ranks.pop().unwrap();
        slow.set_deadline(Duration::from_secs(60));
        (ranks.pop().unwrap(), slow)
    }

    #[test]
    fn frames_that_come_too_late_are_not_taken_for_those_of_the_next_round() {
        let (hasty, slow) = hasty();
        let all = [b"new".to_vec(), b"new too".to_vec()];
        assert_eq!(hasty.all_gather(5, b"old".to_vec()).unwrap_err().kind(), Kind::Peer);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // It comes after the other one has given up, and hears of it.
                let e = slow.all_gather(5, b"late".to_vec()).unwrap_err();
                assert!(e.message().starts_with("no message within"), "{e}");
                assert_eq!(slow.all_gather(5, all[1].clone()).unwrap(), all);
            });
            // What came late, and what comes next.
            while hasty.lying() < 2 {
                std::thread::yield_now();
            }
            assert_eq!(hasty.all_gather(5, all[0].clone()).unwrap(), all);
        });
        assert_eq!((hasty.lying(), slow.lying()), (0, 0));
    }

    #[test]
    fn what_is_sent_down_or_up_too_late_is_dropped() {
        let (first, mut second) = hasty();
        second.set_deadline(Duration::from_millis(10));
        assert!(second.broadcast(1, vec![]).is_err());
        for byte in [1, 2] {
            first.broadcast(1, vec![byte]).unwrap();
        }
        // The first one was meant for the call that has failed.
        assert_eq!(second.broadcast(1, vec![]).unwrap(), [2]);
        let mut sum = |a: Vec<u8>, b: Vec<u8>| Ok(vec![a[0] + b[0]]);
        assert!(first.reduce(2, vec![10], &mut sum).is_err());
        for byte in [1, 2] {
            second.reduce(2, vec![byte], &mut sum).unwrap();
        }
        assert_eq!(first.reduce(2, vec![10], &mut sum).unwrap(), Some(vec![12]));
    }

    #[test]
    fn ranks_that_have_done_different_things_are_told() {
        let (first, second) = hasty();
        for byte in [1, 2] {
            second.send(0, 7, numbered(2, &[byte])).unwrap();
        }
        let e = first.all_gather(7, vec![]).unwrap_err();
        assert_eq!((e.kind(), e.place().rank), (Kind::Usage, Some(1)));
        // What came too early comes in its time.
        second.send(0, 8, numbered(2, &[5])).unwrap();
        let mut sum = |a: Vec<u8>, b: Vec<u8>| Ok(vec![a[0] + b[0]]);
        assert_eq!(first.reduce(8, vec![1], &mut sum).unwrap_err().kind(), Kind::Usage);
        assert_eq!(first.reduce(8, vec![1], &mut sum).unwrap(), Some(vec![6]));
        // Not as many as others say, and not what is no frame.
        for frame in [numbered(1, &say(&Ok(vec![]))), vec![1; 7]] {
            second.send(0, 9, frame).unwrap();
            assert_eq!(first.all_gather(9, vec![]).unwrap_err().kind(), Kind::Format);
        }
    }

    #[test]
    fn groups_swap_and_rank_0_collects_what_each_has_or_why_it_has_nothing() {
        let ranks = Local::group_with_deadline(5, Duration::from_secs(60));
        std::thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(|| {
                    let me = rank.rank();
                    let group: &[usize] = if me < 2 { &[1, 0] } else { &[4, 2, 3] };
                    let bytes = |to: &usize| match (me, *to) {
                        (4, 2) => Err(Error::data("none for you")),
                        (from, to) => Ok(vec![from as u8, to as u8]),
                    };
                    for _ in 0..3 {
                        let got = rank.swap(3, group, group.iter().map(bytes).collect());
                        for (from, got) in group.iter().zip(got) {
                            match (*from, me) {
                                (4, 2) => assert_eq!(got.unwrap().unwrap_err().kind(), Kind::Data),
                                (from, to) => {
                                    assert_eq!(got.unwrap().unwrap(), [from as u8, to as u8]);
                                }
                            }
                        }
                    }
                    let mine =
                        if me == 3 { Err(Error::data("nothing")) } else { Ok(vec![me as u8]) };
                    let all = rank.collect(4, mine).unwrap();
                    let byte = |b: &Heard| b.as_ref().unwrap().as_ref().ok().map(|b| b[0]);
                    let all: Vec<_> = all.iter().map(byte).collect();
                    let want = [Some(0), Some(1), Some(2), None, Some(4)];
                    assert_eq!(all, if me == 0 { want.to_vec() } else { Vec::new() });
                });
            }
        });
    }

    #[test]
    fn nobody_waits_for_one_that_is_gone() {
        let mut ranks = Local::group_with_deadline(3, Duration::from_secs(60));
        drop(ranks.remove(1));
        for rank in &ranks {
            let other = if rank.rank() == 0 { 2 } else { 0 };
            rank.send(other, 9, vec![]).unwrap();
        }
        std::thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(|| {
                    let got = rank.swap(3, &[0, 1, 2], vec![Ok(vec![1]), Ok(vec![2]), Ok(vec![3])]);
                    let kinds: Vec<_> =
                        got.iter().map(|g| g.as_ref().err().map(Error::kind)).collect();
                    assert_eq!(kinds, [None, Some(Kind::Peer), None]);
                    let all = rank.collect(4, Ok(vec![])).unwrap();
                    assert!(rank.rank() != 0 || all[1].is_err() && all[2].is_ok());
                });
            }
        });
    }

    #[test]
    fn who_abstains_is_not_waited_for_and_comes_back() {
        let ranks = Local::group_with_deadline(3, Duration::from_secs(60));
        let group = [0, 1, 2];
        std::thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(|| {
                    if rank.rank() == 1 {
                        let e = Error::data("not with me");
                        rank.abstain(3, &group, &e);
                        rank.abstain(4, &[0], &e);
                    } else {
                        let got = rank.swap(3, &group, group.map(|_| Ok(vec![1])).into());
                        let e = got[1].as_ref().unwrap().as_ref().unwrap_err();
                        assert_eq!((e.kind(), e.message()), (Kind::Data, "not with me"));
                        let all = rank.collect(4, Ok(vec![])).unwrap();
                        assert!(rank.rank() != 0 || all[1].as_ref().unwrap().is_err());
                    }
                    let got = rank.swap(3, &group, group.map(|_| Ok(vec![2])).into());
                    assert!(got.into_iter().all(|g| g.unwrap().unwrap() == [2]));
                    let all = rank.collect(4, Ok(vec![3])).unwrap();
                    assert!(all.into_iter().all(|g| g.unwrap().unwrap() == [3]));
                });
            }
        });
    }

    #[test]
    fn threads_of_a_rank_come_one_after_the_other() {
        let ranks = Local::group_with_deadline(3, Duration::from_secs(60));
        std::thread::scope(|scope| {
            for rank in &ranks {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..50 {
                            let all = rank.all_gather(3, vec![rank.rank() as u8]).unwrap();
                            assert_eq!(all, [[0], [1], [2]]);
                        }
                    });
                }
            }
        });
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
