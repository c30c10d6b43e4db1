//! The program before it serves: special options, and configurations it refuses.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use disque::proto::aof_record;
use disque::proto::reply_reader::Value;

use crate::support::program::{self, Program};
use crate::support::{Client, TestServer, bulk, error, eventually, free_port, status, text};

const AOF: &[u8] = include_bytes!("../golden/disque.aof");

/// The server's program, with arguments.
fn server(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::support::server_path());
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    program::run(&mut server(arguments), b"")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs with a configuration that must be refused; returns the report's lines.
fn refused(arguments: &[&str], input: &str) -> Vec<String> {
    let output = program::run(&mut server(arguments), input.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(output.stdout, b"");
    stderr(&output).lines().map(str::to_owned).collect()
}

#[test]
fn the_version_line_has_the_shape_scripts_take_apart() {
    for option in ["-v", "--version"] {
        let output = run(&[option]);
        assert_eq!(output.status.code(), Some(0));
        let line = String::from_utf8(output.stdout).expect("text");
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        assert_eq!(words[..2], ["Disque", "server"]);
        let names: Vec<&str> =
            words[2..].iter().filter_map(|word| Some(word.split_once('=')?.0)).collect();
        assert_eq!(names, ["v", "sha", "malloc", "bits", "build"]);
        assert_eq!(words[2], "v=1.0-rc1");
        assert_eq!(line.lines().count(), 1);
    }
}

#[test]
fn help_is_usage_on_stdout_and_exit_0() {
    for option in ["-h", "--help"] {
        let output = run(&[option]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(stderr(&output), "");
        let text = String::from_utf8_lossy(&output.stdout);
        for part in ["FILE", "--version", "--help", "--test-memory"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn the_memory_test_runs_and_wants_a_size() {
    let output = run(&["--test-memory", "1"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Pass 50 of 50"));
    assert_eq!(run(&["--test-memory"]).status.code(), Some(1));
    assert_eq!(run(&["--test-memory", "much"]).status.code(), Some(1));
}

#[test]
fn a_report_has_a_banner_the_line_number_the_line_and_the_reason() {
    let report = refused(&["-"], "# a comment\n\ntimeout never\n");
    assert_eq!(report.len(), 5, "{report:?}");
    assert_eq!(report[0], "");
    assert!(report[1].starts_with("***"));
    assert!(report[2].contains("line 3"));
    assert_eq!(report[3], ">>> 'timeout never'");
    assert_eq!(report[4], "must be a number, 0 or more");
}

#[test]
fn lines_of_the_file_and_options_are_counted_as_one_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("disque.conf");
    fs::write(&file, "port 7711\ntimeout 3").expect("writable");
    let file = file.to_str().expect("text");
    let report = refused(&[file, "--hz", "20", "--nosuch", "1"], "");
    assert!(report[2].contains("line 4"), "{report:?}");
    assert_eq!(report[3], ">>> 'nosuch \"1\"'");
}

#[test]
fn what_a_configuration_cannot_say_is_refused_in_one_line() {
    let cases = [
        ("port 0", "must be a number from 1 to 55535"),
        ("port 55536", "must be a number from 1 to 55535"),
        ("maxclients 0", "must be a number from 1 to 2147483647"),
        ("loglevel loud", "must be one of debug, verbose, notice, warning"),
        ("appendfsync sometimes", "must be one of always, everysec, no"),
        ("appendfilename a/b", "this is the name of a file, not a path"),
        ("daemonize maybe", "must be yes or no"),
        ("maxmemory 1tb", "must be a size: a number and optionally b, k, kb, m, mb, g or gb"),
        ("client-output-buffer-limit slave 0 0 0", "the only client class is normal"),
        (
            "dir /nonexistent",
            "can't use /nonexistent as working directory: No such file or directory (os error 2)",
        ),
        (
            "logfile /nonexistent/log",
            "can't open the log file /nonexistent/log: No such file or directory (os error 2)",
        ),
        ("watchdog-period 100", "unknown directive or wrong number of arguments"),
        ("rename-command nosuch x", "rename-command: no such command 'nosuch'"),
        ("bind \"", "unbalanced quotes"),
    ];
    for (line, reason) in cases {
        let report = refused(&["-"], line);
        assert_eq!(report.last().map(String::as_str), Some(reason), "{line}");
    }
}

#[test]
fn a_configuration_file_that_cannot_be_read_is_named() {
    let report = refused(&["/nonexistent/disque.conf"], "");
    assert!(report.last().is_some_and(|line| line.contains("/nonexistent/disque.conf")));
}

#[test]
fn the_configuration_may_come_from_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let mut command = server(&["-", "--hz", "40"]);
    command.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut program = Program::start(&mut command);
    let mut stdin = program.stdin();
    write!(stdin, "port {port}\nbind 127.0.0.1\nhz 20\ntimeout 99\n").expect("it reads");
    drop(stdin);
    let stream = eventually(|| TcpStream::connect(("127.0.0.1", port)), Result::is_ok);
    let mut client = Client::over(stream.expect("it listens"));
    for (name, value) in [("timeout", "99"), ("hz", "40")] {
        let pair = Value::Array(vec![bulk(name), bulk(value)]);
        assert_eq!(client.call(&format!("CONFIG GET {name}")), pair);
    }
    let rewrite = client.call("CONFIG REWRITE");
    assert_eq!(rewrite, error("ERR The server is running without a config file"));
    assert!(client.send_command("SHUTDOWN").is_closed());
    assert!(program.wait().success());
}

#[test]
fn files_have_the_names_that_directives_give_them() {
    let options = [
        "--appendonly",
        "yes",
        "--appendfilename",
        "jobs.aof",
        "--cluster-config-file",
        "peers.conf",
    ];
    let server = TestServer::start_with(&options);
    text(server.client().call("ADDJOB q body 0"));
    let in_folder = |name: &str| server.folder().join(name).exists();
    assert!(in_folder("jobs.aof") && in_folder("peers.conf"));
    assert!(!in_folder("disque.aof") && !in_folder("nodes.conf"));
}

/// Runs with options in a folder until the program gives up; returns what it says.
fn gives_up(folder: &std::path::Path, port: u16, options: &[&str]) -> String {
    let mut command = server(&["--bind", "127.0.0.1", "--port", &port.to_string()]);
    let output = program::run(command.args(options).current_dir(folder), b"");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output)
}

#[test]
fn a_port_that_is_taken_ends_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let _clients = TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    let said = gives_up(folder.path(), port, &[]);
    assert!(said.contains(&format!("127.0.0.1:{port}")) && said.contains("in use"), "{said}");
    let other = free_port();
    let _bus = TcpListener::bind(("127.0.0.1", other + 10_000)).expect("it is free");
    let said = gives_up(folder.path(), other, &[]);
    assert!(said.contains(&(other + 10_000).to_string()) && said.contains("in use"), "{said}");
}

#[test]
fn two_servers_do_not_share_a_nodes_file() {
    let server = TestServer::start();
    let said = gives_up(server.folder(), free_port(), &[]);
    assert!(said.contains("nodes.conf") && said.contains("cluster-config-file"), "{said}");
    assert_eq!(server.client().call("PING"), status("PONG"));
}

#[test]
fn a_nodes_file_that_makes_no_sense_or_cannot_be_made_ends_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("nodes.conf"), "vars a b\n\nnonsense\n").expect("writable");
    let said = gives_up(folder.path(), free_port(), &[]);
    assert!(said.contains("nodes.conf") && said.contains("line 2"), "{said}");
    let said = gives_up(folder.path(), free_port(), &["--cluster-config-file", "no/nodes.conf"]);
    assert!(said.contains("no/nodes.conf: No such file or directory"), "{said}");
}

/// Starts on an append only file that makes the program give up.
fn gives_up_on(aof: &[u8], options: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("disque.aof"), aof).expect("writable");
    let said = gives_up(folder.path(), free_port(), &[&["--appendonly", "yes"], options].concat());
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn a_damaged_append_only_file_ends_the_start_with_its_name_and_offset() {
    let (second, _) = aof_record::next(AOF).expect("it is whole").expect("it has records");
    let mut file = AOF.to_vec();
    file[second + 1] = b'3';
    let said = gives_up_on(&file, &[]);
    let expected = format!("disque.aof: byte {second}: a command of 3 words instead of 2");
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn a_cut_append_only_file_ends_the_start_where_that_is_wanted() {
    let said = gives_up_on(&AOF[..AOF.len() - 1], &["--aof-load-truncated", "no"]);
    assert!(said.contains("disque.aof ends in the middle of a record at byte"), "{said}");
}

#[test]
fn the_server_says_that_it_is_ready_once_the_file_is_loaded() {
    for appendonly in ["yes", "no"] {
        let server = TestServer::start_in(folder_with(AOF), &["--appendonly", appendonly]);
        let log = eventually(|| server.log(), |log| log.contains("ready to accept connections"));
        let lines = log.lines().collect::<Vec<_>>();
        let line_of = |text: &str| lines.iter().position(|line| line.contains(text));
        let ready = line_of("ready to accept connections").expect("it says so");
        let loaded = line_of("DB loaded from append only file");
        assert_eq!(loaded.is_some(), appendonly == "yes", "{log}");
        assert!(loaded.is_none_or(|loaded| loaded < ready), "{log}");
    }
}

fn folder_with(file: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("disque.aof"), file).expect("writable");
    folder
}

#[test]
fn while_the_file_is_loaded_only_what_needs_no_jobs_is_answered() {
    const RECORDS: usize = 600_000;
    let (len, _) = aof_record::next(AOF).expect("it is whole").expect("it has records");
    let folder = tempfile::tempdir().expect("a folder");
    // Loading takes a second or two, and looks at clients every few milliseconds.
    fs::write(folder.path().join("disque.aof"), AOF[..len].repeat(RECORDS)).expect("writable");
    let mut server = TestServer::start_in(folder, &["--appendonly", "yes"]);
    let mut client = server.client();
    let refused = ["PING", "ADDJOB q body 0", "GETJOB NOHANG FROM q", "HELLO", "CONFIG GET hz"];
    let lines = refused.into_iter().chain(["INFO persistence", "COMMAND COUNT", "LATENCY LATEST"]);
    client.send(lines.map(|line| format!("{line}\r\n")).collect::<String>());
    for command in refused {
        let loading = error("LOADING Disque is loading the dataset in memory");
        assert_eq!(client.reply(), loading, "{command}");
    }
    let info = text(client.reply());
    assert!(info.contains("\r\nloading:1\r\n"), "{info}");
    assert!(info.contains(&format!("\r\nloading_total_bytes:{}\r\n", RECORDS * len)), "{info}");
    let lines = info.trim_end().split("\r\n").filter_map(|line| line.split_once(':'));
    let names: Vec<&str> = lines.map(|(name, _)| name).collect();
    assert_eq!(
        names[names.len() - 7..],
        [
            "loading_start_time",
            "loading_total_bytes",
            "loading_loaded_bytes",
            "loading_loaded_perc",
            "loading_eta_seconds",
            "aof_rewrites_consecutive_failures",
            "aof_rewrite_pause_sec"
        ]
    );
    assert!(matches!(client.reply(), Value::Integer(_)));
    assert_eq!(client.reply(), Value::Array(vec![]));
    let log = server.log();
    let is_still_loading = text(client.call("INFO persistence")).contains("\r\nloading:1\r\n");
    assert!(!is_still_loading || !log.contains("ready to accept connections"), "{log}");
    assert_eq!(server.stop_by(libc::SIGTERM).code(), Some(0));
}
