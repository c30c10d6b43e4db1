//! What no client can do to the server, and the others.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, bulk, error, eventually, request, status, text};

const MIB: usize = 1024 * 1024;
/// The server counts in milliseconds, at both ends of a wait.
const CLOCK_GRAIN: Duration = Duration::from_millis(2);

/// A client's number in a field of its line in CLIENT LIST.
fn field(client: &mut Client, name: &str, field: &str) -> Option<usize> {
    let list = text(client.call("CLIENT LIST"));
    let line = list.lines().find(|line| line.contains(&format!("name={name} ")))?.to_owned();
    let value = line.split(' ').find_map(|word| word.strip_prefix(&format!("{field}=")))?;
    Some(value.parse().expect("a number"))
}

/// Sends until the socket takes no more.
fn stuff(stream: &mut TcpStream, bytes: &[u8], times: usize) -> usize {
    stream.set_nonblocking(true).expect("a socket");
    let mut sent = 0;
    for _ in 0..times {
        match stream.write(bytes) {
            Ok(len) => sent += len,
            Err(_) => break,
        }
    }
    sent
}

#[test]
fn one_client_too_many_is_told_so() {
    let server = TestServer::start_with(&["--maxclients", "3"]);
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.call("PING"), status("PONG"));
    }
    let mut refused = server.client();
    assert_eq!(refused.reply(), error("ERR max number of clients reached"));
    assert!(refused.is_closed());
    clients.pop();
    let mut third = None;
    let reply = eventually(
        || third.insert(server.client()).call_if_open("PING"),
        |reply| *reply == Some(status("PONG")),
    );
    assert_eq!(reply, Some(status("PONG")));
    // The log says so once, however many come, and once that it is over.
    let told = |text: &str| server.log().matches(text).count();
    let news = || (told("clients that maxclients allows are here"), told("are accepted again"));
    assert_eq!(news(), (1, 1));
    for _ in 0..20 {
        assert_eq!(server.client().reply(), error("ERR max number of clients reached"));
    }
    assert_eq!(news(), (2, 1));
}

/// A client named "deaf" that asks for a hundred kilobytes again and again and reads none.
/// Returns its two ends: to send more, and to read after all.
fn deaf_client(server: &TestServer, watcher: &mut Client, asks: usize) -> (TcpStream, Client) {
    text(watcher.call_words(&[b"ADDJOB", b"q", &vec![b'x'; 100_000], b"0"]));
    let mut stream = server.connect();
    let mut client = Client::over(stream.try_clone().expect("a descriptor"));
    assert_eq!(client.call("CLIENT SETNAME deaf"), status("OK"));
    stuff(&mut stream, &request(&[b"QPEEK", b"q", b"1"]).repeat(1000), asks / 1000);
    (stream, client)
}

#[test]
fn a_client_that_never_reads_is_read_no_more() {
    let server = TestServer::start();
    let mut watcher = server.client();
    let (stream, mut client) = deaf_client(&server, &mut watcher, 1_000_000);
    let unsent = eventually(
        || field(&mut watcher, "deaf", "omem").expect("it is connected"),
        |&unsent| unsent > MIB,
    );
    assert!(unsent < 8 * MIB, "{unsent} bytes are kept for one client");
    assert!(text(watcher.call("INFO clients")).contains("\r\nclient_longest_output_list:1\r\n"));
    assert_eq!(watcher.call("PING"), status("PONG"));
    // Once it reads again, it gets everything in order.
    stream.set_nonblocking(false).expect("a socket");
    for _ in 0..200 {
        let Value::Array(jobs) = client.reply() else { panic!("an array") };
        assert_eq!(jobs.len(), 1);
    }
}

#[test]
fn a_client_over_an_output_limit_is_closed_at_once_or_after_the_soft_limits_time() {
    for limits in [["200kb", "0", "0"], ["0", "100kb", "1"]] {
        let options = ["--client-output-buffer-limit", "normal"].into_iter().chain(limits);
        let server = TestServer::start_with(&options.collect::<Vec<_>>());
        let mut watcher = server.client();
        let _deaf = deaf_client(&server, &mut watcher, 10_000);
        eventually(|| field(&mut watcher, "deaf", "omem"), Option::is_none);
    }
}

#[test]
fn a_keepalive_longer_than_the_system_counts_keeps_nobody_out() {
    let server = TestServer::start_with(&["--tcp-keepalive", "2147483647"]);
    let mut client = server.client();
    assert_eq!(client.call("PING"), status("PONG"));
}

/// After how long the system probes a connection that is silent, in seconds, as it counts down.
/// `None`: never.
#[cfg(target_os = "linux")]
fn probed_after_secs(server: &TestServer, client: &std::net::TcpStream) -> Option<u64> {
    let port = |port: u16| format!(":{port:04X}");
    let client = port(client.local_addr().expect("an open socket").port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("it is there on Linux");
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = |fields: &Vec<&str>| {
        fields[1].ends_with(&port(server.port())) && fields[2].ends_with(&client)
    };
    let fields = fields.skip(1).find(ours).expect("the server's end of the connection");
    // The timer that runs (2 is that of keepalive) and its rest in hundredths of a second.
    let (timer, rest) = fields[5].split_once(':').expect("a timer and its rest");
    (timer == "02").then(|| u64::from_str_radix(rest, 16).expect("a hex number").div_ceil(100))
}

#[cfg(target_os = "linux")]
#[test]
fn a_silent_client_is_probed_after_five_minutes_unless_told_otherwise() {
    for (options, expected) in [(&[][..], 290..=300), (&["--tcp-keepalive", "60"][..], 50..=60)] {
        let server = TestServer::start_with(options);
        let stream = server.connect();
        let mut client = Client::over(stream.try_clone().expect("a descriptor is free"));
        assert_eq!(client.call("PING"), status("PONG"));
        eventually(
            || probed_after_secs(&server, &stream),
            |secs| secs.is_some_and(|secs| expected.contains(&secs)),
        );
    }
    let server = TestServer::start_with(&["--tcp-keepalive", "0"]);
    let stream = server.connect();
    let mut client = Client::over(stream.try_clone().expect("a descriptor is free"));
    assert_eq!(client.call("PING"), status("PONG"));
    eventually(|| probed_after_secs(&server, &stream), Option::is_none);
}

#[test]
fn a_monitor_that_never_reads_is_closed_at_its_limit() {
    const MONITOR_MAX: usize = 32 * MIB;
    let server = TestServer::start();
    let mut client = server.client();
    let mut monitor = server.client();
    assert_eq!(monitor.call("MONITOR"), status("OK"));
    let message = vec![b'x'; 200_000];
    let mut most = 0;
    while let Some(line) = monitor_line(&mut client) {
        let unsent = line.split(' ').find_map(|word| word.strip_prefix("omem=")).expect("a field");
        most = most.max(unsent.parse::<usize>().expect("a number"));
        assert!(most <= 2 * MONITOR_MAX, "{most} bytes are kept for a monitor");
        assert_eq!(client.call_words(&[b"PING", &message]), bulk(&message));
    }
    assert!(most > MIB, "it was closed at {most} bytes");
    let log = std::fs::read_to_string(server.folder().join("log")).expect("a log");
    assert!(log.contains("overcoming of output buffer limits"), "{log}");
}

/// The line of a MONITOR client in CLIENT LIST.
fn monitor_line(client: &mut Client) -> Option<String> {
    let list = text(client.call("CLIENT LIST"));
    list.lines().find(|line| line.contains(" flags=O ")).map(str::to_owned)
}

#[test]
fn who_sends_half_a_request_takes_nothing_from_the_others() {
    let server = TestServer::start_with(&["--timeout", "1"]);
    let mut halves = Vec::new();
    for at in 0..200 {
        let half: &[u8] = match at % 3 {
            0 => b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$5\r\nhal",
            1 => b"*2\r\n$4\r\nPI",
            _ => b"PING without an end",
        };
        let mut client = server.client();
        client.send(half);
        halves.push(client);
    }
    let mut client = server.client();
    assert_eq!(client.call("QLEN q"), Value::Integer(0));
    // To send the rest never is to be idle.
    assert!(halves.iter_mut().all(Client::is_closed));
    assert_eq!(server.client().call("PING"), status("PONG"));
}

#[test]
fn who_announces_half_a_gibibyte_takes_no_room_until_it_comes() {
    let server = TestServer::start_with(&["--maxmemory", "256mb"]);
    let mut client = server.client();
    let mut liars: Vec<Client> = (0..50).map(|_| server.client()).collect();
    for liar in &mut liars {
        liar.send("CLIENT SETNAME liar\r\n");
        assert_eq!(liar.reply(), status("OK"));
        liar.send("*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$536870912\r\nthe rest is to come");
    }
    // What is incomplete is kept.
    let list_is_read = |list: &String| {
        let is_kept = |line: &&str| line.contains("name=liar ") && !line.contains(" qbuf=0 ");
        list.lines().filter(is_kept).count() == 50
    };
    eventually(|| text(client.call("CLIENT LIST")), list_is_read);
    assert!(matches!(client.call("ADDJOB q body 0"), Value::Status(_)), "there is memory");
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_file_descriptor_a_client_waits_for_one() {
    let server = TestServer::start();
    let mut first = server.client();
    assert_eq!(first.call("PING"), status("PONG"));
    // The limit is on descriptors' numbers: as long as some below are free they are used.
    let mut others = Vec::new();
    while fds(server.pid()).len() as u64 <= *fds(server.pid()).last().expect("it has some") {
        let mut other = server.client();
        assert_eq!(other.call("PING"), status("PONG"));
        others.push(other);
    }
    let count = fds(server.pid()).len() as u64;
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    let pid = i32::try_from(server.pid()).expect("positive");
    // SAFETY: prlimit reads the new limit, and is given no place for the old one.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let mut late = server.client();
    late.send_command("PING");
    // The others are served, and the loop does not spin for the one who waits.
    let before = server.cpu_time();
    for _ in 0..20 {
        assert_eq!(first.call("GETJOB TIMEOUT 20 FROM q"), Value::NullArray);
    }
    let work = server.cpu_time() - before;
    assert!(work < Duration::from_millis(100), "{work:?} of work in 400 ms");
    assert_eq!(fds(server.pid()).len() as u64, count);
    drop(first);
    assert_eq!(late.reply(), status("PONG"));
}

/// The numbers of a process's open files, in order.
fn fds(pid: u32) -> Vec<u64> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let numbers = folder.map(|entry| entry.expect("a file").file_name());
    let mut numbers: Vec<u64> =
        numbers.map(|name| name.to_string_lossy().parse().expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_connection_that_breaks_is_its_own_affair() {
    let server = TestServer::start();
    let mut client = server.client();
    for _ in 0..50 {
        let mut stream = server.connect();
        stream.write_all(b"*3\r\n$6\r\nADDJOB\r\n$1\r\n").expect("the server reads");
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: setsockopt reads one linger of the size it is told.
        let set = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                libc::socklen_t::try_from(size_of_val(&linger)).expect("a few bytes"),
            )
        };
        assert_eq!(set, 0);
        // Closing sends a reset.
        drop(stream);
    }
    assert_eq!(client.call("PING"), status("PONG"));
    eventually(|| text(client.call("CLIENT LIST")).lines().count(), |&count| count == 1);
}

#[test]
fn who_does_not_speak_the_bus_protocol_is_dropped() {
    let server = TestServer::start();
    let oversized = [b"DbuZ".as_slice(), &600_000_000u32.to_be_bytes(), &[0; 200]].concat();
    let too_big_for_a_stranger =
        [b"DbuZ".as_slice(), &100_000u32.to_be_bytes(), &[0; 200]].concat();
    let no_header = [b"DbuZ".as_slice(), &143u32.to_be_bytes(), &[0; 200]].concat();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), oversized, too_big_for_a_stranger, no_header]
    {
        let bus_port = server.port() + 10_000;
        let stream = TcpStream::connect(("127.0.0.1", bus_port)).expect("the bus listens");
        let mut peer = Client::over(stream);
        peer.send(bytes);
        assert!(peer.is_closed());
    }
    assert_eq!(server.client().call("PING"), status("PONG"));
}

#[test]
fn hundreds_of_waiting_clients_time_out_on_time() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let server = TestServer::start();
    let mut clients: Vec<Client> = (0..500).map(|_| server.client()).collect();
    let work_before = server.cpu_time();
    let mut asked_at = Vec::new();
    for client in &mut clients {
        asked_at.push(Instant::now());
        client.send_command("GETJOB TIMEOUT 1000 FROM q");
    }
    let mut late = Vec::new();
    for (client, asked_at) in clients.iter_mut().zip(asked_at) {
        assert_eq!(client.reply(), Value::NullArray);
        let waited = asked_at.elapsed() + CLOCK_GRAIN;
        late.push(waited.checked_sub(TIMEOUT).expect("nobody is answered before"));
    }
    // A machine that is busy with other things makes some of them late, but not all.
    let least = late.iter().min().expect("there are hundreds");
    assert!(*least < Duration::from_millis(100), "the least late answer came {least:?} late");
    let work = server.cpu_time() - work_before;
    assert!(work < Duration::from_millis(300), "{work:?} of work for 500 timeouts");
}
