//! The command line client; see `disque::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    disque::cli::main(std::env::args_os().skip(1))
}
