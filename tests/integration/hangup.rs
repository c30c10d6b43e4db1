//! Clients that hang up while they wait, whatever they have sent before.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};

use disque::proto::reply_reader::Value;

use crate::bus_peer::BusPeer;
use crate::support::{Client, TestServer, bulk, eventually, integer, request, status, text};

const MIB: usize = 1024 * 1024;

/// A client of this name that waits with a command.
fn waiting(server: &TestServer, watcher: &mut Client, name: &str, command: &str) -> TcpStream {
    let stream = server.connect();
    let mut client = Client::over(stream.try_clone().expect("a descriptor"));
    assert_eq!(client.call(&format!("CLIENT SETNAME {name}")), status("OK"));
    client.send_command(command);
    eventually(
        || line_of(watcher, name),
        |line| line.as_ref().is_some_and(|line| line.contains(" flags=b ")),
    );
    stream
}

/// A client's line in CLIENT LIST.
fn line_of(watcher: &mut Client, name: &str) -> Option<String> {
    let list = text(watcher.call("CLIENT LIST"));
    list.lines().find(|line| line.contains(&format!(" name={name} "))).map(str::to_owned)
}

/// How many bytes of a client's input are kept.
fn kept(watcher: &mut Client, name: &str) -> usize {
    let line = line_of(watcher, name).expect("it is connected");
    let word = line.split(' ').find_map(|word| word.strip_prefix("qbuf=")).expect("a field");
    word.parse().expect("a number")
}

#[test]
fn a_consumer_that_hangs_up_takes_no_job_however_much_it_has_pipelined() {
    for pipelined in [0, 200_000, 8 * MIB] {
        let server = TestServer::start_with(&["--loglevel", "notice"]);
        let mut watcher = server.client();
        let mut stream = waiting(&server, &mut watcher, "consumer", "GETJOB FROM q");
        let pings = request(&[b"PING", &[b'x'; 10_000]]).repeat(pipelined / 10_000);
        stream.write_all(&pings).expect("the server reads on");
        drop(stream);
        eventually(|| line_of(&mut watcher, "consumer"), Option::is_none);
        text(watcher.call("ADDJOB q body 0"));
        assert_eq!(watcher.call("QLEN q"), Value::Integer(1), "behind {pipelined} bytes");
    }
}

#[test]
fn a_consumer_that_sends_no_more_takes_no_job() {
    // C: networking.c readQueryFromClient, a read of nothing is the end of the client.
    let server = TestServer::start();
    let mut watcher = server.client();
    let stream = waiting(&server, &mut watcher, "consumer", "GETJOB FROM q");
    stream.shutdown(Shutdown::Write).expect("connected");
    assert!(Client::over(stream).is_closed());
    text(watcher.call("ADDJOB q body 0"));
    assert_eq!(watcher.call("QLEN q"), Value::Integer(1));
}

#[test]
fn what_a_consumer_pipelines_is_kept_while_it_waits_and_executed_then() {
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    let mut watcher = server.client();
    let mut stream = waiting(&server, &mut watcher, "consumer", "GETJOB FROM q");
    let ping = request(&[b"PING", &[b'x'; 1000]]);
    let pings = ping.repeat(2000);
    stream.write_all(&pings).expect("the server reads on");
    eventually(|| kept(&mut watcher, "consumer"), |&kept| kept == pings.len());
    let info = text(watcher.call("INFO"));
    let figure = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("it is shown");
        line.parse::<usize>().expect("a number")
    };
    assert_eq!(figure("client_biggest_input_buf:"), pings.len());
    let memory = figure("used_memory_unfinished_input:");
    assert!((pings.len()..2 * pings.len()).contains(&memory), "{memory} of {}", pings.len());
    text(watcher.call("ADDJOB q body 0"));
    let mut client = Client::over(stream);
    assert!(matches!(client.reply(), Value::Array(_)));
    for _ in 0..2000 {
        assert_eq!(client.reply(), bulk([b'x'; 1000]));
    }
    assert!(text(watcher.call("INFO memory")).contains("used_memory_unfinished_input:0\r\n"));
}

/// A server with another node that takes copies and never confirms one.
fn with_silent_copies() -> TestServer {
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    BusPeer::listen([5; 20]).join(&server);
    server
}

#[test]
fn a_producer_that_hangs_up_gives_its_job_up_however_much_it_has_pipelined() {
    let server = with_silent_copies();
    let mut watcher = server.client();
    let wait = "ADDJOB q body 0 REPLICATE 2";
    let mut stream = waiting(&server, &mut watcher, "producer", wait);
    // The sockets hold what the server does not read at once.
    let pings = request(&[b"PING", &[b'x'; 10_000]]).repeat(30);
    stream.write_all(&pings).expect("the sockets hold it");
    drop(stream);
    eventually(|| line_of(&mut watcher, "producer"), Option::is_none);
    assert!(text(watcher.call("INFO jobs")).contains("registered_jobs:0\r\n"));
}

#[test]
fn a_producer_is_slowed_down_while_it_waits_for_copies() {
    let server = with_silent_copies();
    let mut watcher = server.client();
    let wait = "ADDJOB q body 3000 REPLICATE 2";
    let stream = waiting(&server, &mut watcher, "producer", wait);
    let (mut sending, mut client) =
        (stream.try_clone().expect("a descriptor"), Client::over(stream));
    let ping = request(&[b"PING", &[b'x'; 1000]]);
    let pings = ping.repeat(20_000);
    std::thread::scope(|scope| {
        scope.spawn(|| sending.write_all(&pings).expect("the server reads on, later"));
        let kept = eventually(|| kept(&mut watcher, "producer"), |&kept| kept >= 64 * 1024);
        assert!(kept <= MIB, "{kept} bytes are kept");
        assert!(matches!(client.reply(), Value::Error(text) if text.starts_with(b"NOREPL")));
        for _ in 0..20_000 {
            assert_eq!(client.reply(), bulk([b'x'; 1000]));
        }
    });
}

#[test]
fn a_consumer_that_pipelines_without_end_is_closed_before_it_fills_the_memory() {
    const MAXMEMORY: usize = 48 * MIB;
    let maxmemory = MAXMEMORY.to_string();
    let server = TestServer::start_with(&["--maxmemory", &maxmemory, "--loglevel", "notice"]);
    let mut watcher = server.client();
    let mut stream = waiting(&server, &mut watcher, "consumer", "GETJOB FROM q");
    let bytes = request(&[b"PING", &vec![b'x'; MIB]]);
    let mut sent = 0;
    while stream.write_all(&bytes).is_ok() {
        sent += bytes.len();
        assert!(sent <= 2 * MAXMEMORY, "it is closed");
        assert!(matches!(watcher.call("ADDJOB other body 0"), Value::Status(_)));
    }
    eventually(|| line_of(&mut watcher, "consumer"), Option::is_none);
    let info = text(watcher.call("INFO memory"));
    let peak = info.lines().find_map(|line| line.strip_prefix("used_memory_peak:"));
    let peak: usize = peak.expect("it is shown").parse().expect("a number");
    assert!(peak < 2 * MAXMEMORY, "{peak} bytes at most");
    assert!(integer(watcher.call("QLEN other")) > 0);
}
