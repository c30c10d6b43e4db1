//! Servers that are forgotten since they failed for long, and take their place again when they
//! run; and servers whose names lead elsewhere than before.

use std::fs;
use std::path::Path;

use disque::proto::reply_reader::Value;

use crate::files::mounting;
use crate::mesh::{Mesh, OPTIONS, figure};
use crate::support::{TestServer, eventually, free_port, text};

/// Nodes are forgotten a second after a majority has found them failing.
const FORGETTING: [&str; 4] = ["--appendonly", "yes", "--cluster-forget-after", "1"];

fn forgetful_mesh(count: usize) -> Mesh {
    let options = [&OPTIONS[..], &FORGETTING].concat();
    Mesh::at("127.0.0.1", (0..count).map(|_| TestServer::start_with(&options)).collect())
}

/// Waits until each of some nodes knows so many, itself included.
#[track_caller]
fn wait_for_sizes(mesh: &Mesh, nodes: &[usize], known: i64) {
    for n in nodes {
        eventually(|| figure(&mut mesh.client(*n), "known_nodes"), |seen| *seen == known);
    }
}

#[test]
fn a_dead_node_is_forgotten_and_its_acks_wait_for_it() {
    let mut mesh = forgetful_mesh(4);
    let id = text(mesh.client(3).call("ADDJOB q body 5000 REPLICATE 4 RETRY 1"));
    mesh.servers[3].stop_by(libc::SIGKILL);
    wait_for_sizes(&mesh, &[0, 1, 2], 3);
    assert_eq!(mesh.seen(0, 3), None, "CLUSTER NODES has it no more");
    let log = mesh.servers[0].log();
    assert!(log.contains("was failing for so long that it is forgotten"), "{log}");

    assert_eq!(mesh.client(1).call(&format!("ACKJOB {id}")), Value::Integer(1));
    // Who forgot it knows that after a restart, and others do not bring it back.
    let options = [&OPTIONS[..], &FORGETTING].concat();
    mesh.servers[0].stop_by(libc::SIGKILL);
    mesh.servers[0].start_again(&options);
    eventually(
        || mesh.seen(0, 1),
        |seen| seen.as_ref().is_some_and(|seen| seen.flags == "noflags"),
    );
    assert_eq!(figure(&mut mesh.client(0), "known_nodes"), 3);

    mesh.servers[3].start_again(&options);
    mesh.wait_until_whole();
    for n in 0..4 {
        let shown = || mesh.client(n).call(&format!("SHOW {id}"));
        eventually(shown, |shown| *shown == Value::NullBulk);
    }
}

#[test]
fn a_node_that_stood_still_for_long_is_taken_in_again() {
    let mesh = forgetful_mesh(3);
    mesh.servers[2].signal(libc::SIGSTOP);
    wait_for_sizes(&mesh, &[0, 1], 2);
    mesh.servers[2].signal(libc::SIGCONT);
    mesh.wait_until_whole();
}

#[test]
fn of_four_nodes_two_do_not_forget_the_others() {
    let mesh = forgetful_mesh(4);
    mesh.servers[3].signal(libc::SIGSTOP);
    mesh.servers[2].signal(libc::SIGSTOP);
    mesh.wait_for_each(&[0, 1], &[2, 3], "fail?");
    // Longer than the setting says: an ask that nobody answers takes as long as it may.
    let reply = mesh.client(0).call("GETJOB TIMEOUT 4000 FROM nothing");
    assert_eq!(reply, Value::NullArray);
    wait_for_sizes(&mesh, &[0, 1], 4);
    [2, 3].iter().for_each(|n| mesh.servers[*n].signal(libc::SIGCONT));
    mesh.wait_until_whole();
}

/// Names of hosts that a server finds in a file of its own, which is where it looks first.
fn write_hosts(hosts: &Path, lines: &[(&str, &str)]) {
    let lines = lines.iter().map(|(ip, name)| format!("{ip} {name}\n"));
    fs::write(hosts, "127.0.0.1 localhost\n".to_owned() + &lines.collect::<String>())
        .expect("the folder is ours");
}

/// Starts a server at an address, which finds others by names, in a file that the test changes.
fn start_named(hosts: &Path, ip: &str, seeds: &[String]) -> TestServer {
    let tool = mounting(&format!("mount --bind {} /etc/hosts", hosts.display()));
    let tool: Vec<&str> = tool.iter().map(String::as_str).collect();
    let options = named_options(ip, seeds);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    TestServer::start_under_in(&tool, tempfile::tempdir().expect("a folder"), &options)
}

fn named_options(ip: &str, seeds: &[String]) -> Vec<String> {
    let mut words: Vec<&str> = OPTIONS.to_vec();
    words.extend(["--appendonly", "yes", "--bind", ip, "127.0.0.1", "--cluster-name", "named"]);
    if !seeds.is_empty() {
        words.push("--cluster-seeds");
        words.extend(seeds.iter().map(String::as_str));
    }
    words.into_iter().map(str::to_owned).collect()
}

fn wait_for_addresses(servers: &[&TestServer], ips: &[&str]) {
    for server in servers {
        let lines = || text(server.client().call("CLUSTER NODES"));
        eventually(lines, |lines| {
            let is_well = |line: &str| line.ends_with(" connected") && !line.contains("fail");
            lines.lines().count() == servers.len()
                && lines.lines().all(is_well)
                && servers
                    .iter()
                    .zip(ips)
                    .all(|(server, ip)| lines.contains(&format!(" {ip}:{} ", server.port())))
        });
    }
}

/// A name that leads nowhere yet, then to a node, and then, with all others, elsewhere.
#[test]
fn names_may_change_under_a_running_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = folder.path().join("hosts");
    write_hosts(&hosts, &[]);
    // Nobody has seeds but the first, which so finds all.
    let second = start_named(&hosts, "127.0.1.2", &[]);
    let third = start_named(&hosts, "127.0.1.3", &[]);
    let seeds = [(&second, "two"), (&third, "three")]
        .map(|(server, name)| format!("{name}.disque.test:{}", server.port()));
    let first = start_named(&hosts, "127.0.1.1", &seeds);
    eventually(|| first.log(), |log| log.contains("Seed two.disque.test"));
    write_hosts(&hosts, &[("127.0.1.2", "two.disque.test")]);
    wait_for_addresses(&[&first, &second], &["127.0.1.1", "127.0.1.2"]);
    // The cluster runs, and the other name still leads nowhere.
    let id = text(first.client().call("ADDJOB q body 5000 REPLICATE 2"));
    write_hosts(&hosts, &[("127.0.1.2", "two.disque.test"), ("127.0.1.3", "three.disque.test")]);
    wait_for_addresses(&[&first, &second, &third], &["127.0.1.1", "127.0.1.2", "127.0.1.3"]);

    // All stop, and come back at other addresses and ports under the same names.
    let mut servers = [first, second, third];
    servers.iter_mut().for_each(|server| assert!(server.stop_by(libc::SIGTERM).success()));
    let ips = ["127.0.2.1", "127.0.2.2", "127.0.2.3"];
    let names = ["one", "two", "three"].map(|name| format!("{name}.disque.test"));
    let lines: Vec<(&str, &str)> = ips.into_iter().zip(names.iter().map(String::as_str)).collect();
    write_hosts(&hosts, &lines);
    let ports = [free_port(), free_port(), free_port()];
    let seeds: Vec<String> =
        names.iter().zip(ports).map(|(name, port)| format!("{name}:{port}")).collect();
    for ((server, ip), port) in servers.iter_mut().zip(ips).zip(ports) {
        let options = named_options(ip, &seeds);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        server.start_again_on(port, &options);
    }
    wait_for_addresses(&servers.each_ref(), &ips);
    let job = servers[1].client().call(&format!("SHOW {id}"));
    assert!(matches!(job, Value::Array(_)), "it is there: {job:?}");
}
