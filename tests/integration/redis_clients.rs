//! What clients and desktop tools of Redis ask before they begin, and who is no such client.

use disque::proto::reply_reader::Value;

use crate::support::{
    Client, TestServer, bulk, error, eventually, free_port, program::Program, server_path, status,
    text,
};

#[test]
fn echo_answers_the_message() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call_words(&[b"ECHO", b"\0 \r\n"]), bulk("\0 \r\n"));
    let arity = error("ERR wrong number of arguments for 'echo' command");
    assert_eq!(client.call("ECHO"), arity);
}

#[test]
fn there_is_one_database_and_its_number_is_0() {
    let server = TestServer::start_with(&["--databases", "16"]);
    let mut client = server.client();
    client.ok("SELECT 0");
    for index in ["1", "-1", "9223372036854775807"] {
        let reply = client.call(&format!("SELECT {index}"));
        assert_eq!(reply, error("ERR DB index is out of range"));
    }
    let not_an_integer = error("ERR value is not an integer or out of range");
    assert_eq!(client.call("SELECT zero"), not_an_integer);
    let one = Value::Array(vec![bulk("databases"), bulk("1")]);
    assert_eq!(client.call("CONFIG GET databases"), one);
}

#[test]
fn dbsize_counts_jobs_and_no_tool_finds_a_key() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("DBSIZE"), Value::Integer(0));
    text(client.call("ADDJOB q body 0"));
    text(client.call("ADDJOB q body 0 DELAY 60"));
    assert_eq!(client.call("DBSIZE"), Value::Integer(2));
    let end = Value::Array(vec![bulk("0"), Value::Array(vec![])]);
    for scan in ["SCAN 0", "SCAN 7 MATCH * COUNT 100 TYPE string", "scan 0 count 1 match q"] {
        assert_eq!(client.call(scan), end, "{scan}");
    }
    for (scan, reason) in [
        ("SCAN x", "ERR invalid cursor"),
        ("SCAN -1", "ERR invalid cursor"),
        ("SCAN 0 MATCH", "ERR syntax error"),
        ("SCAN 0 COUNT 0", "ERR syntax error"),
        ("SCAN 0 COUNT x", "ERR value is not an integer or out of range"),
        ("SCAN 0 NOSUCH 1", "ERR syntax error"),
    ] {
        assert_eq!(client.call(scan), error(reason), "{scan}");
    }
    assert_eq!(client.call("KEYS *"), Value::Array(vec![]));
    assert_eq!(client.call("TYPE q"), status("none"));
}

#[test]
fn there_is_one_user_and_no_module() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("ACL WHOAMI"), bulk("default"));
    let one_user = error(
        "ERR Unknown ACL subcommand or wrong number of arguments: the only user is default, whose \
         password is requirepass",
    );
    assert_eq!(client.call("ACL LIST"), one_user);
    assert_eq!(client.call("ACL SETUSER me on"), one_user);
    assert_eq!(client.call("MODULE LIST"), Value::Array(vec![]));
    let no_modules =
        error("ERR Unknown MODULE subcommand or wrong number of arguments: there are no modules");
    assert_eq!(client.call("MODULE LOAD x.so"), no_modules);
}

#[test]
fn what_a_client_asks_for_in_vain_is_granted_or_refused_by_name() {
    let server = TestServer::start();
    let mut client = server.client();
    for harmless in ["NO-EVICT on", "NO-EVICT OFF", "no-touch ON", "NO-TOUCH off", "TRACKING OFF"] {
        client.ok(&format!("CLIENT {harmless}"));
    }
    let tracking = error("ERR Client tracking is not supported: there are no keys to track");
    assert_eq!(client.call("CLIENT TRACKING ON"), tracking);
    assert_eq!(client.call("CLIENT TRACKING on REDIRECT 5 BCAST"), tracking);
    for wrong in ["NO-EVICT maybe", "NO-TOUCH 1", "TRACKING x", "TRACKING OFF BCAST"] {
        assert_eq!(client.call(&format!("CLIENT {wrong}")), error("ERR syntax error"), "{wrong}");
    }
}

/// How many lines of the log have these words.
fn lines(server: &TestServer, words: &str) -> usize {
    server.log().lines().filter(|line| line.contains(words)).count()
}

#[test]
fn nothing_of_an_http_request_is_executed_and_the_log_names_who_sent_it() {
    let server = TestServer::start();
    let mut watcher = server.client();
    let refused = error("ERR Protocol error: this looks like HTTP");
    let body = "ADDJOB q evil 0\r\n";
    let stream = server.connect();
    let address = stream.local_addr().expect("connected");
    let mut first = Client::over(stream);
    first.send(format!("POST / HTTP/1.1\r\nHost: x\r\n\r\n{body}"));
    assert_eq!(first.reply(), refused);
    assert!(first.is_closed());
    for request in [
        format!("GET /x HTTP/1.0\r\n\r\n{body}"),
        format!("post x\r\n{body}"),
        format!("host:x\r\n{body}"),
        format!("PUT http://x/ HTTP/1.1\r\nHost: x\r\n\r\n{body}"),
        format!("OPTIONS * HTTP/1.1\nHOST: x\n\n{body}"),
    ] {
        let mut client = server.client();
        client.send(&request);
        let mut reply = client.reply();
        if let Value::Error(text) = &reply
            && text.starts_with(b"ERR unknown command '")
        {
            reply = client.reply();
        }
        assert_eq!(reply, refused, "{request}");
        assert!(client.is_closed());
    }
    assert_eq!(watcher.call("QLEN q"), Value::Integer(0));
    assert_eq!(lines(&server, "sends HTTP"), 1, "{}", server.log());
    let line = format!("# Closing the connection of {address}: it sends HTTP");
    assert_eq!(lines(&server, &line), 1, "{}", server.log());
    // Queues may have any name.
    assert_eq!(watcher.send("GETJOB NOHANG FROM /x HTTP/1.1\r\n").reply(), Value::NullArray);
    assert_eq!(watcher.send("QPEEK HTTP/1.1 1\r\n").reply(), Value::Array(vec![]));
}

#[test]
fn a_client_that_begins_with_tls_is_closed_and_the_log_says_so() {
    let server = TestServer::start();
    // Record header, ClientHello, and a line end as random bytes have it.
    let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, b'\r', b'\n', b'P', b'I', b'N', b'G', b'\n'];
    let refused = error("ERR Protocol error: this looks like TLS");
    for times in 0..3 {
        let mut client = server.client();
        match times {
            0 => client.send(&hello[..1]).send(&hello[1..]),
            _ => client.send(hello),
        };
        assert_eq!(client.reply(), refused);
        assert!(client.is_closed());
    }
    assert_eq!(lines(&server, "begins with TLS"), 1, "{}", server.log());
}

#[test]
fn a_server_that_is_open_to_all_warns_at_its_start() {
    const WARNING: &str = "WARNING: anybody who reaches port";
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    for (options, warns) in [
        (&[][..], true),
        (&["--requirepass", "secret"][..], false),
        (&["--bind", "127.0.0.1"][..], false),
    ] {
        let _ = std::fs::remove_file(&log);
        let port = free_port().to_string();
        let _server = Program::start(
            std::process::Command::new(server_path())
                .args(["--port", &port, "--logfile", "log"])
                .args(options)
                .current_dir(folder.path()),
        );
        let text = eventually(
            || std::fs::read_to_string(&log).unwrap_or_default(),
            |text| text.contains("now ready to accept"),
        );
        let said = text.lines().filter(|line| line.contains(WARNING)).count();
        assert_eq!(said, usize::from(warns), "{options:?}: {text}");
    }
}
