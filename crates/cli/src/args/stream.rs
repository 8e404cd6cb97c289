//! Arguments of `stead stream`.

use super::Described;
use clap::{Args, Subcommand};

const EXAMPLES: &str = "Examples:
  stead stream ls
  stead stream show sim
  stead stream watch sim
  stead stream watch sim --steps 3 --format json
  stead stream rm sim
Programs write and read streams by the library: in Python stead.writer and stead.reader.
Exit status: 0 done, 1 it could not be done, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StreamArgs {
    #[command(subcommand)]
    pub what: StreamVerb,
}

#[derive(Debug, Subcommand)]
pub enum StreamVerb {
    /// List the streams of this user on this node
    Ls {
        /// How to print them
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Show who writes and reads a stream, how far each is, and which steps there are
    Show {
        /// Its name
        name: String,
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Print a line for each step as it becomes complete; nobody waits for this reader
    Watch {
        /// Its name
        name: String,
        /// Stop after so many
        #[arg(long, value_name = "N")]
        steps: Option<u64>,
        /// Wait so long for the stream to begin, and for each step, such as 90s
        #[arg(long, value_name = "TIME", default_value = "10min", value_parser = super::admin::time)]
        timeout: u64,
        /// How to print them: json is one document a line
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Remove a stream that nobody writes or reads any more
    Rm {
        /// Its name
        name: String,
        /// Also one that is written or read: those who do get an error
        #[arg(long)]
        force: bool,
    },
}
