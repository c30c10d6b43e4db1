//! What `disque-server` is asked for by its arguments.
//!
//! ```text
//! disque-server [FILE | -] [--directive value ...] ...
//! disque-server --directive value ...
//! disque-server -v | --version | -h | --help | --test-memory MEGABYTES
//! ```
//!
//! The special options count as the first argument only; further on `--version` would be
//! a directive like any other.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use super::config_file::Source;

/// What one start of the program is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    Run {
        source: Source,
        options: Vec<OsString>,
    },
    Version,
    Help,
    TestMemory {
        megabytes: usize,
    },
    /// `--test-memory` without a number.
    TestMemoryUnsaid,
}

pub const USAGE: &str = "\
Usage: disque-server [FILE | -] [--DIRECTIVE VALUE ...] ...
       disque-server -v | --version
       disque-server -h | --help
       disque-server --test-memory MEGABYTES

FILE is a configuration file, - reads it from standard input. Every directive of the
file is an option too; options are read after the file.

Examples:
       disque-server                                  all defaults, port 7711
       disque-server /etc/disque/disque.conf
       disque-server --port 7712 --appendonly yes
       disque-server /etc/disque/disque.conf --loglevel verbose
       echo 'port 7712' | disque-server -
";

pub const TEST_MEMORY_USAGE: &str = "\
Say how many megabytes to test, as in: disque-server --test-memory 4096
";

/// Reads the arguments without the program's name.
pub fn parse(arguments: Vec<OsString>) -> Invocation {
    let mut options = arguments;
    let Some(first) = options.first() else {
        return Invocation::Run { source: Source::Nothing, options };
    };
    match first.as_bytes() {
        b"-v" | b"--version" => Invocation::Version,
        b"-h" | b"--help" => Invocation::Help,
        b"--test-memory" => {
            let megabytes = options.get(1).and_then(|text| text.to_str()?.parse().ok());
            match megabytes.filter(|&megabytes| megabytes > 0 && options.len() == 2) {
                Some(megabytes) => Invocation::TestMemory { megabytes },
                None => Invocation::TestMemoryUnsaid,
            }
        }
        b"-" => Invocation::Run { source: Source::StandardInput, options: options.split_off(1) },
        option if option.starts_with(b"--") => Invocation::Run { source: Source::Nothing, options },
        _ => {
            let rest = options.split_off(1);
            let file = options.remove(0);
            Invocation::Run { source: Source::File(file.into()), options: rest }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Invocation {
        parse(arguments.iter().map(OsString::from).collect())
    }

    fn run(source: Source, options: &[&str]) -> Invocation {
        Invocation::Run { source, options: options.iter().map(OsString::from).collect() }
    }

    #[test]
    fn the_first_argument_is_the_file_unless_it_is_an_option() {
        assert_eq!(parsed(&[]), run(Source::Nothing, &[]));
        assert_eq!(parsed(&["--port", "1"]), run(Source::Nothing, &["--port", "1"]));
        assert_eq!(parsed(&["a", "--port", "1"]), run(Source::File("a".into()), &["--port", "1"]));
        assert_eq!(parsed(&["-", "--port", "1"]), run(Source::StandardInput, &["--port", "1"]));
        assert_eq!(parsed(&["-x"]), run(Source::File("-x".into()), &[]));
    }

    #[test]
    fn special_options_count_only_in_the_first_place() {
        assert_eq!(parsed(&["-v"]), Invocation::Version);
        assert_eq!(parsed(&["--help", "x"]), Invocation::Help);
        assert_eq!(parsed(&["--port", "--help"]), run(Source::Nothing, &["--port", "--help"]));
    }

    #[test]
    fn a_memory_test_needs_a_number() {
        assert_eq!(parsed(&["--test-memory", "4"]), Invocation::TestMemory { megabytes: 4 });
        for bad in [&["--test-memory"][..], &["--test-memory", "x"], &["--test-memory", "0"]] {
            assert_eq!(parsed(bad), Invocation::TestMemoryUnsaid);
        }
    }
}
