//! maxmemory: what goes when it is reached, and what is refused.

use disque::proto::reply_reader::Value;

use crate::support::{
    Client, TestServer, array, error, eventually, integer, request, status, text,
};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

fn assert_is_job_id(reply: &Value) {
    assert!(matches!(reply, Value::Status(id) if id.starts_with(b"D-")), "{reply:?}");
}

#[test]
fn over_the_limit_what_adds_is_refused_and_nothing_else() {
    let server = TestServer::start();
    let mut client = server.client();
    // With no job at all there is nothing to evict.
    client.ok("CONFIG SET maxmemory 1");
    assert_eq!(client.call("GETJOB NOHANG FROM q"), Value::NullArray);
    assert_eq!(client.call("ADDJOB q body 0"), error(OOM));
    client.ok("CONFIG SET maxmemory 0");
    let id = text(client.call("ADDJOB q body 0"));
    let fetched = text(client.call("ADDJOB q body 0"));
    for policy in ["acks", "noeviction"] {
        client.ok(&format!("CONFIG SET maxmemory-policy {policy}"));
        assert_eq!(client.call("CONFIG SET maxmemory 1"), status("OK"));
        assert_eq!(client.call("PING"), status("PONG"));
        for refused in ["ADDJOB q body 0", "ADDJOB q body 0 ASYNC", "ENQUEUE", "NACK"] {
            assert_eq!(client.call(refused), error(OOM), "{refused}");
        }
        assert_eq!(
            client.call("ADDJOB q"),
            error("ERR wrong number of arguments for 'addjob' command"),
            "arguments are counted first"
        );
        assert_eq!(integer(client.call("QLEN q")), 2);
        assert_eq!(client.call("CONFIG SET maxmemory 0"), status("OK"));
        assert_is_job_id(&client.call("ADDJOB other body 0"));
    }
    client.ok("CONFIG SET maxmemory 1");
    assert!(matches!(client.call("GETJOB COUNT 2 FROM q"), Value::Array(jobs) if jobs.len() == 2));
    assert_eq!(client.call(&format!("ACKJOB {id} {fetched}")), Value::Integer(2));
}

/// Adds jobs that may be delivered once, and fetches each. Returns how many were taken.
fn add_and_fetch(client: &mut Client, count: usize) -> usize {
    let add = request(&[b"ADDJOB", b"q", &[b'x'; 1000], b"0", b"RETRY", b"0"]);
    let get = request(&[b"GETJOB", b"NOHANG", b"FROM", b"q"]);
    client.send([add, get].concat().repeat(count));
    let pairs: Vec<(Value, Value)> = (0..count).map(|_| (client.reply(), client.reply())).collect();
    let is_taken = |pair: &&(Value, Value)| match pair {
        (Value::Status(_), Value::Array(jobs)) => jobs.len() == 1,
        (Value::Error(reason), Value::NullArray) if reason == OOM.as_bytes() => false,
        other => panic!("a job is taken and delivered, or refused: {other:?}"),
    };
    pairs.iter().filter(is_taken).count()
}

#[test]
fn delivered_at_most_once_jobs_never_keep_new_ones_out() {
    let server = TestServer::start_with(&["--maxmemory", "16mb"]);
    let mut client = server.client();
    for round in 0..200 {
        assert_eq!(add_and_fetch(&mut client, 100), 100, "refused in round {round}");
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
    let taken: usize = (0..200).map(|_| add_and_fetch(&mut client, 100)).sum();
    assert!((9_000..16_000).contains(&taken), "{taken} jobs of 1000 bytes within 16 MB");
    assert_eq!(client.call("ADDJOB q body 0"), error(OOM));
    let info = text(client.call("INFO memory"));
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.expect("a field").parse().expect("a number");
    assert!(used > (16 << 20) / 100 * 94, "a node alone takes jobs up to 95 %, not {used} bytes");
}

/// What the log says of memory, oldest first.
fn memory_news(log: &str) -> Vec<&str> {
    let texts =
        log.lines().filter_map(|line| line.split_once(" Memory is ")?.1.split_once([',', ':']));
    texts.map(|(text, _)| text).collect()
}

#[test]
fn the_log_at_notice_says_once_that_memory_is_short_or_full_and_no_more() {
    let options =
        ["--loglevel", "notice", "--maxmemory", "16mb", "--maxmemory-policy", "noeviction"];
    let server = TestServer::start_with(&options);
    let mut client = server.client();
    assert_eq!(memory_news(&server.log()), [""; 0]);
    let is_full = |reply: &Value| *reply == error(OOM);
    let mut count = 0;
    while !is_full(&client.call_words(&[b"ADDJOB", b"q", &[b'x'; 1000], b"0"])) {
        count += 1;
    }
    let told = ["short", "full"];
    assert_eq!(memory_news(&server.log()), told);
    // Whoever drains and adds at the limit is refused now and then, and the log is not told.
    let mut refused = 0;
    for _ in 0..100 {
        let job = array(array(client.call("GETJOB FROM q"))[0].clone());
        let dropped = client.call_words(&[b"DELJOB", text(job[1].clone()).as_bytes()]);
        assert_eq!(dropped, Value::Integer(1));
        for _ in 0..3 {
            let reply = client.call_words(&[b"ADDJOB", b"q", &[b'x'; 1000], b"0"]);
            refused += usize::from(is_full(&reply));
        }
    }
    assert!(refused > 100, "{refused} of 300 jobs were refused");
    assert_eq!(memory_news(&server.log()), told);
    client.ok("DEBUG FLUSHALL");
    let log = eventually(|| server.log(), |log| memory_news(log).len() > 2);
    assert_eq!(memory_news(&log), ["short", "full", "not short any more"]);
    assert!(count > 9_000, "{count} jobs of 1000 bytes within 16 MB");
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
