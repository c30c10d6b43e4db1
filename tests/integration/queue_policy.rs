//! `queue-policy`: set by file, option and CONFIG SET, shown, written back, and obeyed.

use std::fs;

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, bulk, error, status, text};

/// What CONFIG GET shows of the policies.
fn shown(client: &mut Client) -> String {
    let Value::Array(pair) = client.call("CONFIG GET queue-policy") else { panic!("an array") };
    assert_eq!(pair[0], bulk("queue-policy"));
    text(pair[1].clone())
}

fn set(client: &mut Client, lines: &str) -> Value {
    client.call_words(&[b"CONFIG", b"SET", b"queue-policy", lines.as_bytes()])
}

/// The TTL, or another field, of a new job of a queue.
fn field_of_new_job(client: &mut Client, queue: &str, field: &str) -> Value {
    let id = text(client.call(&format!("ADDJOB {queue} body 0")));
    let Value::Array(job) = client.call(&format!("SHOW {id}")) else { panic!("a job") };
    let at = job.iter().position(|name| *name == bulk(field)).expect("a field");
    job[at + 1].clone()
}

fn policy(words: &[(&str, i64, &str)]) -> Value {
    let pair = |&(word, value, glob): &(&str, i64, &str)| {
        [bulk(word), Value::Array(vec![Value::Integer(value), bulk(glob)])]
    };
    Value::Array(words.iter().flat_map(pair).collect())
}

#[test]
fn policies_come_from_the_file_from_options_and_from_config_set() {
    let file = "queue-policy * default-ttl 1000 max-len 9\nqueue-policy \"mail *\" max-len 5\n";
    let options = ["--queue-policy", "q?", "default-retry", "7", "max-len", "0"];
    let server = TestServer::start_with_config(file, &options);
    let mut client = server.client();
    let all = "* default-ttl 1000 max-len 9\n\"mail *\" max-len 5\nq? default-retry 7 max-len 0";
    assert_eq!(shown(&mut client), all);
    assert_eq!(field_of_new_job(&mut client, "q1", "ttl"), Value::Integer(1000));
    assert_eq!(field_of_new_job(&mut client, "q1", "retry"), Value::Integer(7));
    let of_q1 = [("default-ttl", 1000, "*"), ("default-retry", 7, "q?"), ("max-len", 0, "q?")];
    assert_eq!(client.call("QPOLICY q1"), policy(&of_q1));

    // In its place, behind all, and away; what is shown can be set.
    let changes = "Q* max-len 1\n* default-ttl 2000\n\nq?\n";
    assert_eq!(set(&mut client, changes), status("OK"));
    let all = "* default-ttl 2000\n\"mail *\" max-len 5\nQ* max-len 1";
    assert_eq!(shown(&mut client), all);
    assert_eq!(set(&mut client, all), status("OK"));
    assert_eq!(shown(&mut client), all);
    assert_eq!(client.call("QPOLICY q1"), policy(&[("default-ttl", 2000, "*")]));
    assert_eq!(field_of_new_job(&mut client, "q1", "ttl"), Value::Integer(2000), "at once");
    assert_eq!(
        client.call_words(&[b"QPOLICY", b"mail x"]),
        policy(&[("default-ttl", 2000, "*"), ("max-len", 5, "mail *"),])
    );

    assert!(matches!(client.call("HELLO 3"), Value::Map(_)));
    let Value::Map(pairs) = client.call("QPOLICY q1") else { panic!("a map") };
    assert_eq!(pairs.len(), 1);
}

#[test]
fn a_rewrite_keeps_policies_and_a_restart_finds_them() {
    let file = "# mail\nqueue-policy mail* max-len 5\nhz 10\n";
    let mut server = TestServer::start_with_config(file, &[]);
    let mut client = server.client();
    assert_eq!(set(&mut client, "mail* max-len 6\n\"a b\" default-ttl 60"), status("OK"));
    client.ok("CONFIG REWRITE");
    let written = fs::read_to_string(server.folder().join("disque.conf")).expect("it is there");
    let beginning =
        "# mail\nqueue-policy mail* max-len 6\nqueue-policy \"a b\" default-ttl 60\nhz 10\n";
    assert!(written.starts_with(beginning), "{written}");
    server.stop_by(libc::SIGTERM);
    server.start_again(&[]);
    let mut client = server.client();
    assert_eq!(shown(&mut client), "mail* max-len 6\n\"a b\" default-ttl 60");
    assert_eq!(set(&mut client, "mail*\n\"a b\""), status("OK"));
    client.ok("CONFIG REWRITE");
    let written = fs::read_to_string(server.folder().join("disque.conf")).expect("it is there");
    assert!(!written.contains("queue-policy"), "{written}");
}

#[test]
fn a_wrong_policy_is_refused_by_its_word_and_changes_nothing() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(set(&mut client, "q max-len 5"), status("OK"));
    for (lines, reason) in [
        ("q default-ttl 9 max-lne 5", "'max-lne' is no word of a policy"),
        ("q default-copies 1", "'default-copies' is no word of a policy"),
        ("a max-len 1\nq max-len", "max-len needs a value"),
        ("q default-retry 0", "default-retry must be a number from 1 to 4294967295"),
        ("\"q max-len 1", "unbalanced quotes"),
    ] {
        let text =
            format!("ERR Invalid argument '{lines}' for CONFIG SET 'queue-policy': {reason}");
        assert_eq!(set(&mut client, lines), error(&text.replace('\n', " ")));
        assert_eq!(shown(&mut client), "q max-len 5");
    }
    let many: String = (0..1000).map(|n| format!("{n} max-len 1\n")).collect();
    assert_eq!(set(&mut client, &many), error("ERR at most 1000 lines"));
    assert_eq!(shown(&mut client), "q max-len 5");
}
