//! Users and their roles: who logs in, what each may do, and what CONFIG SET changes of it.

use std::collections::BTreeSet;
use std::fs;

use disque::base::password::PasswordHash;
use disque::manual::{self, Roles};
use disque::proto::reply_reader::Value;

use crate::mesh::{Mesh, OPTIONS};
use crate::support::{Client, TestServer, array, bulk, error, eventually, integer, status, text};

const NOAUTH: &str = "NOAUTH Authentication required.";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_QUEUE: &str = "NOPERM No permissions to access a queue";

/// What a line says of a user whose password is its name and `-word`.
fn line(name: &str, roles_and_globs: &str) -> String {
    let hash = PasswordHash::of(format!("{name}-word").as_bytes());
    format!("{name} {hash} {roles_and_globs}")
}

/// A server with users, each given as a name, and roles and globs. There is an admin, `root`.
fn server_with(users: &[(&str, &str)]) -> TestServer {
    let root = ("root", "admin");
    let lines = [root].into_iter().chain(users.iter().copied());
    let file: String = lines.map(|(name, rest)| format!("user {}\n", line(name, rest))).collect();
    TestServer::start_with_config(&file, &OPTIONS)
}

fn log_in(server: &TestServer, name: &str) -> Client {
    let mut client = server.client();
    client.ok(&format!("AUTH {name} {name}-word"));
    client
}

fn set(client: &mut Client, lines: &str) -> Value {
    client.call_words(&[b"CONFIG", b"SET", b"user", lines.as_bytes()])
}

fn shown(client: &mut Client) -> String {
    let pair = array(client.call("CONFIG GET user"));
    assert_eq!(pair[0], bulk("user"));
    text(pair[1].clone())
}

fn refused(name: &str, command: &str) -> Value {
    error(&format!("NOPERM User {name} has no permissions to run the '{command}' command"))
}

fn add(client: &mut Client, queue: &str) -> String {
    text(client.call(&format!("ADDJOB {queue} body 0")))
}

#[test]
fn users_log_in_by_name_and_there_is_no_default_without_requirepass() {
    let server = server_with(&[("ann", "watch")]);
    let mut client = server.client();
    for words in ["PING", "ACL WHOAMI", "HELLO", "ADDJOB q body 0"] {
        assert_eq!(client.call(words), error(NOAUTH), "{words}");
    }
    for words in [
        "AUTH ann-word",
        "AUTH default ann-word",
        "AUTH ann wrong",
        "AUTH ann root-word",
        "AUTH Ann ann-word",
        "AUTH nobody ann-word",
        "HELLO 3 AUTH ann wrong",
        "HELLO 3 AUTH default anything",
    ] {
        assert_eq!(client.call(words), error(WRONGPASS), "{words}");
        assert_eq!(client.call("PING"), error(NOAUTH));
    }
    assert_eq!(client.call_words(&[b"AUTH", b"", b"anything"]), error(WRONGPASS));
    client.ok("AUTH ann ann-word");
    assert_eq!(client.call("ACL WHOAMI"), bulk("ann"));
    assert!(text(client.call("CLIENT INFO")).ends_with(" cmd=client user=ann\n"));
    assert_eq!(client.call("AUTH root wrong"), error(WRONGPASS));
    assert_eq!(client.call("ACL WHOAMI"), bulk("ann"), "who is not let in stays who it was");
    client.ok("AUTH root root-word");
    assert_eq!(client.call("ACL WHOAMI"), bulk("root"));

    let mut other = server.client();
    let hello = other.call("HELLO 3 AUTH ann ann-word SETNAME other");
    assert!(matches!(hello, Value::Map(_)), "{hello:?}");
    let _waits = server.client();
    let list = eventually(
        || text(client.call("CLIENT LIST")),
        |list| list.lines().any(|line| line.ends_with(" cmd=NULL user=")),
    );
    assert!(list.lines().any(|line| line.contains("name=other ") && line.ends_with("user=ann")));
}

#[test]
fn requirepass_is_the_password_of_default_who_is_an_admin() {
    let file = format!("requirepass word\nuser {}\n", line("ann", "watch"));
    let server = TestServer::start_with_config(&file, &[]);
    let mut client = server.client();
    client.ok("AUTH word");
    assert_eq!(client.call("ACL WHOAMI"), bulk("default"));
    assert_eq!(shown(&mut client), line("ann", "watch"));
    client.ok("AUTH ann ann-word");
    assert_eq!(client.call("CONFIG GET user"), refused("ann", "config|get"));
    assert_eq!(client.call("AUTH wrong"), error("ERR invalid password"));
    assert_eq!(client.call("PING"), error(NOAUTH), "a failed AUTH without a name ends a login");
    client.ok("AUTH default word");
    assert_eq!(client.call("ACL WHOAMI"), bulk("default"));
}

/// A call of each command and each subcommand that does nothing by itself, its name in errors, and
/// who may run it.
fn harmless_calls() -> Vec<(String, String, Roles)> {
    let calls = manual::all().flat_map(|command| {
        command.usages.iter().map(move |usage| {
            let mut words = vec![command.name, usage.subcommand];
            words.retain(|word| !word.is_empty());
            let name = words.join("|").to_lowercase();
            words.resize(words.len().max(usize::from(command.arity.unsigned_abs())), "x");
            if command.name == "shutdown" {
                words.push("x");
            }
            (words.join(" "), name, usage.roles.unwrap_or(command.roles))
        })
    });
    calls.collect()
}

#[test]
fn each_role_runs_the_commands_that_the_manual_says_and_no_others() {
    let roles = Roles::NAMES.map(|(_, name)| (name, name));
    let server = server_with(&roles);
    // They would end the login, the server, the jobs, or the order of replies.
    let runs_too_much = |name: &str| {
        let first = name.split('|').next();
        matches!(first, Some("auth" | "debug" | "monitor")) || name == "cluster|reset"
    };
    for (role, name) in Roles::NAMES {
        let mut client = log_in(&server, name);
        let mut may = 0;
        for (call, command, runs_for) in harmless_calls() {
            if !role.may_run(runs_for) {
                assert_eq!(client.call(&call), refused(name, &command), "{call}");
            } else if !runs_too_much(&command) {
                may += 1;
                let reply = client.call(&call);
                let is_refused =
                    |text: &[u8]| text.starts_with(b"NOPERM") || text == NOAUTH.as_bytes();
                assert!(
                    !matches!(&reply, Value::Error(text) if is_refused(text)),
                    "{name}: {call} {reply:?}"
                );
            }
        }
        assert!(may > 15, "{name} may run {may}");
        // What is no subcommand is as restricted as the rest of the command.
        let sideways = client.call("CLIENT SIDEWAYS");
        assert_eq!(sideways == refused(name, "client"), name != "admin", "{sideways:?}");
        assert_eq!(client.call("NOSUCH"), error("ERR unknown command 'NOSUCH'"));
    }
}

#[test]
fn producers_consumers_watchers_and_operators_do_their_work() {
    let server = server_with(&[
        ("producer", "produce"),
        ("worker", "consume"),
        ("watcher", "watch"),
        ("operator", "operate,watch"),
        ("both", "produce,consume"),
    ]);
    let [mut producer, mut worker, mut watcher, mut operator, mut both] =
        ["producer", "worker", "watcher", "operator", "both"].map(|name| log_in(&server, name));
    let id = add(&mut producer, "q");
    assert_eq!(producer.call("QLEN q"), Value::Integer(1));
    assert_eq!(producer.call("GETJOB FROM q"), refused("producer", "getjob"));
    assert_eq!(producer.call(&format!("ACKJOB {id}")), refused("producer", "ackjob"));
    assert_eq!(worker.call("ADDJOB q body 0"), refused("worker", "addjob"));
    assert_eq!(worker.call("DISQUE.ADDJOB q body 0"), refused("worker", "addjob"));
    assert_eq!(worker.call("DISQUE QPURGE q"), refused("worker", "qpurge"));
    assert_eq!(array(watcher.call("QPEEK q 1")).len(), 1);
    assert_eq!(watcher.call("PAUSE q all"), refused("watcher", "pause"));
    for (call, name) in [("CLUSTER MEET 127.0.0.1 1", "meet"), ("CLUSTER FORGET x", "forget")] {
        for (client, user) in [(&mut watcher, "watcher"), (&mut operator, "operator")] {
            assert_eq!(client.call(call), refused(user, &format!("cluster|{name}")));
        }
    }
    assert_eq!(operator.call("CLUSTER LEAVING no"), status("OK"));
    let jobs = array(worker.call("GETJOB FROM q"));
    assert_eq!(text(array(jobs[0].clone())[1].clone()), id);
    assert_eq!(worker.call(&format!("ACKJOB {id}")), Value::Integer(1));
    let ended = array(producer.call(&format!("WAITJOB {id}")));
    assert_eq!(ended.len(), 1);
    add(&mut both, "q");
    assert_eq!(operator.call("PAUSE q out"), status("out"));
    assert_eq!(operator.call("QPURGE q"), Value::Integer(1));
    assert_eq!(operator.call("PAUSE q none"), status("none"));
    assert_eq!(operator.call("GETJOB NOHANG FROM q"), refused("operator", "getjob"));
    assert_eq!(both.call("GETJOB NOHANG FROM q"), Value::NullArray);
    // Who is refused goes on.
    assert_eq!(operator.call("SHUTDOWN"), refused("operator", "shutdown"));
    assert_eq!(operator.call("PING"), status("PONG"));
}

#[test]
fn every_queue_that_a_command_names_is_checked() {
    let server = server_with(&[("mail", "produce,consume,watch,operate mail* \"a b\"")]);
    let (mut root, mut mail) = (log_in(&server, "root"), log_in(&server, "mail"));
    let (own, foreign) = (add(&mut root, "mail.a"), add(&mut root, "sms"));
    let unknown = own.replace(&own[11..35], &"z".repeat(24));
    for refused in [
        "ADDJOB sms body 0",
        "ADDJOB Mail body 0",
        "DISQUE ADDJOB sms body 0",
        "disque.addjob sms body 0",
        "ADDJOB mail body 0 DEADQUEUE sms",
        "ADDJOB mail body 0 ATTR DEADQUEUE mail deadqueue sms",
        "GETJOB NOHANG FROM sms",
        "GETJOB NOHANG FROM mail sms",
        "GETJOB NOHANG COUNT 2 FROM mail FROM",
        "QLEN sms",
        "QSTAT sms",
        "QSTAT sms CLUSTER",
        "QPEEK sms 1",
        "QPOLICY sms",
        "PAUSE sms state",
        "QMOVE mail.a sms",
        "QMOVE sms mail.a",
        "QREDRIVE sms.dead",
        "QPURGE sms COUNT 1",
        "JSCAN QUEUE mail.a QUEUE sms",
        "JSCAN 0 COUNT 5 QUEUE sms",
        &format!("MOVEJOB sms {own}"),
        &format!("MOVEJOB mail.a {foreign}"),
        &format!("SHOW {foreign}"),
        &format!("WORKING {foreign}"),
        &format!("WAITJOB TIMEOUT 1 ALL {foreign}"),
        &format!("TRACE {foreign}"),
        &format!("ENQUEUE {foreign}"),
        &format!("DEQUEUE {foreign}"),
        &format!("DELJOB {foreign}"),
    ] {
        assert_eq!(mail.call(refused), error(NO_QUEUE), "{refused}");
    }
    // What cannot be ended is passed over.
    for batch in ["ACKJOB", "FASTACK", "NACK"] {
        assert_eq!(mail.call(&format!("{batch} {foreign}")), Value::Integer(0), "{batch}");
    }
    // Nothing came of any of it.
    assert_eq!(root.call("QLEN sms"), Value::Integer(1));
    assert_eq!(root.call("QLEN mail.a"), Value::Integer(1));
    for allowed in [
        "QLEN mail",
        "ADDJOB mail body 0 ATTR DEADQUEUE sms",
        "ADDJOB mail body 0 DEADQUEUE mail.dead",
        "PAUSE mail state",
        "QREDRIVE mail.dead",
        "JSCAN QUEUE mail QUEUE mail.a",
        &format!("SHOW {own}"),
        &format!("WORKING {own}"),
        &format!("SHOW {unknown}"),
    ] {
        let reply = mail.call(allowed);
        assert!(!matches!(reply, Value::Error(_)), "{allowed}: {reply:?}");
    }
    assert!(!matches!(mail.call_words(&[b"ADDJOB", b"a b", b"body", b"0"]), Value::Error(_)));
    assert_eq!(mail.call(&format!("ACKJOB {foreign} {own} {foreign}")), Value::Integer(1));
    let mut many = vec!["GETJOB", "NOHANG", "FROM"];
    many.resize(many.len() + 10_000, "mail.none");
    assert_eq!(mail.call(&many.join(" ")), Value::NullArray);
    many.push("mail.none");
    let too_many = "ERR A user with globs may name at most 10000 queues and jobs at once";
    assert_eq!(mail.call(&many.join(" ")), error(too_many));
    // What is wrong in itself is told as to everybody else.
    for (wrong, reason) in [
        ("ADDJOB mail body 0 QUEUE sms", "ERR syntax error"),
        ("ADDJOB mail body 0 DEADQUEUE", "ERR DEADQUEUE must be a name of 1 to 255 bytes"),
        ("GETJOB sms", "ERR syntax error"),
        ("ACKJOB sms", "BADID Invalid Job ID format."),
        ("QSTAT mail sms", "ERR syntax error"),
    ] {
        assert_eq!(mail.call(wrong), error(reason), "{wrong}");
    }
}

/// The elements of a scan that walks to its end at once, in order.
fn scanned(client: &mut Client, scan: &str) -> Vec<String> {
    let reply = array(client.call(&format!("{scan} BUSYLOOP")));
    assert_eq!(reply[0], bulk("0"));
    let mut found: Vec<String> = array(reply[1].clone()).into_iter().map(text).collect();
    found.sort();
    found
}

#[test]
fn scans_show_what_is_in_scope() {
    let server = server_with(&[("mail", "watch mail*"), ("all", "watch")]);
    let (mut root, mut mail, mut all) =
        (log_in(&server, "root"), log_in(&server, "mail"), log_in(&server, "all"));
    let own: Vec<String> = (0..3).map(|n| add(&mut root, &format!("mail{n}"))).collect();
    let own = BTreeSet::from_iter(own);
    let foreign = add(&mut root, "sms");
    assert_eq!(scanned(&mut mail, "QSCAN"), ["mail0", "mail1", "mail2"]);
    assert_eq!(scanned(&mut mail, "JSCAN"), Vec::from_iter(own.clone()));
    assert_eq!(scanned(&mut mail, "JSCAN STATE queued"), Vec::from_iter(own));
    assert_eq!(scanned(&mut mail, "JSCAN QUEUE mail1").len(), 1);
    for client in [&mut root, &mut all] {
        assert_eq!(scanned(client, "QSCAN"), ["mail0", "mail1", "mail2", "sms"]);
        assert!(scanned(client, "JSCAN").contains(&foreign));
    }
    // It is the user who counts and not the connection.
    mail.ok("AUTH all all-word");
    assert_eq!(scanned(&mut mail, "QSCAN").len(), 4);
    mail.ok("AUTH mail mail-word");
    assert_eq!(scanned(&mut mail, "QSCAN").len(), 3);
    assert_eq!(set(&mut root, &line("mail", "watch sms")), status("OK"));
    assert_eq!(scanned(&mut mail, "QSCAN"), ["sms"]);
    // And no scope outlives the users.
    root.ok("CONFIG SET requirepass word");
    assert_eq!(set(&mut root, "mail\nall\nroot"), status("OK"));
    let mut default = server.client();
    default.ok("AUTH word");
    assert_eq!(default.call_words(&[b"CONFIG", b"SET", b"requirepass", b""]), status("OK"));
    assert_eq!(scanned(&mut server.client(), "QSCAN").len(), 4);
}

#[test]
fn what_config_set_changes_counts_from_the_next_command() {
    let server = server_with(&[("ann", "produce"), ("bob", "consume"), ("mon", "admin")]);
    let mut root = log_in(&server, "root");
    let mut ann = log_in(&server, "ann");
    let (mut bob, mut waits) = (log_in(&server, "bob"), log_in(&server, "bob"));
    let mut monitor = log_in(&server, "mon");
    add(&mut ann, "q");
    assert_eq!(set(&mut root, &line("ann", "consume x*")), status("OK"));
    assert_eq!(ann.call("ADDJOB q body 0"), refused("ann", "addjob"));
    assert_eq!(ann.call("GETJOB NOHANG FROM q"), error(NO_QUEUE));
    assert_eq!(ann.call("GETJOB NOHANG FROM x"), Value::NullArray);
    // Another password ends no connection.
    let other = line("ann", "produce").replace(
        &PasswordHash::of(b"ann-word").to_string(),
        &PasswordHash::of(b"other").to_string(),
    );
    assert_eq!(set(&mut root, &other), status("OK"));
    add(&mut ann, "q");
    assert_eq!(server.client().call("AUTH ann ann-word"), error(WRONGPASS));
    server.client().ok("AUTH ann other");

    // Who is no user any more is closed, whatever it does.
    waits.send_command("GETJOB FROM empty");
    monitor.ok("MONITOR");
    eventually(|| text(root.call("CLIENT LIST")), |list| list.contains(" flags=b "));
    assert_eq!(set(&mut root, &format!("bob\n{}", line("mon", "watch"))), status("OK"));
    assert!(bob.is_closed() && waits.is_closed());
    while monitor.reply_if_open().is_some() {}
    assert_eq!(server.client().call("AUTH bob bob-word"), error(WRONGPASS));
    assert!(!shown(&mut root).contains("bob "));
    let list = text(root.call("CLIENT LIST"));
    assert!(!list.contains("user=bob") && !list.contains("user=mon"), "{list}");
    assert_eq!(ann.call("PING"), status("PONG"));

    // Its own line too: the answer comes first.
    root.ok("CONFIG SET requirepass word");
    assert_eq!(set(&mut root, "root"), status("OK"));
    assert!(root.is_closed());
}

#[test]
fn default_comes_and_goes_with_requirepass() {
    let server = TestServer::start();
    let mut first = server.client();
    assert_eq!(first.call("ACL WHOAMI"), bulk("default"));
    assert!(matches!(first.call("HELLO 2"), Value::Array(_)));
    assert_eq!(set(&mut first, &line("root", "admin")), status("OK"));
    assert_eq!(first.call("PING"), error(NOAUTH), "there is no default any more");
    first.ok("AUTH root root-word");
    first.ok("CONFIG SET requirepass word");
    let mut default = server.client();
    default.ok("AUTH word");
    assert_eq!(default.call("ACL WHOAMI"), bulk("default"));
    let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"requirepass", b""];
    assert_eq!(first.call_words(&words), status("OK"));
    assert!(default.is_closed());
    assert_eq!(first.call("ACL WHOAMI"), bulk("root"));
    assert_eq!(server.client().call("AUTH word"), error(WRONGPASS));
    assert_eq!(set(&mut first, &format!("root\n{}", line("ann", "watch"))), status("OK"));
    assert!(server.log().contains("WARNING: no user has the role admin"), "{}", server.log());
    assert_eq!(server.client().call("CONFIG GET user"), error(NOAUTH));
}

#[test]
fn a_login_before_there_was_a_password_is_none_where_there_are_users() {
    let server = TestServer::start();
    let (mut hello, mut auth) = (server.client(), server.client());
    assert!(matches!(hello.call("HELLO 3"), Value::Map(_)));
    auth.ok("AUTH default anything");
    let mut root = server.client();
    assert_eq!(set(&mut root, &line("root", "admin")), status("OK"));
    root.ok("AUTH root root-word");
    root.ok("CONFIG SET requirepass word");
    assert_eq!(hello.call("PING"), error(NOAUTH));
    assert_eq!(auth.call("PING"), error(NOAUTH));
}

#[test]
fn without_users_a_login_outlives_changes_of_the_password() {
    let server = TestServer::start();
    let (mut plain, mut hello) = (server.client(), server.client());
    assert!(matches!(hello.call("HELLO 3"), Value::Map(_)));
    assert_eq!(hello.call("AUTH x"), error("ERR Client sent AUTH, but no password is set"));
    let set_password = |client: &mut Client, password: &str| {
        let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"requirepass", password.as_bytes()];
        assert_eq!(client.call_words(&words), status("OK"));
    };
    set_password(&mut hello, "word");
    assert_eq!(hello.call("PING"), status("PONG"));
    assert_eq!(plain.call("PING"), error(NOAUTH));
    plain.ok("AUTH word");
    plain.ok("MONITOR");
    set_password(&mut hello, "");
    set_password(&mut hello, "other");
    assert_eq!(hello.call("ECHO end"), bulk("end"));
    while !text(plain.reply()).contains("\"end\"") {}
    assert!(!text(hello.call("CLIENT LIST")).contains(" user="));
}

#[test]
fn nothing_that_concerns_the_whole_node_is_for_users_with_globs() {
    let server =
        server_with(&[("mail", "produce,consume,watch,operate mail*"), ("all", "operate *")]);
    let (mut mail, mut all) = (log_in(&server, "mail"), log_in(&server, "all"));
    let mut count = 0;
    for command in manual::all() {
        for usage in command.usages {
            if usage.roles.unwrap_or(command.roles) == Roles::OPERATE && !usage.has_names() {
                let call = format!("{} {}", command.name, usage.subcommand);
                let name = call.trim_end().replace(' ', "|").to_lowercase();
                assert_eq!(mail.call(call.trim_end()), refused("mail", &name), "{call}");
                let reply = all.call(call.trim_end());
                assert_ne!(reply, refused("all", &name));
                count += 1;
            }
        }
    }
    assert!(count >= 3, "{count}");
    for looks in ["INFO", "CLUSTER NODES", "QSCAN", "LATENCY LATEST"] {
        assert!(!matches!(mail.call(looks), Value::Error(_)), "{looks}");
    }
}

#[test]
fn the_last_user_stays_where_nothing_else_keeps_others_out() {
    let server = server_with(&[("ann", "watch")]);
    let (mut root, mut stranger) = (log_in(&server, "root"), server.client());
    let refusal = error(
        "ERR Without users and without requirepass everybody may do everything: set requirepass \
         first",
    );
    assert_eq!(set(&mut root, "root\nann"), refusal);
    assert_eq!(set(&mut root, "ann"), status("OK"));
    assert_eq!(set(&mut root, "root"), refusal);
    assert_eq!(shown(&mut root), line("root", "admin"));
    assert_eq!(stranger.call("PING"), error(NOAUTH));
    root.ok("CONFIG SET requirepass word");
    assert_eq!(set(&mut root, "root"), status("OK"));
    assert!(root.is_closed());
    assert_eq!(stranger.call("PING"), error(NOAUTH));
    stranger.ok("AUTH word");
}

/// Reads what a watcher is still sent, to the end of its connection.
fn assert_watched_no_more(mut monitor: Client) {
    while monitor.reply_if_open().is_some() {}
    assert!(monitor.is_closed());
}

#[test]
fn who_watches_is_closed_as_soon_as_it_may_not() {
    let server = TestServer::start();
    let (mut spy, mut root) = (server.client(), server.client());
    spy.ok("MONITOR");
    let users = [line("root", "admin"), line("low", "watch")].join("\n");
    assert_eq!(set(&mut root, &users), status("OK"));
    assert_watched_no_more(spy);
    root.ok("AUTH root root-word");
    root.ok("CONFIG SET requirepass word");
    let mut higher = log_in(&server, "root");
    higher.ok("MONITOR");
    higher.send_command("AUTH low low-word");
    assert_watched_no_more(higher);
    let mut default = server.client();
    default.ok("AUTH word");
    default.ok("MONITOR");
    default.send_command("AUTH wrong");
    assert_watched_no_more(default);
    let mut admin = server.client();
    admin.ok("AUTH word");
    admin.ok("MONITOR");
    admin.send_command("AUTH root root-word");
    assert_eq!(root.call("ECHO end"), bulk("end"));
    loop {
        if matches!(admin.reply(), Value::Status(line) if line.ends_with(b"\"end\"")) {
            break;
        }
    }
}

#[test]
fn who_waits_is_closed_when_it_may_other_things() {
    let server = TestServer::start();
    let mut stranger = server.client();
    stranger.send_command("GETJOB FROM bank");
    let mut root = server.client();
    let wait_for = |root: &mut Client, count: usize| {
        let waiting = |list: &String| list.matches(" flags=b ").count() == count;
        eventually(|| text(root.call("CLIENT LIST")), waiting);
    };
    wait_for(&mut root, 1);
    let users = [line("root", "admin"), line("bob", "consume"), line("ann", "consume")].join("\n");
    assert_eq!(set(&mut root, &users), status("OK"));
    assert!(stranger.is_closed(), "it has not logged in");
    root.ok("AUTH root root-word");
    let (mut bob, mut idle) = (log_in(&server, "bob"), log_in(&server, "bob"));
    let mut ann = log_in(&server, "ann");
    bob.send_command("GETJOB FROM bank");
    ann.send_command("GETJOB FROM bank");
    wait_for(&mut root, 2);
    let other_word = line("ann", "consume").replace(&line("ann", "")[4..], &line("other", "")[6..]);
    let lines = [other_word, line("bob", "consume mail*")].join("\n");
    assert_eq!(set(&mut root, &lines), status("OK"));
    assert!(bob.is_closed());
    assert_eq!(idle.call("PING"), status("PONG"));
    let id = add(&mut root, "bank");
    let jobs = array(ann.reply());
    assert_eq!(array(jobs[0].clone())[1], bulk(&id), "another password changes nothing");
}

#[test]
fn a_dead_letter_is_still_the_matter_of_those_whose_job_it_was() {
    let server = server_with(&[
        ("worker", "consume,produce mail*"),
        ("stranger", "consume,produce sms*"),
        ("operator", "operate,watch mail* dead"),
        ("narrow", "operate mail*"),
    ]);
    let mut root = log_in(&server, "root");
    let [mut worker, mut stranger, mut operator, mut narrow] =
        ["worker", "stranger", "operator", "narrow"].map(|name| log_in(&server, name));
    let policy = b"mail dead-queue dead\nbank dead-queue dead";
    assert_eq!(root.call_words(&[b"CONFIG", b"SET", b"queue-policy", policy]), status("OK"));
    let [dead, fine] = [(); 2].map(|()| add(&mut worker, "mail"));
    let foreign = add(&mut root, "bank");
    assert_eq!(array(root.call("GETJOB COUNT 3 FROM mail bank")).len(), 3);
    assert_eq!(root.call(&format!("NACK {dead} {foreign} DEAD")), Value::Integer(2));
    assert_eq!(root.call("QLEN dead"), Value::Integer(2));

    assert_eq!(worker.call("QLEN dead"), error(NO_QUEUE));
    for look in ["SHOW", "TRACE", "WAITJOB TIMEOUT 1"] {
        let reply = worker.call(&format!("{look} {dead}"));
        assert_ne!(reply, error(NO_QUEUE), "{look}");
        assert_eq!(stranger.call(&format!("{look} {dead}")), error(NO_QUEUE), "{look}");
        assert_eq!(worker.call(&format!("{look} {foreign}")), error(NO_QUEUE), "{look}");
    }
    assert_eq!(stranger.call(&format!("WORKING {dead}")), error(NO_QUEUE));
    assert_eq!(narrow.call(&format!("DELJOB {dead}")), error(NO_QUEUE));
    assert_eq!(stranger.call(&format!("ACKJOB {dead} {fine} {foreign}")), Value::Integer(0));
    // What died in another's queue stays where it is, since it would come into that queue.
    assert_eq!(operator.call("QREDRIVE dead"), Value::Integer(1));
    assert_eq!(operator.call("QLEN mail"), Value::Integer(1));
    assert_eq!(array(root.call("GETJOB FROM mail")).len(), 1);
    assert_eq!(root.call(&format!("NACK {dead} DEAD")), Value::Integer(1));
    assert_eq!(worker.call(&format!("ACKJOB {foreign} {dead} {fine}")), Value::Integer(2));
    assert_eq!(root.call("QLEN dead"), Value::Integer(1));
    assert_eq!(root.call("QREDRIVE dead"), Value::Integer(1), "an admin has all queues");
}

#[test]
fn a_rewrite_keeps_users_and_a_restart_finds_them() {
    let file = format!("# people\nuser {}\nhz 10\n", line("root", "admin"));
    let mut server = TestServer::start_with_config(&file, &[]);
    let mut root = log_in(&server, "root");
    let ann = line("ann", "produce,watch mail* \"a b\"");
    assert_eq!(set(&mut root, &ann), status("OK"));
    let all = format!("{}\n{ann}", line("root", "admin"));
    assert_eq!(shown(&mut root), all);
    assert_eq!(set(&mut root, &all), status("OK"), "what is shown can be set");
    root.ok("CONFIG REWRITE");
    let path = server.folder().join("disque.conf");
    let written = fs::read_to_string(&path).expect("it is there");
    let beginning = format!("# people\nuser {}\nuser {ann}\nhz 10\n", line("root", "admin"));
    assert!(written.starts_with(&beginning), "{written}");
    server.stop_by(libc::SIGTERM);
    server.start_again(&[]);
    let mut client = log_in(&server, "ann");
    assert!(!matches!(client.call_words(&[b"ADDJOB", b"a b", b"x", b"0"]), Value::Error(_)));
    assert_eq!(client.call("ADDJOB b x 0"), error(NO_QUEUE));
    let mut root = log_in(&server, "root");
    assert_eq!(shown(&mut root), all);
    for (lines, reason) in [
        ("ann x watch", "the password must be sha256: and 64 hexadecimal digits"),
        ("default", "the password of the user default is requirepass"),
        ("\"ann", "unbalanced quotes"),
    ] {
        let refusal = format!("ERR Invalid argument '(redacted)' for CONFIG SET 'user': {reason}");
        assert_eq!(set(&mut root, lines), error(&refusal));
    }
    let many: String = (0..1000).map(|n| line(&format!("u{n}"), "watch") + "\n").collect();
    assert_eq!(set(&mut root, &many), error("ERR at most 1000 users"));
    assert_eq!(shown(&mut root), all);
}

#[test]
fn a_rewrite_brings_no_user_back_that_an_included_file_has() {
    let (root, ann) = (line("root", "admin"), line("ann", "admin"));
    let folder = tempfile::tempdir().expect("a folder");
    let included = folder.path().join("users.conf");
    fs::write(&included, format!("user {root}\nuser {ann}\n")).expect("it is writable");
    let file = format!("include {}\n", included.display());
    let server = TestServer::start_with_config(&file, &[]);
    let mut root = log_in(&server, "root");
    root.ok("CONFIG REWRITE");
    assert_eq!(set(&mut root, "ann"), status("OK"));
    let refusal = "ERR Rewriting config file: lines of an included file would bring back other \
                   users: change them there";
    assert_eq!(root.call("CONFIG REWRITE"), error(refusal));
    fs::write(&included, format!("user {}\n", line("root", "admin"))).expect("it is writable");
    root.ok("CONFIG REWRITE");
}

#[test]
fn nobody_sees_passwords_or_hashes() {
    let file = format!("user {}\n", line("root", "admin"));
    let options = ["--slowlog-log-slower-than", "0"];
    let mut server = TestServer::start_with_config(&file, &options);
    let mut root = log_in(&server, "root");
    let mut monitor = log_in(&server, "root");
    monitor.ok("MONITOR");
    let ann = line("ann", "watch");
    assert_eq!(set(&mut root, &ann), status("OK"));
    for login in ["AUTH ann ann-word", "DISQUE AUTH ann ann-word", "disque.auth ann ann-word"] {
        server.client().ok(login);
    }
    assert!(matches!(server.client().call("HELLO 3 AUTH ann ann-word"), Value::Map(_)));
    assert_eq!(server.client().call("AUTH ann ann-wordy"), error(WRONGPASS));
    assert_eq!(server.client().call("HELLO 3 AUTH ann-word"), error("ERR syntax error"));
    // Without the quotes that a shell takes away.
    assert!(matches!(root.call(&format!("CONFIG SET user {ann}")), Value::Error(_)));
    assert!(matches!(root.call("CONFIG SET requirepass a ann-word"), Value::Error(_)));
    assert_eq!(root.call("ECHO end"), bulk("end"));
    let mut seen = String::new();
    while !seen.contains("\"end\"") {
        seen += &text(monitor.reply());
    }
    assert!(seen.contains(r#""CONFIG" "SET" "user" "(redacted)""#), "{seen}");
    seen += &format!(
        "{:?}",
        array(root.call("SLOWLOG GET 100")).into_iter().map(arguments).collect::<Vec<_>>()
    );
    seen += &text(root.call("INFO all"));
    seen += &text(root.call("CLIENT LIST"));
    let of_process = |what: &str| {
        let bytes = fs::read(format!("/proc/{}/{what}", server.pid())).expect("it runs");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if cfg!(target_os = "linux") {
        seen += &(of_process("cmdline") + &of_process("environ"));
    }
    seen += &server.log();
    let hash = |name: &str| PasswordHash::of(format!("{name}-word").as_bytes()).to_string();
    for secret in ["ann-word", "root-word", &hash("ann")[7..], &hash("root")[7..]] {
        assert!(!seen.contains(secret), "{secret} in {seen}");
    }
    root.ok("CONFIG REWRITE");
    let written = fs::read_to_string(server.folder().join("disque.conf")).expect("it is there");
    assert!(written.contains(&ann) && !written.contains("-word"), "{written}");
    server.stop_by(libc::SIGTERM);
}

/// The arguments in an entry of the slow log, as texts.
fn arguments(entry: Value) -> Vec<String> {
    array(array(entry)[3].clone()).into_iter().map(text).collect()
}

#[test]
fn users_are_set_on_each_node_of_a_cluster_and_jobs_pass_between_theirs() {
    let mesh = Mesh::of(2);
    let users = [line("root", "admin"), line("in", "produce mail*"), line("out", "consume mail*")];
    for n in 0..2 {
        assert_eq!(set(&mut mesh.client(n), &users.join("\n")), status("OK"));
        assert_eq!(mesh.client(n).call("PING"), error(NOAUTH));
    }
    let mut producer = log_in(&mesh.servers[0], "in");
    let mut worker = log_in(&mesh.servers[1], "out");
    let id = text(producer.call("ADDJOB mail body 5000 REPLICATE 2"));
    let jobs = array(worker.call("GETJOB TIMEOUT 60000 FROM mail"));
    assert_eq!(text(array(jobs[0].clone())[1].clone()), id);
    assert_eq!(worker.call(&format!("ACKJOB {id}")), Value::Integer(1));
    // What an old line allowed before the change it does not any more, on that node.
    assert_eq!(set(&mut log_in(&mesh.servers[1], "root"), &line("out", "consume x")), status("OK"));
    assert_eq!(worker.call("GETJOB NOHANG FROM mail"), error(NO_QUEUE));
    let mut other = log_in(&mesh.servers[0], "out");
    assert_eq!(other.call("GETJOB NOHANG FROM mail"), Value::NullArray);
    assert_eq!(integer(producer.call("QLEN mail")), 0);
}

#[test]
fn who_has_not_logged_in_has_the_limits_of_unauthenticated_clients() {
    let server = server_with(&[]);
    let unauthenticated = server.client().call_words(&[&[b'x'; 20_000]]);
    assert_eq!(unauthenticated, error("ERR Protocol error: unauthenticated bulk length"));
    let all: Vec<&[u8]> = [&b"QLEN"[..]].into_iter().chain([&[b'q'; 20_000][..]]).collect();
    assert_eq!(log_in(&server, "root").call_words(&all), Value::Integer(0));
}
