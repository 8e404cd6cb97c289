//! The suite of the fabric on the ranks of an MPI job: `mpirun -n 4 conform`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use stead_mpi::{Mpi, Options, World};

fn main() -> ExitCode {
    let outcome = World::init().and_then(|world| {
        for _ in 0..2 {
            let fabric = Mpi::world(Options::default())?;
            stead_fabric::conformance::suite(&fabric);
        }
        drop(world);
        Ok(())
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
