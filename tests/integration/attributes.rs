//! Attributes of jobs on real servers: from one to the other, and through a restart.

use disque::proto::reply_reader::Value;

use crate::mesh::Mesh;
use crate::support::{Client, TestServer, array, bulk, error, eventually, text};

fn attributes(words: &[&str]) -> Value {
    Value::Array(words.iter().map(bulk).collect())
}

fn get_with_attributes(client: &mut Client, queue: &str) -> Vec<Value> {
    let line = format!("GETJOB TIMEOUT 10000 WITHATTRS FROM {queue}");
    let mut rows = array(client.call(&line));
    assert_eq!(rows.len(), 1);
    array(rows.remove(0))
}

#[test]
fn attributes_come_with_the_job_on_another_node() {
    let mesh = Mesh::of(2);
    let add = "ADDJOB q body 5000 REPLICATE 1 ATTR traceparent 00-4bf9 ATTR type text/plain";
    let id = text(mesh.client(0).call(add));
    let row = get_with_attributes(&mut mesh.client(1), "q");
    let words = ["traceparent", "00-4bf9", "type", "text/plain"];
    assert_eq!(row, [bulk("q"), bulk(&id), bulk("body"), bulk("attrs"), attributes(&words)]);
}

#[test]
fn attributes_outlive_a_kill_and_a_rewrite() {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = TestServer::start_with(&options);
    let mut client = server.client();
    let value = b"\0\r\n\xff";
    text(
        client
            .call_words(&[b"ADDJOB", b"q", b"body", b"0", b"RETRY", b"1", b"ATTR", b"raw", value]),
    );
    for _ in 0..2 {
        server.stop_by(libc::SIGKILL);
        server.start_again(&options);
        let mut client = server.client();
        let row = get_with_attributes(&mut client, "q");
        let expected = Value::Array(vec![bulk("raw"), bulk(value)]);
        assert_eq!(row[3..], [bulk("attrs"), expected]);
        assert!(matches!(client.call("BGREWRITEAOF"), Value::Status(_)));
        let info = |client: &mut Client| text(client.call("INFO persistence"));
        eventually(|| info(&mut client), |info| info.contains("aof_rewrite_in_progress:0\r\n"));
    }
}

#[test]
fn what_is_wrong_with_an_attribute_is_said_and_no_job_is_added() {
    let server = TestServer::start();
    let mut client = server.client();
    let long = "x".repeat(1024);
    for (words, said) in [
        ("ATTR type", "ERR ATTR needs a name and a value"),
        ("ATTR type mail ATTR type mail", "ERR ATTR type is given twice"),
        (
            &*format!("ATTR n {long}"),
            "ERR ATTR names and values can have at most 1024 bytes together",
        ),
    ] {
        assert_eq!(client.call(&format!("ADDJOB q body 0 {words}")), error(said));
    }
    assert_eq!(client.call("QLEN q"), Value::Integer(0));
}
