//! A server to test, and a client to test it with.
//!
//! Nothing waits by sleeping: a server is there once it can be connected to, a reply once
//! it has come. What must not come is shown by what comes after it.

#[path = "program.rs"]
pub mod program;

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use disque::proto::reply_reader::{ReplyReader, Value};
use tempfile::TempDir;

pub use program::{PATIENCE, eventually};

use program::Program;

/// Ports tried are from here on; the bus port, 10000 above, is below those that the
/// system gives to connections.
const PORTS: std::ops::Range<u16> = 11_000..22_000;
/// How often a server is started on a port that another process takes at that moment.
const PORTS_TRIED: usize = 20;
/// Used when it is in the server's folder.
const CONFIG_FILE: &str = "disque.conf";
const BUS_PORT_OFFSET: u16 = 10_000;

/// A running server. It is killed, and its folder removed, when it goes out of scope.
pub struct TestServer {
    program: Program,
    port: u16,
    folder: TempDir,
    /// The tool that starts the server, if there is one, and the server.
    words: Vec<OsString>,
}

impl TestServer {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further options, as in `&["--maxclients", "5"]`.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), options)
    }

    /// Starts a server under a tool, as in `&["valgrind", "--tool=callgrind"]`, which becomes
    /// the server or ends with it. It is started again under it as well.
    #[allow(dead_code, reason = "not every test that uses this file uses tools")]
    pub fn start_under(tool: &[&str], options: &[&str]) -> Self {
        Self::start_under_in(tool, tempfile::tempdir().expect("a folder"), options)
    }

    /// Starts a server from a file `disque.conf` in its folder, and further options.
    pub fn start_with_config(text: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(CONFIG_FILE), text).expect("the folder is ours");
        Self::start_in(folder, options)
    }

    /// Starts a server in a folder with files that are there already.
    pub fn start_in(folder: TempDir, options: &[&str]) -> Self {
        Self::start_under_in(&[], folder, options)
    }

    /// Starts a server under a tool in a folder with files that are there already.
    pub fn start_under_in(tool: &[&str], folder: TempDir, options: &[&str]) -> Self {
        let words: Vec<OsString> = tool.iter().map(Into::into).chain([server_path()]).collect();
        let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        for _ in 0..PORTS_TRIED {
            let port = free_port();
            let mut program = start(&words, folder.path(), port, options);
            if serves(&mut program, port) {
                return Self { program, port, folder, words };
            }
            // Another process took the port meanwhile, or the options are wrong.
            assert!(log().contains("in use"), "the server did not start:\n{}", log());
        }
        panic!("every port is said to be in use:\n{}", log());
    }

    /// Starts a server that has ended again, in its folder and on its port.
    pub fn start_again(&mut self, options: &[&str]) {
        self.program = start(&self.words, self.folder.path(), self.port, options);
        assert!(serves(&mut self.program, self.port), "the server did not start again");
    }

    /// Starts a server that has ended again, in its folder and on another port.
    pub fn start_again_on(&mut self, port: u16, options: &[&str]) {
        self.port = port;
        self.start_again(options);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Where the server runs: its files and its `log` are here.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn client(&self) -> Client {
        Client::over(self.connect())
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket");
        stream
    }

    pub fn signal(&self, signal: i32) {
        self.program.signal(signal);
    }

    /// The processor time that the server has had.
    pub fn cpu_time(&self) -> Duration {
        self.program.cpu_time()
    }

    /// Does something while the server stands still: what is sent to it meanwhile it finds all
    /// at once, in the order in which it was sent.
    pub fn while_stopped<T>(&self, work: impl FnOnce() -> T) -> T {
        let pid = i32::try_from(self.pid()).expect("process IDs are positive");
        self.signal(libc::SIGSTOP);
        // SAFETY: waits for a child of ours to stop; its status is not asked for.
        let stopped = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WUNTRACED) };
        assert_eq!(stopped, pid, "it has stopped");
        let result = work();
        self.signal(libc::SIGCONT);
        result
    }

    /// From now on no file of the server gets longer than this many bytes, which is to it
    /// what a full disk is.
    pub fn limit_files(&self, len_max: u64) {
        let pid = i32::try_from(self.pid()).expect("process IDs are positive");
        let limit = libc::rlimit { rlim_cur: len_max, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the limit lives through the call, and no old one is asked for.
        let done = unsafe {
            libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut())
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("the server logs")
    }

    /// Waits until the server has ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.program.wait()
    }

    /// Asks the server to end by a signal and waits until it has.
    #[track_caller]
    pub fn stop_by(&mut self, signal: i32) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let ended = self.program.ended();
            eprintln!("the server of the failed test has ended with {ended:?}; its log:\n{log}");
        }
    }
}

/// The program of the server under test: this build's, or another one that the environment
/// names. Every test that starts a server starts this one.
pub fn server_path() -> OsString {
    std::env::var_os("DISQUE_SERVER").unwrap_or(env!("CARGO_BIN_EXE_disque-server").into())
}

/// Starts the server that `words` end with, maybe with a tool in front.
fn start(words: &[OsString], folder: &Path, port: u16, options: &[&str]) -> Program {
    let file = folder.join(CONFIG_FILE).exists().then_some(CONFIG_FILE);
    Program::start(
        Command::new(&words[0])
            .args(&words[1..])
            .args(file)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--logfile", "log"])
            .args(["--loglevel", "debug"])
            .args(options)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    )
}

/// Waits until the server accepts connections; tells whether it does.
fn serves(program: &mut Program, port: u16) -> bool {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if program.ended().is_some() {
            return false;
        }
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above 0");
            // Once this connection is closed it is no client any more that a test could meet.
            let closed = stream.write_all(b"QUIT\r\n").and_then(|()| {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes)
            });
            // Else another process had the port, and has just gone: ours may be on its way.
            if closed.is_ok() {
                return true;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the server neither serves nor ends");
}

/// A port that is free with its bus port, and that no other test takes as long as this
/// process lives, not even while a server on it is stopped. Different processes begin to look
/// at different places.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(2_654_435_761);
    for _ in PORTS {
        let step = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + u16::try_from(step).expect("below 2^16");
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if claim(port) && is_free(port) && is_free(port + BUS_PORT_OFFSET) {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}

/// Claims a port for this process; tells whether no other one had. `tests/clients/servers.py`
/// claims in the same way.
#[cfg(target_os = "linux")]
fn claim(port: u16) -> bool {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = SocketAddr::from_abstract_name(format!("disque-test-port-{port}"));
    // A name of this kind is in no file system. It is free again when the process has ended.
    UnixListener::bind_addr(&name.expect("a short name")).map(std::mem::forget).is_ok()
}

/// Elsewhere a port that is free just now has to do.
#[cfg(not(target_os = "linux"))]
fn claim(_port: u16) -> bool {
    true
}

/// A stream of either kind.
pub trait Stream: Read + Write + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// A client that sends bytes or commands and reads replies.
pub struct Client {
    stream: Box<dyn Stream>,
    replies: ReplyReader,
}

impl Client {
    pub fn over_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above 0");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout above 0");
        Self { stream: Box::new(stream), replies: ReplyReader::default() }
    }

    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above 0");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout above 0");
        Self { stream: Box::new(stream), replies: ReplyReader::default() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
        self
    }

    /// Sends a command as an array; its words are separated by blanks.
    pub fn send_command(&mut self, words: &str) -> &mut Self {
        self.send(request(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
    }

    /// Sends a command and reads its reply.
    #[must_use]
    pub fn call(&mut self, words: &str) -> Value {
        self.send_command(words).reply()
    }

    /// Sends a command, given word by word, and reads its reply.
    #[must_use]
    pub fn call_words(&mut self, words: &[&[u8]]) -> Value {
        self.send(request(words)).reply()
    }

    /// Sends a command that is answered OK.
    #[track_caller]
    pub fn ok(&mut self, words: &str) {
        assert_eq!(self.call(words), status("OK"), "{words}");
    }

    /// Reads the next reply.
    #[must_use]
    pub fn reply(&mut self) -> Value {
        self.next().expect("the connection is open")
    }

    /// Reads the next reply; `None` when the server has closed the connection.
    #[must_use]
    pub fn reply_if_open(&mut self) -> Option<Value> {
        self.next()
    }

    /// Sends a command and reads its reply; `None` when the server has closed the
    /// connection before, or does so now.
    #[must_use]
    pub fn call_if_open(&mut self, words: &str) -> Option<Value> {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        self.stream.write_all(&request(&words)).ok()?;
        self.next()
    }

    /// Tells that the server has closed the connection and sent nothing before.
    #[must_use]
    pub fn is_closed(&mut self) -> bool {
        self.next().is_none()
    }

    fn next(&mut self) -> Option<Value> {
        let mut bytes = [0; 65_536];
        loop {
            if let Some(value) = self.replies.next_value().expect("well-formed replies") {
                return Some(value);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.replies.feed(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }
}

/// A command as it goes over the wire.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    disque::proto::request::encode(words, &mut bytes);
    bytes
}

pub fn status(text: &str) -> Value {
    Value::Status(text.into())
}

pub fn error(text: &str) -> Value {
    Value::Error(text.into())
}

pub fn bulk(bytes: impl AsRef<[u8]>) -> Value {
    Value::Bulk(bytes.as_ref().into())
}

/// The text of a bulk or status reply.
#[track_caller]
pub fn text(value: Value) -> String {
    match value {
        Value::Bulk(bytes) | Value::Status(bytes) => String::from_utf8(bytes).expect("text"),
        other => panic!("not a text: {other:?}"),
    }
}

#[track_caller]
pub fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("not an array: {other:?}"),
    }
}

#[track_caller]
pub fn integer(value: Value) -> i64 {
    match value {
        Value::Integer(number) => number,
        other => panic!("not an integer: {other:?}"),
    }
}
