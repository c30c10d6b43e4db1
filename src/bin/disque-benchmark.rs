//! The load generator; everything is in [`disque::cli::benchmark`].

use std::process::ExitCode;

fn main() -> ExitCode {
    disque::cli::benchmark::main(std::env::args_os())
}
