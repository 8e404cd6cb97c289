//! All ranks of an MPI job read one file together: each byte comes from the file system once, whichever rank asks.
//!
//! With `stead` and `stead-mpi`, with its feature `link`, among the dependencies: `mpirun -n 4 ./read FILE`

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use stead::fabric::{Fabric, FabricExt};
use stead::{Error, Result};
use stead_mpi::{Mpi, Options, World};

/// Messages of this program have a tag of their own, and the next one.
const SUM: u32 = 1;

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| Error::usage("name a file"))?;
    // A program that calls MPI_Init_thread itself, with MPI_THREAD_MULTIPLE, does without this.
    let _world = World::init()?;
    let fabric: Arc<dyn Fabric> = Arc::new(Mpi::world(Options::default())?);
    let (rank, ranks) = (fabric.rank() as u64, fabric.size() as u64);

    // These two are collective.
    let file = stead::read::ranks::open(fabric.clone(), &path, &stead::read::Options::default())?;
    let session = file.session(..)?;
    // Reads are not: any rank, any thread, any range, at any time. The last rank takes what is left over, too.
    let share = file.len() / ranks;
    let first = share * rank;
    let end = if rank == ranks - 1 { file.len() } else { first + share };
    let view = session.read(first, (end - first) as usize).wait()?;
    let sum: u64 = view.iter().map(|byte| u64::from(*byte)).sum();

    let sums = fabric.all_gather(SUM, sum.to_le_bytes().to_vec())?;
    let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().map(u64::from_le_bytes).unwrap_or(0);
    if rank == 0 {
        println!("sum of the bytes: {}", sums.iter().map(number).sum::<u64>());
    }
    session.close()
}
