//! What one client or link is served before the others, in one turn of the loop. It is
//! counted, not timed: the server stands still while everybody sends, the greedy one first,
//! and what has become of its input once another one is answered shows its share.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use disque::base::limits::{COMMAND_SLICE, READ_PER_TURN};
use disque::proto::bus::GossipKind;
use disque::proto::reply_reader::Value;

use crate::bus_peer::{BusPeer, link_to};
use crate::mesh::figure;
use crate::support::{Client, PATIENCE, TestServer, eventually, integer, request, status, text};

/// What a read may bring beyond the share that it was within before.
const LAST_READ_MAX: usize = 128 * 1024;
/// What one client or link is read of in one turn.
const READ_MAX: usize = READ_PER_TURN + LAST_READ_MAX;
/// What a connection has to carry for the system to make its buffers larger than that.
const WARM_UP: usize = 16 * 1024 * 1024;

/// What the other one's `INFO stats` adds to a figure, in commands or in bytes, at most.
const OTHERS_OWN: usize = 16;

/// A figure of INFO stats.
fn stat(client: &mut Client, name: &str) -> usize {
    client.send_command("INFO stats");
    stat_of(client, name)
}

/// The same, of an INFO that was sent before.
fn stat_of(client: &mut Client, name: &str) -> usize {
    let info = text(client.reply());
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.expect("INFO has the figure").parse().expect("a number")
}

/// A client that gets no replies, so that none stand in its way.
fn mute_client(server: &TestServer) -> TcpStream {
    let mut stream = server.connect();
    let mut client = Client::over(stream.try_clone().expect("a descriptor"));
    assert_eq!(client.call("PING"), status("PONG"));
    stream.write_all(b"CLIENT REPLY OFF\r\n").expect("the server reads");
    let ping = request(&[b"PING", &vec![b'x'; 1024 * 1024]]);
    for _ in 0..WARM_UP / ping.len() {
        stream.write_all(&ping).expect("the server reads");
    }
    let mut watcher = server.client();
    let read = || stat(&mut watcher, "total_net_input_bytes");
    eventually(read, |&read| read >= WARM_UP / ping.len() * ping.len());
    stream
}

/// Another client, and its socket.
fn other_client(server: &TestServer) -> (Client, TcpStream) {
    let stream = server.connect();
    (Client::over(stream.try_clone().expect("a descriptor")), stream)
}

/// Waits until all that was sent has arrived, so that what is sent next comes after it, and
/// that the server finds it when it goes on.
fn wait_until_arrived(stream: &TcpStream) {
    let on_the_way = || {
        let mut count: libc::c_int = 0;
        // SAFETY: the call writes one number to where it is told.
        let asked = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &mut count) };
        assert_eq!(asked, 0, "{}", std::io::Error::last_os_error());
        count
    };
    eventually(on_the_way, |&count| count == 0);
}

/// Sends as much as the sockets hold.
fn fill(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    stream.set_nonblocking(true).expect("a socket");
    let mut sent = 0;
    while let Ok(len) = stream.write(bytes) {
        sent += len;
    }
    sent
}

/// The first round in which the greedy one was served before the other. That is every round
/// with epoll, which tells of who sent first. With poll(2) the order is drawn anew for each
/// server.
fn once_it_is_first<T>(mut round: impl FnMut() -> Option<T>) -> T {
    (0..100).find_map(|_| round()).expect("the greedy one is served first now and then")
}

/// How far a figure of INFO stats gets by what a client sends, until another one, whose
/// command came after it, is answered.
fn served_before_another(input: &[u8], name: &str) -> usize {
    once_it_is_first(|| {
        let served = served_in_a_round(input, name);
        (served > OTHERS_OWN).then_some(served)
    })
}

fn served_in_a_round(input: &[u8], name: &str) -> usize {
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    let mut greedy = mute_client(&server);
    let (mut other, socket) = other_client(&server);
    let before = stat(&mut other, name);
    let sent = server.while_stopped(|| {
        let sent = fill(&mut greedy, &input.repeat(1 + 65_536 / input.len()));
        other.send_command("INFO stats");
        wait_until_arrived(&socket);
        sent
    });
    assert!(sent > READ_MAX + LAST_READ_MAX, "{sent} bytes are more than its share");
    stat_of(&mut other, name) - before
}

#[test]
fn a_client_that_pipelines_without_end_has_a_time_and_then_the_others_are_served() {
    // A millisecond's; 256 KiB of them are 43,000.
    let served = served_before_another(b"PING\r\n", "total_commands_processed");
    assert!(served < 20_000, "{served} commands");
}

#[test]
fn a_client_that_pipelines_without_end_is_read_up_to_a_limit_and_then_the_others_are_served() {
    let ping = request(&[b"PING", &[b'x'; 4000]]);
    let served = served_before_another(&ping, "total_commands_processed");
    assert!(served * ping.len() <= READ_MAX, "{served} commands");
}

#[test]
fn refusals_and_blank_lines_take_time_as_commands_do() {
    for input in [&b"X\r\n"[..], b"\n"] {
        // The first read alone has more of them than its time is for.
        let served = served_before_another(input, "total_net_input_bytes");
        assert!(served <= LAST_READ_MAX, "{served} bytes of {}", input.escape_ascii());
    }
}

#[test]
fn twenty_requests_of_many_small_arguments_are_read_a_share_at_a_time() {
    const CLIENTS: usize = 20;
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    let request = [&b"*200000\r\n"[..], &b"$1\r\nx\r\n".repeat(200_000)].concat();
    let mut greedy: Vec<TcpStream> = (0..CLIENTS).map(|_| server.connect()).collect();
    let (mut other, socket) = other_client(&server);
    let before = stat(&mut other, "total_net_input_bytes");
    std::thread::scope(|scope| {
        server.while_stopped(|| {
            let mut threads = Vec::new();
            for stream in &mut greedy {
                stream.set_write_timeout(Some(PATIENCE)).expect("a timeout above 0");
                let (first, rest) = request.split_at(1000);
                stream.write_all(first).expect("the sockets hold a little");
                threads.push(scope.spawn(|| stream.write_all(rest).expect("the server reads")));
            }
            other.send_command("INFO stats");
            wait_until_arrived(&socket);
        });
        let read = stat_of(&mut other, "total_net_input_bytes") - before;
        assert!(read <= CLIENTS * READ_MAX, "{read} bytes before another one was answered");
    });
    for stream in greedy {
        let unknown = Value::Error(b"ERR unknown command 'x'".to_vec());
        assert_eq!(Client::over(stream).reply(), unknown);
    }
}

#[test]
fn a_long_command_is_done_a_slice_at_a_time() {
    const JOBS: usize = 5000;
    let left = once_it_is_first(|| {
        let left = left_by_a_long_getjob(JOBS);
        (left < JOBS).then_some(left)
    });
    assert_eq!(left, JOBS - COMMAND_SLICE, "one slice was done before");
}

/// How many jobs are queued when another client is answered, whose command came after a
/// GETJOB for all of them.
fn left_by_a_long_getjob(jobs: usize) -> usize {
    let server = TestServer::start();
    let (mut long, long_socket) = other_client(&server);
    let (mut other, socket) = other_client(&server);
    long.send(request(&[b"ADDJOB", b"q", b"body", b"0"]).repeat(jobs));
    for _ in 0..jobs {
        assert!(matches!(long.reply(), Value::Status(_)));
    }
    assert_eq!(other.call("PING"), status("PONG"));
    server.while_stopped(|| {
        long.send_command("GETJOB NOHANG COUNT 100000 FROM q");
        wait_until_arrived(&long_socket);
        other.send_command("QLEN q");
        wait_until_arrived(&socket);
    });
    let left = usize::try_from(integer(other.reply())).expect("a length");
    assert!(matches!(long.reply(), Value::Array(fetched) if fetched.len() == jobs));
    left
}

#[test]
fn a_link_without_end_is_read_up_to_a_limit_and_then_clients_are_served() {
    let pong = BusPeer::silent([3; 20]).heartbeat(GossipKind::Pong, &[]);
    let received = once_it_is_first(|| {
        let received = received_before_a_client(&pong);
        (received > 0).then_some(received)
    });
    assert!(received * pong.len() <= READ_MAX, "{received} messages");
}

/// How many messages a link that sends without end has brought when a client is answered,
/// whose command came after them.
fn received_before_a_client(pong: &[u8]) -> usize {
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    let mut link = link_to(&server);
    let before = WARM_UP / pong.len();
    link.write_all(&pong.repeat(before)).expect("the server reads");
    let (mut other, socket) = other_client(&server);
    let received =
        || usize::try_from(figure(&mut other, "stats_messages_received")).expect("a count");
    eventually(received, |&count| count == before);
    let sent = server.while_stopped(|| {
        let sent = fill(&mut link, &pong.repeat(400));
        other.send_command("CLUSTER INFO");
        wait_until_arrived(&socket);
        sent
    });
    assert!(sent > READ_MAX + LAST_READ_MAX, "{sent} bytes are more than its share");
    let info = text(other.reply());
    let received =
        info.lines().find_map(|line| line.strip_prefix("cluster_stats_messages_received:"));
    let received: usize = received.expect("it is shown").parse().expect("a number");
    received - before
}
