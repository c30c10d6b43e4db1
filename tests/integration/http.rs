//! The HTTP port: who is answered what, and what a client of it may not do.

use std::net::TcpStream;

use super::http_client::{HttpClient, get, sample, server_with_http, until};
use super::support::{TestServer, array, bulk, free_port, text};

fn metrics(port: u16) -> String {
    let reply = get(port, "/metrics");
    assert_eq!(reply.status, 200);
    reply.text().to_owned()
}

#[test]
fn there_is_no_http_port_unless_it_is_asked_for() {
    let server = TestServer::start();
    let shown = server.client().call("CONFIG GET http-*");
    let expected = ["http-port", "0", "http-bind", "127.0.0.1"].map(bulk).to_vec();
    assert_eq!(array(shown), expected, "and the token is not shown");
}

#[test]
fn a_port_that_is_taken_ends_the_start() {
    let port = free_port();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    let server = TestServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let status = std::process::Command::new(super::support::server_path())
        .args(["--port", &free_port().to_string(), "--bind", "127.0.0.1", "--logfile", "log"])
        .args(["--http-port", &port.to_string()])
        .current_dir(folder.path())
        .status()
        .expect("the server starts");
    assert_eq!(status.code(), Some(1));
    let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    assert!(log.contains(&format!("Creating listening socket 127.0.0.1:{port}: ")), "{log}");
    drop(server);
}

#[test]
fn answers_come_in_order_on_a_connection_that_stays() {
    let (_server, port) = server_with_http(&[]);
    let mut client = HttpClient::connect(port);
    client.send(
        "GET /livez HTTP/1.1\r\n\r\nGET /nothing HTTP/1.1\r\n\r\nHEAD /livez HTTP/1.1\r\n\r\n",
    );
    let reply = client.reply();
    assert_eq!((reply.status, reply.text()), (200, "alive\n"));
    assert_eq!(reply.header("cache-control"), "no-store");
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    let reply = client.reply();
    assert_eq!(reply.status, 404);
    assert!(reply.text().contains("/metrics"), "it says what there is");
    assert!(client.head().contains("\r\nContent-Length: 6\r\n"), "HEAD has no body");
    assert_eq!(client.get("/metrics").status, 200);
    client.send("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(!client.head().contains("Transfer-Encoding"));
    client.send("GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(client.reply().header("connection"), "close");
    assert!(client.is_closed());
}

#[test]
fn a_client_of_version_1_0_reads_to_the_end() {
    let (_server, port) = server_with_http(&[]);
    let mut client = HttpClient::connect(port);
    client.send("GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.header("connection"), "close");
    assert_eq!(sample(reply.text(), "disque_clients_max"), 10_000.0);
}

#[test]
fn what_is_no_question_is_refused_and_its_connection_ends() {
    let (server, port) = server_with_http(&[]);
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    for (request, status) in [
        ("POST /api/queues HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        ("DELETE / HTTP/1.1\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        ("*1\r\n$4\r\nPING\r\n", 400),
        ("PING\r\n", 400),
        (&long, 431),
        ("GET /api/queues?sort=colour HTTP/1.1\r\n\r\n", 400),
        ("GET /api/queues?limit=2001 HTTP/1.1\r\n\r\n", 400),
        ("GET /api/queue HTTP/1.1\r\n\r\n", 400),
        ("GET /api/job?id=x HTTP/1.1\r\n\r\n", 400),
        ("GET /api/trace HTTP/1.1\r\n\r\n", 400),
        ("GET /readyz?for=me HTTP/1.1\r\n\r\n", 400),
    ] {
        let mut client = HttpClient::connect(port);
        let reply = client.send(request).reply();
        assert_eq!(reply.status, status, "{request:.50}");
        if request.contains("/api/") && status == 400 || request.contains("readyz") {
            assert_eq!(client.get("/livez").status, 200, "a wrong question is a question");
        } else {
            assert!(client.is_closed(), "{request:.50}");
        }
    }
    // And the port of clients speaks no HTTP.
    let mut client = server.client();
    let answer = client.send("GET /metrics HTTP/1.1\r\n\r\n").reply_if_open();
    assert_ne!(answer, Some(bulk("")));
    assert!(server.client().call("PING") == super::support::status("PONG"));
}

#[test]
fn a_thousand_half_open_connections_keep_no_scraper_out() {
    let (server, port) = server_with_http(&[]);
    let mut scraper = HttpClient::connect(port);
    assert_eq!(scraper.get("/livez").status, 200);
    let mut half_open: Vec<TcpStream> = Vec::new();
    for number in 0..1000 {
        use std::io::Write as _;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        if number % 2 == 0 {
            // It may be closed already, and that is all right.
            let _sent = stream.write_all(b"GET /metrics HTT");
        }
        half_open.push(stream);
    }
    for _ in 0..10 {
        let metrics = metrics(port);
        assert!(sample(&metrics, "disque_http_connections") <= 64.0);
        assert_eq!(sample(&metrics, "disque_clients_connected"), 0.0, "they are no clients");
    }
    assert_eq!(server.client().call("PING"), super::support::status("PONG"));
    drop(half_open);
}

#[test]
fn who_is_slow_to_ask_or_to_read_is_dropped() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    for number in 0..2000 {
        client.send_command(&format!("ADDJOB queue-with-a-rather-long-name-{number} body 0"));
    }
    (0..2000).for_each(|_| drop(client.reply()));
    // The answers are larger than what sockets hold.
    let mut deaf: Vec<HttpClient> = (0..20).map(|_| HttpClient::connect(port)).collect();
    for client in &mut deaf {
        client.send("GET /metrics HTTP/1.1\r\n\r\n".repeat(100));
    }
    let mut slow = HttpClient::connect(port);
    slow.send("GET /livez HTTP/1.1\r\nHost");
    let before = text(client.call("INFO memory"));
    let used = |info: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.expect("a line").parse().expect("a number")
    };
    assert!(used(&before) < 64e6, "{before}");
    assert_eq!(slow.reply().status, 408);
    assert!(slow.is_closed());
    // Until all but this one are gone.
    until(|| sample(&metrics(port), "disque_http_connections") == 1.0);
    assert!(used(&text(client.call("INFO memory"))) < 64e6);
}

#[test]
fn numbers_need_the_token_and_probes_do_not() {
    let (server, port) = server_with_http(&["--http-token", "s3cret"]);
    let asked =
        |target: &str, headers: &str| HttpClient::connect(port).get_with(target, headers).status;
    for target in ["/metrics", "/api/overview", "/api/queues", "/api/nodes"] {
        let reply = get(port, target);
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, "Bearer"), "{target}");
        assert_eq!(asked(target, "Authorization: Bearer wrong\r\n"), 401);
        assert_eq!(asked(target, "Authorization: Basic s3cret\r\n"), 401);
        assert_eq!(asked(target, "Authorization: Bearer s3cret\r\nHost: a.example\r\n"), 200);
    }
    for target in ["/", "/livez", "/readyz"] {
        assert_eq!(asked(target, ""), 200, "{target}");
    }
    let mut client = server.client();
    let mut monitor = server.client();
    monitor.ok("MONITOR");
    client.ok("CONFIG SET http-token 0ther");
    let seen = text(monitor.reply());
    assert!(seen.contains("http-token") && !seen.contains("0ther"), "{seen}");
    assert_eq!(asked("/metrics", "Authorization: Bearer s3cret\r\n"), 401);
    assert_eq!(asked("/metrics", "Authorization: Bearer 0ther\r\n"), 200);
    assert_eq!(array(client.call("CONFIG GET http-token")), []);
    assert!(matches!(
        client.call_words(&[b"CONFIG", b"SET", b"http-token", b"a b"]),
        disque::proto::reply_reader::Value::Error(_)
    ));
    assert!(!server.log().contains("s3cret") && !server.log().contains("0ther"));
}

#[test]
fn without_a_token_the_page_of_another_site_reads_nothing() {
    let (_server, port) = server_with_http(&[]);
    let asked = |host: &str| {
        let mut client = HttpClient::connect(port);
        client.send(format!("GET /api/queues HTTP/1.1\r\nHost: {host}\r\n\r\n")).reply().status
    };
    assert_eq!(asked("rebound.example"), 403);
    assert_eq!(asked(&format!("127.0.0.1:{port}")), 200);
    assert_eq!(asked(&format!("localhost:{port}")), 200);
}

#[test]
fn bodies_are_not_shown_to_who_could_not_fetch_them() {
    let (server, port) = server_with_http(&["--requirepass", "pass"]);
    let mut client = server.client();
    client.ok("AUTH pass");
    drop(client.call("ADDJOB q confidential 0"));
    let shown = get(port, "/api/queue?name=q");
    assert!(shown.text().contains("\"body_bytes\":12") && !shown.text().contains("confidential"));
    client.ok("CONFIG SET http-token t");
    let mut asking = HttpClient::connect(port);
    let shown = asking.get_with("/api/queue?name=q", "Authorization: Bearer t\r\n");
    assert!(shown.text().contains("\"body\":\"confidential\""), "{}", shown.text());
}
