//! The client as people and scripts run it: the real binary against a server that says what
//! the test wants, and in `real_nodes` against real ones.
//!
//! `cli/conversation.txt` holds commands and replies of every shape; the `.golden` files
//! beside it hold what the C client printed for them in each form (JSON is ours).

#[path = "cli/check.rs"]
mod check;
#[path = "cli/fake_server.rs"]
mod fake_server;
#[path = "cli/hostile.rs"]
mod hostile;
#[path = "cli/interactive.rs"]
mod interactive;
#[path = "cli/real_nodes.rs"]
mod real_nodes;
#[path = "integration/support.rs"]
#[allow(dead_code, reason = "the integration tests use the rest of it")]
mod support;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/trace.rs"]
mod trace;

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use disque::proto::quoting;
use fake_server::{Answer, FakeServer, bulk, listen};
use support::program;
use terminal::Terminal;

fn disque() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disque"));
    command.env_remove("DISQUE_AUTH").env_remove("FAKETTY").env("HOME", "/nonexistent");
    command
}

/// The client on a port, with arguments separated by spaces.
fn client(port: u16, args: &str) -> Command {
    let mut command = disque();
    command.arg("-p").arg(port.to_string()).args(args.split_whitespace());
    command
}

/// Runs to the end with some standard input.
fn run(mut command: Command, input: &[u8]) -> Output {
    program::run(&mut command, input)
}

/// Standard output, standard error and status of a run.
fn told(output: &Output) -> (String, String, i32) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
        output.status.code().expect("the client exits by itself"),
    )
}

fn told_by(command: Command) -> (String, String, i32) {
    told(&run(command, b""))
}

/// The commands of the conversation as input lines, and the replies.
fn conversation() -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut input, mut replies) = (Vec::new(), Vec::new());
    for line in include_str!("cli/conversation.txt").lines() {
        let mut words = quoting::split(line.as_bytes()).expect("quotes are balanced");
        replies.push(words.pop().expect("a reply"));
        input.extend(words.pop().expect("a command"));
        input.push(b'\n');
    }
    (input, replies)
}

fn assert_form(args: &[&str], golden: &[u8]) {
    let (input, replies) = conversation();
    let replies: Vec<&[u8]> = replies.iter().map(Vec::as_slice).collect();
    let server = FakeServer::with_replies(&replies);
    let mut command = client(server.port, "");
    command.args(args);
    let output = run(command, &input);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(
        output.stdout.escape_ascii().to_string().replace("\\n", "\n"),
        golden.escape_ascii().to_string().replace("\\n", "\n"),
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_standard_form_is_the_c_clients() {
    assert_form(&["--no-raw"], include_bytes!("cli/standard.golden"));
}

#[test]
fn the_raw_form_is_the_c_clients_and_the_default_of_pipes() {
    assert_form(&["--raw"], include_bytes!("cli/raw.golden"));
    assert_form(&[], include_bytes!("cli/raw.golden"));
    assert_form(&["-d", " | "], include_bytes!("cli/delimiter.golden"));
}

#[test]
fn the_csv_form_is_the_c_clients() {
    assert_form(&["--csv"], include_bytes!("cli/csv.golden"));
}

#[test]
fn the_json_form_keeps_shapes_and_bytes() {
    assert_form(&["--json"], include_bytes!("cli/json.golden"));
}

#[test]
fn faketty_makes_the_standard_form_the_default() {
    let server = FakeServer::with_replies(&[b":1\r\n"]);
    let mut command = client(server.port, "qlen q");
    command.env("FAKETTY", "1");
    assert_eq!(told_by(command).0, "(integer) 1\n");
}

#[test]
fn an_error_reply_is_an_answer_unless_e_is_given() {
    let error: &[u8] = b"-ERR no\r\n";
    let server = FakeServer::with_replies(&[error]);
    assert_eq!(told_by(client(server.port, "x")), ("ERR no\n\n".into(), String::new(), 0));
    let server = FakeServer::with_replies(&[error]);
    assert_eq!(told_by(client(server.port, "-e x")), ("ERR no\n\n".into(), String::new(), 1));
    let server = FakeServer::with_replies(&[b"+OK\r\n", error, b"+OK\r\n"]);
    let output = run(client(server.port, "-e"), b"a\nb\nc\n");
    assert_eq!(told(&output), ("OK\nERR no\n\n".into(), String::new(), 1));
}

#[test]
fn a_command_is_repeated_as_often_as_asked() {
    let server = FakeServer::with_replies(&[b"+PONG\r\n".as_slice(); 4]);
    assert_eq!(told_by(client(server.port, "-r 3 -i 0.001 ping")).0, "PONG\nPONG\nPONG\n");
    assert_eq!(server.requests(), [["ping"]; 3]);
}

#[test]
fn x_takes_the_last_argument_from_standard_input_as_it_is() {
    let server = FakeServer::with_replies(&[b"+OK\r\n"]);
    let output = run(client(server.port, "-x addjob q"), b"two\nlines\n");
    assert_eq!(told(&output).0, "OK\n");
    assert_eq!(server.requests(), [["addjob", "q", "two\nlines\n"]]);
}

#[test]
fn a_password_comes_from_the_option_or_the_environment() {
    let replies: [&[u8]; 2] = [b"+OK\r\n", b"+PONG\r\n"];
    let server = FakeServer::with_replies(&replies);
    let mut command = client(server.port, "ping");
    command.env("DISQUE_AUTH", "from env");
    assert_eq!(told_by(command), ("PONG\n".into(), String::new(), 0));
    assert_eq!(server.requests(), [vec!["AUTH", "from env"], vec!["ping"]]);

    let server = FakeServer::with_replies(&replies);
    let mut command = client(server.port, "-a given ping");
    command.env("DISQUE_AUTH", "from env");
    assert_eq!(told_by(command).2, 0);
    assert_eq!(server.requests(), [vec!["AUTH", "given"], vec!["ping"]]);

    let server = FakeServer::with_replies(&replies);
    let mut command = client(server.port, "--user ann ping");
    command.env("DISQUE_AUTH", "from env");
    assert_eq!(told_by(command).2, 0);
    assert_eq!(server.requests(), [vec!["AUTH", "ann", "from env"], vec!["ping"]]);

    // Who wants none serves whoever gives one.
    let server =
        FakeServer::with_replies(&[b"-ERR no password is set\r\n", b"+PONG\r\n", b"+OK\r\n"]);
    assert_eq!(told_by(client(server.port, "-a needless x")), ("OK\n".into(), String::new(), 0));
}

#[test]
fn a_refused_password_ends_every_mode_with_the_servers_reason() {
    let sentence = "AUTH failed: ERR invalid password. Give the right password in DISQUE_AUTH or \
                    with --askpass.\n";
    for mode in ["ping", "--latency", "--stat", "--pipe", "queues", "nodes", "cluster check", ""] {
        let server = FakeServer::with_replies(&[b"-ERR invalid password\r\n", b"-NOAUTH no\r\n"]);
        let told = told_by(client(server.port, &format!("-a wrong {mode}")));
        assert_eq!(told, (String::new(), sentence.into(), 1), "{mode}");
    }
    let server = FakeServer::with_replies(&[b"-ERR invalid password\r\n", b"-NOAUTH no\r\n"]);
    let told = told_by(client(server.port, "-a wrong --check"));
    assert_eq!(told, (format!("CRITICAL: {sentence}"), String::new(), 2));
}

#[test]
fn askpass_asks_on_the_terminal_and_does_not_show_the_answer() {
    let server = FakeServer::with_replies(&[b"+OK\r\n", b"+PONG\r\n"]);
    let mut terminal = Terminal::run(client(server.port, "--askpass ping"));
    terminal.wait_for("Password: ");
    terminal.type_keys("secret\n");
    let (status, shown) = terminal.wait_for_end();
    assert_eq!((status, shown.as_str()), (Some(0), "\r\nPONG\r\n"));
    assert_eq!(server.requests(), [vec!["AUTH", "secret"], vec!["ping"]]);

    let server = FakeServer::with_replies(&[b"+OK\r\n", b"+PONG\r\n"]);
    let mut terminal = Terminal::run(client(server.port, "--user ann --askpass ping"));
    terminal.wait_for("Password: ");
    terminal.type_keys("secret\n");
    assert_eq!(terminal.wait_for_end().0, Some(0));
    assert_eq!(server.requests(), [vec!["AUTH", "ann", "secret"], vec!["ping"]]);
}

#[test]
fn a_unix_socket_serves_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 14];
        stream.read_exact(&mut request).expect("a request");
        stream.write_all(b"+PONG\r\n").expect("a reader");
        request
    });
    let mut command = disque();
    command.arg("-s").arg(&path).arg("ping");
    assert_eq!(told_by(command), ("PONG\n".into(), String::new(), 0));
    assert_eq!(&server.join().expect("the server ends"), b"*1\r\n$4\r\nping\r\n");
}

#[test]
fn what_cannot_be_reached_is_named() {
    // Port 1 is reserved and served by nobody.
    let port = 1;
    let sentence = format!("Could not connect to Disque at 127.0.0.1:{port}: Connection refused\n");
    for mode in ["ping", "--latency", "--stat", "--pipe", "queues", "top", "cluster check"] {
        assert_eq!(told_by(client(port, mode)), (String::new(), sentence.clone(), 1), "{mode}");
    }
    let (stdout, _, status) = told_by(client(port, "--check"));
    assert_eq!((stdout, status), (format!("CRITICAL: {sentence}"), 2));
    let mut command = disque();
    command.args(["-s", "/nonexistent/d.sock", "ping"]);
    let sentence =
        "Could not connect to Disque at /nonexistent/d.sock: No such file or directory\n";
    assert_eq!(told_by(command), (String::new(), sentence.into(), 1));
}

#[test]
fn a_server_that_hangs_up_or_talks_nonsense_ends_the_command() {
    let server = FakeServer::with_answers(vec![]);
    let told = told_by(client(server.port, "ping"));
    assert_eq!(told, (String::new(), "Error: Server closed the connection\n".into(), 1));
    let server = FakeServer::with_replies(&[b"HTTP/1.1 400 Bad Request\r\n"]);
    let told = told_by(client(server.port, "ping"));
    assert_eq!(told, (String::new(), "Error: unknown reply type 'H'\n".into(), 1));
}

#[test]
fn shutdown_needs_no_answer() {
    let server = FakeServer::with_answers(vec![]);
    assert_eq!(told_by(client(server.port, "shutdown")), (String::new(), String::new(), 0));
}

#[test]
fn monitor_prints_until_the_server_is_gone() {
    let lines = b"+OK\r\n+1.5 [a] \"ping\"\r\n+2.5 [a] \"info\"\r\n".to_vec();
    let server = FakeServer::with_answers(vec![vec![Answer::Say(lines), Answer::HangUp]]);
    let (stdout, stderr, status) = told_by(client(server.port, "monitor"));
    assert_eq!(stdout, "OK\n1.5 [a] \"ping\"\n2.5 [a] \"info\"\n");
    assert_eq!((stderr.as_str(), status), ("Error: Server closed the connection\n", 1));
}

#[test]
fn options_that_do_not_exist_end_with_1_and_those_without_use_with_2() {
    let (stdout, stderr, status) = told_by(client(1, "--nope"));
    assert_eq!(stdout, "");
    assert_eq!(
        stderr,
        "Unrecognized option or bad number of args for: '--nope'. See disque --help.\n"
    );
    assert_eq!(status, 1);
    let (_, stderr, status) = told_by(client(1, "--bigkeys"));
    assert_eq!(
        stderr,
        "--bigkeys is of no use here: Disque has no keys; `disque queues` shows the longest \
         queues first.\n"
    );
    assert_eq!(status, 2);
}

#[test]
fn every_binary_explains_itself_and_names_its_version() {
    for (program, name) in [
        (env!("CARGO_BIN_EXE_disque").into(), "disque"),
        (support::server_path(), "disque-server"),
        (env!("CARGO_BIN_EXE_disque-check-aof").into(), "disque-check-aof"),
        (env!("CARGO_BIN_EXE_disque-benchmark").into(), "disque-benchmark"),
    ] {
        let run = |option: &str| {
            let mut command = Command::new(&program);
            command.arg(option);
            told_by(command)
        };
        let (stdout, stderr, status) = run("--help");
        assert!(stdout.contains(&format!("Usage: {name}")), "{name}: {stdout}");
        assert_eq!((stderr.as_str(), status), ("", 0), "{name}");
        let (stdout, stderr, status) = run("--version");
        let version = match name {
            // The shape of the C server's, which scripts take apart.
            "disque-server" => "Disque server v=1.0-rc1 ".to_string(),
            name => format!("{name} {}", env!("CARGO_PKG_VERSION")),
        };
        assert!(stdout.starts_with(&version), "{name}: {stdout}");
        assert_eq!((stdout.lines().count(), stderr.as_str(), status), (1, "", 0), "{name}");
    }
}

#[test]
fn help_needs_no_server() {
    let (stdout, stderr, status) = told_by(client(1, "help qlen"));
    assert!(stdout.contains("QLEN queue\r\n  summary: "), "{stdout}");
    assert_eq!((stderr.as_str(), status), ("", 0));
}

#[test]
fn latency_rewrites_its_line_and_history_begins_new_ones() {
    let server = FakeServer::with_replies(&[b"+PONG\r\n".as_slice(); 3]);
    let (stdout, stderr, status) = told_by(client(server.port, "--latency"));
    assert_eq!((stderr.as_str(), status), ("Error: Server closed the connection\n", 1));
    let lines: Vec<&str> = stdout.split("\x1b[0G\x1b[2K").skip(1).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[2].starts_with("min: ") && lines[2].ends_with(" (3 samples)\n"), "{lines:?}");

    let server = FakeServer::with_replies(&[b"+PONG\r\n".as_slice(); 6]);
    let (stdout, _, _) = told_by(client(server.port, "--latency-history -i 0.001"));
    assert!(stdout.contains(" samples) -- 0.0"), "{stdout}");
    assert!(stdout.contains(" seconds range\n"), "{stdout}");
}

#[test]
fn latency_dist_prints_percentiles() {
    let server = FakeServer::with_replies(&[b"+PONG\r\n".as_slice(); 9]);
    let (stdout, _, status) = told_by(client(server.port, "--latency-dist -i 0.02"));
    let mut lines = stdout.lines();
    let heading: Vec<_> = lines.next().expect("a heading").split_whitespace().collect();
    assert_eq!(heading.join(" "), "samples min us 50% 90% 99% 99.9% max us");
    let row: Vec<u64> = lines
        .next()
        .expect("a row")
        .split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect();
    assert_eq!(row.len(), 7);
    assert!(row[1..].is_sorted(), "{row:?}");
    assert_eq!(status, 1);
}

#[test]
fn intrinsic_latency_needs_no_server() {
    let (stdout, _, status) = told_by(client(1, "--intrinsic-latency 0"));
    assert!(stdout.contains(" total runs (avg latency: "), "{stdout}");
    assert!(stdout.ends_with("x longer than the average latency.\n"), "{stdout}");
    assert_eq!(status, 0);
}

#[test]
fn stat_prints_a_row_for_each_info_and_survives_a_restart() {
    let info = |commands: u64, rewriting: u8| {
        bulk(&format!(
            "# x\r\nregistered_jobs:12\r\nused_memory:2097152\r\nconnected_clients:3\r\n\
             blocked_clients:1\r\ntotal_commands_processed:{commands}\r\n\
             total_connections_received:7\r\naof_rewrite_in_progress:{rewriting}\r\n"
        ))
    };
    let server = FakeServer::with_answers(vec![
        vec![Answer::Say(info(100, 0)), Answer::Say(info(150, 1))],
        vec![Answer::Say(info(160, 0)), Answer::Say(b"-LOADING wait\r\n".to_vec())],
    ]);
    let (stdout, stderr, status) = told_by(client(server.port, "--stat -i 0.001"));
    assert_eq!(stdout, include_str!("cli/stat.golden"));
    assert_eq!((stderr.as_str(), status), ("ERROR: LOADING wait\n", 1));
}

/// A server for `--pipe`: when the final PING has come, it says so many OKs, an error, and
/// echoes the message.
fn pipe_server(oks: usize) -> u16 {
    listen(move |mut stream, _| {
        let mut got = Vec::new();
        let mut buffer = [0; 4096];
        let ping = b"*2\r\n$4\r\nPING\r\n$20\r\n";
        let mark = loop {
            let len = stream.read(&mut buffer).expect("the client is there");
            assert!(len > 0, "the client ends with a PING");
            got.extend_from_slice(&buffer[..len]);
            let found = got.windows(ping.len()).position(|window| window == ping);
            if let Some(mark) = found.and_then(|at| got.get(at + ping.len()..)?.get(..20)) {
                break mark.to_vec();
            }
        };
        let mut reply = b"+OK\r\n".repeat(oks);
        reply.extend_from_slice(b"-ERR one\r\n$20\r\n");
        reply.extend_from_slice(&mark);
        reply.extend_from_slice(b"\r\n");
        stream.write_all(&reply).expect("the client listens");
    })
}

#[test]
fn pipe_counts_replies_and_errors_up_to_its_own_ping() {
    let output = run(client(pipe_server(5000), "--pipe"), &b"PING\r\n".repeat(5001));
    let (stdout, stderr, status) = told(&output);
    assert_eq!(
        stdout,
        "All data transferred. Waiting for the last reply...\n\
         Last reply received from server.\n\
         errors: 1, replies: 5001\n"
    );
    assert_eq!((stderr.as_str(), status), ("ERR one\n", 1));
}

#[test]
fn pipe_gives_up_when_nothing_comes() {
    let port = listen(|mut stream, _| {
        let mut input = Vec::new();
        // Swallows everything until the client is gone.
        let _ = stream.read_to_end(&mut input);
    });
    let (stdout, stderr, status) = told(&run(client(port, "--pipe --pipe-timeout 1"), b"PING\r\n"));
    assert!(stdout.ends_with("errors: 1, replies: 0\n"), "{stdout}");
    assert_eq!((stderr.as_str(), status), ("No replies for 1 second: exiting.\n", 1));
}

#[test]
fn cluster_create_says_what_it_takes() {
    let (_, stderr, status) = told_by(client(1, "cluster create 127.0.0.1:7711"));
    assert_eq!(stderr, "cluster create takes two or more nodes, each as HOST:PORT.\n");
    assert_eq!(status, 1);
    let (_, stderr, _) = told_by(client(1, "cluster create 127.0.0.1 127.0.0.2"));
    assert_eq!(stderr, "A node is HOST:PORT, not '127.0.0.1'.\n");
}

#[test]
fn a_pipe_without_a_server_reports_every_line_and_connects_for_each() {
    let server = FakeServer::with_answers(vec![
        vec![Answer::Say(b"+one\r\n".to_vec())],
        vec![Answer::Say(b"+two\r\n".to_vec())],
    ]);
    let output = run(client(server.port, ""), b"a\n\"open\nb\n\nquit\nc\n");
    assert_eq!(told(&output), ("one\nInvalid argument(s)\ntwo\n".into(), String::new(), 0));
}
