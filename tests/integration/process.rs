//! The server as a process: its end, its signals, its log, its life in the background.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::program::Program;
use crate::support::{Client, TestServer, error, eventually, free_port, server_path, status, text};

fn log_of(server: &TestServer) -> String {
    fs::read_to_string(server.folder().join("log")).expect("the server logs")
}

#[test]
fn shutdown_ends_the_server_and_takes_its_unix_socket_along() {
    let mut server = TestServer::start_with(&["--unixsocket", "disque.sock"]);
    let mut client = server.client();
    assert_eq!(client.call("SHUTDOWN NOW"), error("ERR syntax error"));
    assert_eq!(client.call("SHUTDOWN REWRITE-AOF x"), error("ERR syntax error"));
    assert!(client.send_command("SHUTDOWN").is_closed());
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.folder().join("disque.sock").exists());
}

#[test]
fn shutdown_is_refused_while_the_first_append_only_file_is_written() {
    let server = TestServer::start();
    let mut client = server.client();
    text(client.call("ADDJOB q body 0"));
    client.send("CONFIG SET appendonly yes\r\nSHUTDOWN\r\n");
    assert_eq!(client.reply(), status("OK"));
    assert_eq!(client.reply(), error("ERR Errors trying to SHUTDOWN. Check logs."));
    let is_on = |info: &String| info.contains("\r\naof_state:on\r\n");
    eventually(|| text(client.call("INFO persistence")), is_on);
    assert!(client.send_command("SHUTDOWN").is_closed());
}

#[test]
fn the_signals_to_end_end_it_with_exit_0() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut server = TestServer::start();
        assert_eq!(server.stop_by(signal).code(), Some(0));
        assert!(log_of(&server).contains("Received SIG"));
    }
}

#[test]
fn a_second_interrupt_ends_even_a_stuck_server_with_exit_1() {
    let mut server = TestServer::start();
    let mut client = server.client();
    client.ok("CONFIG SET watchdog-period 200");
    client.send_command("DEBUG SLEEP 30");
    eventually(|| log_of(&server), |log| log.contains("running debug"));
    server.signal(libc::SIGINT);
    // While the first is pending, a second would be the same one to the kernel.
    eventually(|| pending_signals(&server), |&signals| signals == 0);
    assert_eq!(server.stop_by(libc::SIGINT).code(), Some(1));
}

/// The signals sent to a process and not delivered yet, a bit each.
fn pending_signals(server: &TestServer) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let field = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    u64::from_str_radix(field.expect("Linux tells it").trim(), 16).expect("a hex number")
}

#[test]
fn hangups_are_ignored() {
    let server = TestServer::start();
    server.signal(libc::SIGHUP);
    server.signal(libc::SIGPIPE);
    assert_eq!(server.client().call("PING"), status("PONG"));
}

#[test]
fn lines_of_the_log_have_the_shape_of_the_c_servers() {
    let server = TestServer::start();
    assert_eq!(server.client().call("PING"), status("PONG"));
    let log = log_of(&server);
    let lines: Vec<&str> =
        log.lines().filter(|line| line.starts_with(&format!("{}:", server.pid()))).collect();
    assert!(lines.iter().any(|line| line.ends_with(" # Server started, Disque version 1.0-rc1")));
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [process, day, month, time, level, ..] = words[..] else {
            panic!("{line}");
        };
        assert_eq!(process, format!("{}:P", server.pid()), "{line}");
        assert!(day.len() == 2 && day.parse::<u8>().is_ok_and(|day| day <= 31), "{line}");
        assert_eq!(month.len(), 3, "{line}");
        assert!(time.len() == 12 && &time[8..9] == ".", "{line}");
        assert!([".", "-", "*", "#"].contains(&level), "{line}");
    }
}

#[test]
fn the_banner_names_port_and_process() {
    let server = TestServer::start();
    let log = log_of(&server);
    assert!(log.contains(&format!("Port: {}\n", server.port())), "{log}");
    assert!(log.contains(&format!("PID: {}\n", server.pid())), "{log}");
}

#[test]
fn beside_the_systems_log_the_banner_is_one_line() {
    let server = TestServer::start_with(&["--syslog-enabled", "yes", "--syslog-ident", "test"]);
    let log = log_of(&server);
    let own = format!("{}:P ", server.pid());
    assert!(log.lines().all(|line| line.starts_with(&own)), "{log}");
    let facts = format!("port {}, pid {} ready to start.", server.port(), server.pid());
    assert!(log.lines().next().is_some_and(|line| line.ends_with(&facts)), "{log}");
}

#[test]
fn the_log_can_be_renamed_away_and_is_made_anew() {
    let server = TestServer::start();
    let mut client = server.client();
    let (log, old) = (server.folder().join("log"), server.folder().join("log.1"));
    fs::rename(&log, &old).expect("the folder is ours");
    client.ok("CONFIG SET maxmemory 1");
    let line = "maxmemory is now 1 bytes";
    assert!(log_of(&server).contains(line));
    assert!(!fs::read_to_string(&old).expect("it was renamed").contains(line));
}

#[test]
fn the_level_of_the_log_can_be_changed_while_it_runs() {
    let server = TestServer::start_with(&["--loglevel", "warning"]);
    let log = log_of(&server);
    assert!(log.contains(" # ") && !log.contains(" * "), "{log}");
    let mut client = server.client();
    client.ok("CONFIG SET loglevel debug");
    drop(server.client());
    eventually(|| log_of(&server), |log| log.contains(" - ") || log.contains(" . "));
}

#[test]
fn the_process_is_titled_by_where_it_listens() {
    let server = TestServer::start();
    let cmdline = fs::read(format!("/proc/{}/cmdline", server.pid())).expect("it runs");
    let title = String::from_utf8_lossy(&cmdline);
    let title = title.trim_end_matches('\0');
    assert!(title.ends_with(&format!("disque-server 127.0.0.1:{}", server.port())), "{title}");
}

/// Where a server in the background keeps its process ID. It is nobody's child: if the test
/// fails while it runs, this ends it.
struct PidFile(PathBuf);

impl PidFile {
    fn number(&self) -> Option<i32> {
        fs::read_to_string(&self.0).ok()?.strip_suffix('\n')?.parse().ok()
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(pid) = self.number() {
            // SAFETY: kill only takes numbers; the server removes the file before it ends.
            let _either_way = unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

#[test]
fn in_the_background_it_keeps_a_pid_file_while_it_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let mut command = Command::new(server_path());
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "yes"])
        .args(["--pidfile", "disque.pid", "--logfile", "log"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Program::start(&mut command).wait();
    let pidfile = PidFile(folder.path().join("disque.pid"));
    assert_eq!(start.code(), Some(0), "whoever started it is free again");
    let pid = eventually(|| pidfile.number(), Option::is_some).expect("a process ID");
    let stream = eventually(|| TcpStream::connect(("127.0.0.1", port)), Result::is_ok);
    let mut client = Client::over(stream.expect("it listens"));
    assert!(text(client.call("INFO server")).contains(&format!("process_id:{pid}\r\n")));
    assert!(client.send_command("SHUTDOWN").is_closed());
    eventually(|| pidfile.0.exists(), |&is_there| !is_there);
}
