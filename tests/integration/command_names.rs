//! `DISQUE.NAME` and `DISQUE NAME`: commands whose name says whose they are.

use disque::proto::reply_reader::Value;

use crate::support::{TestServer, array, bulk, error, eventually, status, text};

#[test]
fn every_command_is_found_behind_its_owner_in_any_case() {
    let server = TestServer::start();
    let mut client = server.client();
    for way in ["DISQUE.ADDJOB", "disque.addjob", "DISQUE ADDJOB", "Disque AddJob"] {
        let id = text(client.call(&format!("{way} q body 0")));
        let acked = client.call(&format!("disque.ackjob {id}"));
        assert_eq!(acked, Value::Integer(1), "{way}");
    }
    for name in ["ping", "PING", "Ping"] {
        assert_eq!(client.call(&format!("DISQUE.{name}")), status("PONG"));
        assert_eq!(client.call(&format!("disque {name}")), status("PONG"));
    }
    let Value::Array(commands) = client.call("COMMAND") else { panic!("an array") };
    for command in commands {
        let name = text(array(command).remove(0));
        let info = client.call(&format!("COMMAND INFO DISQUE.{name}"));
        let shown = text(array(array(info).remove(0)).remove(0));
        assert_eq!(shown, format!("disque.{name}"));
    }
    // A client that waits in a long command is served under either name.
    let queues: Vec<String> = (0..1000).map(|n| format!("q{n}")).collect();
    client.send(format!("DISQUE GETJOB FROM {}\r\n", queues.join(" ")));
    let mut producer = server.client();
    let waits = |info: &String| info.contains("blocked_clients:1");
    eventually(|| text(producer.call("INFO clients")), waits);
    text(producer.call("DISQUE.ADDJOB q999 late 0"));
    assert_eq!(array(client.reply()).len(), 1);
    assert_eq!(client.call("DISQUE QUIT"), status("OK"));
    assert_eq!(producer.call("DISQUE.QUIT"), status("OK"));
}

#[test]
fn errors_and_those_who_watch_show_what_was_sent() {
    let server = TestServer::start_with(&["--slowlog-log-slower-than", "0"]);
    let mut client = server.client();
    for (sent, shown) in [
        ("DISQUE.NoSuch x", "ERR unknown command 'DISQUE.NoSuch'"),
        ("DISQUE NoSuch x", "ERR unknown command 'DISQUE NoSuch'"),
        ("DISQUE", "ERR unknown command 'DISQUE'"),
        ("DISQUE.", "ERR unknown command 'DISQUE.'"),
        ("DISQUE.DISQUE.PING", "ERR unknown command 'DISQUE.DISQUE.PING'"),
        ("DISQUE DISQUE PING", "ERR unknown command 'DISQUE DISQUE'"),
        ("DISQUE.QLEN", "ERR wrong number of arguments for 'disque.qlen' command"),
        ("DISQUE QLEN q r", "ERR wrong number of arguments for 'disque qlen' command"),
        ("QLEN", "ERR wrong number of arguments for 'qlen' command"),
    ] {
        assert_eq!(client.call(sent), error(shown), "{sent}");
    }
    let mut monitor = server.client();
    monitor.ok("DISQUE.MONITOR");
    client.ok("DISQUE CONFIG SET requirepass hidden-word");
    client.ok("DISQUE.AUTH hidden-word");
    client.ok("DISQUE AUTH hidden-word");
    for shown in [
        r#""DISQUE" "CONFIG" "SET" "requirepass" "(redacted)""#,
        r#""DISQUE.AUTH" "(redacted)""#,
        r#""DISQUE" "AUTH" "(redacted)""#,
    ] {
        let line = text(monitor.reply());
        assert!(line.ends_with(shown), "{line}");
    }
    let newest = array(array(client.call("SLOWLOG GET 1")).remove(0)).remove(3);
    let words = ["DISQUE", "AUTH", "(redacted)"].map(bulk);
    assert_eq!(newest, Value::Array(words.into()));
}

#[test]
fn a_renamed_command_is_behind_its_owner_under_its_new_name() {
    let renames = ["--rename-command", "PING", "knock", "--rename-command", "TIME", "disque"];
    let server = TestServer::start_with(&renames);
    let mut client = server.client();
    assert_eq!(client.call("DISQUE.KNOCK"), status("PONG"));
    assert_eq!(client.call("DISQUE.PING"), error("ERR unknown command 'DISQUE.PING'"));
    // A plain name goes first.
    assert_eq!(array(client.call("DISQUE")).len(), 2);
    let arity = error("ERR wrong number of arguments for 'time' command");
    assert_eq!(client.call("DISQUE KNOCK"), arity);
}

#[test]
fn a_pause_is_ended_and_a_password_given_behind_the_owner_too() {
    let server = TestServer::start_with(&["--requirepass", "word"]);
    let mut client = server.client();
    assert_eq!(client.call("DISQUE.QLEN q"), error("NOAUTH Authentication required."));
    assert_eq!(client.call("DISQUE HELLO"), error("NOAUTH Authentication required."));
    client.ok("DISQUE AUTH word");
    client.ok("CLIENT PAUSE 86400000");
    // What does not say yet which command it is may be one that ends the pause.
    client.send("*3\r\n$6\r\nDISQUE\r\n");
    client.send("$6\r\nCLIENT\r\n$7\r\nUNPAUSE\r\n");
    assert_eq!(client.reply(), status("OK"));
    assert_eq!(client.call("DISQUE QLEN q"), Value::Integer(0));
}
