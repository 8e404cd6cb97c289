//! Outputs of kernels that map blocks, written by all ranks of a file system that all of them see.
//!
//! Rank 0 makes the temporary file before the data are read, and the others look whether they see it. While a pass runs, each
//! writes to a file of its own (rank 0: to that one). Then all tell each other how long their parts are, write them at their
//! places, and rank 0 gives the file its name when all have done so.
//!
//! No page of the file is written by two hosts: file systems may keep pages, and write whole ones. A page belongs to the rank
//! whose bytes it begins with; what those after it have in that page they tell all together with the length.

use crate::exchange::Crew;
use crate::sink::Part;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use stead_core::{Error, Result};
use stead_store::{AtomicFile, JointFile};

/// A file that all ranks write.
pub enum Joint {
    /// Rank 0 has it; `None` when its pass has taken it.
    First(PathBuf, Option<AtomicFile>),
    /// The others see it.
    Other(PathBuf, JointFile),
}

impl Joint {
    pub fn path(&self) -> &Path {
        match self {
            Joint::First(path, _) | Joint::Other(path, _) => path,
        }
    }

    /// Removes the temporary name that rank 0, which has ended, has made.
    pub fn remove(&self) {
        if let Joint::Other(_, file) = self {
            file.remove();
        }
    }
}

fn malformed() -> Error {
    Error::format("a message from another rank is malformed")
}

/// Makes these files on rank 0 and finds them on the others.
pub fn open(crew: &Crew<'_>, paths: &[PathBuf]) -> Result<Vec<Joint>> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let mut mine = Ok(Vec::new());
    let mut joints = Vec::new();
    if crew.rank() == 0 {
        let made: Result<Vec<(Vec<u8>, AtomicFile)>> = paths.iter().map(|p| marked(p)).collect();
        mine = made.map(|made| {
            let mut said = Vec::new();
            for (path, (mark, file)) in paths.iter().zip(made) {
                put(&mut said, &mark);
                put(&mut said, file.temporary().as_os_str().as_bytes());
                joints.push(Joint::First(path.clone(), Some(file)));
            }
            said
        });
    }
    let words = crew.gather(mine)?;
    let mut said = words.first().map_or(&[][..], Vec::as_slice);
    let mut find = || {
        for path in paths.iter().filter(|_| crew.rank() != 0) {
            let (mark, temporary) = (take(&mut said)?, take(&mut said)?);
            let file = JointFile::open(path, Path::new(OsStr::from_bytes(temporary)), mark)?;
            joints.push(Joint::Other(path.clone(), file));
        }
        Ok(())
    };
    let found = find();
    crew.agree(found)?;
    Ok(joints)
}

/// A file that begins with a mark that no other one has.
fn marked(path: &Path) -> Result<(Vec<u8>, AtomicFile)> {
    let file = AtomicFile::create(path)?;
    let random = || RandomState::new().hash_one(file.temporary()).to_le_bytes();
    let mark = [random(), random()].concat();
    file.write_at(0, &mark)?;
    file.sync()?;
    Ok((mark, file))
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'b>(said: &mut &'b [u8]) -> Result<&'b [u8]> {
    let (len, rest) = said.split_first_chunk().ok_or_else(malformed)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| malformed())?;
    let (bytes, rest) = rest.split_at_checked(len).ok_or_else(malformed)?;
    *said = rest;
    Ok(bytes)
}

/// What a rank tells of its part.
struct Said {
    /// Bytes before the first part: of rank 0.
    start: u64,
    body: u64,
    /// The first bytes of the part, up to a page.
    head: Vec<u8>,
}

/// Bytes that this rank puts into the file: `len` bytes of `rank`'s part from `skip` on, at `at`.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    rank: usize,
    skip: u64,
    len: u64,
    at: u64,
}

/// What `rank` writes, beside what rank 0 has in place already: whole pages, but at the end of the file.
fn pieces(rank: usize, start: u64, bodies: &[u64], page: u64) -> Result<Vec<Piece>> {
    let large = || Error::limit("the output is longer than 64 bits can say");
    let mut ends = Vec::with_capacity(bodies.len());
    let mut end = start;
    for body in bodies {
        end = end.checked_add(*body).ok_or_else(large)?;
        ends.push(end);
    }
    end.checked_next_multiple_of(page).ok_or_else(large)?;
    let begin = |r: usize| if r == 0 { start } else { ends[r - 1] };
    let from = if rank == 0 { 0 } else { begin(rank).next_multiple_of(page) };
    let to = ends[rank].next_multiple_of(page).min(end);
    let mut found = Vec::new();
    for (r, end) in ends.iter().enumerate().skip(rank) {
        let (a, b) = (begin(r).max(from), to.min(*end));
        if begin(r) >= to {
            break;
        }
        // Rank 0's own is there.
        if a < b && (r, rank) != (0, 0) {
            found.push(Piece { rank: r, skip: a - begin(r), len: b - a, at: a });
        }
    }
    Ok(found)
}

/// Puts the parts of all ranks together. All ranks call this, with their parts of all files in the same order. The outer
/// error is that of all ranks, the inner one this one's; rank 0 gets the files.
pub fn assemble(
    crew: &Crew<'_>,
    parts: Result<Vec<Part>>,
    joints: &[Joint],
) -> Result<Result<Vec<AtomicFile>>> {
    let page = rustix::param::page_size() as u64;
    let mine = parts.and_then(|parts| {
        let mut said = page.to_le_bytes().to_vec();
        for part in &parts {
            let mut head = vec![0; usize::try_from(part.body.min(page)).unwrap_or(0)];
            part.file.read_at(part.start, &mut head)?;
            said.extend_from_slice(&part.start.to_le_bytes());
            said.extend_from_slice(&part.body.to_le_bytes());
            put(&mut said, &head);
        }
        Ok((parts, said))
    });
    let (parts, mine) = match mine {
        Ok((parts, said)) => (parts, Ok(said)),
        Err(e) => (Vec::new(), Err(e)),
    };
    let words = crew.gather(mine)?;
    Ok(write(crew, parts, joints, &words, page))
}

fn write(
    crew: &Crew<'_>,
    parts: Vec<Part>,
    joints: &[Joint],
    words: &[Vec<u8>],
    page: u64,
) -> Result<Vec<AtomicFile>> {
    let mut rest: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    for said in &mut rest {
        if number(said)? != page {
            return Err(Error::usage("ranks have pages of different lengths")
                .with_hint("write the output with ranks on nodes of one kind"));
        }
    }
    let mut files = Vec::new();
    for part in parts {
        let said = rest.iter_mut().map(|said| {
            let (start, body) = (number(said)?, number(said)?);
            Ok(Said { start, body, head: take(said)?.to_vec() })
        });
        let said: Vec<Said> = said.collect::<Result<_>>()?;
        let bodies: Vec<u64> = said.iter().map(|s| s.body).collect();
        let start = said.first().map_or(0, |s| s.start);
        let joint = joints.iter().find_map(|j| match j {
            Joint::Other(path, file) if *path == part.path => Some(file),
            _ => None,
        });
        if joint.is_none() && crew.rank() != 0 {
            return Err(Error::internal("an output of all ranks was not found"));
        }
        for piece in pieces(crew.rank(), start, &bodies, page)? {
            copy(&part, joint, &piece, &said, crew.rank())?;
        }
        match joint {
            Some(file) => file.sync()?,
            None => files.push(part.end(bodies.iter().sum())?),
        }
    }
    Ok(files)
}

fn number(said: &mut &[u8]) -> Result<u64> {
    let (bytes, rest) = said.split_first_chunk().ok_or_else(malformed)?;
    *said = rest;
    Ok(u64::from_le_bytes(*bytes))
}

/// Bytes that are copied at a time.
const COPY: u64 = 1 << 20;

fn copy(
    part: &Part,
    joint: Option<&JointFile>,
    piece: &Piece,
    said: &[Said],
    rank: usize,
) -> Result<()> {
    let put = |at: u64, bytes: &[u8]| match joint {
        Some(file) => file.write_at(at, bytes),
        None => part.file.write_at(at, bytes),
    };
    if piece.rank != rank {
        let head = said.get(piece.rank).map_or(&[][..], |s| s.head.as_slice());
        let from = usize::try_from(piece.skip).unwrap_or(usize::MAX);
        let to = from.saturating_add(usize::try_from(piece.len).unwrap_or(usize::MAX));
        return put(piece.at, head.get(from..to).ok_or_else(malformed)?);
    }
    let mut buffer = vec![0; piece.len.min(COPY) as usize];
    let mut done = 0;
    while done < piece.len {
        let buffer = &mut buffer[..(piece.len - done).min(COPY) as usize];
        part.file.read_at(part.start + piece.skip + done, buffer)?;
        put(piece.at + done, buffer)?;
        done += buffer.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_written_once_and_no_page_by_two(
            start in 0u64..40,
            bodies in prop::collection::vec(prop_oneof![Just(0u64), 0u64..4, 0u64..70], 1..6),
            page in 1u64..20,
        ) {
            let total = start + bodies.iter().sum::<u64>();
            let mut writer = vec![None; total as usize];
            // The header and the first part are in place.
            for byte in &mut writer[..(start + bodies[0]) as usize] {
                *byte = Some(0);
            }
            for rank in 0..bodies.len() {
                for p in pieces(rank, start, &bodies, page).expect("pieces") {
                    let begin = start + bodies[..p.rank].iter().sum::<u64>();
                    prop_assert!(p.len > 0 && p.at == begin + p.skip && p.skip + p.len <= bodies[p.rank]);
                    // Of others only what they have told.
                    prop_assert!(p.rank == rank || p.skip + p.len <= page);
                    for at in p.at..p.at + p.len {
                        prop_assert_eq!(writer[at as usize].replace(rank), None);
                    }
                }
            }
            prop_assert!(writer.iter().all(Option::is_some));
            for of_page in writer.chunks(page as usize) {
                prop_assert!(of_page.iter().all(|w| *w == of_page[0]), "{:?}", writer);
            }
        }
    }

    #[test]
    fn what_is_too_long_is_an_error() {
        assert!(pieces(0, 1, &[u64::MAX, 1], 4096).is_err());
        assert!(pieces(1, 0, &[u64::MAX - 5, 3], 4096).is_err());
    }
}
