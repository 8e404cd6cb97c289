//! The `stead` command for ranks of an MPI job.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(stead_cli::main(std::env::args_os()))
}
