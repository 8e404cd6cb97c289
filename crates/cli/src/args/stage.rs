//! Arguments of `stead stage`, `stead df`, `stead ls` and of the daemon.

use super::admin::time;
use super::{Described, When, dataspace, size};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

const STAGE_EXAMPLES: &str = "Examples:
  stead stage results.h5 /scratch/me/
  stead stage 'lustre://run1/*.h5' nvme0://run1/
  stead stage --sync --delete nvme0://run1/ lustre://run1/
  stead stage --sync --checksum nvme0://run1/ lustre://run1/
  stead stage --move nvme0://run1 lustre://done/ --verify
  stead stage --remove 'nvme0://run1/*.tmp'
  stead stage results/ s3://bucket/run7/
  stead stage --sync nvme0://run1/ lustre://run1/ --dry-run
  stead stage --check nvme0://run1/ lustre://run1/
  stead stage run1/ lustre://run1/ --exclude '*.tmp' --exclude logs/
  stead stage --move nvme0://run1/ lustre://run1/ --min-age 2d --min-size 1MiB
  find run1 -type f -mtime -7 -printf '%P\\0' |
    stead stage run1/ lustre://latest/ --files-from - --null
  stead stage --list
  stead stage --resume
  stead stage --background lustre://input/ nvme0://input/
  stead stage --wait 7
  stead stage node7:/scratch/run1/ nvme0://run1/
  stead stage --wait 7 --on node7
NODE:/path and NODE:nvme0://path are on another node of the pool that the daemons are; a transfer is done where its target is.
If a daemon runs on this node, it does the transfer, also if this command is ended; --here does without it.
Credentials of buckets come from the environment (AWS_..., GOOGLE_..., AZURE_...), the files of the store's tools (~/.aws) or the machine.
A '/' behind a source means what lies in it; behind a target, that sources go into it.
Exit status: 0 done, 1 something could not be done, or --check has found a difference, 2 bad request, 130 interrupted.";

/// The number of a transfer.
fn transfer(s: &str) -> Result<i64, String> {
    s.parse()
        .map_err(|_| "this is no number of a transfer: stead stage --list shows those".to_owned())
}

/// What is about transfers that were taken before. How a transfer is done was said when it was asked for.
const OF_TAKEN: [&str; 4] = ["list", "resume", "cancel", "wait"];

#[derive(Debug, Args)]
#[command(after_help = STAGE_EXAMPLES)]
pub struct StageArgs {
    /// Files, folders and patterns, and at the end where to: paths, names in dataspaces such as nvme0://run1/, or URLs of buckets such as s3://bucket/run1/
    #[arg(value_name = "SOURCE... TARGET")]
    pub names: Vec<String>,

    /// Move: sources are removed once the target has them
    #[arg(long = "move", group = "action")]
    pub moves: bool,

    /// Make the target equal to the source; what has the same size and time stays, or with --checksum the same bytes
    #[arg(long, group = "action")]
    pub sync: bool,

    /// Remove the sources; there is no target
    #[arg(long, group = "action")]
    pub remove: bool,

    /// Say how the target differs from the source, and change nothing: files of the same size are compared by what is in them. The exit status is 0 if
    /// all is the same, and 1 if not
    // How something would be copied is no matter of it.
    #[arg(
        long,
        group = "action",
        conflicts_with_all = [
            "delete", "checksum", "exists", "verify", "no_sync", "dry_run", "retries", "background", "after", "priority",
        ]
    )]
    pub check: bool,

    /// With --sync: remove from the target what the source has not
    // What is required is not missed by clap where something that it conflicts with is there.
    #[arg(
        long,
        requires = "sync",
        conflicts_with_all = ["moves", "remove", "list", "resume", "cancel", "wait"]
    )]
    pub delete: bool,

    /// With --delete: if more names would be removed, files and folders, fail before anything is done
    #[arg(
        long,
        value_name = "N",
        requires = "delete",
        conflicts_with_all = ["moves", "remove", "check", "list", "resume", "cancel", "wait"]
    )]
    pub max_delete: Option<u64>,

    /// With --sync: compare files of the same size by what is in them, which is read on both sides, and not by their time
    #[arg(
        long,
        requires = "sync",
        conflicts_with_all = ["moves", "remove", "list", "resume", "cancel", "wait"]
    )]
    pub checksum: bool,

    /// What becomes of names that the target has
    #[arg(long, value_enum, default_value_t, conflicts_with_all = OF_TAKEN)]
    pub exists: ExistsArg,

    /// Read what was written back, and compare, before it gets its name
    #[arg(long, conflicts_with_all = OF_TAKEN)]
    pub verify: bool,

    /// Leave out pipes, sockets and devices, in place of failing
    #[arg(long, conflicts_with_all = OF_TAKEN)]
    pub skip_special: bool,

    /// Leave out names below the sources that match, and folders with all that lies in them: '*.tmp' wherever it lies, 'run/logs/' by its way from the
    /// source. What is left out stays as it is on the target, too. Give it once for each pattern
    #[arg(long, value_name = "PATTERN", conflicts_with_all = OF_TAKEN)]
    pub exclude: Vec<String>,

    /// Take only files that match, and folders that have some. Give it once for each pattern
    #[arg(long, value_name = "PATTERN", conflicts_with_all = OF_TAKEN)]
    pub include: Vec<String>,

    /// Take only files and links of at least so many bytes, such as 1MiB, and folders that have some. What is left out stays on the target, too
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = OF_TAKEN)]
    pub min_size: Option<u64>,

    /// Take only those of at most so many bytes
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = OF_TAKEN)]
    pub max_size: Option<u64>,

    /// Take only files and links that were changed at least so long before the transfer begins: 30min, 2d
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = OF_TAKEN)]
    pub min_age: Option<u64>,

    /// Take only those that were changed at most so long before
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = OF_TAKEN)]
    pub max_age: Option<u64>,

    /// Patterns to leave out, from a file: one a line, but for empty ones and those that begin with '#'
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_TAKEN)]
    pub exclude_from: Option<PathBuf>,

    /// Take only names that a file lists, one a line, each by its way from the one source, which is a folder: files, and folders with all that lies in
    /// them. They come with the folders that they lie in, and nothing else is looked at. '-' is the standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["moves", "remove", "delete", "list", "resume", "cancel", "wait"]
    )]
    pub files_from: Option<PathBuf>,

    /// With --files-from: a zero byte ends a name, as of find -print0, and not a line
    #[arg(
        long,
        short = '0',
        requires = "files_from",
        conflicts_with_all = ["moves", "remove", "delete", "list", "resume", "cancel", "wait"]
    )]
    pub null: bool,

    /// Do not wait for devices: files survive the end of any process, and not of the machine
    #[arg(long, conflicts_with_all = OF_TAKEN)]
    pub no_sync: bool,

    /// Say what would be done, and how long it would take
    #[arg(long, conflicts_with_all = OF_TAKEN)]
    pub dry_run: bool,

    /// List transfers that are not over; with --all those that are, too
    #[arg(long, group = "action", conflicts_with = "names")]
    pub list: bool,

    /// With --list: all
    #[arg(
        long,
        requires = "list",
        conflicts_with_all = ["names", "moves", "sync", "remove", "resume", "cancel", "wait"]
    )]
    pub all: bool,

    /// Go on with a transfer that was interrupted or has failed, or with all that were interrupted
    #[arg(long, value_name = "ID", num_args = 0..=1, group = "action", conflicts_with = "names", value_parser = transfer)]
    pub resume: Option<Option<i64>>,

    /// Give up a transfer, whoever does it, and remove what there is of files that are not whole
    #[arg(long, value_name = "ID", group = "action", conflicts_with = "names", value_parser = transfer)]
    pub cancel: Option<i64>,

    /// Wait for a transfer of the daemon, or without one for a transfer that another process does
    #[arg(long, value_name = "ID", group = "action", conflicts_with = "names", value_parser = transfer)]
    pub wait: Option<i64>,

    /// Folder of a dataspace of this node, or URL of its bucket, before the configured one; give it once for each. The transfer
    /// is done here
    #[arg(long, value_name = "NAME=/PATH", value_parser = dataspace, conflicts_with_all = ["list", "wait"])]
    pub dataspace: Vec<String>,

    /// How to print what was done
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,

    /// Give way to everybody else on this machine
    #[arg(long, help_heading = "Means", conflicts_with_all = OF_TAKEN)]
    pub gentle: bool,

    /// How often a file is tried again that fails for a reason that may pass
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Means", conflicts_with_all = OF_TAKEN)]
    pub retries: u32,

    /// Bytes a second at most, such as 200MiB
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = size,
        help_heading = "Means",
        conflicts_with_all = OF_TAKEN
    )]
    pub limit: Option<u64>,

    /// Threads that copy; 0 is as many as are of use. The transfer is done here
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        help_heading = "Means",
        conflicts_with_all = ["list", "cancel", "wait"]
    )]
    pub threads: usize,

    /// Ask the daemon of another node of the pool; names without a node are those of this one
    #[arg(long, value_name = "NODE", help_heading = "Means", conflicts_with_all = ["here", "dataspace", "threads"])]
    pub on: Option<String>,

    /// Do it in this process, and not in the daemon
    #[arg(long, help_heading = "Means", conflicts_with_all = ["background", "after"])]
    pub here: bool,

    /// Give it to the daemon, print its number, and do not wait
    #[arg(long, help_heading = "Means", conflicts_with_all = ["list", "cancel", "wait"])]
    pub background: bool,

    /// Begin when these transfers of the daemon are finished
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        value_parser = transfer,
        help_heading = "Means",
        conflicts_with_all = OF_TAKEN
    )]
    pub after: Vec<i64>,

    /// Of what waits in the daemon, larger ones go first
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        help_heading = "Means",
        conflicts_with_all = OF_TAKEN
    )]
    pub priority: i32,

    /// Show progress on the error stream
    #[arg(
        long,
        value_enum,
        default_value_t,
        help_heading = "Means",
        conflicts_with_all = ["list", "cancel"]
    )]
    pub progress: When,
}

/// See [`stead::stage::Exists`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ExistsArg {
    /// Fail before anything is done
    #[default]
    Refuse,
    /// The new file replaces it
    Replace,
    /// It stays
    Skip,
    /// The new file replaces it if it was changed later
    Newer,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead df --dataspace nvme0=/mnt/nvme/me")]
pub struct DfArgs {
    /// Folder of a dataspace of this node, or URL of its bucket, before the configured one; give it once for each. The daemon is not asked
    #[arg(long, value_name = "NAME=/PATH", value_parser = dataspace)]
    pub dataspace: Vec<String>,

    /// Those that this process knows by itself, and not those of the daemon
    #[arg(long)]
    pub here: bool,

    /// How to print them
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,
}

const LS_EXAMPLES: &str = "Examples:
  stead ls
  stead ls nvme0://run1
  stead ls --long --recursive results/
  stead ls 'nvme0://run1/*.h5'
  stead ls s3://bucket/run7/ --format json
  stead ls node7:/scratch/run1/
Without a location it lists the dataspaces. Names come in order, however many there are; a '/' behind one says that it is a folder.
NODE:/path and NODE:nvme0://path are on another node of the pool that the daemons are.
Credentials of buckets come from the environment (AWS_..., GOOGLE_..., AZURE_...), the files of the store's tools (~/.aws) or the machine.
Exit status: 0 done, 1 it could not be read, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = LS_EXAMPLES)]
pub struct LsArgs {
    /// A folder, a file or a pattern: a path, a name in a dataspace such as nvme0://run1, or the URL of a bucket such as s3://bucket/run1
    #[arg(value_name = "LOCATION")]
    pub location: Option<String>,

    /// With what each is, its size and when it was changed (UTC)
    #[arg(long, short)]
    pub long: bool,

    /// With all that lies below; links are not followed
    #[arg(long, short = 'R', requires = "location")]
    pub recursive: bool,

    /// Folder of a dataspace of this node, or URL of its bucket, before the configured one; give it once for each. The daemon is not asked
    #[arg(long, value_name = "NAME=/PATH", value_parser = dataspace)]
    pub dataspace: Vec<String>,

    /// Those that this process knows by itself, and not those of the daemon
    #[arg(long, conflicts_with = "location")]
    pub here: bool,

    /// How to print them; JSON has all that --long shows
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,
}

/// Bytes of the smallest journal of a daemon.
const LEAST_JOURNAL: u64 = 1 << 20;

const DAEMON_EXAMPLES: &str = "Examples:
  stead daemon
  stead daemon --socket /tmp/me/steadd.sock --state /tmp/me/state --transfers 2
  srun --ntasks-per-node=1 stead daemon --pool
  stead daemon --nodes
As root, or with CAP_SETUID and CAP_SETGID, it serves all users, each with the rights of that user; otherwise the one who starts it.
It runs until SIGINT or SIGTERM; what is under way then goes on when it is started again. `steadd` is another name for it.
Exit status: 0 ended as it was told, 1 it could not go on, 2 another one is there.";

#[derive(Debug, Args)]
#[command(after_help = DAEMON_EXAMPLES)]
pub struct DaemonArgs {
    /// Where it listens [default: /run/stead/steadd.sock for all users, else $XDG_RUNTIME_DIR/stead/steadd.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Folder of its journals [default: $STATE_DIRECTORY or /var/lib/stead for all users, else that of `stead stage`]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Be a pool with the daemons that the launcher (mpirun, srun) has started on other nodes: transfers go from node to node, over
    /// MPI. %r in --socket, --state and --name is the rank
    #[arg(long)]
    pub pool: bool,

    /// What this node is called [default: the name of the host]
    #[arg(long, value_name = "NODE", value_parser = node)]
    pub name: Option<String>,

    /// Print the nodes of the pool whose daemon runs here, and end
    #[arg(long, conflicts_with_all = ["pool", "name", "socket", "state"])]
    pub nodes: bool,

    /// Transfers at a time, of all users together
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub transfers: u16,

    /// Threads of a transfer; 0 is as many as are of use
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,

    /// Bytes of each user's journal: what is over is forgotten, the oldest first, and what does not fit is refused
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = journal)]
    pub journal: u64,

    /// Be the process that does the transfers of a user: the daemon starts it
    #[arg(long, hide = true)]
    pub worker: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead top\n  stead top --once --format json\n  stead top --on node7\nIt ends at q, Esc and Ctrl-C."
)]
pub struct TopArgs {
    /// That of another node of the pool
    #[arg(long, value_name = "NODE")]
    pub on: Option<String>,

    /// Print it once and end; so it is if the output is no terminal
    #[arg(long)]
    pub once: bool,

    /// How to print it; JSON is printed once
    #[arg(long, value_enum, default_value_t)]
    pub format: Described,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead metrics\n  stead metrics --on node7")]
pub struct MetricsArgs {
    /// That of another node of the pool
    #[arg(long, value_name = "NODE")]
    pub on: Option<String>,
}

/// Bytes of a journal.
fn journal(text: &str) -> Result<u64, String> {
    match super::size(text)? {
        n if n >= LEAST_JOURNAL => Ok(n),
        _ => Err("a journal has at least 1 MiB".to_owned()),
    }
}

/// The name of a node, in which %r stands for the rank.
pub(super) fn node(text: &str) -> Result<String, String> {
    match stead::stage::is_node(&text.replace("%r", "0")) {
        true => Ok(text.to_owned()),
        false => Err("names of nodes have letters, digits, '.', '-' and '_'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;
    use clap::Parser;
    use clap::error::ErrorKind;

    const TAKEN: [&[&str]; 5] =
        [&["--list"], &["--resume"], &["--resume", "7"], &["--cancel", "7"], &["--wait", "7"]];
    const OF_REQUESTS: [&[&str]; 15] = [
        &["--dry-run"],
        &["--exists", "skip"],
        &["--verify"],
        &["--skip-special"],
        &["--no-sync"],
        &["--delete"],
        &["--max-delete", "1"],
        &["--checksum"],
        &["--files-from", "names"],
        &["--min-size", "1MiB"],
        &["--max-age", "2d"],
        &["--gentle"],
        &["--limit", "1MiB"],
        &["--after", "1"],
        &["--priority", "0"],
    ];

    fn parsed(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["stead", "stage"].into_iter().chain(words.iter().copied()))
    }

    fn is_refused(words: &[&str]) {
        let e = parsed(words).unwrap_err();
        assert_eq!((e.kind(), e.exit_code()), (ErrorKind::ArgumentConflict, 2), "{words:?}: {e}");
    }

    #[test]
    fn options_that_would_do_nothing_are_refused() {
        for taken in TAKEN {
            for option in OF_REQUESTS {
                is_refused(&[taken, option].concat());
                is_refused(&[option, taken].concat());
            }
            for other in TAKEN.iter().filter(|other| other.first() != taken.first()) {
                is_refused(&[taken, *other].concat());
            }
            is_refused(&[taken, &["--move"][..]].concat());
        }
        let refused: [&[&str]; 19] = [
            &["--list", "--background"],
            &["--cancel", "7", "--background"],
            &["--wait", "7", "--background"],
            &["--list", "--threads", "2"],
            &["--cancel", "7", "--threads", "2"],
            &["--wait", "7", "--threads", "2"],
            &["--list", "--dataspace", "a=/b"],
            &["--wait", "7", "--dataspace", "a=/b"],
            &["--list", "--progress", "always"],
            &["--cancel", "7", "--progress", "always"],
            &["--resume", "--all"],
            &["from", "to", "--all"],
            &["--move", "--delete", "from", "to"],
            &["--move", "--checksum", "from", "to"],
            &["--check", "--sync", "from", "to"],
            &["--check", "--delete", "from", "to"],
            &["--check", "--checksum", "from", "to"],
            &["--check", "--dry-run", "from", "to"],
            &["--check", "--background", "from", "to"],
        ];
        refused.into_iter().for_each(is_refused);
    }

    #[test]
    fn options_that_do_something_are_taken() {
        let taken: [&[&str]; 15] = [
            &["--list", "--all", "--format", "json"],
            &["--list", "--here"],
            &["--list", "--on", "node7"],
            &["--resume", "--threads", "2", "--dataspace", "a=/b", "--progress", "always"],
            &["--resume", "7", "--background"],
            &["--resume", "7", "--here", "--format", "json"],
            &["--cancel", "7", "--dataspace", "a=/b"],
            &["--cancel", "7", "--on", "node7"],
            &["--wait", "7", "--here", "--progress", "never"],
            &["--sync", "--delete", "--max-delete", "0", "--dry-run", "from", "to"],
            &["--sync", "--checksum", "from", "to"],
            &["--move", "--min-age", "30min", "--max-size", "1KiB", "from", "to"],
            &["--check", "--exclude", "*.tmp", "--threads", "2", "--format", "json", "from", "to"],
            &["--exists", "skip", "--verify", "--limit", "1MiB", "--threads", "2", "from", "to"],
            &["--background", "--after", "1,2", "--priority", "-3", "from", "to"],
        ];
        for words in taken {
            if let Err(e) = parsed(words) {
                panic!("{words:?}: {e}");
            }
        }
    }
}
