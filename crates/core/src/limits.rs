//! Every bound of stead in one place. At a bound stead waits or says so; it never grows past it.

/// Memory a run may use unless told otherwise.
pub const DEFAULT_MEMORY: u64 = 1 << 30;
/// Bytes that one task reads at a time: fits the second-level cache of common cores.
pub const DEFAULT_CHUNK: usize = 1 << 20;
/// Smallest chunk that may be asked for; tests go lower through the library.
pub const MIN_CHUNK: usize = 1 << 12;
/// Largest chunk: offsets inside a chunk are 32-bit.
pub const MAX_CHUNK: usize = 1 << 30;
/// Reads in flight for one worker.
pub const DEFAULT_QUEUE_DEPTH: usize = 4;
/// Most reads in flight for one worker, whatever was asked for.
pub const MAX_QUEUE_DEPTH: usize = 256;
/// Most worker threads of one process.
pub const MAX_THREADS: usize = 1024;
/// Files in one dataset.
pub const MAX_SOURCES: usize = 1_000_000;
/// Columns of one table.
pub const MAX_COLUMNS: usize = 100_000;
/// Dimensions of one array.
pub const MAX_DIMS: usize = 32;
/// Bytes looked at to detect a format.
pub const DETECT_BYTES: usize = 1 << 18;
/// Kernels in one request.
pub const MAX_KERNELS: usize = 4096;
/// Nesting of a filter expression.
pub const MAX_EXPR_DEPTH: usize = 64;
/// Length of a filter expression or a kernel specification.
pub const MAX_EXPR_BYTES: usize = 1 << 16;
/// Rounds of an iterative kernel, whatever it asks for.
pub const MAX_ROUNDS: usize = 100_000;
/// Compiled size of one regular expression.
pub const MAX_REGEX_BYTES: usize = 64 << 20;
/// Matching lines that a result carries unless told otherwise.
pub const DEFAULT_MATCHES: usize = 1000;
/// Distinct groups of `--by`.
pub const MAX_GROUPS: usize = 1_000_000;
/// Seconds a rank waits for another one.
pub const PEER_DEADLINE_S: u64 = 600;
/// Seconds without a sign of life after which a rank that is waited for is taken for gone.
pub const PEER_SILENCE_S: u64 = 30;
/// Memory for the blocks of files that are read in sessions, all together.
pub const DEFAULT_SESSION_MEMORY: u64 = 256 << 20;
/// Files that were given no more than this do not share it with others.
pub const LEAST_SESSION_MEMORY: u64 = 16 << 20;
/// Largest block of a read session.
pub const MAX_READ_BLOCK: usize = 1 << 30;
/// Seconds a read of a session may take.
pub const READ_DEADLINE_S: u64 = 600;
/// Stripes of one file. What a rank holds of a file is a list of them.
pub const MAX_STRIPES: u64 = 1 << 22;
/// Cuts that a layout lists one by one.
pub const MAX_CUTS: usize = 1 << 18;
/// Parts of one file.
pub const MAX_PARTS: usize = 1 << 16;
/// Nodes that one list names.
pub const MAX_NODES: usize = 1 << 16;
/// Bytes of the name of a node.
pub const MAX_NODE_BYTES: usize = 253;
/// Runs of one repetition of a view of a file.
pub const MAX_VIEW_RUNS: usize = 1 << 20;
/// Bytes of data that one of several storage ranks runs over alone.
pub const SMALL_JOB_BYTES: u64 = 4 << 20;
/// Small datasets that stay open for those who ask for them again.
pub const MAX_KEPT_DATASETS: usize = 64;
/// Bytes of files that come with the answer of other ranks.
pub const MAX_CARRIED_BYTES: u64 = 1 << 30;
/// Bytes of what one rank asks others to run.
pub const MAX_JOB_BYTES: usize = 64 << 20;
/// Bytes of what ranks ask others to run that wait there together, of asks of more than [`SMALL_ASK_BYTES`].
pub const MAX_ASKED_BYTES: u64 = 256 << 20;
/// What is asked for in no more bytes than these is sent at once.
pub const SMALL_ASK_BYTES: usize = 16 << 10;
/// Bytes of the arrays of one stream on one node, unless told otherwise.
pub const DEFAULT_STREAM_MEMORY: u64 = 4 << 30;
/// Writers of one stream on one node.
pub const MAX_WRITERS: usize = 4096;
/// Writers, on all nodes, whose steps are recorded in one folder.
pub const MAX_FOLDER_WRITERS: u64 = 1 << 20;
/// Writers whose recorded steps are read and whose files stay open meanwhile.
pub const MAX_OPEN_TRACKS: u64 = 128;
/// Words of the memory in which those who take part in a stream agree.
pub const MAX_BOARD_WORDS: usize = 1 << 23;
/// Bytes of a layout file.
pub const MAX_LAYOUT_BYTES: usize = 16 << 20;
/// Bytes of a `stead.toml`.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;
/// Bytes of a path in a layout file.
pub const MAX_PATH_BYTES: usize = 4096;
/// Bytes of one file of the memory that arrays are handed to other programs in, unless one piece needs more.
pub const ARENA_SEGMENT: u64 = 256 << 20;
/// Bytes of such memory that keep their pages when nobody uses them, unless told otherwise.
pub const ARENA_KEEP_FREE: u64 = 256 << 20;
/// Arrays of fewer bytes that are made before there is a writer are copied when they are put, which is less work than giving a file its name.
pub const LOOSE_LEAST: usize = 64 << 10;
/// Bytes of such arrays that no writer has had, and that are kept for the next ones when nobody has them.
pub const LOOSE_KEEP_FREE: u64 = 256 << 20;
/// Such arrays that have files of their own, of one process: no more than a quarter of the files that it may have open. Others are copied.
pub const MAX_LOOSE: usize = 4096;
/// Files of such memory of others that stay mapped when nobody looks at them.
pub const MAX_NEIGHBOUR_MAPS: usize = 256;
/// Variables in one step of a stream.
pub const MAX_VARIABLES: usize = 1_000_000;
/// Blocks that one writer puts in one step.
pub const MAX_BLOCKS: usize = 1 << 22;
/// Bytes of the name of a variable, of a dimension or of an attribute.
pub const MAX_VARIABLE_NAME: usize = 1024;
/// Attributes of one variable.
pub const MAX_ATTRIBUTES: usize = 1024;
/// Bytes of what one writer says of the variables of a step beside their blocks.
pub const MAX_DEFINITIONS_BYTES: usize = 128 << 20;

const _: () = assert!(MIN_CHUNK <= DEFAULT_CHUNK && DEFAULT_CHUNK <= MAX_CHUNK);
const _: () = assert!(MAX_CHUNK < u32::MAX as usize);
