//! Arguments as they are written. What they mean is decided in [`crate::args::Source::open`] and
//! [`crate::run`].

mod admin;
mod flow;
mod stage;
mod stream;

pub use admin::{AdminArgs, AdminVerb, JobVerb, PersistArgs, PersistVerb, ProcessVerb, SpaceVerb};
pub use flow::{FlowArgs, FlowOf, FlowRunArgs, FlowVerb};
pub use stage::{DaemonArgs, DfArgs, ExistsArg, LsArgs, MetricsArgs, StageArgs, TopArgs};
pub use stream::{Asked, StreamArgs, StreamVerb};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use stead::plan::Wish;
use stead::{
    ByteOrder, ColumnType, Compression, DType, Dataset, Engine, Error, FormatType, Header,
    OpenOptions, Quote, Result, Shape, Species, options, units,
};

const EXAMPLES: &str = "Examples:
  stead describe flights.csv
  stead run flights.csv -k rows -k mean:arr_delay
  stead run flights.csv -k mean:arr_delay --by carrier --where 'dep_delay > 0'
  stead run 'logs/*.log' -k lines -k grep:'ERROR.*disk' -k entropy
  stead put flights.csv --over 'nvme@node[1-4]'
  stead kernels kmeans";

/// Keep the data home; send the work: analysis kernels over files where they lie.
#[derive(Debug, Parser)]
#[command(name = "stead", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run kernels over a dataset, in one pass
    Run(Box<RunArgs>),
    /// Show what a dataset is: format, columns, files, a few rows; or what a layout is
    Describe(Box<DescribeArgs>),
    /// Read a file as parallel programs do, by many tasks through a session, and say how fast
    Read(Box<ReadArgs>),
    /// Put a file over nodes: cut it into stripes that lie in their dataspaces
    Put(Box<PutArgs>),
    /// Bring a file back that lies over nodes
    Get(Box<GetArgs>),
    /// Move files and trees between tiers of storage: nothing is lost, whatever ends it
    Stage(Box<StageArgs>),
    /// Show dataspaces: their folder, their room, and how fast transfers to them were
    Df(DfArgs),
    /// List what lies at a place: a folder, a dataspace, a bucket, another node; or the dataspaces
    Ls(LsArgs),
    /// Be the daemon of this node, which does transfers for all who ask it
    Daemon(Box<DaemonArgs>),
    /// Keep data on this node for later, and share them with other users
    Persist(PersistArgs),
    /// Look after streams, by which programs hand arrays to each other in memory
    Stream(StreamArgs),
    /// Compute on streams while they are written: check, draw and run a graph of operators
    Flow(FlowArgs),
    /// Administrate the daemon: dataspaces and quotas, jobs, drain, statistics
    Admin(AdminArgs),
    /// Watch transfers and tiers of the daemon
    Top(TopArgs),
    /// Print numbers about the daemon's transfers, as Prometheus reads them
    Metrics(MetricsArgs),
    /// Measure the machines, for those who choose where to compute
    Calibrate(Box<CalibrateArgs>),
    /// List the kernels, or explain one
    Kernels(KernelsArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  stead completions bash > ~/.local/share/bash-completion/completions/stead"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    #[command(after_help = "Example:\n  stead man ~/.local/share/man/man1")]
    Man {
        /// Where to write; made if it is not there
        dir: PathBuf,
    },
}

const RUN_EXAMPLES: &str = "Examples:
  stead run flights.csv -k rows -k mean:arr_delay -k quantile:arr_delay,q=0.5;0.99
  stead run flights.csv -k mean:arr_delay -k rows --by carrier --format csv
  stead run flights.csv -k gram:dep_delay,arr_delay,distance --where \"origin == 'JFK'\"
  stead run points.npy -k kmeans:'*',k=20,tol=1e-3 --format json
  stead run volume.raw --type raw --dtype f32 --shape 300x300x300 -k render:out=volume.png
  stead run 'logs/*.gz' -k grep:'ERROR.*disk',lines,max=10
  mpirun -n 4 stead run flights.csv -k mean:arr_delay
  mpirun --host store1,node1 stead run flights.csv -k std:arr_delay --storage-hosts store1 --explain

Kernels: 'stead kernels' lists them, 'stead kernels NAME' explains one.
Filters: 'stead kernels where' explains the language of --where.
Exit status: 0 done, 1 bad data or a failed device, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    pub source: Source,

    /// A kernel to run, such as mean:COLUMN; give it once for each
    #[arg(short, long = "kernel", value_name = "SPEC", required = true)]
    pub kernels: Vec<String>,

    /// Only rows for which this holds, such as 'delay > 0 and carrier in (\"UA\", \"AA\")'
    #[arg(long = "where", value_name = "EXPR")]
    pub filter: Option<String>,

    /// Answers for each value of these columns
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub by: Vec<String>,

    /// How to print the results
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// Show the plan and what it took
    #[arg(long)]
    pub explain: bool,

    /// Draw histograms and grouped results into an SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,

    /// Count and skip records that cannot be read, in place of failing
    #[arg(long)]
    pub lenient: bool,

    /// Hosts whose ranks have the data, such as node[1-4], or 'layout' for the nodes of the layout; ranks of other hosts ask for
    /// them
    #[arg(long, value_name = "HOSTS")]
    pub storage_hosts: Option<String>,

    /// Where to compute, with --storage-hosts: pull moves the bytes, vector the columns, push the kernels, split does both
    #[arg(long, value_name = "auto|pull|push|vector|split", value_parser = place, requires = "storage_hosts")]
    pub place: Option<Wish>,

    /// Run alone though a launcher (mpirun, srun) has started several ranks
    #[arg(long)]
    pub alone: bool,

    /// Worker threads of each rank; 0 is one for each processor, which ranks of a node share
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Means")]
    pub threads: usize,

    /// Memory for buffers and states, such as 512MiB; ranks of a node share it
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size, help_heading = "Means")]
    pub memory: u64,

    /// Bytes of one extent; never changes an answer
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Means")]
    pub chunk: Option<u64>,

    /// How to read
    #[arg(long, value_enum, default_value_t, help_heading = "Means")]
    pub engine: EngineArg,

    /// Reads in flight for each thread
    #[arg(long, value_name = "N", help_heading = "Means")]
    pub queue_depth: Option<usize>,

    /// Pass by the page cache (O_DIRECT)
    #[arg(long, help_heading = "Means")]
    pub direct: bool,

    /// Show progress on the error stream
    #[arg(long, value_enum, default_value_t, help_heading = "Means")]
    pub progress: When,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead describe flights.csv\n  stead describe 'run1/*.npy' --format json\n  stead describe flights.csv.stead-layout.toml\n  mpirun --host node1,node2 stead describe 'out.%r.bin' --dtype f64"
)]
pub struct DescribeArgs {
    #[command(flatten)]
    pub source: Source,

    /// Rows to show
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rows: usize,

    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,

    /// Look alone though a launcher (mpirun, srun) has started several ranks
    #[arg(long)]
    pub alone: bool,
}

const READ_EXAMPLES: &str = "Examples:
  stead read flights.csv --tasks 65536 --explain
  stead read /lustre/run1/snapshot.000 --tasks 4096 --compare
  stead read data.bin --range 1GiB+512MiB --block 4MiB --readers 2 --queue-depth 16
  stead read data.bin --direct --format json
  stead read data.bin --direct --no-share --memory 1GiB --explain

Programs do the same with the library: see 'Reading in parallel' in the documents.
Exit status: 0 done, 1 bad data or a failed device, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = READ_EXAMPLES)]
pub struct ReadArgs {
    /// The file; it is never created or written to
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Bytes to read: FROM-TO (TO is the first one left out) or FROM+LENGTH
    #[arg(long, value_name = "FROM-TO|FROM+LENGTH", value_parser = part)]
    pub range: Option<Part>,

    /// Tasks that read equal parts of it
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    pub tasks: u64,

    /// Let tasks come in no order, in place of that of the file
    #[arg(long)]
    pub scattered: bool,

    /// Give tasks copies in buffers of their own, in place of views
    #[arg(long)]
    pub buffers: bool,

    /// Let the same tasks read by themselves, too, and compare
    #[arg(long)]
    pub compare: bool,

    /// Read alone though a launcher (mpirun, srun) has started several ranks
    #[arg(long)]
    pub alone: bool,

    /// How to print what it took
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,

    /// Show what was chosen, and why
    #[arg(long)]
    pub explain: bool,

    /// Threads that the tasks run on; 0 is one for each processor
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Means")]
    pub threads: usize,

    /// Reader threads at most
    #[arg(long, value_name = "N", help_heading = "Means")]
    pub readers: Option<usize>,

    /// Bytes of one block
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Means")]
    pub block: Option<u64>,

    /// Blocks in flight for each reader
    #[arg(long, value_name = "N", help_heading = "Means")]
    pub queue_depth: Option<usize>,

    /// Memory for blocks, such as 512MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size, help_heading = "Means")]
    pub memory: u64,

    /// Read nothing before a task asks for it
    #[arg(long, help_heading = "Means")]
    pub on_demand: bool,

    /// Share no blocks in memory, nor the memory for them, with other processes that read the file
    #[arg(long, help_heading = "Means")]
    pub no_share: bool,

    /// Seconds after which a request fails
    #[arg(long, value_name = "SECONDS", default_value_t = 600, help_heading = "Means")]
    pub deadline: u64,

    /// How to read
    #[arg(long, value_enum, default_value_t, help_heading = "Means")]
    pub engine: EngineArg,

    /// Pass by the page cache (O_DIRECT)
    #[arg(long, help_heading = "Means")]
    pub direct: bool,

    /// Show progress on the error stream
    #[arg(long, value_enum, default_value_t, help_heading = "Means")]
    pub progress: When,
}

const PUT_EXAMPLES: &str = "Examples:
  mpirun --host node1,node2,node3,node4 stead put flights.csv --over 'nvme@node[1-4]' --align record
  srun --mpi=pmix -N 8 stead put snapshot.000 --over nvme --stripe 16MiB
  stead put points.npy --over nvme --parts 4 --dataspace nvme=/tmp/nvme

A dataspace is a folder of each node: [dataspace.nvme] with a path in /etc/stead/stead.toml or
~/.config/stead/stead.toml, or --dataspace. The layout is written beside the file when all parts are there.
Exit status: 0 done, 1 a failed device or a file that changes, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = PUT_EXAMPLES)]
pub struct PutArgs {
    /// The file, on a file system that all ranks see
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Dataspaces to put it into: nvme@node[1-4], or nvme for those of all nodes that have a rank
    #[arg(long, value_name = "SPACE[@NODES]")]
    pub over: String,

    /// Bytes of a stripe
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size)]
    pub stripe: u64,

    /// End stripes where records end, so that none lies on two nodes
    #[arg(long, value_enum, value_name = "record")]
    pub align: Option<Align>,

    /// Parts to cut it into, in place of one for each dataspace
    #[arg(long, value_name = "N")]
    pub parts: Option<usize>,

    /// What to call it in the dataspaces, and its layout, in place of the name of the file
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Where to write the layout, in place of beside the file
    #[arg(long, value_name = "PATH")]
    pub layout: Option<PathBuf>,

    /// Replace a layout that is there, and remove its parts
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub copying: Copying,

    /// How records are found with --align: the format, if it is not to be detected
    #[arg(
        long = "type",
        value_name = "csv|tsv|lines|records|npy|raw|tipsy",
        help_heading = "Format"
    )]
    pub kind: Option<FormatType>,

    /// Length of fixed records in bytes
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "Format")]
    pub record_length: Option<u64>,

    /// Element type of a raw array
    #[arg(long, value_name = "f64|f32|i32|...", help_heading = "Format")]
    pub dtype: Option<DType>,

    /// Shape of a raw array, such as 300x300x300
    #[arg(long, value_name = "NxM", value_parser = shape, help_heading = "Format")]
    pub shape: Option<Shape>,

    /// Bytes before the first element or record
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "Format")]
    pub skip: Option<u64>,

    /// Byte around fields, or none
    #[arg(long, value_name = "C|none", value_parser = quote, help_heading = "Format")]
    pub quote: Option<Quote>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Align {
    /// Lines, rows, records of the format
    Record,
}

const GET_EXAMPLES: &str = "Examples:
  mpirun --host node1,node2,node3,node4 stead get flights.csv.stead-layout.toml -o /lustre/flights.csv
  stead get points.npy.stead-layout.toml --dataspace nvme=/tmp/nvme -o copy.npy

Checksums of the parts are compared; the file appears when all of it is there.
Exit status: 0 done, 1 a part that is not there or not whole, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArgs {
    /// The layout
    #[arg(value_name = "LAYOUT")]
    pub layout: PathBuf,

    /// Where to, on a file system that all ranks see; beside the layout unless it is said
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub copying: Copying,
}

/// What copies over nodes have in common.
#[derive(Debug, Args)]
pub struct Copying {
    /// Folder of a dataspace of this node, before the configured one; give it once for each
    #[arg(long, value_name = "NAME=/PATH", value_parser = dataspace)]
    pub dataspace: Vec<String>,

    /// Copy alone though a launcher (mpirun, srun) has started several ranks
    #[arg(long)]
    pub alone: bool,

    /// How to print what was copied
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,

    /// Threads of each rank that copy; 0 is as many as are of use
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Means")]
    pub threads: usize,

    /// Show progress on the error stream
    #[arg(long, value_enum, default_value_t, help_heading = "Means")]
    pub progress: When,
}

const CALIBRATE_EXAMPLES: &str = "Examples:
  stead calibrate /data
  stead calibrate /data/flights.csv --seconds 5 --output laptop.toml
  mpirun --host store1,store2,node1,node2 stead calibrate /mnt/nvme

The profile is ~/.config/stead/profile.toml unless STEAD_PROFILE or --output names another one.
Exit status: 0 done, 1 a folder that is not there or a failed device, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = CALIBRATE_EXAMPLES)]
pub struct CalibrateArgs {
    /// Where data lie: folders, in which a file is made for it and removed, or files, which are only read
    #[arg(value_name = "PATH", default_value = ".")]
    pub tiers: Vec<PathBuf>,

    /// How long it may take, about
    #[arg(long, value_name = "SECONDS", default_value_t = stead::plan::SECONDS)]
    pub seconds: f64,

    /// Where to write the profile
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Measure alone though a launcher (mpirun, srun) has started several ranks
    #[arg(long)]
    pub alone: bool,

    /// How to print what was measured
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,

    /// Show progress on the error stream
    #[arg(long, value_enum, default_value_t, help_heading = "Means")]
    pub progress: When,
}

/// A part of a file, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    from: u64,
    /// `None` for the end of the file.
    to: Option<u64>,
}

impl Part {
    /// The bytes, if the file has them.
    pub fn within(&self, len: u64) -> Result<std::ops::Range<u64>> {
        let to = self.to.unwrap_or(len);
        if self.from > to || to > len {
            let message = format!("bytes {} to {to} do not lie within the file", self.from);
            let hint = if to <= len {
                "the first byte of --range comes before the last one".to_owned()
            } else {
                format!("it has {len} bytes")
            };
            return Err(Error::usage(message).with_hint(hint));
        }
        Ok(self.from..to)
    }
}

fn part(s: &str) -> std::result::Result<Part, String> {
    if let Some((from, len)) = s.split_once('+') {
        let (from, len) = (size(from)?, size(len)?);
        let to = from.checked_add(len).ok_or("the end is beyond 64 bits")?;
        return Ok(Part { from, to: Some(to) });
    }
    let Some((from, to)) = s.split_once('-') else {
        return Err("write FROM-TO or FROM+LENGTH, such as 1GiB-2GiB".to_owned());
    };
    let from = if from.is_empty() { 0 } else { size(from)? };
    let to = if to.is_empty() { None } else { Some(size(to)?) };
    Ok(Part { from, to })
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead kernels\n  stead kernels quantile\n  stead kernels where"
)]
pub struct KernelsArgs {
    /// Explain this one ('where' explains the filter language)
    pub name: Option<String>,

    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// Comma-separated values
    Csv,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Described {
    /// For people
    #[default]
    Table,
    /// One JSON document
    Json,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// What fits
    #[default]
    Auto,
    /// io_uring
    Uring,
    /// pread
    Pread,
}

impl From<EngineArg> for Engine {
    fn from(e: EngineArg) -> Engine {
        match e {
            EngineArg::Auto => Engine::Auto,
            EngineArg::Uring => Engine::Uring,
            EngineArg::Pread => Engine::Pread,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What to read and, where detection is not enough, how to understand it.
#[derive(Debug, Args)]
pub struct Source {
    /// Files, globs or directories that make up the dataset
    #[arg(value_name = "DATASET", required = true)]
    pub inputs: Vec<String>,

    /// The format, if it is not to be detected
    #[arg(
        long = "type",
        value_name = "csv|tsv|lines|records|npy|raw|tipsy",
        help_heading = "Format"
    )]
    pub kind: Option<FormatType>,

    /// Byte between fields; \\t is the tab
    #[arg(long, value_name = "C", value_parser = byte, help_heading = "Format")]
    pub delimiter: Option<u8>,

    /// Byte around fields, or none
    #[arg(long, value_name = "C|none", value_parser = quote, help_heading = "Format")]
    pub quote: Option<Quote>,

    /// Whether the first row names the columns
    #[arg(long, value_name = "yes|no", value_parser = header, help_heading = "Format")]
    pub header: Option<Header>,

    /// Lines that begin with this byte are no records
    #[arg(long, value_name = "C", value_parser = byte, help_heading = "Format")]
    pub comment: Option<u8>,

    /// A token that means 'no value'; give it once for each (they replace the default ones)
    #[arg(long, value_name = "TOKEN", help_heading = "Format")]
    pub missing: Vec<String>,

    /// Column names, in place of the header's
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', help_heading = "Format")]
    pub names: Vec<String>,

    /// Says what a column holds: NAME=number or NAME=text
    #[arg(long, value_name = "NAME=TYPE", value_parser = column_type, help_heading = "Format")]
    pub column_type: Vec<(String, ColumnType)>,

    /// Element type of a raw array
    #[arg(long, value_name = "f64|f32|i32|...", help_heading = "Format")]
    pub dtype: Option<DType>,

    /// Shape of a raw array, such as 300x300x300
    #[arg(long, value_name = "NxM", value_parser = shape, help_heading = "Format")]
    pub shape: Option<Shape>,

    /// Index order of a raw array: C (last index fastest) or F
    #[arg(long, value_name = "C|F", value_parser = order, help_heading = "Format")]
    pub order: Option<stead::Order>,

    /// Byte order of a raw array
    #[arg(long, value_name = "little|big", value_parser = byte_order, help_heading = "Format")]
    pub byte_order: Option<ByteOrder>,

    /// Bytes before the first element or record
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "Format")]
    pub skip: Option<u64>,

    /// Length of fixed records in bytes
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "Format")]
    pub record_length: Option<u64>,

    /// Compression, if it is not to be detected
    #[arg(long, value_name = "none|gzip|zstd", help_heading = "Format")]
    pub compression: Option<Compression>,

    /// Only particles of this kind, of a Tipsy file
    #[arg(long, value_name = "gas|dark|star", help_heading = "Format")]
    pub species: Option<Species>,

    /// Folder of a dataspace of this node, before the configured one, for parts of layouts; give it once for each
    #[arg(long, value_name = "NAME=/PATH", value_parser = dataspace)]
    pub dataspace: Vec<String>,
}

impl Source {
    /// Opens the dataset.
    pub fn open(&self) -> Result<Dataset> {
        stead::open_with(&self.inputs, &self.options())
    }

    /// What is said of the format.
    pub fn options(&self) -> OpenOptions {
        OpenOptions {
            format: self.kind,
            delimiter: self.delimiter,
            quote: self.quote.unwrap_or_default(),
            header: self.header.unwrap_or_default(),
            comment: self.comment,
            missing: (!self.missing.is_empty()).then(|| self.missing.clone()),
            names: (!self.names.is_empty()).then(|| self.names.clone()),
            column_types: self.column_type.clone(),
            dtype: self.dtype,
            shape: self.shape.as_ref().map(|s| s.dims().to_vec()),
            order: self.order,
            byte_order: self.byte_order,
            skip: self.skip,
            record_length: self.record_length,
            compression: self.compression,
            species: self.species,
            dataspaces: self.dataspace.clone(),
            storage_hosts: None,
        }
    }
}

/// clap shows the message; the hint goes with it.
fn told(e: Error) -> String {
    match e.hint() {
        Some(h) => format!("{} ({h})", e.message()),
        None => e.message().to_string(),
    }
}

fn size(s: &str) -> std::result::Result<u64, String> {
    units::parse_size(s).map_err(told)
}

fn place(s: &str) -> std::result::Result<Wish, String> {
    options::place(s).map_err(told)
}

fn byte(s: &str) -> std::result::Result<u8, String> {
    options::byte(s).map_err(told)
}

fn quote(s: &str) -> std::result::Result<Quote, String> {
    options::quote(s).map_err(told)
}

fn header(s: &str) -> std::result::Result<Header, String> {
    options::header(s).map_err(told)
}

fn order(s: &str) -> std::result::Result<stead::Order, String> {
    options::order(s).map_err(told)
}

fn byte_order(s: &str) -> std::result::Result<ByteOrder, String> {
    options::byte_order(s).map_err(told)
}

fn column_type(s: &str) -> std::result::Result<(String, ColumnType), String> {
    options::column_type(s).map_err(told)
}

fn dataspace(s: &str) -> std::result::Result<String, String> {
    options::dataspace(s).map_err(told)
}

fn shape(s: &str) -> std::result::Result<Shape, String> {
    options::shape(s).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_are_read() {
        assert_eq!(byte("\\t"), Ok(b'\t'));
        assert_eq!(shape("3x4").map(|s| s.elements()), Ok(12));
        assert!(shape("3x").is_err());
        let within = |s: &str| part(s).ok().and_then(|p| p.within(5000).ok());
        assert_eq!(within("1KiB+8"), Some(1024..1032));
        assert_eq!(
            (within("10-"), within("-10"), within("7-7")),
            (Some(10..5000), Some(0..10), Some(7..7))
        );
        assert_eq!(
            (within("10-5001"), within("5-4"), within("9"), within("1+18446744073709551615")),
            (None, None, None, None)
        );
        assert!(column_type("a=b=text").is_ok_and(|(n, _)| n == "a=b"));
    }
}
