//! Arguments of `stead flow`.

use super::Described;
use clap::{Args, Subcommand};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  stead flow check small.toml
  stead flow check small.toml --live
  stead flow show small.toml
  stead flow show small.toml -o small.svg
  stead flow run small.toml
  stead flow run small.toml --steps 100 --format json
  for r in 0 1 2 3; do stead flow run small.toml --rank $r --ranks 4 & done; wait
  stead flow run warmer.toml --load
  mpirun --host node1,node2 stead flow run small.toml
  stead flow run small.toml --background --on node7
  stead flow list
  stead flow wait 3 --on node7
  stead flow cancel 3
  stead flow list --user ada --all
With --background the daemon of a node runs it, with the rights of this user, until it is over or the daemon ends.
A flow reads streams, works on their variables, and writes streams. Its file is TOML:
  [read.sim]
  [node.mean]
  op = \"reduce\"
  of = \"sim.T\"
  how = \"mean\"
  over = [\"y\"]
  [write.small]
  variables = { mean = \"mean\" }
Exit status: 0 done, 1 it could not be done, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FlowArgs {
    #[command(subcommand)]
    pub what: FlowVerb,
}

#[derive(Debug, Subcommand)]
pub enum FlowVerb {
    /// Say whether a flow makes sense: names, cycles, parameters, and types and shapes of what is declared
    Check {
        /// Its file
        file: PathBuf,
        /// Look at the streams that it reads, too, which are there now or were recorded: their variables are to be what the flow needs
        #[arg(long)]
        live: bool,
        /// How to print what it is
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Show the operators of a flow as a table, or draw them
    Show {
        /// Its file
        file: PathBuf,
        /// Draw it into this file: .svg or .png
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Run a flow until one of the streams that it reads has ended
    Run(FlowRunArgs),
    /// List the flows that the daemon of a node runs for this user
    List {
        /// Those that are over, too: the latest ones, for an hour
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        of: FlowOf,
        /// How to print them
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Wait until a flow that a daemon runs is over, and print what it has done
    Wait {
        /// Its number
        #[arg(value_name = "FLOW")]
        flow: i64,
        /// Wait no longer than this, such as 90s
        #[arg(long, value_name = "TIME", value_parser = super::admin::time)]
        timeout: Option<u64>,
        #[command(flatten)]
        of: FlowOf,
        /// How to print what was done
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Give up a flow that a daemon runs: readers of what it writes are told
    Cancel {
        /// Its number
        #[arg(value_name = "FLOW")]
        flow: i64,
        #[command(flatten)]
        of: FlowOf,
        /// How to print what was done
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
}

/// Whose flows, and where.
#[derive(Debug, Args)]
pub struct FlowOf {
    /// Ask the daemon of another node of the pool
    #[arg(long, value_name = "NODE", value_parser = super::stage::node)]
    pub on: Option<String>,
    /// Those of another user, by name or number, as an administrator of the daemon
    #[arg(long)]
    pub user: Option<String>,
}

const RUN_EXAMPLES: &str = "Examples:
  stead flow run small.toml
  stead flow run small.toml --steps 100 --format json
  mpirun --host node1,node2 stead flow run small.toml
  stead flow run small.toml --background --on node7";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct FlowRunArgs {
    /// Its file
    pub file: PathBuf,
    /// Which of several processes that share the work this is, from 0 on. Ranks that a launcher (mpirun, srun) has started know it
    /// themselves
    #[arg(long, value_name = "N")]
    pub rank: Option<u64>,
    /// How many processes share the work, each of which has a part of every array
    #[arg(long, value_name = "N")]
    pub ranks: Option<u64>,
    /// Run alone though a launcher (mpirun, srun) has started several ranks
    #[arg(long)]
    pub alone: bool,
    /// Have the daemon of this node run it, print its number, and do not wait
    #[arg(long, conflicts_with_all = ["rank", "ranks", "alone", "load"])]
    pub background: bool,
    /// Have the daemon of another node of the pool run it
    #[arg(long, value_name = "NODE", requires = "background", value_parser = super::stage::node)]
    pub on: Option<String>,
    /// Load functions from the libraries that the file names (function = "lib.so:name"). Their code is run: for flows that you trust
    #[arg(long)]
    pub load: bool,
    /// Stop after so many steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Threads; 0 is as many as there are processors
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Memory for arrays that are made or copied
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = super::size)]
    pub memory: u64,
    /// Wait so long for streams to begin, for each step, and for those who read what is written, such as 90s
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = super::admin::time)]
    pub timeout: u64,
    /// How to print what was done
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,
}
