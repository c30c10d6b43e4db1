//! Scenarios as transcripts: what is typed, and what comes back.
//!
//! ```text
//! # A line that says what is shown.
//! nodes 1
//! > A ADDJOB q body 0          client 1 of node A; `A.2` is its client 2
//! +<job1>                      the first job ID that was seen, ever after
//! > A.2 GETJOB FROM other
//! (waits)
//! > wait 2500                  ms of virtual time
//! A.2 *-1                      what other clients got meanwhile
//! > show A <job1> state nacks  chosen fields of SHOW
//! > hangup A.2                 > memory A 1
//! ```
//!
//! `REWRITE=1 cargo test` writes what came back into the files; the difference is then
//! read by a person.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use disque::base::ids::{ClientId, JobId};
use disque::engine::config::EngineConfig;
use disque::proto::quoting;
use disque::proto::reply_reader::Value;

use crate::cluster::{Sim, Words};

pub fn play_all() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the scenarios are there")
        .map(|entry| entry.expect("a folder can be read").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are scenarios");
    for path in paths {
        let expected = std::fs::read_to_string(&path).expect("a scenario can be read");
        let played = play(&expected);
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, &played).expect("a scenario can be written");
        } else {
            assert_eq!(played, expected, "{} plays as written", path.display());
        }
    }
}

struct Player {
    sim: Sim,
    clients: BTreeMap<String, (usize, ClientId)>,
    jobs: Vec<String>,
}

/// Plays a scenario; returns it with the answers that came.
fn play(script: &str) -> String {
    let mut played = String::new();
    let mut player: Option<Player> = None;
    for line in script.lines() {
        if let Some(count) = line.strip_prefix("nodes ") {
            let count = count.trim().parse().expect("a number of nodes");
            player = Some(Player::new(count));
            writeln!(played, "{line}").expect("text grows");
        } else if let Some(typed) = line.strip_prefix("> ") {
            writeln!(played, "{line}").expect("text grows");
            let player = player.as_mut().expect("a scenario begins with `nodes`");
            played += &player.run(typed);
        } else if line.is_empty() || line.starts_with('#') {
            writeln!(played, "{line}").expect("text grows");
        }
    }
    played
}

impl Player {
    fn new(node_count: usize) -> Self {
        let sim = Sim::new(1, node_count, &EngineConfig::default());
        Self { sim, clients: BTreeMap::new(), jobs: Vec::new() }
    }

    fn run(&mut self, typed: &str) -> String {
        let mut text = typed.to_owned();
        for (i, id) in self.jobs.iter().enumerate().rev() {
            text = text.replace(&format!("<job{}>", i + 1), id);
        }
        let words = quoting::split(text.as_bytes()).expect("quotes are balanced");
        let word = |i: usize| String::from_utf8_lossy(&words[i]).into_owned();
        let mut actor = None;
        let mut answer = String::new();
        match word(0).as_str() {
            "wait" => self.sim.run_for(word(1).parse().expect("a number of ms")),
            "hangup" => {
                let (node, client) = self.clients.remove(&word(1)).expect("a known client");
                self.sim.disconnect_client(node, client);
            }
            "memory" => {
                let (node, _) = self.client(&word(1));
                let level = word(2).parse().expect("a level");
                let now = self.sim.now();
                self.sim.nodes[node].engine.set_memory_level(now, level);
            }
            "show" => answer = self.show(&word(1), &word(2), &words[3..]),
            name => {
                self.command(name, words[1..].to_vec());
                actor = Some(name.to_owned());
            }
        }
        self.sim.check_invariants();
        answer + &self.collect(actor.as_deref())
    }

    /// A client by its name, `A` or `A.2`; connected when first named.
    fn client(&mut self, name: &str) -> (usize, ClientId) {
        if let Some(&known) = self.clients.get(name) {
            return known;
        }
        let node = usize::from(name.as_bytes()[0] - b'A');
        let client = self.sim.connect_client(node);
        self.clients.insert(name.to_owned(), (node, client));
        (node, client)
    }

    fn command(&mut self, name: &str, words: Words) {
        let (node, client) = self.client(name);
        self.sim.send(node, client, words);
    }

    fn show(&mut self, name: &str, id: &str, fields: &[Vec<u8>]) -> String {
        let (node, _) = self.client(name);
        let asker = self.sim.connect_client(node);
        let reply = self.sim.call(node, asker, &["SHOW", id]);
        let Value::Array(pairs) = reply else { return self.render(&reply) + "\n" };
        let mut shown = Vec::new();
        for pair in pairs.chunks(2) {
            if let [Value::Bulk(key), value] = pair
                && fields.contains(key)
            {
                let key = String::from_utf8_lossy(key).into_owned();
                shown.push(format!("{key} {}", self.render(value)));
            }
        }
        shown.join(" ") + "\n"
    }

    /// The replies that came: those of the client that spoke first, bare.
    fn collect(&mut self, actor: Option<&str>) -> String {
        let mut lines = String::new();
        if let Some(name) = actor {
            let (node, client) = self.clients[name];
            for value in self.sim.take_replies(node, client) {
                lines += &(self.render(&value) + "\n");
            }
            if self.sim.is_blocked(node, client) {
                lines += "(waits)\n";
            }
        }
        for (name, (node, client)) in self.clients.clone() {
            for value in self.sim.take_replies(node, client) {
                lines += &format!("{name} {}\n", self.render(&value));
            }
        }
        lines
    }

    fn render(&mut self, value: &Value) -> String {
        match value {
            Value::Status(text) => format!("+{}", self.name(text)),
            Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
            Value::Integer(number) => format!(":{number}"),
            Value::Bulk(bytes) if JobId::parse(bytes).is_some() => self.name(bytes),
            Value::Bulk(bytes) => match self.node_name(bytes) {
                Some(name) => name,
                None => String::from_utf8_lossy(&quoting::quote(bytes)).into_owned(),
            },
            Value::NullBulk => "$-1".to_owned(),
            Value::NullArray => "*-1".to_owned(),
            Value::Null => "_".to_owned(),
            Value::Array(elements) => {
                let elements: Vec<String> =
                    elements.iter().map(|element| self.render(element)).collect();
                format!("[{}]", elements.join(" "))
            }
            Value::Map(_) => unreachable!("the simulator speaks RESP2"),
        }
    }

    /// A job ID as `<jobN>`, counted as they are seen; other text as it is.
    fn name(&mut self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text).into_owned();
        if JobId::parse(text.as_bytes()).is_none() {
            return text;
        }
        let known = self.jobs.iter().position(|id| *id == text);
        let index = known.unwrap_or_else(|| {
            self.jobs.push(text);
            self.jobs.len() - 1
        });
        format!("<job{}>", index + 1)
    }

    fn node_name(&self, bytes: &[u8]) -> Option<String> {
        let nodes = &self.sim.nodes;
        let index = nodes.iter().position(|node| node.engine.cluster().my_id().0 == *bytes)?;
        Some(format!("<{}>", char::from(b'A' + index as u8)))
    }
}
