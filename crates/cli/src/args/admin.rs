//! Arguments of `stead admin`.

use super::Described;
use clap::{Args, Subcommand};

const EXAMPLES: &str = "Examples:
  stead admin dataspace add nvme0 path=/mnt/nvme quota=6TB user_quota=1TB
  stead admin dataspace add mem0 path=/dev/shm/stead memory=yes size=64GiB mode=1777
  stead admin dataspace update nvme0 user_quota=2TB transfers=4 limit=
  stead admin dataspace reset nvme0
  stead admin dataspace list
  stead admin job add 4711 --user ada --dataspaces nvme0
  stead admin process add 4711 $PID
  stead admin job remove 4711
  stead admin drain --wait
  stead admin open
  stead admin stats
  stead admin transfers
  stead admin transfers --user ada --all
  stead admin cancel --user ada 7 8
  stead admin resume --user ada 9
For root and the group 'stead'; in a daemon of one's own, for oneself. What is set stays when the daemon is started again.
Exit status: 0 done, 1 it could not be done, 2 bad request, 130 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdminArgs {
    #[command(subcommand)]
    pub what: AdminVerb,
}

#[derive(Debug, Subcommand)]
pub enum AdminVerb {
    /// Dataspaces of all users, before those of /etc/stead/stead.toml
    #[command(subcommand)]
    Dataspace(SpaceVerb),
    /// Jobs, whose processes may use dataspaces that are of jobs
    #[command(subcommand)]
    Job(JobVerb),
    /// Processes of jobs: those that they begin are of the job, too
    #[command(subcommand)]
    Process(ProcessVerb),
    /// Take no transfers and begin none; what is under way ends
    Drain {
        /// Wait until nothing is under way
        #[arg(long)]
        wait: bool,
    },
    /// Take transfers again, and go on with those that wait
    Open,
    /// Show what the daemon does for each user
    Stats {
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// List transfers of users that are not over
    Transfers {
        /// Whose, by name or number; those of all users of the statistics unless it is said
        #[arg(long)]
        user: Option<String>,
        /// Those that are over, too
        #[arg(long)]
        all: bool,
        /// How to print them
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Give up transfers of a user, and remove what there is of files that are not whole
    Cancel {
        /// Whose, by name or number
        #[arg(long)]
        user: String,
        /// Their numbers
        #[arg(value_name = "ID", required = true)]
        ids: Vec<i64>,
        /// How to print what was done
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
    /// Have transfers of a user go on that were interrupted or have failed, or all that were interrupted; nobody waits for them
    Resume {
        /// Whose, by name or number
        #[arg(long)]
        user: String,
        /// Their numbers
        #[arg(value_name = "ID")]
        ids: Vec<i64>,
        /// How to print what was done
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
}

#[derive(Debug, Subcommand)]
pub enum SpaceVerb {
    /// Add one
    #[command(
        after_help = "Examples:\n  stead admin dataspace add nvme0 path=/mnt/nvme quota=6TB user_quota=1TB\n  stead admin dataspace add mem0 path=/dev/shm/stead memory=yes size=64GiB mode=1777"
    )]
    Add {
        /// Its name
        name: String,
        /// Keys of stead.toml and their values; one is its path
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = pair)]
        set: Vec<(String, String)>,
    },
    /// Change one, also one of /etc/stead/stead.toml
    Update {
        /// Its name
        name: String,
        /// Keys of stead.toml and their values; without a value the key is taken away
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = pair)]
        set: Vec<(String, String)>,
    },
    /// Take one away, also one of /etc/stead/stead.toml. What lies in it stays
    Remove {
        /// Its name
        name: String,
    },
    /// Forget what was set of one: it is as /etc/stead/stead.toml says, or none
    Reset {
        /// Its name
        name: String,
    },
    /// List them as they are configured
    List {
        /// How to print them
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
}

#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// Add one, or give it other dataspaces
    Add {
        /// Its name, such as the number that the scheduler gave it
        job: String,
        /// Whose it is, by name or number
        #[arg(long)]
        user: String,
        /// What its processes may use
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        dataspaces: Vec<String>,
    },
    /// It is over: cancel its transfers, and remove what its user has left in its dataspaces of jobs
    Remove {
        /// Its name
        job: String,
    },
    /// List them
    List {
        /// How to print them
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
}

#[derive(Debug, Subcommand)]
pub enum ProcessVerb {
    /// Say that a process, and those that it begins from now on, are of a job
    Add {
        /// The job
        job: String,
        /// The number of the process
        pid: u32,
    },
    /// It is of none
    Remove {
        /// The number of the process
        pid: u32,
    },
}

const PERSIST_EXAMPLES: &str = "Examples:
  stead persist store nvme0://run1 --expires 30d
  stead persist share nvme0://run1 ada
  stead persist list
  stead persist unshare nvme0://run1 ada
  stead persist delete nvme0://run1
The daemon of the node does it, or this command if there is none.
Exit status: 0 done, 1 it could not be done, 2 bad request.";

#[derive(Debug, Args)]
#[command(after_help = PERSIST_EXAMPLES)]
pub struct PersistArgs {
    #[command(subcommand)]
    pub what: PersistVerb,
}

#[derive(Debug, Subcommand)]
pub enum PersistVerb {
    /// Keep a file or a folder: neither the end of a job nor that of its time removes it
    Store {
        /// A path, or a name in a dataspace such as nvme0://run1
        location: String,
        /// For so long from now on, such as 30d; for ever if it is not said
        #[arg(long, value_name = "TIME", value_parser = time)]
        expires: Option<u64>,
    },
    /// Keep it no longer: it stays until its time or that of its job is over
    Delete {
        /// What was kept
        location: String,
    },
    /// Let another user read it, with all that lies in it
    Share {
        /// A path, or a name in a dataspace
        location: String,
        /// Whom, by name or number
        user: String,
    },
    /// Let that user read it no longer
    Unshare {
        /// A path, or a name in a dataspace
        location: String,
        /// Whom, by name or number
        user: String,
    },
    /// List what is kept and shared
    List {
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Described,
    },
}

pub(super) fn time(s: &str) -> Result<u64, String> {
    stead::units::parse_time(s).map_err(super::told)
}

fn pair(s: &str) -> Result<(String, String), String> {
    match s.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err("write KEY=VALUE, such as quota=1TB".to_owned()),
    }
}
