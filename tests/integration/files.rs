//! Files that are not plain files in folders of their own: links, mounts, folders that nobody
//! may write to, names that are taken. The mounts are real ones, in a namespace of their own.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, bulk, error, eventually, integer, status, text};

/// A tool that mounts something as the script says and becomes the server.
pub fn mounting(script: &str) -> Vec<String> {
    let script = format!("{script} && exec \"$@\"");
    let words = unsharing().iter().copied().chain(["sh", "-c", &script, "sh"]);
    words.map(str::to_owned).collect()
}

/// What gives a process mounts of its own: a right of root, or of everybody in a namespace of
/// users.
fn unsharing() -> &'static [&'static str] {
    const WAYS: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-rm"]];
    let works = |way: &&&[&str]| {
        let mount = ["mount", "--bind", "/", "/"];
        let tried = Command::new(way[0]).args(&way[1..]).args(mount).output();
        tried.is_ok_and(|output| output.status.success())
    };
    WAYS.iter().find(works).expect(
        "these tests mount files: they want unshare and mount of util-linux, and root with the \
         capability SYS_ADMIN, or namespaces of users",
    )
}

/// Starts a server that finds a file as a mount of its own, which no rename gets by.
fn start_on_mount(file: &str, text: &str, options: &[&str]) -> TestServer {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("mounted"), text).expect("it takes a file");
    fs::write(folder.path().join(file), "").expect("it takes a file");
    let tool = mounting(&format!("mount --bind mounted {file}"));
    let tool: Vec<&str> = tool.iter().map(String::as_str).collect();
    TestServer::start_under_in(&tool, folder, options)
}

fn read(server: &TestServer, name: &str) -> String {
    fs::read_to_string(server.folder().join(name)).expect("it is there")
}

fn my_id(client: &mut Client) -> String {
    text(client.call("CLUSTER MYID"))
}

fn info(client: &mut Client, field: &str) -> String {
    let all = text(client.call("INFO persistence"));
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("INFO has {field}:\n{all}")).to_owned()
}

/// Has the append only file rewritten, to its end.
fn rewrite_aof(client: &mut Client) {
    let started = status("Background append only file rewriting started");
    assert_eq!(client.call("BGREWRITEAOF"), started);
    eventually(|| info(client, "aof_rewrite_in_progress"), |is_rewriting| is_rewriting == "0");
}

fn meet(client: &mut Client, other: &TestServer) {
    assert_eq!(client.call(&format!("CLUSTER MEET 127.0.0.1 {}", other.port())), status("OK"));
    let is_known = |nodes: &String| nodes.lines().count() == 2 && !nodes.contains("handshake");
    eventually(|| text(client.call("CLUSTER NODES")), is_known);
}

/// The server keeps its ID and its cluster in that file, whatever it is.
#[track_caller]
fn keeps_its_cluster(server: &mut TestServer, kept_in: &str) {
    let other = TestServer::start();
    let mut client = server.client();
    let id = my_id(&mut client);
    meet(&mut client, &other);
    let other_id = my_id(&mut other.client());
    eventually(|| read(server, kept_in), |text| text.contains(&other_id));
    server.stop_by(libc::SIGKILL);
    server.start_again(&[]);
    let mut client = server.client();
    assert_eq!(my_id(&mut client), id);
    let nodes = text(client.call("CLUSTER NODES"));
    assert!(nodes.contains(&other_id), "{nodes}");
    assert!(!server.folder().join("nodes.conf.tmp").exists());
}

#[test]
fn a_node_keeps_its_cluster_in_a_nodes_conf_that_is_a_link() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("kept")).expect("it takes a folder");
    symlink("kept/real.conf", folder.path().join("nodes.conf")).expect("the name is free");
    let mut server = TestServer::start_in(folder, &[]);
    keeps_its_cluster(&mut server, "kept/real.conf");
    let link = fs::symlink_metadata(server.folder().join("nodes.conf")).expect("it is there");
    assert!(link.is_symlink());
}

#[test]
fn a_node_keeps_its_cluster_in_a_nodes_conf_that_is_a_mount() {
    keeps_its_cluster(&mut start_on_mount("nodes.conf", "", &[]), "mounted");
}

#[test]
fn a_node_keeps_its_cluster_in_a_folder_that_is_read_only() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("etc")).expect("it takes a folder");
    for file in ["mounted", "etc/nodes.conf"] {
        fs::write(folder.path().join(file), "").expect("it takes a file");
    }
    let tool = mounting(
        "mount --bind etc etc && mount -o remount,ro,bind etc && \
         mount --bind mounted etc/nodes.conf",
    );
    let tool: Vec<&str> = tool.iter().map(String::as_str).collect();
    fs::write(folder.path().join("disque.conf"), "cluster-config-file etc/nodes.conf\n")
        .expect("it takes a file");
    keeps_its_cluster(&mut TestServer::start_under_in(&tool, folder, &[]), "mounted");
}

#[test]
fn a_second_server_is_kept_out_of_a_mounted_nodes_conf_after_a_save() {
    let server = start_on_mount("nodes.conf", "", &[]);
    assert_eq!(server.client().call("CLUSTER SAVECONFIG"), status("OK"));
    let path = server.folder().join("mounted");
    let file = fs::File::options().read(true).open(path).expect("it is there");
    let locked = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: the descriptor is open, and flock touches nothing of ours.
    let answer = unsafe { libc::flock(locked, libc::LOCK_EX | libc::LOCK_NB) };
    assert_eq!(answer, -1, "the server has the lock");
}

#[test]
fn config_rewrite_writes_to_a_file_that_is_a_mount() {
    let server = start_on_mount("disque.conf", "# mine\nmaxclients 500\n", &[]);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET maxclients 400"), status("OK"));
    assert_eq!(client.call("CONFIG REWRITE"), status("OK"));
    let text = read(&server, "mounted");
    assert!(text.starts_with("# mine\nmaxclients 400\n"), "{text}");
    assert!(!text.contains("disque:"), "{text}");
    let names = fs::read_dir(server.folder()).expect("a folder");
    let names = names.map(|entry| entry.expect("an entry").file_name().into_string());
    assert!(names.flatten().all(|name| !name.contains("rewrite")), "nothing is left beside it");
}

#[test]
fn jobs_are_enqueued_once_though_the_configuration_is_a_mount() {
    let mut server =
        start_on_mount("disque.conf", "appendonly yes\naof-enqueue-jobs-once yes\n", &[]);
    eventually(|| read(&server, "mounted"), |text| text.contains("aof-enqueue-jobs-once no\n"));
    let mut client = server.client();
    text(client.call("ADDJOB q body 0 RETRY 3600"));
    server.stop_by(libc::SIGKILL);
    server.start_again(&[]);
    let mut client = server.client();
    eventually(|| info(&mut client, "loading"), |loading| loading == "0");
    assert_eq!(integer(client.call("QLEN q")), 0);
}

#[test]
fn the_append_only_file_stays_a_link_when_it_is_rewritten() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("kept")).expect("it takes a folder");
    symlink("kept/real.aof", folder.path().join("disque.aof")).expect("the name is free");
    let mut server = TestServer::start_in(folder, &["--appendonly", "yes"]);
    let mut client = server.client();
    let id = text(client.call("ADDJOB q body 0 RETRY 3600"));
    rewrite_aof(&mut client);
    assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "ok");
    let link = fs::symlink_metadata(server.folder().join("disque.aof")).expect("it is there");
    assert!(link.is_symlink());
    server.stop_by(libc::SIGKILL);
    server.start_again(&["--appendonly", "yes"]);
    let mut client = server.client();
    eventually(|| info(&mut client, "loading"), |loading| loading == "0");
    assert!(matches!(client.call(&format!("SHOW {id}")), Value::Array(_)));
}

#[test]
fn files_with_jobs_and_nodes_are_not_for_everybody() {
    let server = TestServer::start_with(&["--appendonly", "yes"]);
    let mut client = server.client();
    text(client.call("ADDJOB q body 0"));
    let is_open_to_others = |name: &str| {
        let mode = fs::metadata(server.folder().join(name)).expect("it is there").mode();
        mode & 0o027 != 0
    };
    for name in ["disque.aof", "nodes.conf"] {
        assert!(!is_open_to_others(name), "{name}");
    }
    rewrite_aof(&mut client);
    assert!(!is_open_to_others("disque.aof"));
    // What its owner decided stays.
    let readable = fs::Permissions::from_mode(0o644);
    for name in ["disque.aof", "nodes.conf"] {
        fs::set_permissions(server.folder().join(name), readable.clone()).expect("it is ours");
    }
    rewrite_aof(&mut client);
    assert_eq!(client.call("CLUSTER SAVECONFIG"), status("OK"));
    for name in ["disque.aof", "nodes.conf"] {
        let mode = fs::metadata(server.folder().join(name)).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o644, "{name}");
    }
}

#[test]
fn cluster_saveconfig_says_when_the_file_could_not_be_saved() {
    let server = TestServer::start();
    let mut client = server.client();
    let in_the_way = server.folder().join("nodes.conf.tmp");
    fs::create_dir(&in_the_way).expect("the name is free");
    let refused = error("ERR error saving the cluster node config: Is a directory");
    client.send("CLUSTER SAVECONFIG\r\nPING\r\n");
    assert_eq!(client.reply(), refused);
    assert_eq!(client.reply(), status("PONG"));
    fs::remove_dir(&in_the_way).expect("it is empty");
    assert_eq!(client.call("CLUSTER SAVECONFIG"), status("OK"));
}

#[test]
fn no_server_goes_into_the_folder_of_another_one() {
    let (server, other) = (TestServer::start(), TestServer::start());
    let file = other.folder().join("nodes.conf");
    let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
    let before = inode(&file);
    let mut client = server.client();
    let dir = other.folder().to_str().expect("a text");
    let Value::Error(refusal) = client.call(&format!("CONFIG SET dir {dir}")) else {
        panic!("it is refused")
    };
    let refusal = String::from_utf8_lossy(&refusal).into_owned();
    assert!(refusal.starts_with("ERR Changing directory: The cluster's file"), "{refusal}");
    assert!(refusal.contains("is in use by another server"), "{refusal}");
    assert_eq!(client.call("CLUSTER SAVECONFIG"), status("OK"));
    assert_eq!(inode(&file), before);
    let own = server.folder().canonicalize().expect("it is there");
    let Value::Array(shown) = client.call("CONFIG GET dir") else { panic!("a pair") };
    assert_eq!(shown[1], bulk(own.to_str().expect("a text")));
}

#[test]
fn a_server_takes_its_cluster_and_its_jobs_to_another_folder() {
    let mut server =
        TestServer::start_with_config("appendonly yes\n", &["--auto-aof-rewrite-percentage", "0"]);
    let mut client = server.client();
    let id = my_id(&mut client);
    let job = text(client.call("ADDJOB q body 0 RETRY 3600"));
    let new = server.folder().join("new");
    fs::create_dir(&new).expect("the name is free");
    assert_eq!(client.call("CONFIG SET dir new"), status("OK"));
    assert_eq!(client.call("CONFIG REWRITE"), status("OK"));
    eventually(|| new.join("disque.aof").exists(), |&is_there| is_there);
    assert!(new.join("nodes.conf").exists());
    let late = text(client.call("ADDJOB q late 0 RETRY 3600"));
    server.stop_by(libc::SIGKILL);
    server.start_again(&[]);
    let mut client = server.client();
    eventually(|| info(&mut client, "loading"), |loading| loading == "0");
    assert_eq!(my_id(&mut client), id);
    for job in [job, late] {
        assert!(matches!(client.call(&format!("SHOW {job}")), Value::Array(_)), "{job}");
    }
}

#[test]
fn rewrites_that_fail_by_themselves_lie_further_apart_and_are_logged_once() {
    let options = ["--appendonly", "yes", "--auto-aof-rewrite-min-size", "1kb"];
    let server = TestServer::start_with(&options);
    let mut client = server.client();
    // Nobody can remove this to make room for a temporary file.
    let in_the_way = format!("temp-rewriteaof-bg-{}.aof", server.pid());
    let in_the_way = server.folder().join(in_the_way);
    fs::create_dir(&in_the_way).expect("the name is free");
    for _ in 0..20 {
        text(client.call("ADDJOB q body 0"));
    }
    let failures = |client: &mut Client| info(client, "aof_rewrites_consecutive_failures");
    eventually(|| failures(&mut client), |count| count == "3");
    let pause_secs: u64 = info(&mut client, "aof_rewrite_pause_sec").parse().expect("a number");
    assert!(pause_secs > 2, "1 s after the first failure, 2 after the second, then 4");
    assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "err");
    let log = server.log();
    assert_eq!(log.matches("AOF rewrite failed: Is a directory").count(), 1, "{log}");
    fs::remove_dir(&in_the_way).expect("it is empty");
    rewrite_aof(&mut client);
    eventually(|| info(&mut client, "aof_last_bgrewrite_status"), |status| status == "ok");
    assert_eq!(failures(&mut client), "0");
    assert_eq!(info(&mut client, "aof_rewrite_pause_sec"), "0");
}

#[test]
fn a_nodes_conf_with_cr_lf_is_read() {
    let mut server = TestServer::start();
    let id = my_id(&mut server.client());
    server.stop_by(libc::SIGTERM);
    let path = server.folder().join("nodes.conf");
    let with_cr = read(&server, "nodes.conf").replace('\n', "\r\n");
    fs::write(&path, with_cr).expect("it is ours");
    server.start_again(&[]);
    assert_eq!(my_id(&mut server.client()), id);
}
