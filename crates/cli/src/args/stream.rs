//! Arguments of `stead stream`.

use super::Described;
use clap::{Args, Subcommand};

const EXAMPLES: &str = "Examples:
  stead stream ls
  stead stream ls --here
  stead stream ls --node node3 --node node4
  stead stream ls nvme0://runs
  stead stream show sim
  stead stream show sim --node node3 --timeout 60s
  stead stream explain sim
  stead stream explain sim --readers 8 --format json
  stead stream watch sim
  stead stream watch sim --steps 3 --format json
  stead stream rm sim
  stead stream rm sim --node node3
  stead stream rm sim --all-nodes --timeout 60s
  stead stream show nvme0://runs/sim
Programs write and read streams by the library: in Python stead.writer and stead.reader.
Exit status: 0 done, 1 it could not be done, 2 bad request, 130 interrupted.";

const LISTED: &str = "Examples:
  stead stream ls
  stead stream ls --node node3 --format json
  stead stream ls nvme0://runs
Of what was recorded it looks at the ends of files: arrays are compared with their checksums when they are read.";

const EXPLAINED: &str = "Examples:
  stead stream explain sim
  stead stream explain sim --readers 8 --format json
It goes by the blocks of the last complete step, and by the boxes that each reader has got last. Of a reader \
that has had no step yet nothing is known: rows are assumed then, evenly divided among the ranks of its group. Writers are told of on all nodes \
that are asked: those of the pool, unless all of the stream is written here. Of recorded steps there is stead stream show.";

const REMOVED: &str = "Streams of a name on several nodes may be one or several: each node removes its own, if it is one of this user. Those that do not, as somebody writes or reads it there, or that have not answered, are named, and the exit status is 1: it is removed on the others all the same. Of one that has not answered it is not known whether it has.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StreamArgs {
    #[command(subcommand)]
    pub what: StreamVerb,
}

// The nodes that are asked about streams. What a command does is said where this is flattened, and so not here.
#[derive(Debug, Args)]
pub struct Asked {
    /// Tell of this node of the pool only; may be given several times. Usually all are asked
    #[arg(long = "node", value_name = "NAME", conflicts_with = "here")]
    pub nodes: Vec<String>,
    /// Tell of this node only
    #[arg(long)]
    pub here: bool,
    /// Wait so long for other nodes, such as 90s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::admin::time)]
    pub timeout: u64,
}

#[derive(Debug, Subcommand)]
pub enum StreamVerb {
    /// List the streams of this user on all nodes of the pool, or those that were recorded in a folder
    #[command(after_help = LISTED)]
    Ls {
        /// A folder, as a path or DATASPACE://PATH: list what was recorded in it, and in the folders in it
        #[arg(value_name = "LOCATION", conflicts_with_all = ["nodes", "here"])]
        location: Option<String>,
        #[command(flatten)]
        asked: Asked,
        /// How to print them
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Show who writes and reads a stream, how far each is, and which steps there are, on each node that has its writers
    Show {
        /// Its name, or a folder with recorded steps: a path or DATASPACE://PATH, with a '/' in it
        name: String,
        #[command(flatten)]
        asked: Asked,
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Tell who will get what from whom of a step, what is copied, and what may be slow
    #[command(after_help = EXPLAINED)]
    Explain {
        /// Its name
        name: String,
        /// Assume so many readers beside those that are there, each with its rows of all variables
        #[arg(long, value_name = "N", default_value_t = 0)]
        readers: u64,
        #[command(flatten)]
        asked: Asked,
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Print a line for each step as it becomes complete, and what it has cost; nobody waits for this reader
    Watch {
        /// Its name, or a folder with recorded steps
        name: String,
        /// Stop after so many
        #[arg(long, value_name = "N")]
        steps: Option<u64>,
        /// Pass over steps that are further behind than this: with 1 each line is of the newest step
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        queue: Option<u64>,
        /// Wait so long for the stream to begin, and for each step, such as 90s
        #[arg(long, value_name = "TIME", default_value = "10min", value_parser = super::admin::time)]
        timeout: u64,
        /// How to print them: json is one document a line
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Remove a stream that nobody writes or reads any more: that of this node, unless others are named
    #[command(after_help = REMOVED)]
    Rm {
        /// Its name, or a folder with recorded steps
        name: String,
        /// Also one that is written or read: those who do get an error
        #[arg(long)]
        force: bool,
        /// Remove that of this node of the pool only; may be given several times
        #[arg(long = "node", value_name = "NAME", conflicts_with = "all_nodes")]
        nodes: Vec<String>,
        /// Remove those of all nodes of the pool
        #[arg(long)]
        all_nodes: bool,
        /// Wait so long for other nodes, such as 90s
        #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::admin::time)]
        timeout: u64,
        /// How to print what was removed. The table is there only where other nodes are named
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
}
