//! `disque-check-aof` as people and scripts call it. The expected outputs are those of the
//! C tool, but where it says why: ours also looks into the jobs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

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
    let modified_at = fs::metadata(file.path()).and_then(|data| data.modified()).expect("a time");
    assert_eq!(file.run(&[], "").0, Some(0));
    let after = fs::metadata(file.path()).and_then(|data| data.modified()).expect("a time");
    assert_eq!(modified_at, after);
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
    assert_eq!(file.run(&["--fix"], "y\n"), (Some(0), expected));
    assert_eq!(file.bytes(), GOLDEN);
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
