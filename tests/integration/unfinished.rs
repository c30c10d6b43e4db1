//! Requests and frames that are not whole: what they may take, before the password and after
//! it, and who goes when it is too much.

use std::io::Write as _;
use std::net::TcpStream;

use disque::proto::reply_reader::Value;

use crate::bus_peer::{BusPeer, link_to};
use crate::support::{Client, TestServer, bulk, error, eventually, request, status, text};

const MIB: usize = 1024 * 1024;
const MAXMEMORY: usize = 64 * MIB;

/// A server with little memory.
fn small_server() -> TestServer {
    TestServer::start_with(&["--maxmemory", &MAXMEMORY.to_string(), "--loglevel", "notice"])
}

/// Sends the beginning of an ADDJOB, `sent` bytes of its body, and returns the connection if
/// the server takes all of it.
fn half_a_job(server: &TestServer, name: &str, sent: usize) -> Option<TcpStream> {
    let mut stream = server.connect();
    let mut client = Client::over(stream.try_clone().expect("a descriptor"));
    assert_eq!(client.call(&format!("CLIENT SETNAME {name}")), status("OK"));
    stream.write_all(b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$500000000\r\n").expect("the server reads");
    let body = vec![b'x'; MIB];
    for from in (0..sent).step_by(MIB) {
        stream.write_all(&body[..MIB.min(sent - from)]).ok()?;
    }
    Some(stream)
}

/// The names of the clients that are connected and have one.
fn names(watcher: &mut Client) -> Vec<String> {
    let list = text(watcher.call("CLIENT LIST"));
    let words = list.split(' ').filter_map(|word| word.strip_prefix("name="));
    words.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn memory_figure(watcher: &mut Client, name: &str) -> usize {
    let info = text(watcher.call("INFO memory"));
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.expect("INFO has the figure").parse().expect("a number")
}

/// The lines of the log about who was closed.
fn lines_about_closing(server: &TestServer) -> Vec<String> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("it holds most"));
    lines.map(str::to_owned).collect()
}

#[test]
fn before_the_password_a_request_has_ten_arguments_of_sixteen_kibibytes() {
    let server = TestServer::start_with(&["--requirepass", "secret"]);
    for (bytes, text) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*1048576\r\n", "unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
        (b"*1\r\n$536870912\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send("PING\r\n").send(bytes);
        assert_eq!(client.reply(), error("NOAUTH Authentication required."));
        assert_eq!(client.reply(), error(&format!("ERR Protocol error: {text}")));
        assert!(client.is_closed());
    }
    let mut client = server.client();
    let long = [b'x'; 16_384];
    let most: Vec<&[u8]> = std::iter::once(&b"AUTH"[..]).chain([&long[..]; 9]).collect();
    assert_eq!(client.call_words(&most), error("ERR syntax error"), "that was read");
    // The password opens the way for what is behind it.
    let big = vec![b'x'; 1_000_000];
    let many: Vec<&[u8]> = std::iter::once(&b"GETJOB"[..]).chain([&b"x"[..]; 20]).collect();
    client.send(request(&[b"AUTH", b"secret"])).send(request(&[b"PING", &big]));
    assert_eq!(client.reply(), status("OK"));
    assert_eq!(client.reply(), bulk(&big));
    assert_eq!(client.call_words(&many), error("ERR syntax error"));
}

#[test]
fn who_holds_most_of_what_is_not_whole_is_closed_first() {
    let server = small_server();
    let mut watcher = server.client();
    let _small = half_a_job(&server, "small", 100_000).expect("it is within the limit");
    let _middle = half_a_job(&server, "middle", 10 * MIB).expect("it is within the limit");
    let large = half_a_job(&server, "large", 2 * MAXMEMORY);
    assert!(large.is_none(), "it is closed before it has sent so much");
    assert_eq!(names(&mut watcher), ["small", "middle"]);
    let lines = lines_about_closing(&server);
    assert_eq!(lines.len(), 1, "{lines:?}");
    // Two that are within the limit each, and not together.
    let _first = half_a_job(&server, "first", 12 * MIB).expect("it is within the limit");
    let second = half_a_job(&server, "second", 2 * MAXMEMORY);
    assert!(second.is_none(), "it holds most by the time that it is too much");
    assert_eq!(names(&mut watcher), ["small", "middle", "first"]);
}

#[test]
fn what_is_not_whole_has_no_job_refused_and_counts_as_what_it_takes() {
    let server = small_server();
    let mut watcher = server.client();
    let halves: Vec<TcpStream> = (0..5)
        .map(|_| half_a_job(&server, "half", 10 * MIB).expect("it is within the limit"))
        .collect();
    let unfinished = eventually(
        || memory_figure(&mut watcher, "used_memory_unfinished_input"),
        |&unfinished| unfinished >= 50 * MIB,
    );
    assert!(unfinished <= 55 * MIB, "{unfinished} bytes for 50 MiB");
    let used = memory_figure(&mut watcher, "used_memory");
    assert!(used < unfinished + 8 * MIB, "{used} bytes with {unfinished} of what is not whole");
    assert!(used > MAXMEMORY / 100 * 75, "it would count as short of memory");
    for _ in 0..100 {
        assert!(matches!(watcher.call("ADDJOB q body 0"), Value::Status(_)));
    }
    // Jobs take what they need, and what is not whole keeps an eighth of the memory.
    let body = vec![b'x'; MIB];
    let mut added = 0;
    while matches!(watcher.call_words(&[b"ADDJOB", b"q", &body, b"0"]), Value::Status(_)) {
        added += 1;
    }
    assert!(added >= 45, "{added} jobs of one MiB in {MAXMEMORY} bytes");
    assert!(memory_figure(&mut watcher, "used_memory_unfinished_input") <= 12 * MIB);
    drop(halves);
    let left = || memory_figure(&mut watcher, "used_memory_unfinished_input");
    eventually(left, |&unfinished| unfinished == 0);
}

#[test]
fn many_arguments_that_are_not_whole_count_with_what_the_parser_keeps() {
    let server = small_server();
    let mut watcher = server.client();
    let mut client = server.client();
    let arguments = 1_000_000;
    client.send("*1048576\r\n").send(b"$1\r\nx\r\n".repeat(arguments));
    let unfinished = eventually(
        || memory_figure(&mut watcher, "used_memory_unfinished_input"),
        |&unfinished| unfinished >= 15 * arguments,
    );
    let used = memory_figure(&mut watcher, "used_memory");
    assert!(used < unfinished + 8 * MIB, "{used} bytes with {unfinished} of what is not whole");
}

#[test]
fn a_large_body_takes_the_memory_of_what_has_come_and_gives_it_back() {
    const SENT: usize = 200 * MIB;
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    let mut watcher = server.client();
    let before = memory_figure(&mut watcher, "used_memory_rss");
    let half = half_a_job(&server, "half", SENT).expect("it is within the limit");
    let unfinished = || memory_figure(&mut watcher, "used_memory_unfinished_input");
    eventually(unfinished, |&unfinished| unfinished >= SENT);
    let resident = memory_figure(&mut watcher, "used_memory_rss") - before;
    // Blocks of up to 16 MiB that it was in before may still be there.
    assert!(resident < SENT + 48 * MIB, "{resident} bytes for {SENT}");
    drop(half);
    let left = || memory_figure(&mut watcher, "used_memory_rss") - before;
    eventually(left, |&left| left < 48 * MIB);
}

/// The beginning of a frame of so many bytes.
fn frame_of(len: u32, sender: &BusPeer) -> Vec<u8> {
    let mut frame = sender.heartbeat(disque::proto::bus::GossipKind::Ping, &[]);
    frame[4..8].copy_from_slice(&len.to_be_bytes());
    frame
}

/// Whether the server has closed a link.
fn is_closed(link: &mut TcpStream) -> bool {
    link.set_nonblocking(true).expect("a socket");
    let mut bytes = [0; 4096];
    loop {
        match std::io::Read::read(link, &mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn nobody_sends_a_large_frame_in_the_name_of_this_node() {
    let server = small_server();
    let id = text(server.client().call("CLUSTER MYID"));
    let me = BusPeer {
        id: disque::base::ids::NodeId::parse(id.as_bytes()).expect("an ID"),
        port: server.port(),
    };
    let mut link = link_to(&server);
    link.write_all(&frame_of(100_000, &me)).expect("the server reads");
    eventually(|| is_closed(&mut link), |&is_closed| is_closed);
}

#[test]
fn a_node_has_one_large_frame_under_way_and_the_new_link_counts() {
    let server = small_server();
    let peer = BusPeer::listen([6; 20]);
    peer.join(&server);
    let mut watcher = server.client();
    let half = [frame_of(10_000_000, &peer), vec![0; MIB]].concat();
    let is_held = |unfinished: &usize| (MIB..3 * MIB).contains(unfinished);
    let mut links = [link_to(&server), link_to(&server)];
    for link in &mut links {
        link.write_all(&half).expect("the server reads");
        let unfinished = || memory_figure(&mut watcher, "used_memory_unfinished_input");
        eventually(unfinished, is_held);
    }
    eventually(|| is_closed(&mut links[0]), |&is_closed| is_closed);
    assert!(!is_closed(&mut links[1]));
    assert!(is_held(&memory_figure(&mut watcher, "used_memory_unfinished_input")));
}

#[test]
fn a_large_frame_counts_with_what_clients_send_and_its_link_is_closed_when_it_holds_most() {
    let server = small_server();
    let peer = BusPeer::listen([6; 20]);
    peer.join(&server);
    let mut watcher = server.client();
    let _half = half_a_job(&server, "half", 10 * MIB).expect("it is within the limit");
    let mut link = link_to(&server);
    link.write_all(&frame_of(500_000_000, &peer)).expect("the server reads");
    let piece = vec![0; MIB];
    let taken = (0..2 * MAXMEMORY / MIB).take_while(|_| link.write_all(&piece).is_ok()).count();
    assert!(taken >= 20, "{taken} MiB are within the limit");
    assert!(taken < 2 * MAXMEMORY / MIB, "it is closed");
    assert_eq!(names(&mut watcher), ["half"]);
    let lines = lines_about_closing(&server);
    assert!(lines.len() == 1 && lines[0].contains("node 127.0.0.1"), "{lines:?}");
    // The node itself stays.
    assert!(text(watcher.call("CLUSTER NODES")).contains(&peer.id.to_string()));
}
