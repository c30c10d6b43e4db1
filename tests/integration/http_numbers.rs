//! `/metrics` and `/api`: what they say is what is so.

use super::http_client::{HttpClient, get, sample, server_with_http, until};
use super::support::{Client, text};

fn metrics(port: u16) -> String {
    let reply = get(port, "/metrics");
    assert_eq!(reply.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    reply.text().to_owned()
}

fn add(client: &mut Client, queue: &[u8], count: usize) {
    for _ in 0..count {
        drop(text(client.call_words(&[b"ADDJOB", queue, b"body", b"0"])));
    }
}

#[test]
fn queues_and_what_went_through_them_are_counted() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    add(&mut client, b"mail", 3);
    drop(client.call("GETJOB FROM mail"));
    drop(client.call("PAUSE mail in"));
    let mut waiting = server.client();
    waiting.send_command("GETJOB FROM other");
    // Until it waits.
    until(|| sample(&metrics(port), "disque_clients_blocked") == 1.0);
    let shown = metrics(port);
    for (name, value) in [
        ("disque_queue_length{queue=\"mail\"}", 2.0),
        ("disque_queue_jobs_in_total{queue=\"mail\"}", 3.0),
        ("disque_queue_jobs_out_total{queue=\"mail\"}", 1.0),
        ("disque_queue_blocked_clients{queue=\"other\"}", 1.0),
        ("disque_queue_paused{queue=\"mail\",direction=\"in\"}", 1.0),
        ("disque_queue_paused{queue=\"mail\",direction=\"out\"}", 0.0),
        ("disque_queue_wait_seconds_count{queue=\"mail\"}", 1.0),
        ("disque_queues", 2.0),
        ("disque_queues_length", 2.0),
        ("disque_queues_jobs_in_total", 3.0),
        ("disque_queues_jobs_out_total", 1.0),
        ("disque_queues_paused", 1.0),
        ("disque_other_queues", 0.0),
        ("disque_jobs", 3.0),
        ("disque_command_duration_seconds_count{command=\"addjob\"}", 3.0),
        ("disque_cluster_nodes", 1.0),
        ("disque_ready", 1.0),
        ("disque_aof_enabled", 0.0),
    ] {
        assert_eq!(sample(&shown, name), value, "{name}");
    }
    let oldest = sample(&shown, "disque_queue_oldest_age_seconds{queue=\"mail\"}");
    assert!((0.0..60.0).contains(&oldest));
    assert!(!shown.contains("disque_queue_oldest_age_seconds{queue=\"other\"}"), "it is empty");
}

#[test]
fn a_wait_is_counted_where_it_ended() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    let mut consumer = server.client();
    consumer.send_command("GETJOB FROM q");
    // Until it waits.
    until(|| sample(&metrics(port), "disque_clients_blocked") == 1.0);
    add(&mut client, b"q", 1);
    drop(consumer.reply());
    add(&mut client, b"q", 1);
    let oldest = "disque_queue_oldest_age_seconds{queue=\"q\"}";
    // Until a job is well above 100 ms old.
    until(|| sample(&metrics(port), oldest) > 0.2);
    drop(client.call("GETJOB FROM q"));
    let shown = metrics(port);
    let bucket = |le: &str| {
        sample(&shown, &format!("disque_queue_wait_seconds_bucket{{queue=\"q\",le=\"{le}\"}}"))
    };
    assert_eq!((bucket("+Inf"), bucket("0.1")), (2.0, 1.0), "only one of them had to wait");
    assert!(sample(&shown, "disque_queue_wait_seconds_sum{queue=\"q\"}") >= 0.1);
}

#[test]
fn counters_do_not_fall_when_statistics_are_reset_or_queues_go() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    add(&mut client, b"q", 5);
    let before = metrics(port);
    client.ok("CONFIG RESETSTAT");
    client.ok("DEBUG FLUSHALL");
    let after = metrics(port);
    assert_eq!(sample(&after, "disque_queues"), 0.0, "the queue is gone");
    let samples = before.lines().filter(|line| !line.starts_with('#'));
    let totals = samples.filter_map(|line| line.split_once("_total "));
    let mut count = 0;
    for (name, _) in totals.filter(|(name, _)| !name.contains('{')) {
        let name = format!("{name}_total");
        assert!(sample(&after, &name) >= sample(&before, &name), "{name}");
        count += 1;
    }
    assert!(count > 10, "the counters were found");
    assert_eq!(sample(&after, "disque_queues_jobs_in_total"), 5.0);
}

#[test]
fn the_longest_queues_have_series_and_the_others_a_sum() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    for number in 0..1500 {
        client.send_command(&format!("ADDJOB q{number:04} body 0"));
    }
    (0..1500).for_each(|_| drop(client.reply()));
    add(&mut client, b"q1499", 5);
    add(&mut client, &[b'n'; 256], 9);
    let shown = metrics(port);
    let names = |shown: &str| -> Vec<String> {
        let lines = shown.lines().filter(|line| line.starts_with("disque_queue_length{"));
        lines.map(|line| line.split(' ').next().unwrap_or("").to_owned()).collect()
    };
    assert_eq!(names(&shown).len(), 1000);
    assert_eq!(sample(&shown, "disque_queue_length{queue=\"q1499\"}"), 6.0);
    assert_eq!(sample(&shown, "disque_other_queues"), 501.0);
    assert_eq!(sample(&shown, "disque_other_queues_length"), 509.0);
    assert_eq!(sample(&shown, "disque_queues_length"), 1514.0);
    // Queues that are no longer than those that are shown do not take their places.
    let mut others: Vec<String> = (0..1500).map(|number| format!("q{number:04}")).collect();
    others.retain(|name| !shown.contains(&format!("{{queue=\"{name}\"}}")));
    assert_eq!(others.len(), 500);
    let shown_before = names(&shown);
    for name in shown_before.iter().take(50) {
        let name = name.split('"').nth(1).expect("a label");
        drop(client.call(&format!("GETJOB FROM {name}")));
        add(&mut client, name.as_bytes(), 1);
    }
    assert_eq!(names(&metrics(port)).len(), 1000);
    add(&mut client, others[0].as_bytes(), 3);
    let after = metrics(port);
    assert_eq!(sample(&after, &format!("disque_queue_length{{queue=\"{}\"}}", others[0])), 4.0);
    let stayed = names(&after).iter().filter(|name| shown_before.contains(name)).count();
    assert_eq!(stayed, 999);
}

#[test]
fn names_of_any_bytes_are_told_apart() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    let names: [&[u8]; 5] = [b"a\"b\\c", b"<script>alert(1)</script>", b"\xff\xfe", b"n\nl", b""];
    names.iter().for_each(|name| add(&mut client, name, 1));
    let shown = metrics(port);
    for label in ["a\\\"b\\\\c", "<script>alert(1)</script>", "base64://4=", "base64:bgps", ""] {
        assert_eq!(sample(&shown, &format!("disque_queue_length{{queue=\"{label}\"}}")), 1.0);
    }
    let listed = get(port, "/api/queues");
    assert_eq!(listed.header("content-type"), "application/json");
    for name in
        [r#""a\"b\\c""#, r#""<script>alert(1)</script>""#, r#"{"base64":"//4="}"#, r#""n\nl""#]
    {
        assert!(listed.text().contains(&format!("{{\"name\":{name},\"length\":1,")), "{name}");
    }
    assert!(get(port, "/api/queue?name=%ff%FE").text().contains("\"exists\":true"));
}

#[test]
fn open_metrics_are_for_who_asks_for_them() {
    let (_server, port) = server_with_http(&[]);
    let mut client = HttpClient::connect(port);
    let reply = client.get_with(
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3\r\n",
    );
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.header("content-type"), kind);
    assert!(reply.text().ends_with("# EOF\n"));
    assert!(!metrics(port).contains("EOF"));
}

#[test]
fn queues_are_listed_by_what_is_asked_for() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    for (name, count) in [("short", 1), ("long", 9), ("Longer", 12)] {
        add(&mut client, name.as_bytes(), count);
    }
    (0..8).for_each(|_| drop(client.call("GETJOB FROM long")));
    let names = |target: &str| -> Vec<String> {
        let listed = get(port, target);
        let parts = listed.text().split("{\"name\":\"").skip(1);
        parts.map(|part| part.split('"').next().unwrap_or("").to_owned()).collect()
    };
    assert_eq!(names("/api/queues"), ["Longer", "short", "long"]);
    assert_eq!(names("/api/queues?sort=out&limit=1"), ["long"]);
    assert_eq!(names("/api/queues?sort=oldest&limit=0"), [""; 0]);
    assert_eq!(names("/api/queues?filter=LONG&sort=in"), ["Longer", "long"]);
    let sums = get(port, "/api/queues?filter=long&limit=1");
    let sums = sums.text();
    assert!(sums.starts_with("{\"version\":1,\"node\":\""), "{sums}");
    assert!(sums.contains("\"all\":{\"count\":3,\"length\":14,"), "{sums}");
    assert!(sums.contains("\"jobs_in\":22,\"jobs_out\":8}") && sums.contains("\"matching\":2,"));
}

#[test]
fn a_queue_is_told_with_its_first_jobs_and_one_that_is_not_there_is_empty() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    let id = text(client.call("ADDJOB q first 0 RETRY 7 TTL 100"));
    add(&mut client, b"q", 20);
    let shown = get(port, "/api/queue?name=q");
    let shown = shown.text();
    assert!(shown.contains("\"exists\":true,\"name\":\"q\",\"length\":21,"), "{shown}");
    assert_eq!(shown.matches("\"id\":\"D-").count(), 10);
    let (at, next) = (shown.find(&id).expect("it is first"), shown.find("\"body\":\"body\""));
    assert!(next.is_some_and(|next| at < next));
    let missing = get(port, "/api/queue?name=missing");
    assert!(missing.text().contains("\"exists\":false,\"name\":\"missing\",\"length\":0,"));
    let job = get(port, &format!("/api/job?id={id}"));
    for part in
        ["\"exists\":true", "\"state\":\"queued\"", "\"retry_ms\":7000", "\"body\":\"first\""]
    {
        assert!(job.text().contains(part), "{part} is not in {}", job.text());
    }
    drop(client.call(&format!("FASTACK {id}")));
    assert!(get(port, &format!("/api/job?id={id}")).text().contains("\"exists\":false"));
}

#[test]
fn what_happened_to_a_traced_job_is_told_also_when_it_is_gone() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    let id = text(client.call("ADDJOB q body 0 TRACE"));
    let other = text(client.call("ADDJOB q body 0"));
    drop(client.call(&format!("ACKJOB {id}")));
    for path in ["job", "trace"] {
        let answer = get(port, &format!("/api/{path}?id={id}"));
        let places = ["added", "queued", "acked", "collected"]
            .map(|event| answer.text().find(&format!("\"event\":\"{event}\",\"detail\":\"")));
        assert!(places.is_sorted() && places[0].is_some(), "{}", answer.text());
        assert!(answer.text().contains("\"detail\":\"why first\"}"), "{}", answer.text());
        let answer = get(port, &format!("/api/{path}?id={other}"));
        assert!(answer.text().ends_with("\"trace\":[]}\n"), "{}", answer.text());
    }
}

#[test]
fn ten_thousand_queues_are_scraped_while_clients_are_served() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    for number in 0..10_000 {
        client.send_command(&format!("ADDJOB queue-{number} body 0"));
    }
    (0..10_000).for_each(|_| drop(client.reply()));
    let scrapers: Vec<_> = (0..4).map(|_| std::thread::spawn(move || metrics(port))).collect();
    while scrapers.iter().any(|scraper| !scraper.is_finished()) {
        assert_eq!(client.call("PING"), super::support::status("PONG"));
    }
    for scraper in scrapers {
        let shown = scraper.join().expect("it came to its end");
        assert_eq!(sample(&shown, "disque_queues"), 10_000.0);
        assert_eq!(sample(&shown, "disque_other_queues"), 9000.0);
    }
}

#[test]
fn dead_letters_are_counted_and_shown_with_their_reasons() {
    let (server, port) = server_with_http(&[]);
    let mut client = server.client();
    let id = text(client.call("ADDJOB mail body 0"));
    drop(client.call("GETJOB FROM mail"));
    let nack = [b"NACK", id.as_bytes(), b"DEAD", b"REASON", b"<b>no such user</b>"];
    assert_eq!(client.call_words(&nack), disque::proto::reply_reader::Value::Integer(1));
    add(&mut client, b"other", 1);
    let shown = metrics(port);
    assert_eq!(sample(&shown, "disque_jobs_died_total{reason=\"nack\"}"), 1.0);
    assert_eq!(sample(&shown, "disque_jobs_died_total{reason=\"expired\"}"), 0.0);
    let of_queue = "disque_queue_jobs_died_total{queue=\"other\",reason=\"nack\"}";
    assert!(!shown.contains(of_queue), "queues without deaths have no such series");
    let dead = get(port, "/api/dead");
    for part in [
        "\"by_reason\":{\"max-deliveries\":0,\"nack\":1,\"expired\":0}",
        "\"queue\":\"mail.dead\"",
        "\"dead\":{\"reason\":\"nack\",\"origin\":\"mail\",",
        "\"note\":\"<b>no such user</b>\"}",
    ] {
        assert!(dead.text().contains(part), "{part} is not in {}", dead.text());
    }
    assert_eq!(dead.text().matches("\"id\":").count(), 1);
    drop(client.call("QREDRIVE mail.dead"));
    assert!(get(port, "/api/dead").text().ends_with("\"jobs\":[]}\n"));
}

#[test]
fn messages_are_counted_by_type_and_syncs_by_duration() {
    let (server, port) = server_with_http(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (other, _) = server_with_http(&[]);
    let mut client = server.client();
    client.ok(&format!("CLUSTER MEET 127.0.0.1 {}", other.port()));
    let sent = |kind: &str| format!("disque_cluster_messages_sent_total{{type=\"{kind}\"}}");
    until(|| sample(&metrics(port), "disque_cluster_reachable_nodes") == 1.0);
    drop(text(client.call("ADDJOB q body 5000 REPLICATE 2")));
    let shown = metrics(port);
    assert!(sample(&shown, &sent("REPLJOB")) >= 1.0);
    assert!(sample(&shown, "disque_cluster_messages_received_total{type=\"GOTJOB\"}") >= 1.0);
    assert!(sample(&shown, &sent("MEET")) >= 1.0);
    assert!(!shown.contains(&sent("MOVED")), "nothing was moved");
    let syncs = sample(&shown, "disque_aof_sync_duration_seconds_count");
    assert_eq!(syncs, sample(&shown, "disque_aof_sync_duration_seconds_bucket{le=\"+Inf\"}"));
    assert!(syncs >= 1.0, "the job was synced before it was answered");
}
