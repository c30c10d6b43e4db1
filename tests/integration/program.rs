//! Programs that tests start, and waiting for what they do in their own time.
//!
//! No program outlives its test, whatever the test dies of, and nothing is waited for without
//! end: what takes longer than [`PATIENCE`] fails with a sentence.

use std::fmt::Debug;
use std::io::{Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test fails. Far more than anything takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running program. It is killed when it goes out of scope.
pub struct Program(Child);

impl Program {
    pub fn start(command: &mut Command) -> Self {
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program())))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.pid()).expect("process IDs are positive");
        // SAFETY: kill only takes numbers; the process is our child and not yet waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// The processor time that it has had. What it does while it answers costs as much of it
    /// on a busy machine, on which everything takes longer.
    pub fn cpu_time(&self) -> Duration {
        let pid = i32::try_from(self.pid()).expect("process IDs are positive");
        let mut clock = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: each call writes one value to where it is told; the process is our child and
        // not yet waited for.
        let is_read = unsafe {
            libc::clock_getcpuclockid(pid, &raw mut clock) == 0
                && libc::clock_gettime(clock, &raw mut time) == 0
        };
        assert!(is_read, "a child's clock can be read");
        let nanos = u32::try_from(time.tv_nsec).expect("below a second");
        Duration::new(u64::try_from(time.tv_sec).expect("not negative"), nanos)
    }

    /// Its standard input, which was made a pipe.
    pub fn stdin(&mut self) -> ChildStdin {
        self.0.stdin.take().expect("it is a pipe, and not taken yet")
    }

    /// How it has ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("it is our child")
    }

    /// Waits until it has ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        eventually(|| self.ended(), Option::is_some).expect("it has ended")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _is_gone_either_way = self.0.kill();
        let _is_ours = self.0.wait();
    }
}

/// Runs a program to its end with some standard input. A program that reads none of it may
/// end before it is written.
#[track_caller]
pub fn run(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = Program::start(command);
    let (mut stdin, input) = (program.stdin(), input.to_vec());
    let (stdout, stderr) = (program.0.stdout.take(), program.0.stderr.take());
    let writer = thread::spawn(move || stdin.write_all(&input));
    let stdout = thread::spawn(move || read_to_end(stdout.expect("it is a pipe")));
    let stderr = thread::spawn(move || read_to_end(stderr.expect("it is a pipe")));
    let status = program.wait();
    let _read_or_not = writer.join().expect("writing does not panic");
    let [stdout, stderr] = [stdout, stderr].map(|pipe| pipe.join().expect("pipes can be read"));
    Output { status, stdout, stderr }
}

fn read_to_end(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).expect("a pipe can be read");
    bytes
}

/// Repeats a look at something that another process does in its own time, until it is
/// as `is_right` wants it. Returns what was seen then.
///
/// # Panics
/// When it is not so within [`PATIENCE`].
#[track_caller]
pub fn eventually<T: Debug>(mut look: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    let started = Instant::now();
    loop {
        let seen = look();
        if is_right(&seen) {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "it stays at {seen:?}");
        thread::sleep(Duration::from_millis(5));
    }
}
