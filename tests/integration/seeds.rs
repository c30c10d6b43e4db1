//! Clusters of real servers that form by cluster-seeds, stop as a whole, and come back elsewhere.

use disque::proto::reply_reader::Value;

use crate::mesh::{Mesh, OPTIONS};
use crate::support::{TestServer, bulk, error, eventually, free_port, status, text};

fn start(count: usize) -> Vec<TestServer> {
    let options = [&OPTIONS[..], &["--appendonly", "yes"]].concat();
    (0..count).map(|_| TestServer::start_with(&options)).collect()
}

/// Names of all nodes, as a resolver knows them.
fn seeds_of(ports: &[u16]) -> Vec<String> {
    ports.iter().map(|port| format!("localhost:{port}")).collect()
}

fn known(server: &TestServer) -> usize {
    let nodes = text(server.client().call("CLUSTER NODES"));
    nodes.lines().filter(|line| line.ends_with(" connected") && !line.contains("fail")).count()
}

fn wait_until_whole(servers: &[TestServer]) {
    let sizes = || servers.iter().map(known).collect::<Vec<_>>();
    eventually(sizes, |sizes| sizes.iter().all(|size| *size == servers.len()));
}

#[test]
fn all_servers_stop_and_come_back_at_new_ports_with_their_jobs() {
    let mut servers = start(3);
    let ports: Vec<u16> = servers.iter().map(TestServer::port).collect();
    let seeds = seeds_of(&ports).join(" ");
    for server in &servers {
        let mut client = server.client();
        assert_eq!(client.call("CONFIG SET cluster-name prod"), status("OK"));
        let set = client.call_words(&[b"CONFIG", b"SET", b"cluster-seeds", seeds.as_bytes()]);
        assert_eq!(set, status("OK"));
    }
    wait_until_whole(&servers);
    let mut ids = Vec::new();
    for number in 0..30 {
        let mut client = servers[number % 3].client();
        ids.push(text(client.call("ADDJOB q body 5000 RETRY 1000")));
    }
    servers.iter_mut().for_each(|server| assert!(server.stop_by(libc::SIGTERM).success()));

    let ports: Vec<u16> = servers.iter().map(|_| free_port()).collect();
    let seeds = seeds_of(&ports);
    for (server, port) in servers.iter_mut().zip(&ports) {
        let mut options = [&OPTIONS[..], &["--appendonly", "yes", "--cluster-seeds"]].concat();
        options.extend(seeds.iter().map(String::as_str));
        server.start_again_on(*port, &options);
    }
    wait_until_whole(&servers);
    for (n, id) in ids.iter().enumerate() {
        let job = servers[(n + 1) % 3].client().call(&format!("SHOW {id}"));
        assert!(matches!(job, Value::Array(_)), "{id} is there: {job:?}");
    }
    let log = servers[0].log();
    assert!(log.contains("cluster-seeds without cluster-name"), "it has none any more: {log}");
}

#[test]
fn a_server_of_another_cluster_is_not_met() {
    let servers = start(2);
    for (server, name) in servers.iter().zip(["prod", "test"]) {
        server.client().ok(&format!("CONFIG SET cluster-name {name}"));
    }
    let seed = format!("CONFIG SET cluster-seeds 127.0.0.1:{}", servers[1].port());
    servers[0].client().ok(&seed);
    let is_said = |log: &String| log.contains("its cluster-name differs");
    eventually(|| servers[0].log(), is_said);
    assert_eq!([known(&servers[0]), known(&servers[1])], [1, 1]);

    servers[1].client().ok("CONFIG SET cluster-name prod");
    wait_until_whole(&servers);
}

#[test]
fn what_is_no_host_is_refused_and_what_does_not_resolve_is_tried_again() {
    let server = TestServer::start();
    let mut client = server.client();
    for value in ["a:b", "x:0"] {
        let expected = format!("ERR Invalid argument '{value}' for CONFIG SET 'cluster-seeds'");
        assert_eq!(client.call(&format!("CONFIG SET cluster-seeds {value}")), error(&expected));
    }
    client.ok("CONFIG SET cluster-seeds no-such-host.invalid");
    let is_said = |log: &String| log.contains("Seed no-such-host.invalid cannot be resolved");
    eventually(|| server.log(), is_said);
    assert_eq!(client.call("PING"), status("PONG"));
    let zone = "x".repeat(33);
    let expected = format!("ERR Invalid argument '{zone}' for CONFIG SET 'availability-zone'");
    assert_eq!(client.call(&format!("CONFIG SET availability-zone {zone}")), error(&expected));
    client.ok("CONFIG SET availability-zone north");
    let greeting = client.call("HELLO 3");
    let Value::Map(pairs) = &greeting else { panic!("a map: {greeting:?}") };
    assert!(pairs.contains(&(bulk("availability_zone"), bulk("north"))), "{greeting:?}");
}

/// The value of a field of one of the maps of CLUSTER PEERS.
fn field(peer: &Value, name: &str) -> Value {
    let Value::Array(pairs) = peer else { panic!("a map: {peer:?}") };
    let at = pairs.iter().position(|key| *key == bulk(name)).expect("a field");
    pairs[at + 1].clone()
}

#[test]
fn peers_shows_zones_versions_and_loads_of_all_nodes() {
    let mesh = Mesh::of(2);
    mesh.client(1).ok("CONFIG SET availability-zone north");
    mesh.client(1).ok("CONFIG SET cluster-name prod");
    let peers = || match mesh.client(0).call("CLUSTER PEERS") {
        Value::Array(peers) => peers,
        other => panic!("an array: {other:?}"),
    };
    let is_told = |peers: &Vec<Value>| field(&peers[1], "zone") == bulk("north");
    let peers = eventually(peers, is_told);
    assert_eq!(
        [field(&peers[0], "state"), field(&peers[1], "state")],
        [bulk("myself"), bulk("ok")]
    );
    assert_eq!(field(&peers[0], "zone"), Value::NullBulk);
    assert_eq!(field(&peers[1], "name"), bulk("prod"));
    assert_eq!(field(&peers[1], "version"), bulk(env!("CARGO_PKG_VERSION")));
    assert_eq!(field(&peers[1], "id"), bulk(&mesh.ids[1]));
    assert!(matches!(field(&peers[1], "unsent-bytes"), Value::Integer(_)));
    let Value::Array(abilities) = field(&peers[1], "abilities") else { panic!("an array") };
    assert!(abilities.contains(&bulk("node-info")) && abilities.contains(&bulk("holds")));
    let info = text(mesh.client(1).call("INFO server"));
    assert!(info.contains("\r\navailability_zone:north\r\n"), "{info}");
}
