//! Checks and repairs append only files; everything but the progress bar is in
//! [`disque::store::check`].

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use disque::cli::options;
use disque::store::check;
use indicatif::{ProgressBar, ProgressStyle};

/// Shorter files are read before a progress bar would be seen.
const BAR_FROM_LEN: u64 = 64 * 1024 * 1024;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match arguments.get(1).and_then(|first| first.to_str()) {
        Some("-h" | "--help") => {
            print!("{}", check::HELP);
            return ExitCode::SUCCESS;
        }
        Some("-v" | "--version") => {
            println!("{}", options::version("disque-check-aof"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let bar = ProgressBar::no_length();
    let style = ProgressStyle::with_template("{bar:40} {percent}% {bytes_per_sec} {eta}");
    bar.set_style(style.expect("the template is well-formed"));
    let is_watched = io::stderr().is_terminal();
    let mut progress = |done, total| {
        if is_watched && total >= BAR_FROM_LEN {
            bar.set_length(total);
            bar.set_position(done);
            if done == total {
                bar.finish_and_clear();
            }
        }
    };
    let verdict = check::run(&arguments, &mut io::stdin().lock(), &mut io::stdout(), &mut progress);
    match verdict {
        Ok(check::Verdict::Valid) => ExitCode::SUCCESS,
        Ok(check::Verdict::Invalid) => ExitCode::FAILURE,
        Err(_) => ExitCode::FAILURE,
    }
}
