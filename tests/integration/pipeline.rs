//! Requests in all shapes, replies in order.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, bulk, error, eventually, request, status, text};

#[test]
fn a_request_may_come_in_any_pieces() {
    let server = TestServer::start();
    let mut client = server.client();
    let bytes =
        [request(&[b"PING", b"in\r\npieces"]), b"PING \"and inline\"\r\n".to_vec()].concat();
    for at in 1..bytes.len() {
        client.send(&bytes[..at]);
        // A reply in between shows that the server has seen the first piece.
        assert_eq!(server.client().call("PING"), status("PONG"));
        client.send(&bytes[at..]);
        assert_eq!(client.reply(), bulk("in\r\npieces"));
        assert_eq!(client.reply(), bulk("and inline"));
    }
}

#[test]
fn line_ends_of_inline_commands_are_lf_with_or_without_cr() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send("PING\nPING a\r\n\r\n\n*0\r\n*-1\r\nPING 'b c'\n");
    assert_eq!(client.reply(), status("PONG"));
    assert_eq!(client.reply(), bulk("a"));
    assert_eq!(client.reply(), bulk("b c"));
}

#[test]
fn a_thousand_pipelined_commands_are_answered_in_order() {
    let server = TestServer::start();
    let mut client = server.client();
    let numbers: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let pings = numbers.iter().map(|number| request(&[b"PING", number.as_bytes()]));
    client.send(pings.collect::<Vec<_>>().concat());
    for number in &numbers {
        assert_eq!(client.reply(), bulk(number));
    }
}

#[test]
fn a_job_ends_a_getjob_that_joins_very_many_queues_and_what_is_behind_it_goes_on() {
    let server = TestServer::start();
    let (mut client, mut producer) = (server.client(), server.client());
    let names: Vec<String> = (0..100_000).map(|n| format!("q{n}")).collect();
    let words = ["GETJOB", "FROM"].into_iter().chain(names.iter().map(String::as_str));
    let getjob = request(&words.map(str::as_bytes).collect::<Vec<_>>());
    for queue in ["q0", "q300", "q99999"] {
        client.send([&getjob, b"PING\r\n".as_slice()].concat());
        // It waits there, and for most of the others not yet, or for all.
        let waits =
            |reply: &Value| matches!(reply, Value::Array(fields) if fields[9] == Value::Integer(1));
        eventually(|| producer.call(&format!("QSTAT {queue}")), waits);
        assert!(matches!(producer.call(&format!("ADDJOB {queue} body 0")), Value::Status(_)));
        let Value::Array(rows) = client.reply() else { panic!("a job") };
        assert!(matches!(&rows[..], [Value::Array(row)] if row[0] == bulk(queue)), "{rows:?}");
        assert_eq!(client.reply(), status("PONG"));
        // It is out of all of them before long, and another one waits there alone.
        let is_left =
            |reply: &Value| matches!(reply, Value::Array(fields) if fields[9] == Value::Integer(0));
        for queue in ["q0", "q300", "q99999"] {
            eventually(
                || producer.call(&format!("QSTAT {queue}")),
                |reply| *reply == Value::NullArray || is_left(reply),
            );
        }
    }
}

#[test]
fn commands_behind_a_blocking_one_wait_for_it() {
    let server = TestServer::start();
    let (mut client, mut producer) = (server.client(), server.client());
    client.send("GETJOB FROM q\r\nPING behind\r\nGETJOB FROM q\r\nPING last\r\n");
    eventually(|| text(producer.call("CLIENT LIST")), |list| list.contains("flags=b"));
    for body in ["one", "two"] {
        let id = text(producer.call(&format!("ADDJOB q {body} 0")));
        let job = Value::Array(vec![bulk("q"), bulk(id), bulk(body)]);
        assert_eq!(client.reply(), Value::Array(vec![job]));
        assert!(matches!(client.reply(), Value::Bulk(_)));
    }
}

#[test]
fn a_timeout_comes_on_time() {
    let server = TestServer::start();
    let mut client = server.client();
    for timeout_ms in [1, 50, 120] {
        let timeout = Duration::from_millis(timeout_ms);
        let late = (0..10).map(|_| {
            let asked_at = Instant::now();
            let reply = client.call(&format!("GETJOB TIMEOUT {timeout_ms} FROM q"));
            assert_eq!(reply, Value::NullArray);
            // Both ends of the wait are read off a clock of whole milliseconds.
            let waited = asked_at.elapsed() + Duration::from_millis(2);
            waited.checked_sub(timeout).expect("nobody is answered before")
        });
        // A machine that is busy with other things makes some of them late, but not all.
        let least = late.min().expect("there are ten");
        assert!(least < Duration::from_millis(20), "{timeout_ms} ms came {least:?} late");
    }
}

#[test]
fn a_client_that_hangs_up_while_waiting_takes_no_job() {
    let server = TestServer::start();
    let mut producer = server.client();
    let stream = server.connect();
    let mut waiting = Client::over(stream.try_clone().expect("a descriptor"));
    waiting.send_command("GETJOB FROM q");
    eventually(|| text(producer.call("CLIENT LIST")), |list| list.contains("flags=b"));
    stream.shutdown(Shutdown::Both).expect("connected");
    drop((waiting, stream));
    eventually(|| text(producer.call("CLIENT LIST")), |list| !list.contains("flags=b"));
    text(producer.call("ADDJOB q body 0"));
    assert_eq!(producer.call("QLEN q"), Value::Integer(1));
}

#[test]
fn what_was_sent_before_the_end_of_the_stream_is_executed_and_answered() {
    let server = TestServer::start();
    let stream = server.connect();
    let mut client = Client::over(stream.try_clone().expect("a descriptor"));
    client.send(request(&[b"ADDJOB", b"q", b"body", b"0"]).repeat(5000));
    stream.shutdown(Shutdown::Write).expect("connected");
    for _ in 0..5000 {
        assert!(matches!(client.reply(), Value::Status(_)));
    }
    assert!(client.is_closed());
    assert_eq!(server.client().call("QLEN q"), Value::Integer(5000));
}

#[test]
fn a_long_command_answers_once_and_before_what_is_behind_it() {
    let server = TestServer::start();
    let mut client = server.client();
    let id = "D-61626364-abcdefghijklmnopqrstuvwx-05a0";
    let mut words: Vec<&[u8]> = vec![b"ACKJOB"];
    words.resize(100_001, id.as_bytes());
    client.send([request(&words), request(&[b"PING", b"behind"])].concat());
    assert_eq!(client.reply(), Value::Integer(0));
    assert_eq!(client.reply(), bulk("behind"));
}

#[test]
fn a_big_body_comes_and_goes_whole() {
    let server = TestServer::start();
    let mut client = server.client();
    let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let id = text(client.call_words(&[b"ADDJOB", b"q", &body, b"0"]));
    assert_eq!(client.call("PING"), status("PONG"));
    let job = Value::Array(vec![bulk("q"), bulk(id), bulk(&body)]);
    assert_eq!(client.call("GETJOB FROM q"), Value::Array(vec![job]));
}

#[test]
fn client_reply_switches_answers_off_and_on_and_skips_one() {
    let server = TestServer::start();
    let mut client = server.client();
    client
        .send("PING 1\r\nCLIENT REPLY SKIP\r\nPING 2\r\nPING 3\r\nCLIENT REPLY OFF\r\nPING 4\r\n");
    client.send("NOSUCH\r\nGETJOB TIMEOUT 20 FROM q\r\nPING 5\r\nCLIENT REPLY ON\r\nPING 6\r\n");
    assert_eq!(client.reply(), bulk("1"));
    assert_eq!(client.reply(), bulk("3"));
    assert_eq!(client.reply(), status("OK"));
    assert_eq!(client.reply(), bulk("6"));
}

#[test]
fn answers_that_come_late_or_in_slices_or_as_resp3_are_muted_too() {
    let server = TestServer::start();
    let mut client = server.client();
    for _ in 0..600 {
        text(client.call("ADDJOB many body 0"));
    }
    let mut waiting = server.client();
    waiting.send("CLIENT REPLY SKIP\r\nGETJOB FROM late\r\nPING behind\r\n");
    eventually(|| text(client.call("CLIENT LIST")), |list| list.contains("flags=b"));
    text(client.call("ADDJOB late body 0"));
    assert_eq!(waiting.reply(), bulk("behind"));
    for long in ["JSCAN BUSYLOOP REPLY all", "GETJOB COUNT 600 FROM many", "HELLO 3", "NOSUCH"] {
        client.send(format!("PING before\r\nCLIENT REPLY OFF\r\n{long}\r\n"));
        client.send("CLIENT REPLY ON\r\nPING after\r\n");
        assert_eq!(client.reply(), bulk("before"), "{long}");
        assert_eq!(client.reply(), status("OK"), "{long}");
        assert_eq!(client.reply(), bulk("after"), "{long}");
    }
    assert_eq!(client.call("GETJOB NOHANG FROM many"), Value::Null, "HELLO 3 counted");
}

#[test]
fn a_silent_producer_still_serves_those_who_wait() {
    let server = TestServer::start();
    let (mut producer, mut consumer) = (server.client(), server.client());
    consumer.send_command("GETJOB FROM q");
    eventually(|| text(server.client().call("CLIENT LIST")), |list| list.contains("flags=b"));
    producer.send("CLIENT REPLY OFF\r\nADDJOB q body 0\r\nCLIENT REPLY ON\r\n");
    assert!(matches!(consumer.reply(), Value::Array(jobs) if jobs.len() == 1));
    assert_eq!(producer.reply(), status("OK"));
}

#[test]
fn protocol_errors_are_named_and_end_the_connection() {
    let server = TestServer::start();
    let cases: [(&[u8], &str); 7] = [
        (&[b'a'; 70_000], "too big inline request"),
        (b"PING \"a\r\n", "unbalanced quotes in request"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
    ];
    for (bytes, text) in cases {
        let mut client = server.client();
        client.send("PING\r\n").send(bytes);
        assert_eq!(client.reply(), status("PONG"));
        assert_eq!(client.reply(), error(&format!("ERR Protocol error: {text}")));
        assert!(client.is_closed());
    }
    assert_eq!(server.client().call("PING"), status("PONG"));
}
