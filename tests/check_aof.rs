//! `disque-check-aof` as people and scripts call it. The expected outputs are those of the
//! C tool, but where it says why: ours also looks into the jobs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use disque::base::ids::{JobId, NodeId};
use disque::base::rng::Rng;
use disque::proto::aof_record::SumPlace;
use disque::proto::aof_record::{self, AofRecord};
use disque::proto::aof_sum::SumKind;
use disque::proto::job_record::JobRecord;
use disque::store::aof_load::{AofReader, LoadProgress};
use disque::store::aof_sums::{FileEnd, SumWriter};
use tempfile::TempDir;

#[path = "integration/program.rs"]
#[allow(dead_code, reason = "the integration tests use the rest of it")]
mod program;
#[path = "cli/terminal.rs"]
#[allow(dead_code, reason = "the tests of the client use the rest of it")]
mod terminal;

use terminal::Terminal;

const GOLDEN: &[u8] = include_bytes!("golden/disque.aof");

struct Checked {
    dir: TempDir,
}

impl Checked {
    fn new(bytes: &[u8]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("x.aof"), bytes).expect("it takes a file");
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("x.aof")
    }

    fn written_at(&self) -> SystemTime {
        fs::metadata(self.path()).and_then(|data| data.modified()).expect("a time")
    }

    /// Was written an hour ago; returns when that is.
    fn make_old(&self) -> SystemTime {
        let file = fs::File::options().write(true).open(self.path()).expect("it is ours");
        let written_at = self.written_at() - Duration::from_secs(3600);
        file.set_modified(written_at).expect("it is ours");
        written_at
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).expect("the file is there")
    }

    /// Exit status and output.
    fn run(&self, options: &[&str], answer: &str) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_disque-check-aof"));
        command.args(options).arg("x.aof").current_dir(self.dir.path());
        let output = program::run(&mut command, answer.as_bytes());
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    }
}

#[test]
fn a_good_file_is_valid() {
    let len = GOLDEN.len();
    let (status, out) = Checked::new(GOLDEN).run(&[], "");
    assert_eq!(out, format!("AOF analyzed: size={len}, ok_up_to={len}, diff=0\nAOF is valid\n"));
    assert_eq!(status, Some(0));
}

#[test]
fn a_read_only_file_can_be_checked() {
    let file = Checked::new(GOLDEN);
    let mut permissions = fs::metadata(file.path()).expect("it is there").permissions();
    permissions.set_readonly(true);
    fs::set_permissions(file.path(), permissions).expect("it is ours");
    let written_at = file.written_at();
    assert_eq!(file.run(&[], "").0, Some(0));
    assert_eq!(file.written_at(), written_at);
}

#[test]
fn an_empty_file_is_refused() {
    assert_eq!(Checked::new(b"").run(&[], ""), (Some(1), "Empty file: x.aof\n".into()));
}

#[test]
fn a_cut_file_is_told_and_left_alone_without_fix() {
    let file = Checked::new(&[GOLDEN, b"*2\r\n$6\r\nDELJOB\r\n$40\r\nD-"].concat());
    let (status, out) = file.run(&[], "y\n");
    let (len, size) = (GOLDEN.len(), GOLDEN.len() + 23);
    let expected = format!(
        "0x{len:16x}: the file ends before its last record does\n\
         AOF analyzed: size={size}, ok_up_to={len}, diff=23\n\
         AOF is not valid\n"
    );
    assert_eq!((status, out), (Some(1), expected));
    assert_eq!(file.bytes().len(), size);
}

#[test]
fn fix_asks_before_it_cuts() {
    let file = Checked::new(&[GOLDEN, b"*2\r\n"].concat());
    let (len, size) = (GOLDEN.len(), GOLDEN.len() + 4);
    let asked = format!(
        "0x{len:16x}: the file ends before its last record does\n\
         AOF analyzed: size={size}, ok_up_to={len}, diff=4\n\
         This will shrink the AOF from {size} bytes, with 4 bytes, to {len} bytes\n\
         Continue? [y/N]: "
    );
    assert_eq!(file.run(&["--fix"], "n\n"), (Some(1), format!("{asked}Aborting...\n")));
    assert_eq!(file.bytes().len(), size);
    let expected = format!("{asked}Successfully truncated AOF\n");
    // A server takes it for the time up to which another one ran.
    let written_at = file.make_old();
    assert_eq!(file.run(&["--fix"], "y\n"), (Some(0), expected));
    assert_eq!(file.bytes(), GOLDEN);
    assert_eq!(file.written_at(), written_at);
}

#[test]
fn fix_of_a_valid_file_asks_nothing() {
    let file = Checked::new(GOLDEN);
    let (status, out) = file.run(&["--fix"], "");
    assert_eq!(status, Some(0));
    assert!(out.ends_with("AOF is valid\n"), "{out}");
}

#[test]
fn scripts_need_not_answer() {
    let file = Checked::new(&[GOLDEN, &[0; 4096]].concat());
    let (status, out) = file.run(&["--fix", "--yes"], "");
    assert_eq!(status, Some(0));
    assert!(!out.contains("Continue?"), "{out}");
    assert_eq!(file.bytes(), GOLDEN);
}

#[test]
fn a_job_that_lies_about_its_lengths_is_found_within_good_framing() {
    // The length of the first job's queue name, behind 23 bytes of framing.
    let mut bytes = GOLDEN.to_vec();
    bytes[23 + 72] = 0xff;
    let (status, out) = Checked::new(&bytes).run(&[], "");
    assert_eq!(status, Some(1));
    assert!(out.contains("malformed job"), "{out}");
    assert!(out.contains("ok_up_to=0,"), "{out}");
}

#[test]
fn commands_of_other_servers_are_found() {
    let (status, out) = Checked::new(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").run(&[], "");
    assert_eq!(status, Some(1));
    assert!(out.contains("a command other than LOADJOB and DELJOB"), "{out}");
}

/// A file with checksums: jobs with these bodies, the first of which is delivered at most
/// once, and an end.
fn file_with_sums(bodies: &[&[u8]]) -> Vec<u8> {
    let Ok(Some((_, AofRecord::LoadJob(golden)))) = aof_record::next(GOLDEN) else {
        panic!("the file begins with a job")
    };
    let mut sums = SumWriter::new(Rng::from_seed([5; 32]), FileEnd::default());
    let mut file = Vec::new();
    for (n, body) in (0u8..).zip(bodies) {
        let retry_secs = if n == 0 { 0 } else { 60 };
        let id = JobId::generate(&NodeId([b'a'; 40]), [n; 18], 60, retry_secs);
        let job = JobRecord { id, body, retry_secs, ..golden };
        let mut record = Vec::new();
        aof_record::append_load_job(&mut record, &job, SumPlace::Yes);
        sums.fill(&mut record, file.len() as u64);
        file.append(&mut record);
    }
    file.append(&mut sums.carrier(SumKind::Close, file.len() as u64));
    file
}

fn bodies_of(file: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = AofReader::new(Path::new("x.aof"), file, file.len() as u64);
    let mut bodies = Vec::new();
    let progress = reader.read(usize::MAX, |record| {
        if let AofRecord::LoadJob(job) = record {
            bodies.push(job.body.to_vec());
        }
    });
    assert_eq!(progress.expect("not damaged"), LoadProgress::Complete);
    bodies
}

#[test]
fn salvage_keeps_what_is_sound_and_the_damaged_file() {
    let bodies: [&[u8]; 5] = [b"once", b"first", b"second", GOLDEN, b"last"];
    let mut damaged = file_with_sums(&bodies);
    let at = damaged.windows(6).position(|bytes| bytes == b"second").expect("it is there");
    damaged[at] ^= 1;
    let file = Checked::new(&damaged);
    let (status, out) = file.run(&[], "");
    assert_eq!(status, Some(1));
    assert!(out.contains("a record that does not match its checksum"), "{out}");
    let written_at = file.make_old();
    let (status, out) = file.run(&["--salvage"], "");
    assert_eq!(status, Some(0), "{out}");
    assert_eq!(file.written_at(), written_at, "a server takes it for when another one ended");
    assert!(out.contains("Salvaged AOF: 3 records kept, "), "{out}");
    assert!(out.contains(" bytes left out in 1 places\n"), "{out}");
    assert!(out.contains("1 at-most-once jobs left out"), "{out}");
    let backup = file.dir.path().join("x.aof.damaged");
    assert_eq!(fs::read(&backup).expect("a backup"), damaged);
    assert_eq!(bodies_of(&file.bytes()), [b"first", GOLDEN, b"last"].map(<[u8]>::to_vec));
    let (status, out) = file.run(&[], "");
    assert_eq!((status, out.ends_with("AOF is valid\n")), (Some(0), true), "{out}");
    // The backup of the first time is not overwritten.
    fs::write(file.path(), &damaged).expect("it is ours");
    let (status, out) = file.run(&["--salvage"], "");
    assert_eq!(status, Some(1));
    assert!(out.contains("x.aof.damaged is there already"), "{out}");
    assert_eq!(file.bytes(), damaged);
    assert_eq!(fs::read_dir(file.dir.path()).expect("a folder").count(), 2);
}

#[test]
fn salvage_of_a_good_file_changes_nothing() {
    for bytes in [GOLDEN.to_vec(), file_with_sums(&[b"a", b"b"])] {
        let file = Checked::new(&bytes);
        let (status, out) = file.run(&["--salvage"], "");
        assert_eq!((status, out.ends_with("AOF is valid\n")), (Some(0), true), "{out}");
        assert_eq!(file.bytes(), bytes);
        assert_eq!(fs::read_dir(file.dir.path()).expect("a folder").count(), 1);
    }
}

#[test]
fn salvage_of_a_cut_file_keeps_every_whole_record() {
    let whole = file_with_sums(&[b"a", b"b", b"c"]);
    let file = Checked::new(&whole[..whole.len() - 200]);
    let (status, out) = file.run(&["--salvage"], "");
    assert_eq!(status, Some(0), "{out}");
    assert_eq!(bodies_of(&file.bytes()), [b"b"]);
}

#[test]
fn a_file_that_was_not_closed_is_valid_and_told() {
    let whole = file_with_sums(&[b"a", b"b"]);
    let len = bodies_len(&whole, 2);
    let (status, out) = Checked::new(&whole[..len]).run(&[], "");
    assert_eq!(status, Some(0), "{out}");
    assert!(out.contains("The file was not closed"), "{out}");
}

/// The length of the first records.
fn bodies_len(file: &[u8], count: usize) -> usize {
    (0..count).fold(0, |len, _| {
        let (next, _) = aof_record::next(&file[len..]).expect("valid").expect("whole");
        len + next
    })
}

#[test]
fn a_pipe_is_refused_at_once() {
    let file = Checked::new(GOLDEN);
    let made = Command::new("mkfifo").arg("pipe").current_dir(file.dir.path()).status();
    assert!(made.expect("mkfifo is there").success());
    let output = Command::new(env!("CARGO_BIN_EXE_disque-check-aof"))
        .arg("pipe")
        .current_dir(file.dir.path())
        .output()
        .expect("the program is built");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Cannot read file: pipe: it is not a regular file\n"
    );
}

#[test]
fn at_a_terminal_a_long_file_has_a_progress_bar_and_a_person_answers() {
    const LEN_MIN: usize = 64 * 1024 * 1024;
    let whole = GOLDEN.repeat(LEN_MIN / GOLDEN.len() + 1);
    let file = Checked::new(&[&whole, &b"*2\r\n"[..]].concat());
    let mut command = Command::new(env!("CARGO_BIN_EXE_disque-check-aof"));
    command.args(["--fix", "x.aof"]).current_dir(file.dir.path());
    let mut terminal = Terminal::run(command);
    terminal.wait_for("% ");
    terminal.wait_for("Continue? [y/N]: ");
    terminal.type_keys("y\n");
    let (status, rest) = terminal.wait_for_end();
    assert_eq!(status, Some(0), "{rest}");
    assert!(rest.contains("Successfully truncated AOF"), "{rest}");
    assert!(file.bytes() == whole, "the whole records are left");
}
