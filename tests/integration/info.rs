//! INFO, as tools take it apart.

use crate::support::{Client, TestServer, bulk, error, eventually, server_path, status, text};

/// The lines of a section as names and values.
fn fields(client: &mut Client, section: &str) -> Vec<(String, String)> {
    let info = text(client.call(&format!("INFO {section}")));
    let lines = info.split("\r\n").filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn value(client: &mut Client, section: &str, name: &str) -> String {
    let found = fields(client, section).into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no {name} in {section}")).1
}

fn number(client: &mut Client, section: &str, name: &str) -> f64 {
    value(client, section, name).parse().expect("a number")
}

#[test]
fn every_section_has_its_fields_in_order() {
    let server = TestServer::start();
    let mut client = server.client();
    let sections = [
        (
            "server",
            "disque_version disque_git_sha1 disque_git_dirty disque_build_id os arch_bits \
             multiplexing_api gcc_version process_id run_id tcp_port uptime_in_seconds \
             uptime_in_days hz executable config_file server_name server_version \
             availability_zone",
        ),
        (
            "clients",
            "connected_clients client_longest_output_list client_biggest_input_buf \
             blocked_clients",
        ),
        (
            "memory",
            "used_memory used_memory_human used_memory_rss used_memory_peak \
             used_memory_peak_human mem_fragmentation_ratio mem_allocator \
             used_memory_unfinished_input",
        ),
        (
            "jobs",
            "registered_jobs jobs_queued jobs_in_flight jobs_delayed jobs_passive jobs_acked \
             jobs_wait_repl jobs_short_of_copies",
        ),
        ("queues", "registered_queues"),
        (
            "persistence",
            "loading aof_enabled aof_state aof_rewrite_in_progress aof_rewrite_scheduled \
             aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status \
             aof_last_write_status aof_rewrites_consecutive_failures aof_rewrite_pause_sec",
        ),
        (
            "stats",
            "total_connections_received total_commands_processed instantaneous_ops_per_sec \
             total_net_input_bytes total_net_output_bytes instantaneous_input_kbps \
             instantaneous_output_kbps rejected_connections latest_fork_usec",
        ),
        ("cpu", "used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children"),
    ];
    for (section, expected) in sections {
        let names: Vec<String> =
            fields(&mut client, section).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>(), "{section}");
    }
    let headings = |info: &str| -> Vec<String> {
        info.split("\r\n").filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
    };
    assert_eq!(
        headings(&text(client.call("INFO All"))),
        [
            "Server",
            "Clients",
            "Memory",
            "Jobs",
            "Queues",
            "Persistence",
            "Stats",
            "CPU",
            "Commandstats"
        ]
    );
    assert_eq!(text(client.call("INFO nonsense")), "");
    assert_eq!(client.call("INFO server clients"), error("ERR syntax error"));
    let default = text(client.call("INFO"));
    assert!(default.contains("# CPU\r\n") && !default.contains("# Commandstats\r\n"));
    assert!(text(client.call("INFO all")).contains("\r\n\r\n# Commandstats\r\ncmdstat_"));
}

#[test]
fn the_server_section_tells_which_process_this_is() {
    let server = TestServer::start_with(&["--hz", "20"]);
    let mut client = server.client();
    assert_eq!(value(&mut client, "server", "disque_version"), "1.0-rc1");
    assert_eq!(value(&mut client, "server", "process_id"), server.pid().to_string());
    assert_eq!(value(&mut client, "server", "tcp_port"), server.port().to_string());
    assert_eq!(value(&mut client, "server", "hz"), "20");
    assert_eq!(value(&mut client, "server", "config_file"), "");
    let program = std::fs::canonicalize(server_path()).expect("it is built");
    assert_eq!(value(&mut client, "server", "executable"), program.to_string_lossy());
    assert_eq!(value(&mut client, "server", "os").split(' ').count(), 3);
    let with_file = TestServer::start_with_config("hz 20\n", &[]);
    let file = std::fs::canonicalize(with_file.folder().join("disque.conf")).expect("it is there");
    let shown = value(&mut with_file.client(), "server", "config_file");
    assert_eq!(shown, file.to_str().expect("text"), "the whole path, however it was given");
    let run_id = value(&mut client, "server", "run_id");
    assert!(run_id.len() == 40 && run_id.bytes().all(|c| c.is_ascii_hexdigit()));
}

#[test]
fn the_fields_that_telegraf_reads_are_numbers() {
    let server = TestServer::start();
    let mut client = server.client();
    // As Telegraf asks: inline, and without a section.
    client.send("info\r\n");
    let info = text(client.reply());
    for name in [
        "uptime_in_seconds",
        "connected_clients",
        "blocked_clients",
        "used_memory",
        "used_memory_rss",
        "used_memory_peak",
        "total_connections_received",
        "total_commands_processed",
        "instantaneous_ops_per_sec",
        "latest_fork_usec",
        "mem_fragmentation_ratio",
        "used_cpu_sys",
        "used_cpu_user",
        "used_cpu_sys_children",
        "used_cpu_user_children",
        "registered_jobs",
        "registered_queues",
    ] {
        let value = info.split("\r\n").find_map(|line| line.strip_prefix(&format!("{name}:")));
        let value = value.unwrap_or_else(|| panic!("no {name} in {info}"));
        assert!(value.parse::<f64>().is_ok_and(|number| number >= 0.0), "{name}:{value}");
    }
}

#[test]
fn telegraf_says_the_password_inline() {
    let server = TestServer::start_with(&["--requirepass", "secret"]);
    let mut client = server.client();
    client.send("AUTH secret\r\n");
    assert_eq!(client.reply(), status("OK"));
    client.send("info\r\n");
    assert!(text(client.reply()).contains("\r\nregistered_jobs:0\r\n"));
}

#[test]
fn resetstat_keeps_what_is_not_a_statistic() {
    let server = TestServer::start_with(&["--maxclients", "1"]);
    let mut client = server.client();
    let message = vec![b'x'; 1_000_000];
    assert_eq!(client.call_words(&[b"PING", &message]), bulk(&message));
    assert!(server.client().reply_if_open().is_some(), "one too many is told so");
    assert_eq!(number(&mut client, "stats", "rejected_connections"), 1.0);
    assert!(number(&mut client, "stats", "total_net_input_bytes") > 1e6);
    assert!(number(&mut client, "stats", "total_net_output_bytes") > 1e6);
    let peak = number(&mut client, "memory", "used_memory_peak");
    client.ok("CONFIG RESETSTAT");
    assert_eq!(number(&mut client, "stats", "rejected_connections"), 0.0);
    for name in ["total_net_input_bytes", "total_net_output_bytes"] {
        let bytes = number(&mut client, "stats", name);
        assert!(bytes < 10_000.0, "{name} is {bytes}");
    }
    assert!(number(&mut client, "memory", "used_memory_peak") >= peak);
}

#[test]
fn jobs_queues_and_clients_are_counted() {
    let server = TestServer::start();
    let mut client = server.client();
    text(client.call("ADDJOB q one 0"));
    text(client.call("ADDJOB q two 0"));
    assert_eq!(number(&mut client, "jobs", "registered_jobs"), 2.0);
    assert_eq!(number(&mut client, "queues", "registered_queues"), 1.0);
    let mut waiting = server.client();
    waiting.send_command("GETJOB FROM elsewhere");
    let blocked =
        eventually(|| number(&mut client, "clients", "blocked_clients"), |&count| count == 1.0);
    assert_eq!(blocked, 1.0);
    assert_eq!(number(&mut client, "clients", "connected_clients"), 2.0);
}

#[test]
fn commands_are_counted_and_resetstat_forgets_them() {
    let server = TestServer::start();
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.call("PING"), status("PONG"));
    }
    let ping = value(&mut client, "commandstats", "cmdstat_ping");
    assert!(ping.starts_with("calls=3,usec="), "{ping}");
    assert!(ping.contains(",usec_per_call="));
    assert!(number(&mut client, "stats", "total_commands_processed") >= 3.0);
    assert_eq!(client.call("CONFIG RESETSTAT"), status("OK"));
    // The reset is itself a command, counted after it ran.
    assert_eq!(number(&mut client, "stats", "total_commands_processed"), 1.0);
    assert_eq!(number(&mut client, "stats", "total_connections_received"), 0.0);
    let names: Vec<String> =
        fields(&mut client, "commandstats").into_iter().map(|(name, _)| name).collect();
    assert!(!names.contains(&"cmdstat_ping".to_owned()), "{names:?}");
}

#[test]
fn rates_rise_with_traffic() {
    let server = TestServer::start();
    let mut client = server.client();
    let rate = eventually(
        || {
            (0..100).for_each(|_| assert_eq!(client.call("PING"), status("PONG")));
            number(&mut client, "stats", "instantaneous_ops_per_sec")
        },
        |&rate| rate > 0.0,
    );
    assert!(rate > 0.0);
    assert!(number(&mut client, "stats", "instantaneous_input_kbps") > 0.0);
}

#[test]
fn the_persistence_section_has_more_with_the_file_on() {
    let server = TestServer::start_with(&["--appendonly", "yes"]);
    let mut client = server.client();
    let fields = fields(&mut client, "persistence");
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names[9..],
        [
            "aof_current_size",
            "aof_base_size",
            "aof_pending_rewrite",
            "aof_buffer_length",
            "aof_rewrite_buffer_length",
            "aof_pending_bio_fsync",
            "aof_delayed_fsync",
            "aof_loss_window_ms",
            "aof_damaged_records",
            "records_expired_while_down",
            "aof_rewrites_consecutive_failures",
            "aof_rewrite_pause_sec"
        ]
    );
    assert_eq!(fields[2], ("aof_state".to_owned(), "on".to_owned()));
    assert_eq!(fields[5], ("aof_last_rewrite_time_sec".to_owned(), "-1".to_owned()));
}
