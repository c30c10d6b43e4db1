//! `disque trace`: the life of a job from any node.

use std::process::Stdio;

use crate::real_nodes::three_nodes;
use crate::support::{TestServer, eventually, integer, text};
use crate::{client, told_by};

#[test]
fn a_life_is_a_time_line_that_is_watched_until_its_end() {
    let (mut nodes, _) = three_nodes();
    let id = text(nodes[0].client().call("ADDJOB q body 5000 REPLICATE 3 TRACE"));
    let port = nodes[1].port();
    let trace = |options: &str| told_by(client(port, &format!("trace {id} {options}")));
    let (stdout, stderr, status) = trace("");
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert!(stdout.starts_with("TIME (UTC)       OFFSET  NODE      EVENT"), "{stdout}");
    for line in [
        "  added             client ",
        "  copy-kept         node ",
        "  queued            why first\n",
    ] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
    let (stdout, _, status) = trace("--json");
    assert!(stdout.contains("\"event\":\"queued\",\"detail\":[\"why=first\"]"), "{stdout}");
    assert_eq!(status, 0);
    let (stdout, _, _) = trace("--csv");
    assert!(stdout.starts_with("unix_ms,offset_ms,node,event,detail\n"), "{stdout}");

    let mut watch = client(port, &format!("trace {id} --watch -i 0.05"));
    let watch = watch.stdout(Stdio::piped()).spawn().expect("the client starts");
    drop(nodes[0].client().call("GETJOB FROM q"));
    assert_eq!(integer(nodes[2].client().call(&format!("ACKJOB {id}"))), 1);
    let output = watch.wait_with_output().expect("it ends with the job");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.matches("  collected").count(), 3, "{stdout}");
    assert_eq!(stdout.matches("  fetched").count(), 1, "{stdout}");
    assert_eq!(stdout.matches("TIME (UTC)").count(), 1, "{stdout}");
    assert!(output.status.success());

    nodes[2].stop_by(libc::SIGKILL);
    let (stdout, stderr, status) = eventually(|| trace(""), |(_, stderr, _)| !stderr.is_empty());
    assert!(stderr.starts_with("Node ") && stderr.ends_with(" did not answer\n"), "{stderr}");
    assert!(stdout.contains("  collected") && status == 1, "{stdout}");
}

#[test]
fn a_job_of_which_nothing_is_known_is_named() {
    let node = TestServer::start();
    let unknown = "D-00000000-000000000000000000000000-05a1";
    let (stdout, stderr, status) = told_by(client(node.port(), &format!("trace {unknown}")));
    assert!(stdout.is_empty() && status == 1, "{stdout}");
    let sentence = "No node has events of this job: it is not traced, or was forgotten. See TRACE \
                    and trace-sample.\n";
    assert_eq!(stderr, sentence);
    for (words, sentence) in [
        ("trace", "trace takes the ID of a job\n"),
        ("trace a b", "trace takes the ID of a job\n"),
        ("trace nothing", "nothing is not the ID of a job\n"),
    ] {
        let (_, stderr, status) = told_by(client(node.port(), words));
        assert_eq!((stderr.as_str(), status), (sentence, 1), "{words}");
    }
}
