//! `stead daemon`, `stead top` and `stead metrics`.

use crate::args::{DaemonArgs, Described, MetricsArgs, TopArgs};
use crate::keys::Keys;
use crate::stage::{action, names};
use crate::{clock, handed, output, signals, table};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
#[cfg(feature = "mpi")]
use stead::daemon::serve_in_pool;
use stead::daemon::{Client, Hello, Settings, nobody, serve, serves_all, socket_path, work};
use stead::stage::{Progress, Standing, State, Usage, state_folder};
use stead::{Cancel, Error, Result, units};

/// How often `stead top` looks.
const EVERY: Duration = Duration::from_secs(1);
/// And how often whether a signal has come.
const LOOK: Duration = Duration::from_millis(100);
/// Transfers that it shows.
const MOST_SHOWN: usize = 30;
/// Nodes that it names.
const MOST_NODES: usize = 16;
/// And those that are not over, of which it counts no more.
const MOST_COUNTED: usize = 1000;

pub fn daemon(a: &DaemonArgs) -> Result<()> {
    if a.worker {
        return work();
    }
    if a.nodes {
        return output::text(&(connect(None)?.nodes()?.join("\n") + "\n"));
    }
    if a.pool {
        return pool(a);
    }
    serve(settings(a, None)?, || {})
}

#[cfg(feature = "mpi")]
fn pool(a: &DaemonArgs) -> Result<()> {
    crate::ranks::beside(|fabric| match fabric {
        Some(fabric) => serve_in_pool(settings(a, Some(fabric.rank()))?, fabric.clone(), || {}),
        // Of one node: others may come when it is started again.
        None => serve(settings(a, Some(0))?, || {}),
    })
}

#[cfg(not(feature = "mpi"))]
fn pool(_: &DaemonArgs) -> Result<()> {
    Err(Error::usage("this stead was built without MPI, over which a pool talks").with_hint(
        "'make install MPI=1' installs one with it; without --pool the daemon is that of one node",
    ))
}

/// How it is run, as this rank of a pool.
fn settings(a: &DaemonArgs, rank: Option<usize>) -> Result<Settings> {
    let of_rank = |text: &str| match rank {
        Some(rank) => text.replace("%r", &rank.to_string()),
        None => text.to_owned(),
    };
    let of_path = |path: &Path| match path.to_str() {
        Some(text) => absolute(Path::new(&of_rank(text))),
        None => absolute(path),
    };
    let all = serves_all();
    let socket = match &a.socket {
        Some(path) => of_path(path)?,
        None => socket_path(all)?,
    };
    let state = match (&a.state, all) {
        (Some(path), _) => of_path(path)?,
        (None, false) => state_folder()?,
        // As systemd gives it.
        (None, true) => std::env::var_os("STATE_DIRECTORY")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| PathBuf::from("/var/lib/stead")),
    };
    let worker = worker(all)?;
    let transfers = usize::from(a.transfers);
    let node = a.name.as_deref().map(of_rank);
    let (threads, journal) = (a.threads, a.journal);
    Ok(Settings { socket, state, transfers, threads, journal, worker, node })
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io("find", path, e))
}

/// What a worker is started with: this very program, even if another one has taken its place by then.
fn worker(all: bool) -> Result<Vec<OsString>> {
    const SELF: &str = "/proc/self/exe";
    let is = std::fs::read_link(SELF).map_err(|e| Error::io("look at", SELF, e))?;
    let name = is.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let words = match name.starts_with("python") {
        true if all => {
            return Err(Error::usage("a daemon for all users is none of Python").with_hint(
                "an interpreter reads files of users; install the command: make install",
            ));
        }
        // The command of the Python package says by which name it was found, so that it finds its packages.
        true => {
            let program = std::env::var_os("STEAD_PYTHON")
                .filter(|path| Path::new(path).is_absolute())
                .ok_or_else(|| Error::usage("the interpreter of this daemon is not known"))?;
            vec![program, "-m".into(), "stead._cli".into()]
        }
        false => vec![OsString::from(SELF)],
    };
    Ok(words.into_iter().chain(["daemon".into(), "--worker".into()]).collect())
}

pub fn connect(on: Option<&str>) -> Result<Client> {
    there(match on {
        Some(node) => Client::connect_on(None, node)?,
        None => Client::connect()?,
    })
}

/// The daemon, if there is one.
pub fn there(found: Option<Client>) -> Result<Client> {
    found.ok_or_else(|| nobody().with_hint("start one: stead daemon"))
}

pub fn metrics(a: &MetricsArgs) -> Result<()> {
    output::text(&connect(a.on.as_deref())?.metrics()?)
}

pub fn top(a: &TopArgs) -> Result<()> {
    let mut daemon = connect(a.on.as_deref())?;
    if a.format == Described::Json {
        let mut list = daemon.list(false, MOST_COUNTED)?;
        list.sort_by_key(turn);
        return output::json(&list);
    }
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    let nodes = daemon.nodes()?;
    let once = a.once || !std::io::stdout().is_terminal();
    if !once {
        signals::give_back()?;
    }
    let mut keys = Keys::new();
    loop {
        let list = shown(&mut daemon)?;
        // Whether it is drained is said at the beginning of a connection.
        daemon = connect(a.on.as_deref())?;
        let spaces = daemon.spaces()?;
        let page = page(daemon.hello(), &list, &spaces, &nodes);
        if once {
            done.cancel();
            return output::text(&page);
        }
        // To the upper left, and what was there is wiped out.
        output::text(&format!("\x1b[H\x1b[2J{page}"))?;
        let until = clock::now() + EVERY;
        while clock::now() < until {
            if cancel.is_cancelled() || keys.say_end(LOOK) {
                done.cancel();
                return Ok(());
            }
        }
    }
}

/// What is under way first, then what waits, by its turn.
fn turn(s: &Standing) -> (u8, i64) {
    match s.status.state {
        State::Running => (0, -s.status.id),
        State::Pending => (1, s.status.id),
        State::Interrupted => (2, -s.status.id),
        _ => (3, -s.status.id),
    }
}

/// What is not over, and the latest ones that are.
fn shown(daemon: &mut Client) -> Result<Vec<Standing>> {
    let mut list = daemon.list(false, MOST_COUNTED)?;
    if list.len() < MOST_SHOWN {
        let over = daemon.list(true, MOST_SHOWN)?.into_iter().filter(|s| s.status.state.is_over());
        list.extend(over);
    }
    Ok(list)
}

/// What `stead top` shows.
fn page(hello: &Hello, list: &[Standing], spaces: &[Usage], nodes: &[String]) -> String {
    let count = |state| list.iter().filter(|s| s.status.state == state).count();
    let mut text = format!(
        "steadd {} on {}, user {}: {} running, {} waiting{}\n",
        hello.version,
        hello.node,
        hello.user,
        count(State::Running),
        count(State::Pending),
        if hello.drained { "; drained: it takes no transfers" } else { "" }
    );
    if nodes.len() > 1 {
        let some: Vec<&str> = nodes.iter().take(MOST_NODES).map(String::as_str).collect();
        let more = match nodes.len() - some.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        text += &format!("a pool of {} nodes: {}{more}\n", nodes.len(), some.join(", "));
    }
    let mut rows: Vec<&Standing> = list.iter().collect();
    rows.sort_by_key(|s| turn(s));
    let size = units::format_size;
    let row = |s: &&Standing| {
        let (bytes, of) = match &s.progress {
            Some(p) => (p.bytes_done, p.bytes),
            None => (s.status.bytes_done, s.status.bytes),
        };
        let rate = s.progress.as_ref().filter(|p| p.seconds > 0.0).map(Progress::rate);
        vec![
            s.status.id.to_string(),
            s.status.state.as_str().to_owned(),
            action(&s.status.request).to_owned(),
            names(&s.status.request),
            format!("{} of {}", size(bytes), size(of)),
            rate.map_or(String::new(), |rate| format!("{}/s", size(rate as u64))),
            handed::left(s),
        ]
    };
    if !rows.is_empty() {
        text.push('\n');
        let heads = ["id", "state", "action", "what", "bytes", "rate", "left"];
        text += &table::plain(&heads, rows.iter().take(MOST_SHOWN).map(row).collect());
    }
    if !spaces.is_empty() {
        text.push('\n');
        text += &crate::stage::used(spaces);
    }
    text
}
