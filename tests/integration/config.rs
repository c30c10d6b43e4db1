//! CONFIG, over a running server: every directive is shown, set and written back.

use std::fs;

use disque::proto::reply_reader::Value;
use disque::server::config::directives;

use crate::support::{Client, TestServer, error, status, text};

/// What CONFIG GET shows, as names and values.
fn shown(client: &mut Client, pattern: &str) -> Vec<(String, String)> {
    let Value::Array(items) = client.call(&format!("CONFIG GET {pattern}")) else {
        panic!("CONFIG GET answers an array");
    };
    let words: Vec<String> = items.into_iter().map(text).collect();
    words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn value(client: &mut Client, name: &str) -> String {
    let found = shown(client, name);
    assert_eq!(found.len(), 1, "{name}");
    found[0].1.clone()
}

#[test]
fn the_directives_of_the_c_server_are_shown_and_no_others_than_ours() {
    let server = TestServer::start();
    let mut names: Vec<String> =
        shown(&mut server.client(), "*").into_iter().map(|(name, _)| name).collect();
    names.sort();
    let c_shows = "activerehashing aof-enqueue-jobs-once aof-load-truncated \
        aof-rewrite-incremental-fsync appendfsync appendonly auto-aof-rewrite-min-size \
        auto-aof-rewrite-percentage bind client-output-buffer-limit cluster-node-timeout \
        daemonize databases dir hz latency-monitor-threshold logfile loglevel maxclients \
        maxmemory maxmemory-policy maxmemory-samples no-appendfsync-on-rewrite pidfile port \
        requirepass slowlog-log-slower-than slowlog-max-len syslog-facility tcp-backlog \
        tcp-keepalive timeout unixsocket unixsocketperm watchdog-period";
    let ours = "aof-checksums aof-load-damaged aof-restore-queues availability-zone cluster-allow \
         cluster-announce-bus-port cluster-announce-ip cluster-announce-port cluster-forget-after \
         cluster-name cluster-seeds http-bind http-port protected-mode queue-policy retry-from \
         trace-max trace-sample user";
    let mut expected: Vec<&str> =
        c_shows.split_whitespace().chain(ours.split_whitespace()).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn a_pattern_is_a_glob_and_case_sensitive() {
    let server = TestServer::start();
    let mut client = server.client();
    let names: Vec<String> =
        shown(&mut client, "max[cm]*").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["maxclients", "maxmemory", "maxmemory-policy", "maxmemory-samples"]);
    assert_eq!(client.call("CONFIG GET PORT"), Value::Array(vec![]));
    assert_eq!(client.call("config get nosuch"), Value::Array(vec![]));
}

#[test]
fn what_is_shown_of_a_settable_directive_can_be_set_again() {
    let server = TestServer::start();
    let mut client = server.client();
    for directive in
        directives::all().filter(|directive| directive.access.set && directive.access.get)
    {
        let before = value(&mut client, directive.name);
        let words: [&[u8]; 4] = [b"CONFIG", b"SET", directive.name.as_bytes(), before.as_bytes()];
        assert_eq!(client.call_words(&words), status("OK"), "{}", directive.name);
        assert_eq!(value(&mut client, directive.name), before, "{}", directive.name);
    }
    for directive in directives::all().filter(|directive| !directive.access.set) {
        let name = directive.name;
        assert_eq!(
            client.call(&format!("CONFIG SET {name} 1")),
            error(&format!("ERR Unsupported CONFIG parameter: {name}"))
        );
    }
}

#[test]
fn values_are_taken_in_every_form_the_file_takes() {
    let server = TestServer::start();
    let mut client = server.client();
    let cases = [
        ("timeout", "10", "10"),
        ("TIMEOUT", "0", "0"),
        ("tcp-keepalive", "60", "yes"),
        ("tcp-keepalive", "no", "no"),
        ("loglevel", "VERBOSE", "verbose"),
        ("hz", "0", "1"),
        ("hz", "9999", "500"),
        ("hz", "10", "10"),
        ("maxmemory", "2gb", "2147483648"),
        ("maxmemory", "0", "0"),
        ("maxmemory", "1k", "1000"),
        ("maxmemory", "1GB", "1073741824"),
        ("auto-aof-rewrite-min-size", "1mb", "1048576"),
        ("slowlog-log-slower-than", "-1", "-1"),
        ("cluster-node-timeout", "0", "0"),
        ("cluster-announce-ip", "::1", "::1"),
        ("aof-enqueue-jobs-once", "Yes", "yes"),
        ("maxmemory-policy", "noeviction", "noeviction"),
        ("appendfsync", "always", "always"),
        ("watchdog-period", "1", "200"),
        ("watchdog-period", "0", "0"),
    ];
    for (name, given, expected) in cases {
        assert_eq!(client.call(&format!("CONFIG SET {name} {given}")), status("OK"), "{name}");
        assert_eq!(value(&mut client, &name.to_lowercase()), expected, "{name} {given}");
    }
    let limit = [&b"CONFIG"[..], b"SET", b"client-output-buffer-limit"];
    let groups: [&[u8]; 4] = [limit[0], limit[1], limit[2], b"normal 1 2 3 normal 4096 2kb 6"];
    assert_eq!(client.call_words(&groups), status("OK"));
    assert_eq!(value(&mut client, "client-output-buffer-limit"), "normal 4096 2048 6");
}

#[test]
fn wrong_values_are_refused_and_change_nothing() {
    let server = TestServer::start();
    let mut client = server.client();
    let cases = [
        ("timeout", "x"),
        ("timeout", "-1"),
        ("maxclients", "0"),
        ("maxmemory", "1tb"),
        ("loglevel", "loud"),
        ("appendonly", "maybe"),
        ("latency-monitor-threshold", "-1"),
        ("cluster-announce-ip", "example.org"),
        ("client-output-buffer-limit", "normal"),
    ];
    for (name, given) in cases {
        let before = value(&mut client, name);
        assert_eq!(
            client.call(&format!("CONFIG SET {name} {given}")),
            error(&format!("ERR Invalid argument '{given}' for CONFIG SET '{name}'"))
        );
        assert_eq!(value(&mut client, name), before, "{name}");
    }
    for words in ["CONFIG GET", "CONFIG GET a b", "CONFIG SET hz", "CONFIG RESETSTAT x"] {
        let subcommand = words.split(' ').nth(1).expect("a subcommand");
        assert_eq!(
            client.call(words),
            error(&format!("ERR Wrong number of arguments for CONFIG {subcommand}"))
        );
    }
    assert_eq!(
        client.call("CONFIG FORGET x"),
        error("ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE")
    );
}

#[test]
fn more_clients_than_the_system_allows_are_refused_at_once() {
    let server = TestServer::start();
    let mut client = server.client();
    let Value::Error(reason) = client.call("CONFIG SET maxclients 99999999") else {
        panic!("no system has that many descriptors");
    };
    let reason = String::from_utf8(reason).expect("text");
    assert!(reason.starts_with(
        "ERR The operating system is not able to handle the specified number of clients, try with "
    ));
    assert_eq!(value(&mut client, "maxclients"), "10000");
}

#[test]
fn a_password_counts_from_the_next_command_on() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET requirepass secret"), status("OK"));
    assert_eq!(client.call("PING"), error("NOAUTH Authentication required."));
    assert_eq!(client.call("AUTH secret"), status("OK"));
    assert_eq!(value(&mut client, "requirepass"), "secret");
    let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"requirepass", b""];
    assert_eq!(client.call_words(&words), status("OK"));
    assert_eq!(server.client().call("PING"), status("PONG"));
    let long = "x".repeat(513);
    assert_eq!(
        client.call(&format!("CONFIG SET requirepass {long}")),
        error(&format!("ERR Invalid argument '{long}' for CONFIG SET 'requirepass'"))
    );
}

#[test]
fn the_working_directory_can_be_changed() {
    let server = TestServer::start();
    let mut client = server.client();
    let start_dir = fs::canonicalize(server.folder()).expect("it is there");
    assert_eq!(value(&mut client, "dir"), start_dir.to_str().expect("text"));
    fs::create_dir(server.folder().join("below")).expect("the folder is ours");
    assert_eq!(client.call("CONFIG SET dir below"), status("OK"));
    assert_eq!(value(&mut client, "dir"), start_dir.join("below").to_str().expect("text"));
    assert_eq!(
        client.call("CONFIG SET dir nowhere"),
        error("ERR Changing directory: No such file or directory")
    );
}

#[test]
fn a_rewrite_keeps_the_file_and_a_restart_finds_every_value() {
    let text_before = "# by hand\nhz 20\n\n\n\nhz 30\ntimeout 5\nrename-command DEBUG \"\"\n";
    let mut server = TestServer::start_with_config(text_before, &["--slowlog-max-len", "7"]);
    let mut client = server.client();
    for set in [
        "hz 40",
        "maxmemory 3gb",
        "loglevel verbose",
        "tcp-keepalive 30",
        "slowlog-log-slower-than -1",
        "cluster-announce-port 7000",
    ] {
        client.ok(&format!("CONFIG SET {set}"));
    }
    client.ok("CONFIG SET requirepass long");
    client.ok("AUTH long");
    let words: [&[u8]; 4] =
        [b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 1048576 5 6"];
    assert_eq!(client.call_words(&words), status("OK"));
    assert_eq!(client.call("CONFIG REWRITE"), status("OK"));
    let before = shown(&mut client, "*");
    let written = fs::read_to_string(server.folder().join("disque.conf")).expect("it is there");
    assert!(
        written.starts_with(
            "# by hand\nhz 40\n\ntimeout 5\nrename-command DEBUG \"\"\n# Generated by CONFIG \
             REWRITE\n"
        ),
        "{written}"
    );
    for line in [
        "maxmemory 3gb",
        "requirepass \"long\"",
        "tcp-keepalive 30",
        "client-output-buffer-limit normal 1mb 5 6",
        "slowlog-max-len 7",
    ] {
        assert!(written.lines().any(|written| written == line), "{line} in {written}");
    }

    // The file says in which folder the server works, and there can be but one in it.
    server.stop_by(libc::SIGTERM);
    let again = TestServer::start_with_config(&written, &[]);
    let mut client = again.client();
    client.ok("AUTH long");
    // Each test server is given these anew.
    let given = ["port", "dir", "loglevel"];
    let kept = |(name, _): &&(String, String)| !given.contains(&name.as_str());
    let after = shown(&mut client, "*");
    assert_eq!(
        after.iter().filter(kept).collect::<Vec<_>>(),
        before.iter().filter(kept).collect::<Vec<_>>()
    );
}

#[test]
fn without_a_file_there_is_nothing_to_rewrite() {
    let server = TestServer::start();
    assert_eq!(
        server.client().call("CONFIG REWRITE"),
        error("ERR The server is running without a config file")
    );
}

#[test]
fn a_rewrite_that_fails_leaves_the_file_and_the_server_alone() {
    let server = TestServer::start_with_config("hz 20\n", &[]);
    let file = server.folder().join("disque.conf");
    fs::remove_file(&file).expect("it is ours");
    fs::create_dir(&file).expect("its place is free");
    let reply = server.client().call("CONFIG REWRITE");
    assert_eq!(reply, error("ERR Rewriting config file: Is a directory"));
    assert_eq!(server.client().call("PING"), status("PONG"));
}
