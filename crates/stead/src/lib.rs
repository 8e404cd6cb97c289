//! stead: keep the data home; send the work.
//!
//! One public surface over the rooms of the house. It does four jobs. *Run*: analysis kernels over
//! files where they lie, in one pass, on all cores, in bounded memory. *Read*: sessions from which thousands
//! of tasks read a file in parallel ([`read`]). *Stage*: files and trees of them move between tiers of storage, and lose nothing whatever
//! happens ([`stage`]), by the program itself or by the daemon of the node ([`daemon`]). *Couple*: programs hand arrays to each other in
//! memory, step by step ([`stream`]), and what is small is computed of them on the way ([`flow`]).
//!
//! ```
//! # fn main() -> stead::Result<()> {
//! # let dir = std::env::temp_dir().join(format!("stead-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir).expect("dir");
//! # let path = dir.join("delays.csv");
//! # std::fs::write(&path, "carrier,delay\nUA,10\nAA,\nUA,5\n").expect("write");
//! let data = stead::open(&[path.to_string_lossy().into_owned()])?;
//! let report = stead::run(&data, &stead::Request {
//!     kernels: vec!["rows".into(), "mean:delay".into()],
//!     ..Default::default()
//! }, None)?;
//! assert_eq!(report.result("mean:delay"), Some(&stead::Value::Float(7.5)));
//! # std::fs::remove_dir_all(&dir).expect("remove");
//! # Ok(())
//! # }
//! ```
//!
//! All of them work on many nodes, over any [`fabric::Fabric`] ([`run_on`], [`read::ranks`], [`stream::Coupling`]) or by daemons that
//! are a pool.
//!
//! Files may lie in stripes on many nodes ([`layout`]). Ranks that are elsewhere ask for work where the data are ([`offload`]).

pub mod options;
pub mod plot;
pub mod tipsy;

pub use stead_core::{
    ByteOrder, Cancel, ColumnInfo, ColumnKind, DType, Error, Kind, Order, Place, RecordKind,
    Result, Schema, Shape, Value, limits, units,
};
pub use stead_format::options::{ColumnType, Compression, FormatType, Header, Quote};
pub use stead_format::tipsy::Species;
pub use stead_format::{Dataset, Description, OpenOptions, TableColumn};
pub use stead_run::{
    Alternative, LeftOut, Metrics, Observer, Placing, Plan, PlannedKernel, RankMetrics, Report,
    Request, Snapshot, Took, run, run_on,
};
pub use stead_store::{Engine, IoOptions, Region, atomic::remove_unfinished};

/// Files over nodes: what a layout says, and how a file is put over the nodes and brought back.
///
/// ```
/// use stead::layout::{Get, Put, get, put, read};
/// # fn main() -> stead::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("stead-doc-layout-{}", std::process::id()));
/// # std::fs::create_dir_all(dir.join("nvme")).expect("dir");
/// # let file = dir.join("data.bin");
/// # std::fs::write(&file, vec![7; 100_000]).expect("write");
/// let nvme = vec![format!("nvme={}", dir.join("nvme").display())];
/// let over = Put { file, over: "nvme".into(), parts: Some(4), stripe: 4096, dataspaces: nvme.clone(), ..Put::default() };
/// let copied = put(&over, None)?;
/// assert_eq!(read(&copied.layout)?.parts().len(), 4);
/// let back = Get { layout: copied.layout, output: Some(dir.join("back")), dataspaces: nvme, ..Get::default() };
/// assert_eq!(get(&back, None)?.bytes, 100_000);
/// # std::fs::remove_dir_all(&dir).expect("remove");
/// # Ok(())
/// # }
/// ```
pub mod layout {
    pub use stead_core::layout::{
        Checksum, Dataspace, Layout, LayoutDescription, NodeDescription, Part, PartDescription,
        PerProcess, Piece, SUFFIX, Spaces, nodes,
    };
    pub use stead_run::files::{Copied, Get, Put, get, get_on, put, put_on};
    pub use stead_store::space::{of_user as dataspaces, read_layout as read};
}

/// Transfers of files and trees between dataspaces.
///
/// ```
/// use stead::stage::{Action, Means, Options, Request, Stager, State, location};
/// # fn main() -> stead::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("stead-doc-stage-{}", std::process::id()));
/// # std::fs::create_dir_all(dir.join("run1")).expect("dir");
/// # std::fs::write(dir.join("run1/a.bin"), vec![7; 100_000]).expect("write");
/// let (from, to) = (dir.join("run1").display().to_string(), dir.join("fast/").display().to_string());
/// let stager = Stager::open(&dir.join("state"), Means::default())?;
/// let id = stager.submit(&Request {
///     action: Action::Copy,
///     sources: vec![location(&from)?],
///     target: Some(location(&to)?),
///     options: Options::default(),
/// })?;
/// let status = stager.run(id, &stead::Cancel::new(), None)?;
/// assert_eq!((status.state, status.bytes_done), (State::Finished, 100_000));
/// # assert!(dir.join("fast/run1/a.bin").is_file());
/// # std::fs::remove_dir_all(&dir).expect("remove");
/// # Ok(())
/// # }
/// ```
pub mod stage {
    pub use stead_core::layout::Spaces;
    pub use stead_core::{BucketUrl, Location, is_node};
    pub use stead_model::transfer::Remaining;
    pub use stead_stage::tree;
    pub use stead_stage::{
        Action, Change, Checked, Difference, Does, Exists, Failure, Is, Load, Means, Moving,
        Options, Preview, Progress, Queue, Request, Stager, Standing, State, Status, Totals, Usage,
        Watcher, configured, ended_with, raise_files, state_folder, usage,
    };
    pub use stead_store::space::of_user as dataspaces;
    pub use stead_store::{FileTime, Meta, What};

    /// Reads the name of a file, a folder or a pattern, with variables of this process's environment.
    ///
    /// # Errors
    /// Those of [`Location::parse`].
    pub fn location(text: &str) -> crate::Result<Location> {
        Location::parse(text, &|name| stead_store::space::variable(name))
    }
}

/// The daemon of a node, which does transfers for programs that do not wait for them: how to ask it, and how to be it.
///
/// ```
/// use stead::daemon::Client;
/// use stead::stage::{Action, Options, Request, location};
/// # fn main() -> stead::Result<()> {
/// let request = Request {
///     action: Action::Copy,
///     sources: vec![location("results/*.h5")?],
///     target: Some(location("lustre://run7/")?),
///     options: Options::default(),
/// };
/// # unsafe { std::env::set_var("STEAD_SOCKET", "none") };
/// if let Some(mut daemon) = Client::connect()? {
///     let id = daemon.submit(&request, &[])?;
///     println!("transfer {id}, about {:.0} s", daemon.eta(id)?.seconds);
/// }
/// # Ok(())
/// # }
/// ```
pub mod daemon {
    pub use stead_daemon::protocol::{
        AdminAnswer, AdminAsk, AdminSpace, Hello, JobIs, Numbers, Stats,
    };
    pub use stead_daemon::{
        ByDaemon, Client, Clients, FlowOptions, FlowStanding, FlowState, PersistAsk, Settings,
        StreamNodes, dataspaces_besides, dataspaces_named, learn, nobody, persist, serve,
        serve_in_pool, serves_all, socket_path, user_number, work,
    };
    pub use stead_stage::Persisted;
}

/// Where to compute: what was measured of the machines, and how it is measured.
///
/// ```
/// use stead::plan::{Calibrate, Load, Place, Request, calibrate, decide, save};
/// # fn main() -> stead::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("stead-doc-plan-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).expect("dir");
/// let measured = calibrate(&Calibrate { tiers: vec![dir.clone()], seconds: 0.2, ..Calibrate::default() }, None)?;
/// save(&measured, &dir.join("profile.toml"))?;
/// // What would it take here, where the data are?
/// let (site, tier) = (&measured.sites[0].name, &measured.tiers[0].name);
/// let request = Request::new(1 << 30, "sum", "csv").held_on(site, tier).asked_by(site);
/// assert_eq!(decide(&measured, &request, &Load::none())?.choice().place, Place::Push);
/// # std::fs::remove_dir_all(&dir).expect("remove");
/// # Ok(())
/// # }
/// ```
pub mod plan {
    pub use stead_model::{
        Cost, Decision, Estimate, Held, Link, Load, Parts, Place, Profile, Request, Shared, Site,
        Splitting, Stage, Tier, Wish, decide,
    };
    pub use stead_run::calibrate::{Calibrate, SECONDS, Telling, calibrate, calibrate_on};
    pub use stead_run::profile::{load, load_from, path, save};
}

/// How ranks talk.
pub mod fabric {
    pub use stead_fabric::{Fabric, FabricExt, Local, Rounds, foreign};
}

/// What ranks of a run do besides [`run_on`]: they open data that lie on their nodes, or that some of them have and others ask for
/// ([`OpenOptions::storage_hosts`]): [`open_on`](ranks::open_on).
pub mod ranks {
    pub use stead_run::roles::{Role, Roles};
    pub use stead_run::spread::{Here, open_apart, open_as, open_on};
    pub use stead_run::{agree, refuse};
}

/// Work that ranks ask of others, which are where the data are.
///
/// Ranks of a job are of two kinds ([`Roles`](offload::Roles)). Storage ranks [`serve`](offload::serve); compute ranks ask, when
/// they like, by a [`Client`](offload::Client), and get the report that [`run_on`] would give on the storage ranks.
///
/// ```
/// use std::sync::Arc;
/// use stead::fabric::{Fabric, Local};
/// use stead::offload::{Client, Job, Role, Roles, Serving, serve};
/// use stead::ranks::Here;
/// # let path = std::env::temp_dir().join(format!("stead-doc-offload-{}", std::process::id()));
/// # std::fs::write(&path, "carrier,delay\nUA,10\nAA,\nUA,5\n").expect("write");
/// # let file = path.to_string_lossy().into_owned();
/// fn rank(fabric: Arc<dyn Fabric>, file: String) -> stead::Result<()> {
///     let role = if fabric.rank() == 0 { Role::Storage } else { Role::Compute };
///     let roles = Roles::agree(&*fabric, &Here::default(), Ok(role))?;
///     if role == Role::Storage {
///         // Until the others have said goodbye.
///         return serve(fabric, &roles, &Here::default(), &Serving::default()).map(drop);
///     }
///     let client = Client::new(fabric, roles)?;
///     let job = Job { inputs: vec![file], kernels: vec!["mean:delay".into()], ..Job::default() };
///     let report = client.run(&job, &stead::Cancel::new(), None)?;
///     assert_eq!(report.result("mean:delay"), Some(&stead::Value::Float(7.5)));
///     Ok(())
/// }
///
/// // Of a job, ranks are processes, and the fabric is one of MPI.
/// std::thread::scope(|scope| {
///     for fabric in Local::group(2) {
///         let file = file.clone();
///         scope.spawn(move || rank(Arc::new(fabric), file).expect("an answer"));
///     }
/// });
/// # std::fs::remove_file(&path).expect("remove");
/// ```
pub mod offload {
    pub use stead_run::offload::{
        Client, Job, Operations, Role, Roles, Served, Serving, View, alone, serve,
    };
    pub use stead_store::Viewed;
}

/// Parallel read sessions: many consumers read a range of a file, few readers fetch it.
///
/// ```
/// use stead::read::{self, Options};
/// # fn main() -> stead::Result<()> {
/// # let path = std::env::temp_dir().join(format!("stead-doc-read-{}", std::process::id()));
/// # std::fs::write(&path, vec![7; 100_000]).expect("write");
/// let options = Options { memory: 1 << 30, share: false, ..Options::default() };
/// let file = read::open(&path, &options)?;
/// let session = file.session(..)?;
/// assert_eq!(session.read(5_000, 100).wait()?.len(), 100);
/// # std::fs::remove_file(&path).expect("remove");
/// session.close()
/// # }
/// ```
pub mod read {
    pub use stead_read::{
        Counts, Decision, File, Options, Place, Read, ReadInto, Session, View, Within,
        answers_here, open, ranks, trial,
    };
}

/// Streams: programs hand arrays to each other in memory, step by step, on one node or on several.
///
/// What a program takes from its surroundings it says: `spaces` are [`dataspaces`](stream::dataspaces), and a reader has streams of other
/// nodes of a pool of daemons with `nodes: StreamNodes::usual()` ([`StreamNodes`](daemon::StreamNodes)).
///
/// ```
/// use stead::stream::{Bounds, DType, Definition, Read, Reader, Writer, Written};
/// # let dir = tempfile::tempdir_in("/dev/shm").unwrap();
/// # let mut spaces = stead::stream::Spaces::default();
/// # spaces.imply("memory", dir.path().join("own").to_str().unwrap());
/// # let (written, read) = (Written { spaces: spaces.clone(), ..Written::default() }, Read { spaces, ..Read::default() });
/// let mut writer = Writer::open("sim", &written)?;
/// let t = writer.define(Definition::new("T", DType::F64, [2]))?;
/// writer.begin()?;
/// writer.put(t, &Bounds::new([0], [2])?, &[1.5f64, 2.5].map(f64::to_ne_bytes).concat())?;
/// writer.end()?;
/// writer.close()?;
/// // In another program, or thread:
/// let mut reader = Reader::open("sim", &read)?;
/// while let Some(step) = reader.next_step()? {
///     let t = step.get("T", &Bounds::new([1], [1])?)?;
///     assert_eq!(t.bytes()[..8], 2.5f64.to_ne_bytes());
/// }
/// # Ok::<(), stead::Error>(())
/// ```
pub mod stream {
    pub use stead_core::layout::Spaces;
    pub use stead_core::{Bounds, DType};
    pub use stead_store::space::of_user as dataspaces;
    pub use stead_stream::{
        Array, Attribute, Basis, Behind, Budget, Buffer, Coupling, Definition, Description,
        Descriptions, Event, Explanation, Giver, Group, Home, Kept, Listed, MemoryReport, Missed,
        Nodes, Part, Patience, Peer, Presence, Progress, Pull, Read, Reader, ReaderReport,
        Recording, Room, Start, Step, StepPut, StepReport, Stop, Subscription, Survey, Surveyed,
        Taker, Wait, Warning, Writer, WriterReport, Written, recordings, remove,
    };
}

/// Operators between streams, run where the arrays are: in the program that writes them, in the one that reads them, or between both.
///
/// ```
/// use stead::flow::{Flow, Functions, Graph, Options};
/// # use stead::stream::{Bounds, DType, Definition, Read, Reader, Writer, Written};
/// # let dir = tempfile::tempdir_in("/dev/shm").unwrap();
/// # let mut spaces = stead::stream::Spaces::default();
/// # spaces.imply("memory", dir.path().join("own").to_str().unwrap());
/// # let (written, read) = (Written { spaces: spaces.clone(), ..Written::default() }, Read { spaces: spaces.clone(), ..Read::default() });
/// # let mut writer = Writer::open("sim", &written)?;
/// let graph = Graph::parse(r#"
///     [read.sim]
///     [node.hottest]
///     op = "reduce"
///     of = "sim.T"
///     how = "max"
///     [write.small]
///     variables = { T = "hottest" }
/// "#)?;
/// let flow = Flow::new(&graph, Functions::new())?;
/// # let options = Options { spaces, ..Options::default() };
/// // By a thread of the program that writes the stream `sim`:
/// let running = flow.run_in_background(&options)?;
/// # let mut reader = Reader::open("small", &read)?;
/// # let t = writer.define(Definition::new("T", DType::F64, [2]))?;
/// # writer.begin()?;
/// # writer.put(t, &Bounds::new([0], [2])?, &[1.5f64, 2.5].map(f64::to_ne_bytes).concat())?;
/// # writer.end()?;
/// # let step = reader.next_step()?.unwrap();
/// # assert_eq!(step.get("T", &Bounds::new([], [])?)?.bytes()[..8], 2.5f64.to_ne_bytes());
/// # writer.close()?;
/// assert_eq!(running.join()?.steps, 1);
/// # Ok::<(), stead::Error>(())
/// ```
pub mod flow {
    pub use stead_flow::{
        CArray, CFunction, Checked, Cut, Declared, Description, Dim, Flow, Form, From, Function,
        Functions, Given, Graph, How, Node, NodeDescription, Of, Operator, Options, Output, Over,
        Rate, ReadDescription, Reading, Report, Running, Sent, Slice, Slot, Slow, Source, Wanted,
        WriteDescription, Writing, check, draw, load, of_c,
    };
}

/// What can be computed, and what it takes to bring a kernel along ([`Own`](kernels::Own)).
pub mod kernels {
    pub use stead_core::{Block, Brick, Columns, MISSING, Needs, Span, TextColumn, is_missing};
    pub use stead_kernel::expr::HELP as FILTER_HELP;
    pub use stead_kernel::registry::{Context, info, list};
    pub use stead_kernel::{Info, Kernel, Own, Sink, SinkHeader, Spec, Step};
}

/// Opens files, globs and directories as one dataset, with everything detected, and layouts whose parts are all here.
pub fn open(inputs: &[String]) -> Result<Dataset> {
    open_with(inputs, &OpenOptions::default())
}

/// As [`open`], with what is known of the format.
pub fn open_with(inputs: &[String], options: &OpenOptions) -> Result<Dataset> {
    stead_run::spread::open(inputs, options)
}

/// Opens bytes in memory as a dataset: text, `.npy`, or raw elements with their type in `options`.
/// `name` stands where a file's path would. Nothing is copied.
pub fn open_memory(
    name: &str,
    data: impl AsRef<[u8]> + Send + Sync + 'static,
    options: &OpenOptions,
) -> Result<Dataset> {
    let source = stead_store::MemorySource::new(name, data);
    Dataset::from_sources(vec![std::sync::Arc::new(source)], options)
}

/// Writes a small file so that it is there whole or not at all.
pub fn write_file(path: &std::path::Path, bytes: &[u8]) -> Result<()> {
    let mut file = stead_store::AtomicFile::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}
