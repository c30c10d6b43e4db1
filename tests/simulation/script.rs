//! Scenarios as transcripts: what is typed, and what comes back.
//!
//! ```text
//! # A line that says what is shown.
//! nodes 1                      `nodes 1 aof` keeps an append only file
//! > A ADDJOB q body 0          client 1 of node A; `A.2` is its client 2
//! +<job1>                      the first job ID that was seen, ever after
//! > A.2 GETJOB FROM other
//! (waits)
//! > wait 2500                  ms of virtual time
//! A.2 *-1                      what other clients got meanwhile
//! > hangup A.2
//! > resp3 A.3                  this client speaks RESP3
//! ```
//!
//! Looking at a node, as the server's own commands would:
//!
//! ```text
//! > show A <job1> state nacks  chosen fields of SHOW
//! > stat A q len pause         chosen fields of QSTAT
//! > id A <job1>                an ID with its random part left out
//! > count A                    what INFO counts
//! > situations A               how many jobs are in which situation
//! > short A                    how many jobs are to get further copies
//! > aof A                      the records written since this was last asked
//! > trace A <job1>             what happened to a job on this node, and after how many ms
//! ```
//!
//! Doing to a node what the server does:
//!
//! ```text
//! > memory A 1                 its memory warning level
//! > evict A 10                 evicts so many jobs, answers how many there were
//! > noeviction A               maxmemory-policy noeviction
//! > retry-from A delivery      what retries count from
//! > trace-sample A 1           one in so many jobs is traced
//! > trace-max A 2              of so many jobs at most
//! > policy A q* max-len 5      CONFIG SET queue-policy
//! > flush A                    DEBUG FLUSHALL
//! > disk A full                it takes no more; `works` again
//! ```
//!
//! Doing to the network and the machines what happens to them:
//!
//! ```text
//! > meet                       all nodes become one cluster
//! > cut A B                    nothing gets through between two nodes
//! > mute A B                   nothing gets from A to B
//! > heal                       everything gets through
//! > reset A B                  the links between two nodes break
//! > freeze A                   > thaw A
//! > plain A                    it is to others as a C node, and they to it
//! > able A                     it is one of ours again
//! > crash A                    the process is killed; its disk stays
//! > stop A                     it is told to end, with aof-restore-queues
//! > restart A
//! ```
//!
//! Links are 1 ms long, and the node timeout is 2 seconds. `<A>` is the ID of a node,
//! `@A` its IP address and port, as two words.
//!
//! `REWRITE=1 cargo test` writes what came back into the files; the difference is then
//! read by a person.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use disque::base::ids::{ClientId, JobId};
use disque::engine::config::{EngineConfig, Eviction};
use disque::engine::policy::PolicyLine;
use disque::engine::policy::RetryFrom;
use disque::proto::aof_record::{self, AofRecord};
use disque::proto::quoting;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::Sim;
use crate::disk::Faults;
use crate::node::Words;
use crate::storage::{AppendOnly, Crash};

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
        assert!(expected.contains("\n> "), "{} plays something", path.display());
        let played = play(&expected);
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, &played).expect("a scenario can be written");
        } else {
            compare(&path, &played, &expected);
        }
    }
}

fn compare(path: &Path, played: &str, expected: &str) {
    for (number, (got, wanted)) in played.lines().zip(expected.lines()).enumerate() {
        assert_eq!(got, wanted, "{}:{} plays as written", path.display(), number + 1);
    }
    assert_eq!(played, expected, "{} plays as written to its end", path.display());
}

const NODE_TIMEOUT_MS: u64 = 2000;

struct Player {
    sim: Sim,
    clients: BTreeMap<String, (usize, ClientId)>,
    jobs: Vec<String>,
    /// How much of each node's append only file was shown.
    aof_shown: Vec<usize>,
}

/// Plays a scenario; returns it with the answers that came.
fn play(script: &str) -> String {
    let mut played = String::new();
    let mut player: Option<Player> = None;
    for line in script.lines() {
        if let Some(words) = line.strip_prefix("nodes ") {
            player = Some(Player::new(words));
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
    fn new(words: &str) -> Self {
        let (count, append_only) = match words.strip_suffix(" aof") {
            Some(count) => (count, AppendOnly::Yes),
            None => (words, AppendOnly::No),
        };
        let node_count: u16 = count.trim().parse().expect("a number of nodes");
        let config = EngineConfig { node_timeout_ms: NODE_TIMEOUT_MS, ..EngineConfig::default() };
        let mut sim = Sim::new(1, node_count, &config, append_only);
        sim.network.delay_ms = (1, 1);
        let aof_shown = vec![0; usize::from(node_count)];
        Self { sim, clients: BTreeMap::new(), jobs: Vec::new(), aof_shown }
    }

    fn run(&mut self, typed: &str) -> String {
        let words = quoting::split(self.name_back(typed).as_bytes()).expect("quotes are balanced");
        let word = |i: usize| String::from_utf8_lossy(&words[i]).into_owned();
        let number = |i: usize| word(i).parse::<u64>().expect("a number");
        let mut actor = None;
        let mut answer = String::new();
        match word(0).as_str() {
            "wait" => self.sim.run_for(number(1)),
            "hangup" => {
                let (node, client) = self.clients.remove(&word(1)).expect("a known client");
                self.sim.disconnect_client(node, client);
            }
            "resp3" => {
                let client = self.connect(&word(1), Resp::V3);
                self.clients.insert(word(1), client);
            }
            "show" => answer = self.fields(&word(1), &["SHOW", &word(2)], &words[3..]),
            "stat" => answer = self.fields(&word(1), &["QSTAT", &word(2)], &words[3..]),
            "id" => answer = self.shape_of(node_of(&word(1)), &word(2)),
            "count" => {
                let engine = &self.sim.nodes[node_of(&word(1))].engine;
                let (jobs, queues) = (engine.job_count(), engine.queue_count());
                answer =
                    format!("jobs {jobs} queues {queues} blocked {}\n", engine.blocked_count());
            }
            "situations" => {
                let counts = self.sim.nodes[node_of(&word(1))].engine.job_counts();
                answer = format!("{counts:?}\n");
            }
            "short" => {
                let short = self.sim.nodes[node_of(&word(1))].engine.short_of_copies_count();
                answer = format!("{short}\n");
            }
            "aof" => answer = self.new_records(node_of(&word(1))),
            "memory" => self.sim.set_memory_level(node_of(&word(1)), number(2) as u8),
            "evict" => {
                let evicted = self.sim.evict(node_of(&word(1)), number(2) as usize);
                answer = format!("{evicted}\n");
            }
            "noeviction" => {
                let now = self.sim.now(node_of(&word(1)));
                let engine = &mut self.sim.nodes[node_of(&word(1))].engine;
                let config = EngineConfig { eviction: Eviction::None, ..engine.config().clone() };
                engine.set_config(now, config);
            }
            "disk" => {
                let room = (word(2) == "full").then_some(0);
                let faults = Faults { room, ..Faults::default() };
                self.sim.nodes[node_of(&word(1))].storage.disk.set_faults(faults);
            }
            "retry-from" => {
                let now = self.sim.now(node_of(&word(1)));
                let engine = &mut self.sim.nodes[node_of(&word(1))].engine;
                let retry_from = match word(2).as_str() {
                    "delivery" => RetryFrom::Delivery,
                    _ => RetryFrom::Queue,
                };
                engine.set_config(now, EngineConfig { retry_from, ..engine.config().clone() });
            }
            "trace" => answer = self.trace(node_of(&word(1)), &word(2)),
            "trace-sample" | "trace-max" => {
                let now = self.sim.now(node_of(&word(1)));
                let engine = &mut self.sim.nodes[node_of(&word(1))].engine;
                let mut config = engine.config().clone();
                match word(0).as_str() {
                    "trace-sample" => config.trace_sample = number(2),
                    _ => config.trace_max = number(2) as usize,
                }
                engine.set_config(now, config);
            }
            "policy" => {
                let node = node_of(&word(1));
                let now = self.sim.now(node);
                let engine = &mut self.sim.nodes[node].engine;
                let mut config = engine.config().clone();
                config.policies.set(PolicyLine::parse(&words[2..]).expect("a right line"));
                engine.set_config(now, config);
            }
            "flush" => self.sim.flush(node_of(&word(1))),
            "meet" => self.sim.meet_all(),
            "cut" => {
                self.sim.network.cut(node_of(&word(1)), node_of(&word(2)));
                self.sim.network.cut(node_of(&word(2)), node_of(&word(1)));
            }
            "mute" => self.sim.network.cut(node_of(&word(1)), node_of(&word(2))),
            "heal" => self.sim.network.heal(self.sim.now_ms),
            "reset" => self.sim.reset_links(node_of(&word(1)), node_of(&word(2))),
            "crash" => {
                self.clients.retain(|_, (node, _)| *node != node_of(&word(1)));
                self.sim.crash(node_of(&word(1)), Crash::Killed);
            }
            "stop" => {
                self.clients.retain(|_, (node, _)| *node != node_of(&word(1)));
                let is_left = self.sim.stop_as_planned(node_of(&word(1)), Crash::PowerLost);
                assert!(is_left, "the disk works");
            }
            "restart" => self.sim.restart(node_of(&word(1))),
            "plain" => self.sim.network.speak_plainly(node_of(&word(1))),
            "able" => self.sim.network.speak_ably(node_of(&word(1))),
            "freeze" => self.sim.freeze(node_of(&word(1))),
            "thaw" => self.sim.thaw(node_of(&word(1))),
            name => {
                self.command(name, words[1..].to_vec());
                actor = Some(name.to_owned());
            }
        }
        answer + &self.collect(actor.as_deref())
    }

    /// A line with the IDs that its names of jobs stand for.
    fn name_back(&self, typed: &str) -> String {
        let mut text = typed.to_owned();
        for (i, id) in self.jobs.iter().enumerate().rev() {
            text = text.replace(&format!("<job{}>", i + 1), id);
        }
        for (n, node) in self.sim.nodes.iter().enumerate() {
            let id = String::from_utf8_lossy(&node.engine.cluster().my_id().0).into_owned();
            text = text.replace(&format!("<{}>", node_letter(n)), &id);
            text = text.replace(&format!("@{}", node_letter(n)), &format!("{} 7711", node.ip));
        }
        text
    }

    fn connect(&mut self, name: &str, resp: Resp) -> (usize, ClientId) {
        let node = node_of(name);
        (node, self.sim.connect_client(node, resp))
    }

    fn command(&mut self, name: &str, words: Words) {
        let (node, client) = match self.clients.get(name) {
            Some(&known) => known,
            None => self.connect(name, Resp::V2),
        };
        self.clients.insert(name.to_owned(), (node, client));
        self.sim.send(node, client, words);
    }

    /// Chosen fields of a reply that consists of pairs.
    fn fields(&mut self, node: &str, command: &[&str], fields: &[Vec<u8>]) -> String {
        let (node, asker) = self.connect(node, Resp::V2);
        let reply = self.sim.call(node, asker, command);
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

    fn shape_of(&self, node: usize, id: &str) -> String {
        let node_id = self.sim.nodes[node].engine.cluster().my_id().0;
        let prefix = String::from_utf8_lossy(&node_id[..8]).into_owned();
        assert_eq!(id.len(), 40, "an ID has 40 characters");
        let random = &id[11..35];
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
        assert!(random.chars().all(is_base64), "the random part is base64");
        id.replace(random, "...").replace(&prefix, &format!("<{}>", node_letter(node))) + "\n"
    }

    fn new_records(&mut self, node: usize) -> String {
        let aof = self.sim.nodes[node].storage.aof_bytes();
        let mut lines = String::new();
        while let Some((len, record)) =
            aof_record::next(&aof[self.aof_shown[node]..]).expect("engines write whole records")
        {
            self.aof_shown[node] += len;
            lines += &match record {
                AofRecord::LoadJob(job) => format!("LOADJOB {}\n", self.name(&job.id.0)),
                AofRecord::DelJob(id) => format!("DELJOB {}\n", self.name(&id.0)),
            };
        }
        lines
    }

    /// What a node noted of a job, an event a line.
    fn trace(&mut self, node: usize, id: &str) -> String {
        let id = JobId::parse(id.as_bytes()).expect("an ID");
        let mut lines = String::new();
        for row in self.sim.nodes[node].engine.trace_of(&id) {
            let at_ms = row.at.0 - self.sim.nodes[node].clock.at(0).wall.0;
            let event = String::from_utf8_lossy(&row.event).into_owned();
            let details = row.details.iter().map(|(name, value)| {
                let name = String::from_utf8_lossy(name).into_owned();
                format!(" {name} {}", self.render(&Value::Bulk(value.clone())))
            });
            let details: String = details.collect();
            lines += &format!("{at_ms:>6} {event}{details}\n");
        }
        if lines.is_empty() { "nothing\n".to_owned() } else { lines }
    }

    /// The replies that came: those of the client that spoke first, bare.
    fn collect(&mut self, actor: Option<&str>) -> String {
        let mut lines = String::new();
        if let Some(name) = actor {
            let (node, client) = self.clients[name];
            for (_, value) in self.sim.take_replies(node, client) {
                lines += &(self.render(&value) + "\n");
            }
            if self.sim.is_blocked(node, client) {
                lines += "(waits)\n";
            }
        }
        for (name, (node, client)) in self.clients.clone() {
            for (_, value) in self.sim.take_replies(node, client) {
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
            Value::Map(_) => unreachable!("no command of the engine answers a map"),
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
        Some(format!("<{}>", node_letter(index)))
    }
}

/// The node of a client's name, or of its own.
fn node_of(name: &str) -> usize {
    usize::from(name.as_bytes()[0] - b'A')
}

fn node_letter(node: usize) -> char {
    char::from(b'A' + u8::try_from(node).expect("nodes have letters"))
}
