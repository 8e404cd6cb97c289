//! The suite of the fabric on the ranks of an MPI job: `mpirun -n 4 conform`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

// By its path: a feature of the fabric's crate would have all that depends on it built again for this program.
#[path = "../../fabric/src/conformance.rs"]
#[allow(dead_code, clippy::expect_used)]
mod conformance;

use std::process::ExitCode;
use stead_core::{Error, Result};
use stead_fabric::{Fabric, FabricExt};
use stead_mpi::{Mpi, Options, World};

/// What a rank has sent before it leaves comes to the others, who may have left before: and the communicators are given
/// back, of which some MPIs have two thousand.
fn last_words() -> Result<()> {
    let bytes = |i: usize| vec![i as u8; if i.is_multiple_of(8) { 1 << 20 } else { i }];
    // More ranks than cores make them slowly.
    let times = if Mpi::world(Options::default())?.size() == 1 { 2200 } else { 12 };
    for i in 0..times {
        let fabric = Mpi::world(Options::default())?;
        let (rank, size) = (fabric.rank(), fabric.size());
        let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
        // Who takes nothing may be gone already.
        let sent = fabric.send(next, 1, bytes(i));
        if i % 3 > 0 {
            sent?;
            assert_eq!(fabric.recv(last, 1)?, bytes(i));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let outcome = World::init().and_then(|world| {
        // As they are, and with messages in several pieces: all ranks are at the same point when the suite is over.
        for piece in [1 << 30, 300_000] {
            stead_mpi::set_piece(piece);
            let fabric = Mpi::world(Options::default())?;
            conformance::suite(&fabric);
        }
        last_words()?;
        drop(world);
        // MPI begins once; a second time some MPIs end the process.
        match World::init().err() {
            Some(again) if again.message().starts_with("MPI has ended") => Ok(()),
            again => Err(again.unwrap_or_else(|| Error::internal("MPI began twice"))),
        }
    });
    match outcome {
        Ok(()) => {
            println!("conforms");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
