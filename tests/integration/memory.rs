//! maxmemory: what goes when it is reached, and what is refused.

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, error, integer, request, status, text};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

fn assert_is_job_id(reply: &Value) {
    assert!(matches!(reply, Value::Status(id) if id.starts_with(b"D-")), "{reply:?}");
}

#[test]
fn over_the_limit_what_adds_is_refused_and_nothing_else() {
    let server = TestServer::start();
    let mut client = server.client();
    // With no job at all there is nothing to evict.
    client.call("CONFIG SET maxmemory 1");
    assert_eq!(client.call("GETJOB NOHANG FROM q"), Value::NullArray);
    assert_eq!(client.call("ADDJOB q body 0"), error(OOM));
    client.call("CONFIG SET maxmemory 0");
    let id = text(client.call("ADDJOB q body 0"));
    let fetched = text(client.call("ADDJOB q body 0"));
    for policy in ["acks", "noeviction"] {
        client.call(&format!("CONFIG SET maxmemory-policy {policy}"));
        assert_eq!(client.call("CONFIG SET maxmemory 1"), status("OK"));
        assert_eq!(client.call("PING"), status("PONG"));
        for refused in ["ADDJOB q body 0", "ADDJOB q body 0 ASYNC", "ENQUEUE", "NACK"] {
            assert_eq!(client.call(refused), error(OOM), "{refused}");
        }
        assert_eq!(
            client.call("ADDJOB q"),
            error("ERR wrong number of arguments for 'addjob' command"),
            "words are counted first"
        );
        assert_eq!(integer(client.call("QLEN q")), 2);
        assert_eq!(client.call("CONFIG SET maxmemory 0"), status("OK"));
        assert_is_job_id(&client.call("ADDJOB other body 0"));
    }
    client.call("CONFIG SET maxmemory 1");
    assert!(matches!(client.call("GETJOB COUNT 2 FROM q"), Value::Array(jobs) if jobs.len() == 2));
    assert_eq!(client.call(&format!("ACKJOB {id} {fetched}")), Value::Integer(2));
}

/// Adds jobs that may be delivered once, and fetches each. Returns whether all were taken.
fn adds_and_fetches(client: &mut Client, count: usize) -> bool {
    let add = request(&[b"ADDJOB", b"q", &[b'x'; 1000], b"0", b"RETRY", b"0"]);
    let get = request(&[b"GETJOB", b"NOHANG", b"FROM", b"q"]);
    client.send([add, get].concat().repeat(count));
    (0..count).all(|_| {
        let added = client.reply();
        client.reply();
        matches!(added, Value::Status(_))
    })
}

#[test]
fn delivered_at_most_once_jobs_never_keep_new_ones_out() {
    let server = TestServer::start_with(&["--maxmemory", "16mb"]);
    let mut client = server.client();
    for round in 0..200 {
        assert!(adds_and_fetches(&mut client, 100), "refused in round {round}");
    }
    let info = text(client.call("INFO memory"));
    let peak = info.lines().find_map(|line| line.strip_prefix("used_memory_peak:"));
    let peak: u64 = peak.expect("a field").parse().expect("a number");
    assert!(peak > 10 << 20 && peak < 16 << 20, "{peak} bytes at most of 20 MB that came");
}

#[test]
fn without_eviction_they_do() {
    let options = ["--maxmemory", "16mb", "--maxmemory-policy", "noeviction"];
    let server = TestServer::start_with(&options);
    let mut client = server.client();
    assert!(!(0..200).all(|_| adds_and_fetches(&mut client, 100)));
    let reply = client.call("ADDJOB q body 0");
    let reason = "NOREPL Not enough reachable nodes for the requested replication level, since I'm \
                  unable to hold a copy of the message for the following reason: I'm out of memory";
    assert_eq!(reply, error(reason));
}

#[cfg(target_os = "linux")]
#[test]
fn freed_memory_goes_back_although_the_server_has_nothing_to_do() {
    let server = TestServer::start();
    if !text(server.client().call("INFO memory")).contains("mem_allocator:jemalloc") {
        return;
    }
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let names: Vec<String> = threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok())
        .collect();
    assert!(names.iter().any(|name| name.starts_with("jemalloc")), "{names:?}");
}
