//! The `stead` command as a function, so that every package that ships it (the binary, the Python wheel) runs
//! the same one, and the text that it shows for people.

mod admin;
mod args;
mod background;
mod calibrate;
mod chart;
mod clock;
mod copy;
mod daemon;
mod describe;
mod flow;
mod handed;
mod kernels;
mod keys;
mod ls;
mod output;
mod persist;
mod place;
mod progress;
mod ranks;
mod read;
mod run;
mod signals;
mod stage;
mod stream;
mod table;

use args::{Cli, Verb};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::Write;
use stead::{Description, Error, Kind, Report, Result};

/// Runs the command with these arguments, the first of which is its own name, on the standard streams. Returns
/// the exit code. Ctrl-C and SIGTERM stop the work; the second one ends the process.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(named(args)) {
        Ok(cli) => cli,
        // Help and the version too; a stream that takes no text is nothing to complain about.
        Err(e) => {
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(2);
        }
    };
    match dispatch(cli) {
        Ok(()) => 0,
        Err(e) => {
            if !ranks::is_told() {
                complain(&e);
            }
            exit_code(&e)
        }
    }
}

/// The arguments of `steadd`, which is `stead daemon` under the name that a service has.
fn named(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let name = args.first().map(std::path::Path::new).and_then(|path| path.file_name());
    // Its workers are started with all of it.
    if name.is_some_and(|n| n == "steadd") && args.get(1).is_none_or(|verb| verb != "daemon") {
        args.insert(1, OsString::from("daemon"));
    }
    args
}

/// The results as tables and charts, as the command prints them.
pub fn results_text(report: &Report) -> String {
    table::results(report) + &chart::charts(report)
}

/// The plan and what it took, as `--explain` prints them.
pub fn plan_text(report: &Report) -> String {
    run::explain(report)
}

/// What a dataset is, as `stead describe` prints it.
pub fn description_text(description: &Description) -> String {
    describe::page(description)
}

fn dispatch(cli: Cli) -> Result<()> {
    match cli.verb {
        Verb::Run(a) => run::run(&a),
        Verb::Describe(a) => describe::describe(&a),
        Verb::Read(a) => read::read(&a),
        Verb::Put(a) => copy::put(&a),
        Verb::Get(a) => copy::get(&a),
        Verb::Stage(a) => stage::stage(&a),
        Verb::Df(a) => stage::df(&a),
        Verb::Ls(a) => ls::ls(&a),
        Verb::Daemon(a) => daemon::daemon(&a),
        Verb::Persist(a) => persist::persist(&a),
        Verb::Stream(a) => stream::stream(&a),
        Verb::Flow(a) => flow::flow(&a),
        Verb::Admin(a) => admin::admin(&a),
        Verb::Top(a) => daemon::top(&a),
        Verb::Metrics(a) => daemon::metrics(&a),
        Verb::Calibrate(a) => calibrate::calibrate(&a),
        Verb::Kernels(a) => kernels::kernels(&a),
        Verb::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "stead", &mut out);
            output::bytes(&out)
        }
        Verb::Man { dir } => man(&dir),
    }
}

/// Writes one page for the command and one for each verb.
fn man(dir: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(|e| Error::io("write man pages", dir, e))
}

/// 2 for a wrong request, 130 after Ctrl-C as shells have it, 1 for everything else.
fn exit_code(e: &Error) -> u8 {
    match e.kind() {
        Kind::Usage => 2,
        Kind::Cancelled => 130,
        _ => 1,
    }
}

fn complain(e: &Error) {
    let mut err = std::io::stderr().lock();
    // Nothing can be done about an error stream that takes no text.
    let _ = writeln!(err, "stead: {e}");
    if let Some(h) = e.hint() {
        let _ = writeln!(err, "  hint: {h}");
    }
}
