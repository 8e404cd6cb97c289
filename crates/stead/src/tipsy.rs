//! Tipsy snapshots, loaded in parallel: each task gets its share of the particles as arrays.
//!
//! A [`Snapshot`] is a file that is open in a read session. Tasks, however many there are, ask for their shares from any
//! thread; shares are whole records, so no task has to know where its bytes begin. Kernels over snapshots need none of
//! this: [`crate::open`] knows the format.
//!
//! ```
//! use stead::tipsy::{self, Species};
//! # use stead::{ByteOrder, DType};
//! # fn main() -> stead::Result<()> {
//! # let path = std::env::temp_dir().join(format!("stead-doc-{}.tipsy", std::process::id()));
//! # let header = tipsy::Header::new(0.5, [0, 10, 0], ByteOrder::Big, DType::F32, DType::F32)?;
//! # let mut bytes = header.encode();
//! # (0..90).for_each(|i| bytes.extend((i as f32).to_be_bytes()));
//! # std::fs::write(&path, bytes).expect("write");
//! let snapshot = tipsy::open(&path, &stead::read::Options::default())?;
//! assert_eq!(snapshot.header().count(Species::Dark), 10);
//! // Task 1 of 4 has particles 2 to 4.
//! let share = snapshot.load(Species::Dark, 1, 4, &["mass", "x"])?;
//! assert_eq!((share.first, share.len()), (2, 3));
//! assert_eq!(share.column("mass"), Some(&tipsy::Values::F32(vec![18.0, 27.0, 36.0])));
//! # std::fs::remove_file(&path).expect("remove");
//! # Ok(())
//! # }
//! ```

use crate::fabric::Fabric;
use crate::read::{File, Options, Read, Session, View, ranks};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use stead_format::tipsy::{Field, HEADER_BYTES, Header, Part, Particles, Species, Values};

/// Bytes of one request, in whole records.
const PIECE_BYTES: u64 = 1 << 20;
/// Requests of one task that are under way.
const PIECES: usize = 4;
/// How often it is asked whether to go on: while waiting, and after so many pieces.
const LOOKS: Duration = Duration::from_millis(50);
const LOOKS_AFTER: u64 = 64;

/// A Tipsy file in a read session. It may be shared by threads.
pub struct Snapshot {
    session: Arc<Session>,
    header: Header,
}

/// Opens a snapshot. What is read is what tasks ask for: `ahead` of the options is not used, because the other tasks may
/// be those of other processes.
///
/// # Errors
/// As [`crate::read::open`], and `Format` for a file that is no snapshot, or not a whole one.
pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Snapshot> {
    of(crate::read::open(path, &Options { ahead: false, ..options.clone() })?)
}

/// Opens a snapshot on all ranks of a fabric, which then load their shares without each other. Each byte is read from the
/// file system by one rank, and ranks that cannot open the file get its bytes from those that can.
///
/// Collective: all ranks give the same path and options.
///
/// # Errors
/// As [`ranks::open`], and `Format`, on all ranks, for a file that is no snapshot, or not a whole one.
pub fn open_ranks(
    fabric: Arc<dyn Fabric>,
    path: impl AsRef<Path>,
    options: &Options,
) -> Result<Snapshot> {
    of(ranks::open(fabric, path, options)?)
}

/// The snapshot in a file that is open. It begins a session over the whole file: for a file of [`ranks::open`] all ranks
/// call it.
///
/// # Errors
/// Those of reading, and `Format` for a file that is no snapshot, or not a whole one.
pub fn of(file: File) -> Result<Snapshot> {
    let session = file.session(..)?;
    let len = usize::try_from(file.len()).unwrap_or(HEADER_BYTES).min(HEADER_BYTES);
    let start = session.read(0, len).wait()?;
    let parse = |bytes: &[u8]| Header::parse(bytes, file.len()).map_err(|e| e.at_path(file.path()));
    let header = look_at(&start, parse)?;
    Ok(Snapshot { session: Arc::new(session), header })
}

/// What is made of the bytes of a view. That they were not to be had comes before what was found in them, which were zeros.
fn look_at<T>(view: &View, look: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    let found = look(view);
    view.check()?;
    found
}

impl Snapshot {
    /// What the file is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The session, for who wants the bytes: [`Header::part`] says where those of a share lie, and [`Particles::add`] makes
    /// arrays of them.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The particles of task `task` of `tasks` ([`Header::part`]), of the columns named; all columns if none are.
    ///
    /// It waits for the bytes piece by piece, so that memory beside the arrays is a few MiB, and turns each into numbers
    /// while the next ones are read.
    ///
    /// # Errors
    /// `Usage` for a task or a column that there is not, `Limit` if the arrays do not fit the memory; errors of reading,
    /// `Changed` among them if the file became shorter.
    pub fn load(
        &self,
        species: Species,
        task: usize,
        tasks: usize,
        columns: &[&str],
    ) -> Result<Particles> {
        self.load_while(species, task, tasks, columns, &mut || Ok(()))
    }

    /// As [`Snapshot::load`]. `go_on` is called while it waits, every 50 ms, and for every 64 MiB; an error of it ends
    /// the loading and is returned.
    ///
    /// # Errors
    /// Those of [`Snapshot::load`] and of `go_on`.
    pub fn load_while(
        &self,
        species: Species,
        task: usize,
        tasks: usize,
        columns: &[&str],
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Particles> {
        let part = self.header.part(species, task, tasks)?;
        let mut particles = Particles::new(&self.header, species, part.first, columns)?;
        particles.reserve(part.count).map_err(|e| e.at_path(self.session.file().path()))?;
        self.pieces(species, &part, go_on, &mut |view| look_at(view, |v| particles.add(v)))?;
        Ok(particles)
    }

    /// As [`Snapshot::load`], piece by piece: `each` gets the particles, up to 1 MiB of them at a time, in their order,
    /// and may copy them to where they are needed. Their memory is used again for the next piece.
    ///
    /// # Errors
    /// Those of [`Snapshot::load`] and of `each`, which ends the loading.
    pub fn load_each(
        &self,
        species: Species,
        task: usize,
        tasks: usize,
        columns: &[&str],
        each: &mut dyn FnMut(&Particles) -> Result<()>,
    ) -> Result<()> {
        let part = self.header.part(species, task, tasks)?;
        let mut particles = Particles::new(&self.header, species, part.first, columns)?;
        let mut next = part.first;
        self.pieces(species, &part, &mut || Ok(()), &mut |view| {
            particles.clear();
            particles.first = next;
            look_at(view, |v| particles.add(v))?;
            next += particles.len() as u64;
            each(&particles)
        })
    }

    /// Reads the records of a part, some of them at a time, and has them looked at in their order.
    fn pieces(
        &self,
        species: Species,
        part: &Part,
        go_on: &mut dyn FnMut() -> Result<()>,
        look: &mut dyn FnMut(&View) -> Result<()>,
    ) -> Result<()> {
        let record = self.header.record_bytes(species);
        let step = PIECE_BYTES / record * record;
        let end = part.range().end;
        let mut next = part.offset;
        let mut ahead: VecDeque<Read> = VecDeque::with_capacity(PIECES);
        for piece in 1_u64.. {
            while ahead.len() < PIECES && next < end {
                let len = step.min(end - next);
                let bytes = usize::try_from(len)
                    .map_err(|_| Error::internal("a piece of records beyond the memory"))?;
                ahead.push_back(self.session.read(next, bytes));
                next += len;
            }
            let Some(mut read) = ahead.pop_front() else { break };
            let view = loop {
                match read.wait_for(LOOKS) {
                    Some(answer) => break answer?,
                    None => go_on()?,
                }
            };
            look(&view)?;
            if piece % LOOKS_AFTER == 0 {
                go_on()?;
            }
        }
        Ok(())
    }

    /// Ends it and says whether the file is still what it was. The session goes on for who still has it.
    ///
    /// # Errors
    /// `Changed` if somebody wrote to the file.
    pub fn close(self) -> Result<()> {
        self.session.check()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn a_header_that_went_away_is_no_odd_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        std::fs::write(&path, [1; 1000]).unwrap();
        let file = crate::read::open(&path, &Options::default()).unwrap();
        let start = file.session(..).unwrap().read(0, HEADER_BYTES).wait().unwrap();
        let header = |bytes: &[u8]| Header::parse(bytes, file.len());
        assert_eq!(look_at(&start, header).err().unwrap().kind(), Kind::Format);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert_eq!(look_at(&start, header).err().unwrap().kind(), Kind::Changed);
    }
}
