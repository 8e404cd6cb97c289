//! A trial on all ranks.

use crate::engine::Counts;
use crate::trial::{Took, Trial};
use stead_core::{Error, Kind, Result};
use stead_fabric::kinds::{kind, number};
use stead_fabric::{Fabric, FabricExt};

const TAG: u32 = 0x5EAD_0100;

/// The part of a trial that is this rank's: of all tasks its share, in the order of ranks.
pub fn share(fabric: &dyn Fabric, trial: &Trial) -> Trial {
    let (rank, size) = (fabric.rank() as u128, fabric.size() as u128);
    let tasks = trial.tasks.max(1);
    // Below the number of tasks.
    let cut = |rank: u128| u64::try_from(u128::from(tasks) * rank / size).unwrap_or(tasks);
    Trial { part: Some(cut(rank)..cut(rank + 1)), ..trial.clone() }
}

/// What a trial took on all ranks together: the time of the slowest, and sums. Collective: each rank gives what it has,
/// also if that is an error, and all get the same.
///
/// # Errors
/// That of the first rank with one, though an interruption is told only if nothing else is; `Peer` if a rank is gone.
pub fn gather(fabric: &dyn Fabric, mine: Result<(Took, Counts)>) -> Result<(Took, Counts)> {
    let all = fabric.all_gather(TAG, encode(&mine))?;
    let (mut sum, mut failure) =
        ((Took { bytes: 0, seconds: 0.0, sum: 0 }, Counts::default()), None);
    for (rank, bytes) in all.iter().enumerate() {
        match decode(bytes) {
            Some(Ok(one)) => add(&mut sum, &one),
            Some(Err(error)) => {
                let better =
                    |e: &Error| e.kind() == Kind::Cancelled && error.kind() != Kind::Cancelled;
                if failure.as_ref().is_none_or(better) {
                    failure = Some(error.at_rank(rank));
                }
            }
            None => return Err(Error::format("a message from another rank is malformed")),
        }
    }
    let Some(told) = failure else { return Ok(sum) };
    // With its hint and its place in the file, where it is one's own.
    match mine {
        Err(error) if told.place().rank == Some(fabric.rank()) => Err(error.at_rank(fabric.rank())),
        _ => Err(told),
    }
}

fn add((took, counts): &mut (Took, Counts), (one, its): &(Took, Counts)) {
    took.bytes += one.bytes;
    took.seconds = took.seconds.max(one.seconds);
    took.sum = took.sum.wrapping_add(one.sum);
    counts.requests += its.requests;
    counts.at_once += its.at_once;
    counts.blocks += its.blocks;
    counts.bytes += its.bytes;
    counts.held += its.held;
}

fn encode(mine: &Result<(Took, Counts)>) -> Vec<u8> {
    match mine {
        Ok((t, c)) => {
            let numbers = [
                t.bytes,
                t.seconds.to_bits(),
                t.sum,
                c.requests,
                c.at_once,
                c.blocks,
                c.bytes,
                c.held,
            ];
            let numbers = numbers.iter().flat_map(|n| n.to_le_bytes());
            std::iter::once(0).chain(numbers).collect()
        }
        Err(error) => {
            let text = match &error.place().path {
                Some(_) => error.to_string(),
                None => error.message().to_owned(),
            };
            let hint = error.hint().unwrap_or_default();
            let mut said = vec![number(error.kind())];
            said.extend_from_slice(&(text.len() as u64).to_le_bytes());
            said.extend_from_slice(text.as_bytes());
            said.extend_from_slice(hint.as_bytes());
            said
        }
    }
}

fn decode(bytes: &[u8]) -> Option<Result<(Took, Counts)>> {
    let (sort, rest) = bytes.split_first()?;
    if *sort != 0 {
        let (len, rest) = rest.split_first_chunk()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (text, hint) = (rest.get(..len)?, rest.get(len..)?);
        let error = Error::new(kind(*sort), String::from_utf8_lossy(text));
        let hint = String::from_utf8_lossy(hint);
        return Some(Err(if hint.is_empty() { error } else { error.with_hint(hint) }));
    }
    let (numbers, []) = rest.as_chunks::<8>() else { return None };
    let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
    let [bytes, seconds, sum, requests, at_once, blocks, fetched, held] = numbers[..] else {
        return None;
    };
    let took = Took { bytes, seconds: f64::from_bits(seconds), sum };
    Some(Ok((took, Counts { requests, at_once, blocks, bytes: fetched, held })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::tests::{file, on_ranks, small};
    use crate::trial::{Way, try_out};
    use stead_store::Engine;

    #[test]
    fn ranks_together_read_what_one_does() {
        let (_dir, path, bytes) = file(1_000_003);
        let whole = |tasks, scattered| Trial { tasks, threads: 2, scattered, ..Trial::default() };
        let alone = crate::open(&path, &small(Engine::Auto)).unwrap();
        let expected = try_out(&alone, 0..1_000_003, &whole(10, false), &|_| ()).unwrap();
        assert_eq!(expected.bytes, bytes.len() as u64);
        for engine in [Engine::Auto, Engine::Pread] {
            for (nodes, tasks) in [(&[0][..], 1), (&[0, 0, 0], 2), (&[0, 0, 1], 1000)] {
                let all = on_ranks(nodes, |fabric| {
                    let options = crate::Options { memory: 64 << 20, ..small(engine) };
                    let file = crate::ranks::open(fabric.clone(), &path, &options).unwrap();
                    let trial = share(&*fabric, &whole(tasks, tasks > 2));
                    let took = try_out(&file, 0..1_000_003, &trial, &|_| ()).unwrap();
                    gather(&*fabric, Ok((took, file.counts()))).unwrap()
                });
                for (took, counts) in &all {
                    assert_eq!((took.bytes, took.sum), (expected.bytes, expected.sum));
                    assert_eq!(counts.requests, tasks);
                    assert_eq!(took.seconds, all[0].0.seconds);
                }
            }
        }
        assert_eq!(whole(1, false).way, Way::Views);
    }

    #[test]
    fn an_error_of_one_is_that_of_all() {
        let told = on_ranks(&[0, 0, 1, 1], |fabric| {
            let none = (Took { bytes: 1, seconds: 0.5, sum: 2 }, Counts::default());
            let mine = match fabric.rank() {
                1 => Err(Error::new(Kind::Cancelled, "stopped")),
                2 => Err(Error::new(Kind::Io, "broken")
                    .at_path("f")
                    .at_offset(7)
                    .with_hint("mend it")),
                3 => Err(Error::new(Kind::Timeout, "late")),
                _ => Ok(none),
            };
            gather(&*fabric, mine).unwrap_err()
        });
        for error in &told {
            assert_eq!((error.kind(), error.place().rank), (Kind::Io, Some(2)), "{error}");
            assert_eq!(error.hint(), Some("mend it"));
            assert!(
                error.to_string().contains("f at byte 7") && error.to_string().contains("broken")
            );
        }
    }

    #[test]
    fn messages_of_any_kind_are_told_from_right_ones() {
        for bytes in [
            &[][..],
            &[0],
            &[0; 64],
            &[0; 66],
            &[9; 5],
            &[9, 255, 255, 255, 255, 255, 255, 255, 255],
        ] {
            assert!(decode(bytes).is_none(), "{bytes:?}");
        }
    }
}
