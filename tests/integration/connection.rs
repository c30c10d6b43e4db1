//! Connecting, saying who one is, being seen, leaving.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, bulk, error, eventually, integer, status, text};

const NOAUTH: &str = "NOAUTH Authentication required.";

#[test]
fn ping_answers_pong_or_the_message() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("PING"), status("PONG"));
    assert_eq!(client.call("ping hello"), bulk("hello"));
    let wrong = error("ERR wrong number of arguments for 'ping' command");
    assert_eq!(client.call("PING a b"), wrong);
}

#[test]
fn quit_answers_and_closes_whatever_follows() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send("PING\r\nQUIT now please\r\nPING\r\n");
    assert_eq!(client.reply(), status("PONG"));
    assert_eq!(client.reply(), status("OK"));
    assert!(client.is_closed());
}

#[test]
fn time_is_two_numbers_as_text() {
    let server = TestServer::start();
    let Value::Array(parts) = server.client().call("TIME") else { panic!("an array") };
    let numbers: Vec<u64> =
        parts.into_iter().map(|part| text(part).parse().expect("a number")).collect();
    assert!(numbers.len() == 2 && numbers[0] > 1_600_000_000 && numbers[1] < 1_000_000);
}

#[test]
fn unknown_commands_and_wrong_arities_are_named_and_forgiven() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("GET key"), error("ERR unknown command 'GET'"));
    let split = client.call_words(&[b"no\r\nsuch"]);
    assert_eq!(split, error("ERR unknown command 'no  such'"));
    let arity = error("ERR wrong number of arguments for 'qlen' command");
    assert_eq!(client.call("QLEN"), arity);
    assert_eq!(client.call("QLEN a b"), arity);
    assert_eq!(client.call("PING"), status("PONG"));
}

#[test]
fn a_stranger_learns_names_and_arities_only() {
    let server = TestServer::start_with(&["--requirepass", "secret"]);
    let mut client = server.client();
    assert_eq!(client.call("PING"), error(NOAUTH));
    assert_eq!(client.call("NOSUCH"), error("ERR unknown command 'NOSUCH'"));
    assert_eq!(client.call("QLEN"), error("ERR wrong number of arguments for 'qlen' command"));
    assert_eq!(client.call("AUTH wrong"), error("ERR invalid password"));
    assert_eq!(client.call("PING"), error(NOAUTH));
    assert_eq!(client.call("AUTH secret"), status("OK"));
    assert_eq!(client.call("PING"), status("PONG"));
    assert_eq!(client.call("AUTH secre"), error("ERR invalid password"));
    assert_eq!(client.call("PING"), error(NOAUTH), "a failed AUTH ends an earlier one");
    client.send("AUTH \"secret\"\r\nQUIT\r\n");
    assert_eq!(client.reply(), status("OK"));
    assert_eq!(client.reply(), status("OK"));
    assert!(client.is_closed());
}

#[test]
fn auth_without_a_password_to_say_is_an_error() {
    let server = TestServer::start();
    let reply = server.client().call("AUTH x");
    assert_eq!(reply, error("ERR Client sent AUTH, but no password is set"));
}

#[test]
fn auth_takes_the_user_default_and_no_other() {
    let server = TestServer::start_with(&["--requirepass", "secret"]);
    let mut client = server.client();
    let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
    for words in ["AUTH nobody secret", "AUTH default wrong", "AUTH Default secret"] {
        assert_eq!(client.call(words), wrong, "{words}");
        assert_eq!(client.call("PING"), error(NOAUTH));
    }
    assert_eq!(client.call_words(&[b"AUTH", b"", b"wrong"]), wrong);
    // Told of a wrong number of arguments, a client may go on without the user.
    assert_eq!(client.call("AUTH default secret more"), error("ERR syntax error"));
    assert_eq!(client.call("PING"), error(NOAUTH));
    client.ok("AUTH default secret");
    assert_eq!(client.call("PING"), status("PONG"));
    assert_eq!(client.call("AUTH nobody secret"), wrong);
    assert_eq!(client.call("PING"), status("PONG"), "who was let in stays in, as with HELLO");
    let without_a_name = server.client().call_words(&[b"AUTH", b"", b"secret"]);
    assert_eq!(without_a_name, status("OK"), "as redis-cli sends redis://:secret@host");
}

#[test]
fn auth_with_a_user_needs_no_password_to_be_set() {
    let server = TestServer::start();
    let mut client = server.client();
    client.ok("AUTH default anything");
    let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(client.call("AUTH nobody anything"), wrong);
}

#[test]
fn hello_greets_in_either_protocol() {
    let server = TestServer::start();
    let mut client = server.client();
    let Value::Array(flat) = client.call("HELLO 2") else { panic!("an array") };
    assert_eq!(flat.len(), 14);
    assert_eq!(
        flat[..6],
        [
            bulk("server"),
            bulk("disque"),
            bulk("version"),
            bulk("1.0-rc1"),
            bulk("proto"),
            Value::Integer(2)
        ]
    );
    assert_eq!(client.call("GETJOB NOHANG FROM q"), Value::NullArray);
    assert_eq!(client.call("CLIENT GETNAME"), Value::NullBulk);
    let Value::Map(pairs) = client.call("HELLO 3 SETNAME me") else { panic!("a map") };
    let number = client.call("CLIENT ID");
    let expected = [
        (bulk("server"), bulk("disque")),
        (bulk("version"), bulk("1.0-rc1")),
        (bulk("proto"), Value::Integer(3)),
        (bulk("id"), number),
        (bulk("mode"), bulk("cluster")),
        (bulk("role"), bulk("master")),
        (bulk("modules"), Value::Array(vec![])),
    ];
    assert_eq!(pairs, expected);
    assert_eq!(client.call("CLIENT GETNAME"), bulk("me"));
    assert_eq!(client.call("GETJOB NOHANG FROM q"), Value::Null);
    let unsupported = error("NOPROTO unsupported protocol version");
    assert_eq!(client.call("HELLO 4"), unsupported);
    assert_eq!(client.call("GETJOB NOHANG FROM q"), Value::Null, "nothing has changed");
    assert_eq!(client.call("HELLO 3 AUTH"), error("ERR syntax error"));
}

#[test]
fn hello_lets_a_stranger_in_with_the_right_words_only() {
    let server = TestServer::start_with(&["--requirepass", "secret"]);
    let mut client = server.client();
    let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(client.call("HELLO"), error(NOAUTH));
    let Value::Error(without) = client.call("HELLO 3") else { panic!("an error") };
    assert!(without.starts_with(b"NOAUTH "));
    assert_eq!(client.call("HELLO 3 AUTH default wrong"), wrong);
    assert_eq!(client.call("HELLO 3 AUTH somebody secret"), wrong);
    assert_eq!(client.call("PING"), error(NOAUTH));
    assert!(matches!(client.call("HELLO 3 AUTH default secret SETNAME a"), Value::Map(_)));
    assert_eq!(client.call("PING"), status("PONG"));
}

#[test]
fn a_bare_hello_tells_of_this_node() {
    let server = TestServer::start();
    let Value::Array(parts) = server.client().call("HELLO") else { panic!("an array") };
    let id = text(parts[1].clone());
    assert_eq!((parts[0].clone(), id.len()), (Value::Integer(1), 40));
    let row = [bulk(&id), bulk(""), bulk(server.port().to_string()), bulk("1")];
    assert_eq!(parts[2..], [Value::Array(row.to_vec())]);
}

#[test]
fn client_names_are_printable_words() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("CLIENT GETNAME"), Value::NullBulk);
    assert_eq!(client.call("CLIENT SETNAME QueueListener-1"), status("OK"));
    assert_eq!(client.call("client getname"), bulk("QueueListener-1"));
    let bad = error("ERR Client names cannot contain spaces, newlines or special characters.");
    assert_eq!(client.call_words(&[b"CLIENT", b"SETNAME", b"a b"]), bad);
    assert_eq!(client.call_words(&[b"CLIENT", b"SETNAME", b""]), status("OK"));
    assert_eq!(client.call("CLIENT GETNAME"), Value::NullBulk);
    assert_eq!(client.call("CLIENT SETINFO LIB-NAME redis-py"), status("OK"));
}

#[test]
fn client_list_shows_who_is_there_and_what_they_do() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(other.call("CLIENT SETNAME waiting"), status("OK"));
    let number = integer(other.call("CLIENT ID"));
    other.send_command("GETJOB FROM q");
    let list = eventually(|| text(client.call("CLIENT LIST")), |list| list.contains("flags=b"));
    let line = list.lines().find(|line| line.contains("name=waiting")).expect("it is there");
    assert!(line.starts_with(&format!("id={number} addr=127.0.0.1:")), "{line}");
    assert!(line.ends_with("cmd=getjob"), "{line}");
    for field in "age idle qbuf qbuf-free obl oll omem events".split(' ') {
        assert!(line.contains(&format!(" {field}=")), "{field} is missing in {line}");
    }
    drop(other);
    eventually(|| text(client.call("CLIENT LIST")), |list| !list.contains("waiting"));
}

#[test]
fn client_kill_closes_by_address_and_by_number() {
    let server = TestServer::start();
    let mut client = server.client();
    let (first, second) = (server.connect(), server.connect());
    let address = first.local_addr().expect("connected").to_string();
    let (mut first, mut second) = (Client::over(first), Client::over(second));
    assert_eq!(first.call("PING"), status("PONG"));
    let number = integer(second.call("CLIENT ID"));
    assert_eq!(client.call(&format!("CLIENT KILL {address}")), status("OK"));
    assert!(first.is_closed());
    assert_eq!(client.call(&format!("CLIENT KILL {address}")), error("ERR No such client"));
    assert_eq!(client.call(&format!("CLIENT KILL ID {number} TYPE normal")), Value::Integer(1));
    assert!(second.is_closed());
    let third = server.connect();
    let address = third.local_addr().expect("connected").to_string();
    let mut third = Client::over(third);
    assert_eq!(third.call("PING"), status("PONG"));
    let both = format!("CLIENT KILL ADDR {address} ID {number}");
    assert_eq!(client.call(&both), Value::Integer(0), "all that is said has to be true of it");
    assert_eq!(client.call(&format!("CLIENT KILL ADDR {address} SKIPME no")), Value::Integer(1));
    assert!(third.is_closed());
    assert_eq!(client.call("CLIENT KILL TYPE slave"), error("ERR Unknown client type 'slave'"));
    assert_eq!(client.call("CLIENT KILL SKIPME maybe"), error("ERR syntax error"));
    assert_eq!(
        client.call("CLIENT KILL ID x"),
        error("ERR value is not an integer or out of range")
    );
    assert_eq!(client.call("CLIENT KILL SKIPME yes"), Value::Integer(0));
    assert_eq!(client.call("CLIENT KILL SKIPME no"), Value::Integer(1), "the answer comes first");
    assert!(client.is_closed());
}

#[test]
fn client_info_is_the_line_of_client_list() {
    let server = TestServer::start();
    let mut client = server.client();
    client.ok("CLIENT SETNAME me");
    let line = text(client.call("CLIENT INFO"));
    assert!(line.starts_with("id=") && line.ends_with("cmd=client\n"), "{line}");
    assert!(line.contains(" name=me "), "{line}");
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn client_kill_takes_an_address_as_it_is_shown_and_no_other_writing_of_it() {
    let server = TestServer::start_with(&["--unixsocket", "disque.sock"]);
    let mut client = server.client();
    let stream = server.connect();
    let address = stream.local_addr().expect("connected");
    let mut victim = Client::over(stream);
    assert_eq!(victim.call("PING"), status("PONG"));
    let mut unix = Client::over_unix(&server.folder().join("disque.sock"));
    assert_eq!(unix.call("PING"), status("PONG"));
    for other in [
        format!("127.0.0.1:0{}", address.port()),
        format!("[::ffff:127.0.0.1]:{}", address.port()),
        "127.0.0.1".to_owned(),
        ":0".to_owned(),
        "x".to_owned(),
    ] {
        let reply = client.call(&format!("CLIENT KILL {other}"));
        assert_eq!(reply, error("ERR No such client"), "{other}");
    }
    assert_eq!(victim.call("PING"), status("PONG"));
    assert_eq!(client.call("CLIENT KILL ADDR disque.sock:0"), Value::Integer(1));
    assert!(unix.is_closed());
    assert_eq!(client.call(&format!("CLIENT KILL ADDR {address}")), Value::Integer(1));
    assert!(victim.is_closed());
}

#[test]
fn client_list_has_a_letter_for_each_state() {
    let server = TestServer::start();
    let mut client = server.client();
    let (mut monitor, mut waiting) = (server.client(), server.client());
    let flags = |list: &String| -> Vec<String> {
        let words = list.split(' ').filter_map(|word| word.strip_prefix("flags="));
        words.map(str::to_owned).collect()
    };
    eventually(|| text(client.call("CLIENT LIST")), |list| flags(list) == ["N", "N", "N"]);
    monitor.ok("MONITOR");
    waiting.send_command("GETJOB FROM q");
    eventually(|| text(client.call("CLIENT LIST")), |list| flags(list) == ["N", "O", "b"]);
}

#[test]
fn client_kill_spares_neither_monitors_nor_who_waits() {
    let server = TestServer::start();
    let mut client = server.client();
    let (mut monitor, mut waiting) = (server.client(), server.client());
    monitor.ok("MONITOR");
    let number = integer(waiting.call("CLIENT ID"));
    waiting.send_command("GETJOB FROM q");
    let is_waiting = |list: &String| list.contains(" flags=b ");
    eventually(|| text(client.call("CLIENT LIST")), is_waiting);
    assert_eq!(client.call(&format!("CLIENT KILL ID {number} SKIPME no")), Value::Integer(1));
    assert!(waiting.is_closed());
    // Whom nobody can reach any more takes no job along.
    text(client.call("ADDJOB q body 0"));
    assert_eq!(client.call("QLEN q"), Value::Integer(1));
    assert_eq!(client.call("CLIENT KILL TYPE normal"), Value::Integer(1));
    while let Some(shown) = monitor.reply_if_open() {
        assert!(matches!(shown, Value::Status(_)), "{shown:?}");
    }
    assert_eq!(text(client.call("CLIENT LIST")).lines().count(), 1);
}

#[test]
fn client_kill_by_address_may_end_the_caller() {
    let server = TestServer::start();
    let stream = server.connect();
    let address = stream.local_addr().expect("connected").to_string();
    let mut client = Client::over(stream);
    client.send(format!("CLIENT KILL {address}\r\nPING\r\n"));
    assert_eq!(client.reply(), status("OK"));
    assert!(client.is_closed(), "what comes after it is not executed");
}

#[test]
fn client_knows_what_it_does_not_know() {
    let server = TestServer::start();
    let usage =
        "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)";
    assert_eq!(server.client().call("CLIENT NOSUCH"), error(usage));
    assert_eq!(server.client().call("CLIENT REPLY maybe"), error("ERR syntax error"));
}

#[test]
fn command_tells_what_there_is() {
    let server = TestServer::start();
    let mut client = server.client();
    let count = integer(client.call("COMMAND COUNT"));
    let Value::Array(all) = client.call("COMMAND") else { panic!("an array") };
    assert_eq!(i64::try_from(all.len()), Ok(count));
    let flags = |names: &[&str]| Value::Array(names.iter().map(|name| status(name)).collect());
    let row = |name: &str, arity, names: &[&str]| {
        let zero = || Value::Integer(0);
        Value::Array(vec![bulk(name), Value::Integer(arity), flags(names), zero(), zero(), zero()])
    };
    let info = Value::Array(vec![
        row("addjob", -4, &["write", "denyoom", "fast"]),
        Value::NullBulk,
        row("auth", -2, &["readonly", "loading", "fast"]),
    ]);
    assert_eq!(client.call("COMMAND INFO addjob nosuch AUTH"), info);
    let unknown = error("ERR Unknown subcommand or wrong number of arguments.");
    assert_eq!(client.call("COMMAND NOSUCH"), unknown);
}

#[test]
fn command_list_names_all_or_those_that_match() {
    let server = TestServer::start();
    let mut client = server.client();
    let count = integer(client.call("COMMAND COUNT"));
    let Value::Array(all) = client.call("COMMAND LIST") else { panic!("an array") };
    assert_eq!(i64::try_from(all.len()), Ok(count));
    assert!(all.contains(&bulk("addjob")));
    let names = Value::Array(["qstat", "qscan"].map(bulk).into());
    assert_eq!(client.call("COMMAND LIST FILTERBY PATTERN QS*"), names);
    for none in ["MODULE json", "ACLCAT read", "PATTERN nosuch"] {
        assert_eq!(client.call(&format!("COMMAND LIST FILTERBY {none}")), Value::Array(vec![]));
    }
    for wrong in ["COMMAND LIST FILTERBY SIZE 1", "COMMAND LIST WITHOUT PATTERN q*"] {
        assert_eq!(client.call(wrong), error("ERR syntax error"));
    }
    let unknown = error("ERR Unknown subcommand or wrong number of arguments.");
    assert_eq!(client.call("COMMAND LIST FILTERBY PATTERN"), unknown);
}

#[test]
fn command_docs_describe_arguments_as_redis_does() {
    let server = TestServer::start();
    let mut client = server.client();
    let texts = |words: &[&str]| words.iter().map(bulk).collect::<Vec<_>>();
    let map = |words: &[&str], rest: Vec<Value>| Value::Array([texts(words), rest].concat());
    let flags = |names: &[&str]| Value::Array(names.iter().map(|name| status(name)).collect());
    let message = map(
        &["name", "message", "type", "string", "display_text", "message", "flags"],
        vec![flags(&["optional"])],
    );
    let ping = map(
        &[
            "summary",
            "Replies, to show that the server is there",
            "since",
            "1.0.0",
            "group",
            "connection",
            "arguments",
        ],
        vec![Value::Array(vec![message])],
    );
    assert_eq!(client.call("COMMAND DOCS Ping nosuch"), map(&["ping"], vec![ping]));

    // A token, a choice that may be repeated, and a subcommand.
    let word = |name: &str| {
        let (lower, upper) = (name.to_lowercase(), name);
        map(&["name", &lower, "type", "pure-token", "display_text", upper, "token", upper], vec![])
    };
    let docs = client.call("COMMAND DOCS jscan cluster");
    let state = map(
        &["name", "state", "type", "oneof", "token", "STATE", "flags"],
        vec![
            flags(&["optional", "multiple", "multiple_token"]),
            bulk("arguments"),
            Value::Array(["wait-repl", "active", "queued", "acked", "delayed"].map(word).into()),
        ],
    );
    let of = |value: &Value, name: &str| {
        let Value::Array(map) = value else { panic!("{value:?} is a map") };
        let at = map.iter().step_by(2).position(|key| *key == bulk(name)).expect(name);
        map[2 * at + 1].clone()
    };
    let Value::Array(arguments) = of(&of(&docs, "jscan"), "arguments") else { panic!("an array") };
    assert_eq!(arguments.len(), 6);
    assert_eq!(arguments[4], state);
    let leaving = of(&of(&of(&docs, "cluster"), "subcommands"), "cluster|leaving");
    assert_eq!(of(&leaving, "group"), bulk("cluster"));
    let choice = map(
        &["name", "leaves", "type", "oneof", "flags"],
        vec![flags(&["optional"]), bulk("arguments"), Value::Array(["yes", "no"].map(word).into())],
    );
    assert_eq!(of(&leaving, "arguments"), Value::Array(vec![choice]));

    let Value::Array(docs) = client.call("COMMAND DOCS") else { panic!("an array") };
    assert_eq!(docs.len(), 2 * usize::try_from(integer(client.call("COMMAND COUNT"))).unwrap());
}

#[test]
fn renamed_commands_answer_to_their_new_names_only() {
    let server = TestServer::start_with(&[
        "--rename-command",
        "PING",
        "knock",
        "--rename-command",
        "TIME",
        "",
    ]);
    let mut client = server.client();
    assert_eq!(client.call("KNOCK"), status("PONG"));
    assert_eq!(client.call("PING"), error("ERR unknown command 'PING'"));
    assert_eq!(client.call("TIME"), error("ERR unknown command 'TIME'"));
}

#[test]
fn the_unix_socket_serves_replaces_a_stale_one_and_goes_at_the_end() {
    let stale = tempfile::tempdir().expect("a folder");
    let path = stale.path().join("disque.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("listen"));
    let name = path.to_str().expect("text");
    let mut server = TestServer::start_with(&["--unixsocket", name, "--unixsocketperm", "700"]);
    let mut client = Client::over_unix(&path);
    assert_eq!(client.call("PING"), status("PONG"));
    let list = text(client.call("CLIENT LIST"));
    assert!(list.contains(&format!("addr={name}:0 ")) && list.contains("flags=U"), "{list}");
    let mode = path.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(server.stop_by(libc::SIGTERM).success());
    assert!(!path.exists());
}

#[test]
fn sigterm_and_sigint_end_the_server_with_status_0() {
    for (signal, name) in [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT")] {
        let mut server = TestServer::start();
        assert_eq!(server.stop_by(signal).code(), Some(0));
        let log = std::fs::read_to_string(server.folder().join("log")).expect("a log");
        assert!(log.contains(&format!("Received {name}, shutting down")), "{log}");
    }
}

#[test]
fn a_killed_server_starts_again_on_the_same_port_at_once() {
    let mut server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("PING"), status("PONG"));
    server.stop_by(libc::SIGKILL);
    server.start_again(&[]);
    assert_eq!(server.client().call("PING"), status("PONG"));
}

#[test]
fn an_idle_client_is_closed_and_a_waiting_one_is_not() {
    let server = TestServer::start_with(&["--timeout", "1"]);
    let (mut idle, mut waiting) = (server.client(), server.client());
    assert_eq!(idle.call("PING"), status("PONG"));
    waiting.send_command("GETJOB TIMEOUT 3000 FROM q");
    assert!(idle.is_closed());
    assert_eq!(waiting.reply(), Value::NullArray);
}

#[test]
fn a_pause_holds_every_command_up_for_its_time() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(other.call("PING"), status("PONG"));
    let paused = std::time::Instant::now();
    assert_eq!(client.call("CLIENT PAUSE 300"), status("OK"));
    assert_eq!(other.call("PING"), status("PONG"));
    assert!(paused.elapsed() >= Duration::from_millis(290));
}

/// The command that a client has sent last, by its name, as CLIENT LIST shows it.
fn last_command(watcher: &mut Client, name: &str) -> Option<String> {
    let list = text(watcher.call("CLIENT LIST"));
    let line = list.lines().find(|line| line.contains(&format!(" name={name} ")))?;
    let (_, command) = line.rsplit_once(" cmd=")?;
    command.split(' ').next().map(str::to_owned)
}

#[test]
fn a_pause_can_be_ended_and_then_all_goes_on_in_order() {
    let server = TestServer::start_with(&["--requirepass", "secret"]);
    let mut pausing = server.client();
    pausing.ok("AUTH secret");
    pausing.ok("CLIENT SETNAME pausing");
    // What is sent together with the pause waits as well.
    pausing.send("CLIENT PAUSE 86400000\r\nQLEN q\r\nCLIENT UNPAUSE\r\n");
    assert_eq!(pausing.reply(), status("OK"));
    let mut watcher = server.client();
    watcher.ok("AUTH secret");
    assert_eq!(last_command(&mut watcher, "pausing").as_deref(), Some("client"));
    let mut whoever = server.client();
    assert!(matches!(whoever.call("HELLO 3 AUTH default secret SETNAME whoever"), Value::Map(_)));
    // Of many arguments, and after something else that waits.
    let ids = ["D-00000000-000000000000000000000000-0000"; 2000].join(" ");
    whoever.send_command(&format!("ACKJOB {ids}"));
    whoever.send("PING 1\r\n");
    let is_kept = |line: &str| line.contains("name=whoever") && !line.contains(" qbuf=0 ");
    eventually(|| text(watcher.call("CLIENT LIST")), |list| list.lines().any(is_kept));
    assert_eq!(last_command(&mut watcher, "whoever").as_deref(), Some("hello"));
    watcher.ok("CLIENT UNPAUSE");
    assert_eq!(whoever.reply(), Value::Integer(0));
    assert_eq!(whoever.reply(), bulk("1"));
    assert_eq!(pausing.reply(), Value::Integer(0));
    assert_eq!(pausing.reply(), status("OK"));
    watcher.ok("CLIENT UNPAUSE");
    assert_eq!(watcher.call("PING"), status("PONG"));
}

#[test]
fn a_pause_has_a_day_at_most() {
    let server = TestServer::start();
    let mut client = server.client();
    let too_long = error("ERR timeout is out of range: a pause has at most 86400000 ms");
    let not_an_integer = error("ERR timeout is not an integer or out of range");
    for (time, answer) in [
        ("86400001", too_long.clone()),
        ("9223372036854775807", too_long),
        ("9223372036854775808", not_an_integer.clone()),
        ("x", not_an_integer),
        ("-1", error("ERR timeout is negative")),
    ] {
        assert_eq!(client.call(&format!("CLIENT PAUSE {time}")), answer, "{time}");
        assert_eq!(client.call("PING"), status("PONG"), "nothing is paused");
    }
    client.ok("CLIENT PAUSE 86400000");
    client.ok("CLIENT UNPAUSE");
    assert_eq!(client.call("PING"), status("PONG"));
}
