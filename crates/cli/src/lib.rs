//! The `stead` command.

mod args;
mod chart;
mod describe;
mod kernels;
mod output;
mod progress;
mod run;
mod signals;
mod table;

use args::{Cli, Verb};
use clap::{CommandFactory, Parser};
use std::io::Write;
use std::process::ExitCode;
use stead::{Error, Kind, Result};

fn main() -> ExitCode {
    // clap prints its own usage errors and exits with 2, as documented for usage.
    let cli = Cli::parse();
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(&e);
            ExitCode::from(exit_code(&e))
        }
    }
}

fn dispatch(cli: Cli) -> Result<()> {
    match cli.verb {
        Verb::Run(a) => run::run(&a),
        Verb::Describe(a) => describe::describe(&a),
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
