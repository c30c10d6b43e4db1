//! `disque-check-aof`: says whether an append only file can be loaded, and cuts off or
//! repairs what cannot.
//!
//! The file is read as the server reads it, so what is called valid here is what the
//! server starts with. Nothing is written to it without `--fix` or `--salvage`. Output and
//! exit status are those of the C tool, which looks at the framing only and has no
//! `--salvage`.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use super::aof_load::{AofReader, LoadError, LoadFault, LoadProgress};
use super::aof_sums::FileEnd;
use super::salvage::salvage;

/// The text of `--help`.
pub const HELP: &str = "\
Usage: disque-check-aof [--fix [--yes] | --salvage] <file.aof>
       disque-check-aof -h | --help
       disque-check-aof -v | --version

Says whether a server can load an append only file. Without an option nothing
is written to it. --fix cuts it off at the first byte that cannot be loaded,
after a question that --yes answers. --salvage leaves out what is damaged,
keeps the sound records behind it as far as checksums tell, and keeps the
damaged file as <file.aof>.damaged. Stop the server first.

Exit status: 0 the file is valid, or was made so; 1 it is not, or cannot be read.
";

const UNCLEAN: &str = "The file was not closed: its server was killed or lost power, if it runs \
                       no more";
/// Records read between two reports of the progress.
const SLICE: usize = 10_000;

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
struct CheckRequest {
    path: PathBuf,
    fix: Fix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fix {
    No,
    /// Leaves out what is damaged.
    Salvage,
    /// After a question.
    Ask,
    /// Without a question.
    Yes,
}

/// How the program ends; the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Valid = 0,
    Invalid = 1,
}

/// What is wrong with the file, and where.
struct Finding {
    offset: u64,
    what: String,
}

struct Report {
    end: FileEnd,
    len: u64,
    valid_len: u64,
    finding: Option<Finding>,
}

/// Does what the arguments say, the program's name first. Answers to questions come from
/// `input`; `progress` is told how many bytes of how many were read.
pub fn run(
    arguments: &[OsString],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<Verdict> {
    let request = match parse(arguments) {
        Ok(request) => request,
        Err(complaint) => {
            writeln!(out, "{complaint}")?;
            return Ok(Verdict::Invalid);
        }
    };
    let path = request.path.display();
    let report = match examine(&request.path, progress) {
        Ok(Some(report)) => report,
        Ok(None) => {
            writeln!(out, "Cannot open file: {path}")?;
            return Ok(Verdict::Invalid);
        }
        Err(e) => {
            writeln!(out, "Cannot read file: {path}: {}", e.reason)?;
            return Ok(Verdict::Invalid);
        }
    };
    if report.len == 0 {
        writeln!(out, "Empty file: {path}")?;
        return Ok(Verdict::Invalid);
    }
    if let Some(finding) = &report.finding {
        writeln!(out, "0x{:16x}: {}", finding.offset, finding.what)?;
    }
    let excess_len = report.len - report.valid_len;
    writeln!(
        out,
        "AOF analyzed: size={}, ok_up_to={}, diff={excess_len}",
        report.len, report.valid_len
    )?;
    if report.finding.is_none() {
        if report.end.is_unclean() {
            writeln!(out, "{UNCLEAN}")?;
        }
        writeln!(out, "AOF is valid")?;
        return Ok(Verdict::Valid);
    }
    match request.fix {
        Fix::Salvage => return repair(&request.path, out),
        Fix::No => {
            writeln!(out, "AOF is not valid")?;
            return Ok(Verdict::Invalid);
        }
        Fix::Ask if !is_agreed(&report, input, out)? => {
            writeln!(out, "Aborting...")?;
            return Ok(Verdict::Invalid);
        }
        Fix::Ask | Fix::Yes => {}
    }
    match cut(&request.path, report.valid_len) {
        Ok(()) => {
            writeln!(out, "Successfully truncated AOF")?;
            Ok(Verdict::Valid)
        }
        Err(e) => {
            writeln!(out, "Failed to truncate AOF: {e}")?;
            Ok(Verdict::Invalid)
        }
    }
}

fn repair(path: &Path, out: &mut dyn Write) -> io::Result<Verdict> {
    let salvaged = match salvage(path) {
        Ok(salvaged) => salvaged.unwrap_or_default(),
        Err(e) => {
            writeln!(out, "Failed to salvage AOF: {}", e.reason)?;
            return Ok(Verdict::Invalid);
        }
    };
    // The first one is known by now.
    for (offset, what) in salvaged.damage.iter().skip(1) {
        writeln!(out, "0x{offset:16x}: {what}")?;
    }
    writeln!(
        out,
        "Salvaged AOF: {} records kept, {} bytes left out in {} places",
        salvaged.record_count,
        salvaged.lost_len,
        salvaged.damage.len()
    )?;
    if salvaged.doubtful_count > 0 {
        writeln!(
            out,
            "{} at-most-once jobs left out, which may have been delivered",
            salvaged.doubtful_count
        )?;
    }
    writeln!(out, "The damaged file is {}", salvaged.backup.display())?;
    Ok(Verdict::Valid)
}

enum Complaint {
    Usage(OsString),
    InvalidArgument(OsString),
    InvalidArguments,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(name) => {
                let name = name.to_string_lossy();
                write!(f, "Usage: {name} [--fix [--yes] | --salvage] <file.aof>")
            }
            Self::InvalidArgument(argument) => {
                write!(f, "Invalid argument: {}", argument.to_string_lossy())
            }
            Self::InvalidArguments => f.write_str("Invalid arguments"),
        }
    }
}

fn parse(arguments: &[OsString]) -> Result<CheckRequest, Complaint> {
    let (name, arguments) = match arguments.split_first() {
        Some((name, rest)) => (name.clone(), rest),
        None => ("disque-check-aof".into(), arguments),
    };
    let Some((path, options)) = arguments.split_last() else {
        return Err(Complaint::Usage(name));
    };
    let (mut is_fix, mut is_yes, mut is_salvage) = (false, false, false);
    for option in options {
        match option.to_str() {
            Some("--fix") => is_fix = true,
            Some("--yes") => is_yes = true,
            Some("--salvage") => is_salvage = true,
            _ if options.len() == 1 => return Err(Complaint::InvalidArgument(option.clone())),
            _ => return Err(Complaint::InvalidArguments),
        }
    }
    let fix = match (is_fix, is_yes, is_salvage) {
        (true, true, false) => Fix::Yes,
        (true, false, false) => Fix::Ask,
        (false, false, false) => Fix::No,
        (false, false, true) => Fix::Salvage,
        (false, true, false) => return Err(Complaint::InvalidArgument("--yes".into())),
        _ => return Err(Complaint::InvalidArguments),
    };
    if ["--fix", "--yes", "--salvage", "--help", "-h"].iter().any(|option| path == option) {
        return Err(Complaint::Usage(name));
    }
    Ok(CheckRequest { path: path.into(), fix })
}

/// Reads the whole file. `None` when it cannot be opened.
fn examine(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Option<Report>, LoadError> {
    let mut reader = match AofReader::open(path) {
        Ok(Some(reader)) => reader,
        Err(e) if matches!(&e.reason, LoadFault::Io(e) if e.kind() == io::ErrorKind::InvalidInput) =>
        {
            return Err(e);
        }
        Ok(None) | Err(_) => return Ok(None),
    };
    let len = reader.total_len();
    let finding = loop {
        match reader.read(SLICE, |_| {}) {
            Ok(LoadProgress::More) => progress(reader.loaded_len(), len),
            Ok(LoadProgress::Complete) => break None,
            Ok(LoadProgress::Truncated { valid_len }) => {
                let what = "the file ends before its last record does".into();
                break Some(Finding { offset: valid_len, what });
            }
            Err(LoadError { reason: LoadFault::Io(e), offset, path }) => {
                return Err(LoadError { reason: LoadFault::Io(e), offset, path });
            }
            Err(LoadError { reason, offset, .. }) => {
                break Some(Finding { offset, what: reason.to_string() });
            }
        }
    };
    progress(reader.loaded_len(), len);
    let end = reader.file_end();
    Ok(Some(Report { end, len, valid_len: reader.loaded_len(), finding }))
}

fn is_agreed(report: &Report, input: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<bool> {
    writeln!(
        out,
        "This will shrink the AOF from {} bytes, with {} bytes, to {} bytes",
        report.len,
        report.len - report.valid_len,
        report.valid_len
    )?;
    write!(out, "Continue? [y/N]: ")?;
    out.flush()?;
    let mut answer = String::new();
    // An answer that is no text is no agreement.
    let is_read = input.read_line(&mut answer).is_ok();
    Ok(is_read && answer.starts_with(['y', 'Y']))
}

/// Cuts a file off. It keeps its time of writing, for the reason that [`salvage`] has.
fn cut(path: &Path, len: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let written_at = file.metadata()?.modified()?;
    file.set_len(len)?;
    // Only its owner may set it. The file is good without.
    let _where_possible = file.set_modified(written_at);
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/disque.aof");

    fn run_with(arguments: &[&str], answer: &str) -> (Verdict, String) {
        let arguments: Vec<OsString> =
            [&["check"], arguments].concat().iter().map(OsString::from).collect();
        let mut out = Vec::new();
        let verdict = run(&arguments, &mut answer.as_bytes(), &mut out, &mut |_, _| {});
        let verdict = verdict.expect("a vector takes every write");
        (verdict, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn unknown_options_and_missing_files_are_refused() {
        for (arguments, expected) in [
            (&[][..], "Usage: check [--fix [--yes] | --salvage] <file.aof>\n"),
            (&["--fix"], "Usage: check [--fix [--yes] | --salvage] <file.aof>\n"),
            (&["--repair", "x"], "Invalid argument: --repair\n"),
            (&["--yes", "x"], "Invalid argument: --yes\n"),
            (&["--fix", "x", "y"], "Invalid arguments\n"),
            (&["/nonexistent/x"], "Cannot open file: /nonexistent/x\n"),
        ] {
            assert_eq!(run_with(arguments, ""), (Verdict::Invalid, expected.into()));
        }
    }

    #[test]
    fn the_progress_ends_at_the_file_s_length() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), GOLDEN).expect("write");
        let mut last = (0, 0);
        examine(file.path(), &mut |done, total| last = (done, total)).expect("readable");
        assert_eq!(last, (GOLDEN.len() as u64, GOLDEN.len() as u64));
    }

    #[test]
    fn only_a_yes_cuts() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let path = file.path().to_str().expect("text");
        let cut_off = &GOLDEN[..GOLDEN.len() - 1];
        for answer in ["", "n\n", "\n", "maybe yes\n"] {
            fs::write(path, cut_off).expect("write");
            let (verdict, out) = run_with(&["--fix", path], answer);
            assert_eq!(verdict, Verdict::Invalid);
            assert!(out.ends_with("Continue? [y/N]: Aborting...\n"), "{out}");
            assert_eq!(fs::read(path).expect("read"), cut_off);
        }
        for (arguments, answer) in [(&["--fix", path][..], "Y\n"), (&["--yes", "--fix", path], "")]
        {
            fs::write(path, cut_off).expect("write");
            let (verdict, out) = run_with(arguments, answer);
            assert_eq!(verdict, Verdict::Valid);
            assert!(out.ends_with("Successfully truncated AOF\n"), "{out}");
            let (verdict, out) = run_with(&[path], "");
            assert_eq!(verdict, Verdict::Valid, "{out}");
        }
    }
}
