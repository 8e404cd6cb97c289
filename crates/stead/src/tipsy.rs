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

use crate::read::{File, Options, Read, Session};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::path::Path;
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
    file: File,
    session: Session,
    header: Header,
}

/// Opens a snapshot. What is read is what tasks ask for: `ahead` of the options is not used, because the other tasks may
/// be those of other processes.
///
/// # Errors
/// As [`crate::read::open`], and `Format` for a file that is no snapshot, or not a whole one.
pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Snapshot> {
    let file = crate::read::open(path, &Options { ahead: false, ..options.clone() })?;
    let session = file.session(..)?;
    let len = usize::try_from(file.len()).unwrap_or(HEADER_BYTES).min(HEADER_BYTES);
    let start = session.read(0, len).wait()?;
    let header = Header::parse(&start, file.len()).map_err(|e| e.at_path(file.path()))?;
    Ok(Snapshot { file, session, header })
}

impl Snapshot {
    /// What the file is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The session, for who wants the bytes.
    pub fn session(&self) -> &Session {
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
        particles.reserve(part.count).map_err(|e| e.at_path(self.file.path()))?;
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
            particles.add(&view)?;
            view.check()?;
            if piece % LOOKS_AFTER == 0 {
                go_on()?;
            }
        }
        Ok(particles)
    }

    /// Ends the session and says whether the file is still what it was.
    ///
    /// # Errors
    /// `Changed` if somebody wrote to the file.
    pub fn close(self) -> Result<()> {
        self.session.close()
    }
}
