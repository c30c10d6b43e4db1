//! The interactive client in a terminal, in front of servers that say what the test wants.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::client;
use crate::fake_server::{Answer, FakeServer};
use crate::terminal::Terminal;

/// An interactive client with an own home directory.
fn interactive(server: &FakeServer, home: &tempfile::TempDir) -> Terminal {
    let mut command = client(server.port, "");
    command.env("HOME", home.path());
    Terminal::run(command)
}

#[test]
fn the_prompt_names_the_server_and_replies_are_in_the_standard_form() {
    let home = tempfile::tempdir().expect("a folder");
    let server = FakeServer::with_replies(&[b":3\r\n", b"+PONG\r\n", b"+PONG\r\n", b"+OK\r\n"]);
    let prompt = format!("127.0.0.1:{}> ", server.port);
    let mut terminal = interactive(&server, &home);
    terminal.wait_for(&prompt);
    terminal.type_keys("qlen q\r");
    terminal.wait_for("\r\n(integer) 3\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("2 ping\r");
    terminal.wait_for("\r\nPONG\r\nPONG\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("\"open\r");
    terminal.wait_for("\r\nInvalid argument(s)\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("auth hidden\r");
    terminal.wait_for("\r\nOK\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("quit\r");
    assert_eq!(terminal.wait_for_end().0, Some(0));
    let history = std::fs::read_to_string(home.path().join(".disque_history")).expect("a file");
    assert_eq!(history, "qlen q\n2 ping\n\"open\nquit\n");
}

#[test]
fn tab_completes_commands_and_help_topics_and_up_recalls() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join(".disque_history"), "old line\n").expect("a file");
    let server = FakeServer::with_replies(&[b"+PONG\r\n", b"+recalled\r\n"]);
    let mut terminal = interactive(&server, &home);
    terminal.wait_for("> ");
    terminal.type_keys("pin\t\r");
    terminal.wait_for("\r\nPONG\r\n");
    terminal.wait_for("> ");
    terminal.type_keys("\x1b[A\x1b[A\r");
    terminal.wait_for("\r\nrecalled\r\n");
    terminal.wait_for("> ");
    terminal.type_keys("help @qu\t\r");
    terminal.wait_for("help @queues");
    terminal.wait_for("\x1b[1mQLEN\x1b[0m \x1b[90mqueue\x1b[0m\r\r\n");
    terminal.wait_for("> ");
    terminal.type_keys("clear\r");
    terminal.wait_for("\x1b[H\x1b[2J");
    terminal.wait_for("> ");
    terminal.type_keys("\x04");
    assert_eq!(terminal.wait_for_end().0, Some(0));
    assert_eq!(server.requests(), [vec!["PING"], vec!["old", "line"]]);
}

#[test]
fn a_slow_command_shows_its_time() {
    let home = tempfile::tempdir().expect("a folder");
    let slow = Answer::SayAfter(Duration::from_millis(510), b"+late\r\n".to_vec());
    let server = FakeServer::with_answers(vec![vec![slow, Answer::Say(b"+soon\r\n".to_vec())]]);
    let mut terminal = interactive(&server, &home);
    terminal.wait_for("> ");
    terminal.type_keys("a\r");
    terminal.wait_for("\r\nlate\r\n(");
    assert!(terminal.wait_for("s)\r\n").parse::<f64>().is_ok_and(|secs| secs >= 0.5));
    terminal.type_keys("exit\r");
    assert_eq!(terminal.wait_for_end().0, Some(0));
}

#[test]
fn a_lost_server_is_connected_to_again_and_connect_changes_it() {
    let home = tempfile::tempdir().expect("a folder");
    let one = |text: &str| vec![Answer::Say(format!("+{text}\r\n").into_bytes())];
    let server = FakeServer::with_answers(vec![one("first"), one("second"), one("third")]);
    let mut terminal = interactive(&server, &home);
    terminal.wait_for("> ");
    terminal.type_keys("a\r");
    terminal.wait_for("\r\nfirst\r\n");
    terminal.wait_for("> ");
    terminal.type_keys("b\r");
    terminal.wait_for("\r\nsecond\r\n");
    terminal.wait_for("> ");
    terminal.type_keys("connect 127.0.0.1 1\r");
    terminal.wait_for("Could not connect to Disque at 127.0.0.1:1: Connection refused\r\n");
    terminal.wait_for("not connected> ");
    terminal.type_keys(&format!("connect 127.0.0.1 {}\r", server.port));
    terminal.wait_for(&format!("127.0.0.1:{}> ", server.port));
    terminal.type_keys("c\r");
    terminal.wait_for("\r\nthird\r\n");
    terminal.type_keys("quit\r");
    assert_eq!(terminal.wait_for_end().0, Some(0));
    assert_eq!(server.requests(), [["a"], ["b"], ["b"], ["c"]]);
}

#[test]
fn ctrl_c_ends_a_command_that_waits_and_not_the_client() {
    let home = tempfile::tempdir().expect("a folder");
    let server = FakeServer::with_rule(|request| match request[0].as_str() {
        "getjob" => Some(Vec::new()),
        "monitor" => Some(b"+OK\r\n+1.5 [a] \"ping\"\r\n".to_vec()),
        _ => Some(b"+PONG\r\n".to_vec()),
    });
    let prompt = format!("127.0.0.1:{}> ", server.port);
    let mut terminal = interactive(&server, &home);
    terminal.wait_for(&prompt);
    terminal.type_keys("getjob from q\r");
    assert_eq!(server.wait_for_request(), ["getjob", "from", "q"]);
    terminal.type_keys("\x03");
    terminal.wait_for("(interrupted)\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("monitor\r");
    terminal.wait_for("1.5 [a] \"ping\"\r\n");
    terminal.type_keys("\x03");
    terminal.wait_for("(interrupted)\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("ping\r");
    terminal.wait_for("\r\nPONG\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("\x03");
    assert_eq!(terminal.wait_for_end().0, Some(0));
}

#[test]
fn ctrl_c_ends_a_connection_that_is_not_made() {
    let home = tempfile::tempdir().expect("a folder");
    let server = FakeServer::with_replies(&[]);
    let mut terminal = interactive(&server, &home);
    terminal.wait_for("> ");
    let (address, _backlog) = full_listener();
    terminal.type_keys(&format!("connect {address}\r"));
    terminal.wait_for_cooked_mode();
    terminal.type_keys("\x03");
    terminal.wait_for("(interrupted)\r\n");
    terminal.wait_for("not connected> ");
    terminal.type_keys("quit\r");
    assert_eq!(terminal.wait_for_end().0, Some(0));
}

/// A listener that accepts nothing more, with what it has accepted.
fn full_listener() -> (SocketAddr, impl Sized) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    listener.bind(&any.into()).expect("a free port");
    listener.listen(0).expect("a bound socket listens");
    let address = listener.local_addr().ok().and_then(|address| address.as_socket());
    let address = address.expect("a bound socket has an address");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    (address, (listener, waiting))
}

#[test]
fn a_refused_password_leaves_the_connection_to_the_right_one() {
    let home = tempfile::tempdir().expect("a folder");
    let server = FakeServer::with_rule(|request| {
        let words: Vec<&str> = request.iter().map(String::as_str).collect();
        Some(match words.as_slice() {
            ["AUTH" | "auth", "right"] => b"+OK\r\n".to_vec(),
            ["AUTH" | "auth", _] => b"-ERR invalid password\r\n".to_vec(),
            ["PING"] => b"-NOAUTH no\r\n".to_vec(),
            _ => b"+served\r\n".to_vec(),
        })
    });
    let mut command = client(server.port, "-a wrong");
    command.env("HOME", home.path());
    let mut terminal = Terminal::run(command);
    let prompt = format!("127.0.0.1:{}> ", server.port);
    terminal.wait_for("AUTH failed: ERR invalid password.");
    terminal.wait_for(&prompt);
    terminal.type_keys("auth right\r");
    terminal.wait_for("\r\nOK\r\n");
    terminal.wait_for(&prompt);
    // The next connection is logged in with it.
    terminal.type_keys(&format!("connect 127.0.0.1 {}\r", server.port));
    terminal.wait_for(&prompt);
    terminal.type_keys("x\r");
    terminal.wait_for("\r\nserved\r\n");
    terminal.type_keys("quit\r");
    assert_eq!(terminal.wait_for_end().0, Some(0));
    assert_eq!(
        server.requests(),
        [
            vec!["AUTH", "wrong"],
            vec!["PING"],
            vec!["auth", "right"],
            vec!["AUTH", "right"],
            vec!["x"]
        ]
    );
}

#[test]
fn passwords_are_not_in_the_history_however_they_are_typed() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join(".disque_history");
    std::fs::write(&file, "ping\nauth oldsecret\n").expect("a file");
    let server = FakeServer::with_rule(|_| Some(b"+OK\r\n".to_vec()));
    let mut terminal = interactive(&server, &home);
    for line in [
        "2 auth newsecret",
        "\"AUTH\" newsecret",
        "config set requirepass newsecret",
        "hello 3 auth default newsecret",
        "time",
    ] {
        terminal.wait_for("> ");
        terminal.type_keys(&format!("{line}\r"));
        terminal.wait_for("\r\nOK\r\n");
    }
    terminal.type_keys("quit\r");
    assert_eq!(terminal.wait_for_end().0, Some(0));
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "ping\ntime\nquit\n");
    let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_command_that_was_called_wrongly_is_explained() {
    let home = tempfile::tempdir().expect("a folder");
    let server = FakeServer::with_rule(|request| match request[0].as_str() {
        "qlen" => Some(b"-ERR wrong number of arguments for 'qlen' command\r\n".to_vec()),
        "getjob" => Some(b"-ERR syntax error\r\n".to_vec()),
        _ => Some(b"-ERR unknown command 'x'\r\n".to_vec()),
    });
    let mut terminal = interactive(&server, &home);
    for (line, usage) in [
        ("qlen", "command\r\nUsage: QLEN queue\r\n"),
        ("getjob q", "(error) ERR syntax error\r\nUsage: GETJOB ["),
        ("x", "(error) ERR unknown command 'x'\r\n"),
        ("help getj", "GETJOB\x1b[0m \x1b[90m["),
        ("help @queue", "QLEN\x1b[0m"),
        ("help top", "\x1b[1mtop\x1b[0m"),
    ] {
        terminal.wait_for("> ");
        terminal.type_keys(&format!("{line}\r"));
        terminal.wait_for(usage);
    }
    terminal.type_keys("quit\r");
    assert_eq!(terminal.wait_for_end().0, Some(0));
}
