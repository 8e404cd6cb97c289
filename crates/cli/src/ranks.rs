//! The ranks that a launcher (`mpirun`, `srun`) has started: one report, one error, and the same exit code for all.

use stead::fabric::Fabric;
use stead::{Error, Result};

/// Variables with the number of ranks, and of this one: Open MPI, MPICH and those of its kind, and Slurm.
const LAUNCHERS: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
];

/// How many ranks a launcher says that it has started, if there are several, and which of them this is.
fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<(usize, usize)> {
    let number = |name: &str| variable(name)?.parse::<usize>().ok();
    LAUNCHERS
        .iter()
        .find_map(|(size, rank)| Some((number(size)?, number(rank)?)))
        .filter(|(size, _)| *size > 1)
}

fn environment() -> Option<(usize, usize)> {
    launched(|name| std::env::var(name).ok())
}

/// Says so, once, if this is one of several that do the same, each alone.
fn note_alone() {
    if let Some((size, 0)) = environment() {
        crate::complain(&alone(size));
    }
}

fn alone(size: usize) -> Error {
    let message = format!("{size} ranks were started, and each of them does all of it, alone");
    Error::usage(message).with_hint(
        "this stead was built without MPI: 'make install MPI=1' installs one whose ranks work together",
    )
}

#[cfg(feature = "mpi")]
use with_mpi::join;

#[cfg(feature = "mpi")]
mod with_mpi {
    use super::environment;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;
    use stead::fabric::Fabric;
    use stead::{Error, Result};
    use stead_mpi::{Mpi, Options, World};

    /// The ranks of the launcher.
    pub struct Job {
        pub fabric: Arc<dyn Fabric>,
        /// Ended last of all.
        _world: World,
    }

    /// Others may never come: a rank that runs this command as a child, perhaps alone, gives it what the launcher has set.
    const LATE: Duration = Duration::from_secs(10);

    fn tell_if_late(begun: &Arc<AtomicBool>, size: usize) {
        let begun = begun.clone();
        let wait = move || {
            let (_sender, never) = mpsc::channel::<()>();
            let _ = never.recv_timeout(LATE);
            if !begun.load(Ordering::Relaxed) {
                let seconds = LATE.as_secs();
                let message =
                    format!("MPI has not begun for {seconds} s: it waits for {size} ranks");
                let hint = "all ranks run the same command; with --alone it joins no others";
                crate::complain(&Error::usage(message).with_hint(hint));
            }
        };
        // Without a thread for it, it is not told.
        let _ = std::thread::Builder::new().name("stead-late".into()).spawn(wait);
    }

    /// Joins the others, if a launcher has started several. All of them call this.
    ///
    /// # Errors
    /// Those of MPI.
    pub fn join() -> Result<Option<Job>> {
        let Some((size, rank)) = environment() else { return Ok(None) };
        let begun = Arc::new(AtomicBool::new(false));
        tell_if_late(&begun, size);
        let world = World::init();
        begun.store(true, Ordering::Relaxed);
        let world = world?;
        let mut options = Options::default();
        let silence = std::env::var("STEAD_PEER_SILENCE_S").ok().and_then(|s| s.parse().ok());
        if let Some(seconds) = silence.filter(|s| *s > 0) {
            options.silence = Duration::from_secs(seconds);
        }
        let fabric = Mpi::world(options)?;
        if fabric.size() == size {
            return Ok(Some(Job { fabric: Arc::new(fabric), _world: world }));
        }
        // Each would be a job of its own.
        let message = format!(
            "{size} ranks were started, and the MPI of this stead sees {}: they are of different kinds",
            fabric.size()
        );
        let error = Error::usage(message)
            .with_hint("start it with the mpirun of the MPI that it was built with (make install MPI=1 MPICC=...), or with srun --mpi=pmix or --mpi=pmi2");
        Err(if rank == 0 { error } else { super::told(error) })
    }
}

/// Time for last words to reach the other ranks.
#[cfg(feature = "mpi")]
const WAY: std::time::Duration = std::time::Duration::from_secs(1);

/// Does something with the other ranks of the launcher, if there are any. The first rank tells an error of all; who has lost
/// the others tells it, too. And at once: launchers end all ranks when one has ended so, which none does before this one is
/// done with MPI.
pub fn with<T>(work: impl FnOnce(Option<&std::sync::Arc<dyn Fabric>>) -> Result<T>) -> Result<T> {
    #[cfg(feature = "mpi")]
    if let Some(job) = join()? {
        return work(Some(&job.fabric)).map_err(|e| {
            let lost = e.kind() == stead::Kind::Peer;
            if job.fabric.rank() == 0 || lost {
                crate::complain(&e);
            }
            if lost {
                // What the others are told is on its way, by another thread. Then it ends without MPI, which would wait for the one
                // who is gone.
                let (_sender, never) = std::sync::mpsc::channel::<()>();
                let _ = never.recv_timeout(WAY);
                std::mem::forget(job);
            }
            told(e)
        });
    }
    note_alone();
    work(None)
}

/// Does something that ranks do side by side, each with an error of its own: who has one tells it and ends, without the others.
#[cfg(feature = "mpi")]
pub fn beside<T>(work: impl FnOnce(Option<&std::sync::Arc<dyn Fabric>>) -> Result<T>) -> Result<T> {
    let Some(job) = join()? else { return work(None) };
    work(Some(&job.fabric)).map_err(|e| {
        crate::complain(&e);
        // MPI would wait for the others, which a launcher ends when one has ended so.
        let (_sender, never) = std::sync::mpsc::channel::<()>();
        let _ = never.recv_timeout(WAY);
        std::mem::forget(job);
        told(e)
    })
}

/// An error that was told already, or that another rank tells.
#[cfg(feature = "mpi")]
pub fn told(error: Error) -> Error {
    TOLD.store(true, std::sync::atomic::Ordering::Relaxed);
    error
}

static TOLD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// True if the error of this process needs no telling.
pub fn is_told() -> bool {
    TOLD.load(std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_what_they_set() {
        let of = |set: &'static [(&str, &str)]| {
            launched(move |name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(of(&[]), None);
        let open_mpi = &[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3")];
        assert_eq!(of(open_mpi), Some((4, 3)));
        assert_eq!(of(&[("PMI_SIZE", "2"), ("PMI_RANK", "0")]), Some((2, 0)));
        assert_eq!(of(&[("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_PROCID", "1")]), Some((8, 1)));
        // One rank is no job, and half of a number none.
        assert_eq!(of(&[("PMI_SIZE", "1"), ("PMI_RANK", "0")]), None);
        assert_eq!(of(&[("PMI_SIZE", "x"), ("PMI_RANK", "0")]), None);
        // A batch script of Slurm, before srun.
        assert_eq!(of(&[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0")]), None);
    }
}
