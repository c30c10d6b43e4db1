//! Real nodes, each in a folder of its own, and what the client shows of them.

use std::collections::BTreeSet;

use disque::cli::help::{self, Colour};

use crate::support::program::Program;
use crate::support::{TestServer, eventually};
use crate::terminal::Terminal;
use crate::{client, run, told, told_by};

fn start() -> TestServer {
    TestServer::start_with(&["--cluster-node-timeout", "3000"])
}

fn address(node: &TestServer) -> String {
    format!("127.0.0.1:{}", node.port())
}

pub fn three_nodes() -> ([TestServer; 3], String) {
    let nodes = [start(), start(), start()];
    let addresses = nodes.each_ref().map(address).join(" ");
    let create = format!("cluster create {addresses}");
    let (stdout, stderr, status) = told_by(client(nodes[0].port(), &create));
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert!(stdout.ends_with("OK: a cluster of 3 nodes\n"), "{stdout}");
    (nodes, create)
}

#[test]
fn create_makes_one_cluster_and_check_names_the_node_that_is_down() {
    let (mut nodes, create) = three_nodes();
    let port = nodes[0].port();
    // Once more changes nothing.
    let (stdout, _, status) = told_by(client(port, &create));
    assert_eq!((stdout.lines().count(), status), (4, 0), "{stdout}");
    let pair = format!("cluster create {} {}", address(&nodes[0]), address(&nodes[1]));
    let (_, stderr, status) = told_by(client(port, &pair));
    let sentence = format!("{} is in a cluster with 1 other node: ", address(&nodes[0]));
    assert!(stderr.starts_with(&sentence), "{stderr}");
    assert!(stderr.contains("CLUSTER RESET, which deletes all its jobs"), "{stderr}");
    assert_eq!(status, 1);

    let (stdout, stderr, status) = told_by(client(port, "cluster check"));
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert!(stdout.ends_with("OK: 3 nodes see each other\n"), "{stdout}");
    let (stdout, _, status) = told_by(client(port, "--check"));
    assert!(stdout.starts_with("OK: 3 nodes, memory at most "), "{stdout}");
    assert_eq!(status, 0);

    let lost = address(&nodes[2]);
    nodes[2].stop_by(libc::SIGKILL);
    let (stdout, _, status) = told_by(client(port, "cluster check"));
    let line = format!("{lost}: Could not connect to Disque at {lost}: Connection refused\n");
    assert!(stdout.contains(&line), "{stdout}");
    assert!(stdout.contains("TROUBLE: at "), "{stdout}");
    assert_eq!(status, 1);
    eventually(
        || told_by(client(port, "--check")),
        |(stdout, _, status)| *status == 2 && stdout.contains(&format!("{lost} failing")),
    );
    // It is critical because a job that asks for nothing special is refused.
    let (stdout, _, _) = told_by(client(port, "--check"));
    let refusal = "CRITICAL: new jobs are refused: 2 other nodes must take a copy, and 1 can; ";
    assert!(stdout.starts_with(refusal), "{stdout}");
    let (stdout, _, _) = told_by(client(port, "addjob q body 0"));
    assert!(stdout.starts_with("NOREPL"), "{stdout}");
    for verb in ["queues -i 0.01", "nodes"] {
        let (_, stderr, status) = told_by(client(port, verb));
        assert!(stderr.starts_with("Left out node "), "{stderr}");
        assert_eq!(status, 1);
    }
    let (stdout, _, _) = told_by(client(port, "nodes --csv"));
    assert_eq!(stdout.matches(",\"unreachable\",,").count(), 1, "{stdout}");
    // Both who are left forget it, by its address and by the start of its ID.
    let (stdout, _, status) = told_by(client(port, &format!("cluster forget {lost}")));
    assert_eq!((stdout.as_str(), status), ("OK\n", 0));
    let (view, _, _) = told_by(client(nodes[1].port(), "cluster nodes"));
    let line = view.lines().find(|line| line.contains(&lost)).expect("it is known there");
    let forget = format!("cluster forget {}", &line[..12]);
    assert_eq!(told_by(client(nodes[1].port(), &forget)).0, "OK\n");
    let (stdout, _, status) = told_by(client(port, "--check"));
    assert!(stdout.starts_with("OK: 2 nodes, "), "{stdout}");
    assert_eq!(status, 0);
    let (_, stderr, status) = told_by(client(port, &forget));
    assert_eq!(stderr, format!("No known node is called {}: see CLUSTER NODES.\n", &line[..12]));
    assert_eq!(status, 1);
}

#[test]
fn a_setting_is_set_on_all_nodes_and_check_names_the_one_that_differs() {
    let (nodes, _) = three_nodes();
    let port = nodes[0].port();
    let mut set = client(port, "config-all set queue-policy");
    set.arg("mail* max-deliveries 5");
    let (stdout, stderr, status) = told_by(set);
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert_eq!(stdout.matches("mail* max-deliveries 5").count(), 3, "{stdout}");
    let (stdout, _, status) = told_by(client(port, "cluster check"));
    assert!(status == 0 && stdout.ends_with("OK: 3 nodes see each other\n"), "{stdout}");

    let mut differ = client(nodes[1].port(), "config set queue-policy");
    differ.arg("mail* max-deliveries 6");
    assert_eq!(told_by(differ).0, "OK\n");
    let (stdout, _, status) = told_by(client(port, "cluster check"));
    let line = format!(
        "{}: has another queue-policy than most: 'mail* max-deliveries 6', not \
         'mail* max-deliveries 5'\n",
        address(&nodes[1])
    );
    assert!(status == 1 && stdout.contains(&line), "{stdout}");
    let (stdout, _, _) = told_by(client(port, "config-all get queue-policy --csv"));
    assert_eq!(stdout.matches("max-deliveries 5").count(), 2, "{stdout}");

    let (_, stderr, status) = told_by(client(port, "config-all set nosuch 1"));
    assert!(status == 1 && stderr.starts_with("Left out node "), "{stderr}");
    let (_, stderr, status) = told_by(client(port, "config-all put x"));
    assert!(status == 1 && stderr.starts_with("config-all takes 'get DIRECTIVE'"), "{stderr}");
}

#[test]
fn check_shows_what_nodes_are_and_names_what_differs() {
    let (nodes, _) = three_nodes();
    let set = |n: usize, directive: &str, value: &str| {
        let mut command = client(nodes[n].port(), "config set");
        command.args([directive, value]);
        assert_eq!(told_by(command).0, "OK\n");
    };
    for (n, zone) in ["north", "south", "south"].into_iter().enumerate() {
        set(n, "cluster-name", "prod");
        set(n, "availability-zone", zone);
    }
    let port = nodes[0].port();
    // Each node says it to the others within moments.
    let (stdout, ..) = eventually(
        || told_by(client(port, "cluster check")),
        |(_, stderr, status)| stderr.is_empty() && *status == 0,
    );
    assert!(stdout.ends_with("OK: 3 nodes in 2 zones see each other\n"), "{stdout}");
    assert!(!stdout.contains("WARNING"), "{stdout}");
    let row: Vec<&str> = stdout.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[1..], [&address(&nodes[0]), row[2], "north", "prod", "-", "ok"]);

    set(1, "cluster-name", "test");
    set(1, "cluster-forget-after", "600");
    set(2, "availability-zone", "");
    let (stdout, ..) = eventually(
        || told_by(client(port, "cluster check")),
        |(_, stderr, status)| stderr.is_empty() && *status == 0,
    );
    for line in [
        format!(
            "WARNING: availability-zone differs: set at 2 nodes; empty at {}: ",
            address(&nodes[2])
        ),
        format!(
            "WARNING: cluster-name differs: \"prod\" at 2 nodes; \"test\" at {}: ",
            address(&nodes[1])
        ),
        format!(
            "WARNING: cluster-forget-after differs: 0 at 2 nodes; 600 at {}\n",
            address(&nodes[1])
        ),
    ] {
        assert!(stdout.contains(&line), "{line} in {stdout}");
    }
    assert_eq!(stdout.matches("WARNING").count(), 3, "{stdout}");
    let (stdout, _, status) = told_by(client(port, "cluster check --json"));
    assert_eq!((stdout.matches("\"warnings\":[]").count(), status), (1, 0), "{stdout}");
    let row = stdout.lines().find(|line| line.contains(&address(&nodes[1]))).expect("a row");
    assert!(
        row.contains("\"zone\":\"south\",\"cluster_name\":\"test\",\"abilities\":[\""),
        "{row}"
    );
    assert!(row.contains("\"warnings\":[\"cluster-name differs: "), "{row}");
}

#[test]
fn two_servers_with_one_nodes_conf_are_told_apart() {
    let (nodes, _) = three_nodes();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(nodes[2].folder().join("nodes.conf"), folder.path().join("nodes.conf"))
        .expect("the node has written its file");
    let copy = TestServer::start_in(folder, &[]);
    let named = |stdout: &str| {
        [
            format!("{} and {}", address(&copy), address(&nodes[2])),
            format!("{} and {}", address(&nodes[2]), address(&copy)),
        ]
        .iter()
        .any(|pair| stdout.contains(&format!("{pair} are two servers with one ID, ")))
    };
    // Neither knows of the other: the third one changes its mind now and then.
    for port in [nodes[0].port(), copy.port()] {
        eventually(
            || told_by(client(port, "cluster check")),
            |(stdout, _, status)| *status == 1 && named(stdout),
        );
    }
    eventually(
        || told_by(client(copy.port(), "--check")),
        |(stdout, _, status)| *status == 2 && named(stdout),
    );
    let pair = format!("cluster create {} {}", address(&nodes[2]), address(&copy));
    let (_, stderr, status) = told_by(client(copy.port(), &pair));
    assert!(named(&stderr), "{stderr}");
    assert_eq!(status, 1);
    let twice = format!("cluster create {0} localhost:{1}", address(&copy), copy.port());
    let (_, stderr, _) = told_by(client(copy.port(), &twice));
    assert!(stderr.contains(" lead to the same node.\n"), "{stderr}");
}

#[test]
fn dead_letters_are_found_on_all_nodes_with_what_they_died_of() {
    let (nodes, _) = three_nodes();
    for node in &nodes {
        let (id, _, _) = told_by(client(node.port(), "addjob mail body 5000 replicate 1"));
        let (got, _, _) = told_by(client(node.port(), "getjob from mail"));
        assert!(got.contains(id.trim()), "{got}");
        let line = format!("nack {} dead reason full", id.trim());
        assert_eq!(told_by(client(node.port(), &line)).2, 0);
    }
    told_by(client(nodes[0].port(), "addjob other body 0 replicate 1"));
    let (stdout, stderr, status) = told_by(client(nodes[1].port(), "--json dead"));
    assert_eq!((stderr.as_str(), status), ("", 0));
    let letters = "[{\"queue\":\"mail.dead\",\"letters\":3,\"lived_in\":[\"mail\"],\
                   \"reasons\":[\"nack 3\"],\"last_death_secs\":";
    assert!(stdout.starts_with(letters) && stdout.ends_with("}]\n"), "{stdout}");
    let (stdout, _, status) = told_by(client(nodes[1].port(), "--json dead other*"));
    assert_eq!((stdout.as_str(), status), ("[]\n", 0));
}

#[test]
fn queues_and_top_add_up_what_all_nodes_hold() {
    let (nodes, _) = three_nodes();
    for node in &nodes {
        let (id, _, _) = told_by(client(node.port(), "addjob mail body 5000 replicate 1 retry 0"));
        assert!(id.starts_with("D-"), "{id}");
    }
    let pause = told_by(client(nodes[1].port(), "pause mail out"));
    assert_eq!(pause.0, "out\n");
    let (stdout, stderr, status) = told_by(client(nodes[2].port(), "-i 0.01 --json queues"));
    assert_eq!((stderr.as_str(), status), ("", 0));
    assert!(
        stdout.starts_with("[{\"queue\":\"mail\",\"length\":3,\"oldest_age_secs\":"),
        "{stdout}"
    );
    assert!(
        stdout.ends_with(
            ",\"in_per_sec\":0.0,\"out_per_sec\":0.0,\"blocked\":0,\"paused\":\"out\",\
             \"nodes\":3}]\n"
        ),
        "{stdout}"
    );
    let (stdout, _, status) = told_by(client(nodes[0].port(), "-r 2 -i 0.01 top"));
    assert_eq!(stdout.matches("3 nodes, 1 queue, 3 jobs queued\n\nQUEUE ").count(), 2, "{stdout}");
    assert_eq!(status, 0);
    // No node alone holds as many.
    let (stdout, _, status) = told_by(client(nodes[0].port(), "--check --max-length 2 mail"));
    assert_eq!(
        stdout,
        "WARNING: queue mail is paused for output: GETJOB gets nothing; queue mail holds 3 jobs, \
         over 2\n"
    );
    assert_eq!(status, 1);
    let (stdout, _, status) = told_by(client(nodes[0].port(), "--check --local --max-length 2"));
    assert!(stdout.starts_with("OK: 1 of 3 nodes, memory "), "{stdout}");
    assert_eq!(status, 0);
    let (_, stderr, status) = told_by(client(nodes[0].port(), "queues -i 0.01 m* mial"));
    assert_eq!((stderr.as_str(), status), ("No queue is called mial.\n", 1));

    let (stdout, stderr, status) = told_by(client(nodes[0].port(), "nodes --json"));
    assert_eq!((stderr.as_str(), status), ("", 0));
    assert_eq!(stdout.lines().count(), 3, "{stdout}");
    let mine = format!("\"address\":\"{}\",\"version\":\"", address(&nodes[0]));
    let line = stdout.lines().find(|line| line.contains(&mine)).expect("every node has a row");
    assert!(line.contains("\"state\":\"ok\",\"memory_bytes\":"), "{line}");
    assert!(line.contains(",\"jobs\":1,\"queued\":1,\"unqueued\":0,"), "{line}");
}

/// The screen of `top` in a terminal, once it has shown a page.
#[test]
fn top_says_what_does_not_fit_the_screen() {
    let node = start();
    let jobs: String = (0..67).map(|n| format!("ADDJOB queue-{n:02} body 0\r\n")).collect();
    assert_eq!(told(&run(client(node.port(), "--pipe"), jobs.as_bytes())).2, 0);
    let mut terminal = Terminal::run_sized(client(node.port(), "top -i 0.01"), 24, 40);
    terminal.wait_for("\x1b[H\x1b[2J1 node, 67 queues, 67 jobs queued\r\n\r\n");
    let page = terminal.wait_for("\x1b[H\x1b[2J");
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.len(), 21, "{page}");
    assert!(lines[1].starts_with("queue-00 "), "{page}");
    assert_eq!(lines[19], "... and 49 more queues with 49 jobs: `qu");
    assert_eq!(lines[20], "1 queues  2 nodes  3 dead  s next order ");
    assert!(lines.iter().all(|line| line.chars().count() <= 40), "{page}");
    terminal.type_keys("\x03");
    assert_eq!(terminal.wait_for_end().0, Some(0));
}

#[test]
fn keys_choose_what_top_shows() {
    let node = start();
    let mut terminal = Terminal::run(client(node.port(), "top -i 0.01"));
    terminal.wait_for("\x1b[H\x1b[2J1 node, 0 queues, 0 jobs queued\r\n\r\n");
    terminal.wait_for("q quit; by length\r\n");
    terminal.type_keys("2");
    terminal.wait_for("\x1b[H\x1b[2J1 node\r\n\r\nNODE     ADDRESS ");
    terminal.type_keys("s");
    terminal.wait_for("QUEUE ");
    terminal.wait_for("q quit; by oldest\r\n");
    terminal.type_keys("q");
    assert_eq!(terminal.wait_for_end().0, Some(0));
}

#[test]
fn verbs_work_in_the_interactive_client_with_the_password_of_the_moment() {
    let home = tempfile::tempdir().expect("a folder");
    let node = TestServer::start_with(&["--requirepass", "secret"]);
    let mut command = client(node.port(), "");
    command.env("HOME", home.path());
    let mut terminal = Terminal::run(command);
    let prompt = format!("127.0.0.1:{}> ", node.port());
    terminal.wait_for(&prompt);
    terminal.type_keys("queues\r");
    terminal.wait_for("NOAUTH Authentication required. Give the password");
    terminal.wait_for(&prompt);
    terminal.type_keys("auth secret\r");
    terminal.wait_for("\r\nOK\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("addjob mail body 0\r");
    terminal.wait_for("\r\nD-");
    terminal.wait_for(&prompt);
    terminal.type_keys("que\t m* -i 0.01 --json\r");
    terminal.wait_for("[{\"queue\":\"mail\",\"length\":1,");
    terminal.wait_for(&prompt);
    terminal.type_keys("cluster check\r");
    terminal.wait_for("OK: 1 node, and it knows no other\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("nodes\r");
    terminal.wait_for("NODE     ADDRESS ");
    terminal.wait_for(&prompt);
    terminal.type_keys("top -i 0.01\r");
    terminal.wait_for("\x1b[H\x1b[2J1 node, 1 queue, 1 job queued\r\n");
    terminal.wait_for("\x1b[H\x1b[2J1 node, 1 queue, 1 job queued\r\n");
    terminal.type_keys("\x03");
    terminal.wait_for("(interrupted)\r\n");
    terminal.wait_for(&prompt);
    terminal.type_keys("cluster myid\r");
    terminal.wait_for("\r\n\"");
    terminal.wait_for(&prompt);
    terminal.type_keys("quit\r");
    assert_eq!(terminal.wait_for_end().0, Some(0));
}

/// What `user-line` prints for these words and a password that is typed.
fn user_line(words: &str, password: &str) -> String {
    let mut terminal = Terminal::run(client(1, &format!("user-line {words}")));
    terminal.wait_for("Password: ");
    terminal.type_keys(&format!("{password}\n"));
    let (status, shown) = terminal.wait_for_end();
    assert_eq!(status, Some(0), "{shown}");
    assert!(!shown.contains(password), "{shown}");
    shown.trim().to_owned()
}

#[test]
fn a_line_of_user_line_lets_its_user_in_and_nobody_sees_the_password() {
    let lines = [
        user_line("root admin", "root's long word"),
        user_line("ann produce,watch mail*", "ann's long word"),
    ];
    let node = TestServer::start_with_config(&lines.join("\n"), &[]);
    let as_user = |name: &str, args: &str| {
        let mut command = client(node.port(), &format!("--user {name} {args}"));
        command.env("DISQUE_AUTH", format!("{name}'s long word"));
        command
    };
    assert_eq!(told_by(as_user("ann", "acl whoami")).0, "ann\n");
    assert!(told_by(as_user("ann", "addjob mail body 0")).0.starts_with("D-"));
    let (stdout, _, _) = told_by(as_user("ann", "addjob sms body 0"));
    assert_eq!(stdout, "NOPERM No permissions to access a queue\n\n");
    let (stdout, stderr, status) = told_by(as_user("ann", "queues -i 0.01 --csv"));
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert!(stdout.contains("\"mail\""), "{stdout}");
    let (stdout, _, _) = told_by(as_user("root", "config get user"));
    let shown: Vec<&str> = lines.iter().map(|line| line.trim_start_matches("user ")).collect();
    assert_eq!(stdout, format!("user\n{}\n", shown.join("\n")));
    let (_, stderr, status) = told_by(as_user("bob", "ping"));
    assert!(stderr.starts_with("AUTH failed: WRONGPASS "), "{stderr}");
    assert_eq!(status, 1);

    // A tool that waits shows no password to other users of the machine.
    let mut command = as_user("root", "getjob from empty");
    command.stdout(std::process::Stdio::null());
    let waiting = Program::start(&mut command);
    eventually(
        || told_by(as_user("root", "client list")).0,
        |list| list.lines().any(|line| line.ends_with(" cmd=getjob user=root")),
    );
    if cfg!(target_os = "linux") {
        let words = std::fs::read(format!("/proc/{}/cmdline", waiting.pid())).expect("it waits");
        assert!(!String::from_utf8_lossy(&words).contains("long word"));
    }
}

#[test]
fn user_line_says_what_it_wants() {
    for words in ["user-line", "user-line ann", "user-line ann root", "user-line ann watch,"] {
        let (_, stderr, status) = told_by(client(1, words));
        assert!(stderr.starts_with("user-line takes NAME ROLE[,ROLE ...] [GLOB ...]"), "{stderr}");
        assert_eq!(status, 1);
    }
    let mut terminal = Terminal::run(client(1, "user-line ann watch"));
    terminal.wait_for("Password: ");
    terminal.type_keys("\n");
    let (status, shown) = terminal.wait_for_end();
    assert_eq!((status, shown.trim()), (Some(1), "A password has 1 to 512 bytes."));
}

#[test]
fn pipe_sends_jobs_to_a_real_server() {
    let node = start();
    let jobs = b"ADDJOB bulk body 0\r\n".repeat(1000);
    let (stdout, stderr, status) = told(&run(client(node.port(), "--pipe"), &jobs));
    assert!(stdout.ends_with("errors: 0, replies: 1000\n"), "{stdout}");
    assert_eq!((stderr.as_str(), status), ("", 0));
    assert_eq!(told_by(client(node.port(), "qlen bulk")).0, "1000\n");
    let (stdout, _, status) = told_by(client(node.port(), "--max-length 999 --check"));
    assert_eq!(stdout, "WARNING: queue bulk holds 1000 jobs, over 999\n");
    assert_eq!(status, 1);
    assert_eq!(told_by(client(node.port(), "--max-length 1000 --check bulk")).2, 0);
}

#[test]
fn the_client_has_help_on_every_command_of_the_server() {
    let node = start();
    let (stdout, _, _) = told_by(client(node.port(), "--csv command"));
    // Rows of name, arity, flags and positions: the names are those before a number.
    let words: Vec<&str> = stdout.trim_end().split(',').collect();
    let mut served: BTreeSet<String> = words
        .windows(2)
        .filter(|pair| pair[0].starts_with('"') && pair[1].parse::<i64>().is_ok_and(|n| n != 0))
        .map(|pair| pair[0].trim_matches('"').to_string())
        .collect();
    served.insert("command".to_string());
    for name in served {
        let asked = help::render(&[name.clone().into_bytes()], Colour::Off);
        assert!(asked.contains("summary: "), "{name}");
    }
}
