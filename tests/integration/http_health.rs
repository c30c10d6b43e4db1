//! `/livez`, `/readyz`, and what is not well.

use super::http_client::{get, server_with_http, until};
use super::support::PATIENCE;

#[test]
fn a_node_that_is_well_is_alive_and_ready() {
    let (_server, port) = server_with_http(&[]);
    assert_eq!(get(port, "/livez").status, 200);
    let ready = get(port, "/readyz");
    assert_eq!(ready.status, 200);
    assert!(ready.text().starts_with("ready; memory "), "{}", ready.text());
    assert!(ready.text().ends_with(" %, file off\n"), "{}", ready.text());
    assert!(get(port, "/api/overview").text().contains("\"findings\":[]"));
}

#[test]
fn a_node_that_leaves_is_alive_and_not_ready() {
    let (server, port) = server_with_http(&[]);
    server.client().ok("CLUSTER LEAVING yes");
    assert_eq!(get(port, "/livez").status, 200);
    let ready = get(port, "/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.text().starts_with("not ready: leaving the cluster; "), "{}", ready.text());
    server.client().ok("CLUSTER LEAVING no");
    assert_eq!(get(port, "/readyz").status, 200);
}

#[test]
fn a_full_node_is_ready_for_consumers_only() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    client.ok("CONFIG SET maxmemory 100000");
    // Until its memory is found to be short.
    until(|| get(port, "/readyz?for=producers").status == 503);
    let ready = get(port, "/readyz?for=producers");
    assert!(ready.text().starts_with("not ready: memory is used up; memory "), "{}", ready.text());
    assert_eq!(get(port, "/readyz").status, 200);
    assert_eq!(get(port, "/readyz?for=consumers").status, 200);
    let overview = get(port, "/api/overview");
    assert!(overview.text().contains("\"severity\":\"critical\",\"about\":\"memory\""));
}

#[test]
fn a_node_that_has_just_started_waits_for_its_links() {
    let (mut first, _) = server_with_http(&["--cluster-node-timeout", "60000"]);
    let (second, port) = server_with_http(&["--cluster-node-timeout", "60000"]);
    second.client().ok(&format!("CLUSTER MEET 127.0.0.1 {}", first.port()));
    // Until they know each other.
    until(|| get(port, "/api/nodes").text().contains("\"linked\":true"));
    assert_eq!(get(port, "/readyz").status, 200);
    first.stop_by(libc::SIGKILL);
    // Until the link is gone.
    until(|| get(port, "/readyz").status == 503);
    let ready = get(port, "/readyz");
    let is_young = ready.text().starts_with("not ready: 0 of 1 links to other nodes are up; ");
    assert!(is_young, "{}", ready.text());
    assert!(PATIENCE > std::time::Duration::from_secs(31));
    // Until it waits no longer.
    until(|| get(port, "/readyz").status == 200);
    let overview = get(port, "/api/overview");
    assert!(overview.text().contains("does not answer this one"), "{}", overview.text());
}
