//! Policies of queues that change while jobs come, against a simple model: what a job has is what
//! its ADDJOB says, else what the last line says that matches, else what C has.

use disque::engine::config::EngineConfig;
use disque::engine::policy::{PolicyLine, PolicyWord};
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;
use proptest::prelude::*;

use crate::cluster::Sim;
use crate::storage::AppendOnly;

const GLOBS: [&str; 5] = ["*", "a*", "*b", "ab", "?"];
const QUEUES: [&str; 4] = ["a", "ab", "b", "c"];

/// What ADDJOBs look at.
const WORDS: [PolicyWord; 4] = [
    PolicyWord::DefaultTtl,
    PolicyWord::DefaultRetry,
    PolicyWord::DefaultReplicate,
    PolicyWord::MaxLen,
];

/// A value for each word, in the order of [`WORDS`], where there is one.
type Values = [Option<u64>; 4];

#[derive(Clone, Debug)]
enum Move {
    Set { glob: usize, values: Values },
    Add { queue: usize, values: Values, delay_secs: u64 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let values = || {
        let one = |range: std::ops::Range<u64>| prop::option::of(range);
        (one(1..40), one(1..9), one(1..4), one(0..6)).prop_map(|(a, b, c, d)| [a, b, c, d])
    };
    let set = (0..GLOBS.len(), values()).prop_map(|(glob, values)| Move::Set { glob, values });
    let add = (0..QUEUES.len(), values(), 0..30_u64)
        .prop_map(|(queue, values, delay_secs)| Move::Add { queue, values, delay_secs });
    prop::collection::vec(prop_oneof![set, add], 1..60)
}

/// The lines there should be: a glob has one place, that of its first line.
#[derive(Default)]
struct Model(Vec<(usize, Values)>);

impl Model {
    fn set(&mut self, glob: usize, values: Values) {
        match self.0.iter().position(|(known, _)| *known == glob) {
            Some(at) if values == Values::default() => drop(self.0.remove(at)),
            Some(at) => self.0[at].1 = values,
            None if values == Values::default() => {}
            None => self.0.push((glob, values)),
        }
    }

    /// What they say of a queue, worked out by hand for each glob.
    fn values(&self, queue: &str) -> Values {
        let matches = |glob: &str| match glob {
            "*" => true,
            "a*" => queue.starts_with('a'),
            "*b" => queue.ends_with('b'),
            "?" => queue.len() == 1,
            name => queue == name,
        };
        let mut said = Values::default();
        for (_, values) in self.0.iter().filter(|(glob, _)| matches(GLOBS[*glob])) {
            (0..4)
                .filter(|&word| values[word].is_some())
                .for_each(|word| said[word] = values[word]);
        }
        said
    }
}

fn text_of(values: Values, names: [&str; 4]) -> String {
    let said = names.iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
    said.map(|(name, value)| format!(" {name} {value}")).collect()
}

fn field(job: &Value, name: &str) -> i64 {
    let Value::Array(pairs) = job else { panic!("a job is there: {job:?}") };
    let at = pairs.iter().position(|pair| *pair == Value::Bulk(name.into())).expect("a field");
    match pairs[at + 1] {
        Value::Integer(number) => number,
        ref other => panic!("{name} is a number: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_an_addjob_does_not_say_the_lines_of_the_moment_say(moves in moves()) {
        let mut sim = Sim::new(1, 1, &EngineConfig::default(), AppendOnly::No);
        let client = sim.connect_client(0, Resp::V2);
        let mut model = Model::default();
        for step in moves {
            match step {
                Move::Set { glob, values } => {
                    model.set(glob, values);
                    let words = WORDS.map(PolicyWord::name);
                    let line = format!("{}{}", GLOBS[glob], text_of(values, words));
                    let line: Vec<Vec<u8>> = line.split(' ').map(Into::into).collect();
                    let now = sim.now(0);
                    let engine = &mut sim.nodes[0].engine;
                    let mut config = engine.config().clone();
                    config.policies.set(PolicyLine::parse(&line).expect("a right line"));
                    engine.set_config(now, config);
                }
                Move::Add { queue, values, delay_secs } => {
                    let queue = QUEUES[queue];
                    let [ttl, retry, _, len_max] = values;
                    // Of one node there is one copy, whatever the policy says.
                    let given = [ttl, retry, None, len_max.filter(|max| *max > 0)];
                    let options = text_of(given, ["TTL", "RETRY", "REPLICATE", "MAXLEN"]);
                    let line = format!("ADDJOB {queue} body 0 DELAY {delay_secs}{options}");
                    let len = sim.call(0, client, &["QLEN", queue]);
                    let reply = sim.call(0, client, &line.split(' ').collect::<Vec<_>>());

                    let said = model.values(queue);
                    let default_ttl = said[0].filter(|ttl| delay_secs < *ttl).unwrap_or(86_400);
                    let ttl = given[0].unwrap_or(default_ttl);
                    let retry = given[1].or(said[1]).unwrap_or((ttl / 10).clamp(1, 300));
                    let len_max = given[3].or(said[3]).unwrap_or(0);
                    let is_full = matches!(len, Value::Integer(len) if len.unsigned_abs() >= len_max);
                    match reply {
                        Value::Error(error) if delay_secs >= ttl => {
                            prop_assert!(error.starts_with(b"ERR The specified DELAY"), "{line}");
                        }
                        Value::Error(error) => {
                            prop_assert!(error.starts_with(b"MAXLEN"), "{line}: {error:?}");
                            prop_assert!(len_max > 0 && is_full, "{line}: {len_max}, {len:?}");
                        }
                        Value::Status(id) => {
                            prop_assert!(delay_secs < ttl && !(len_max > 0 && is_full), "{line}");
                            let id = String::from_utf8(id).expect("IDs are text");
                            let job = sim.call(0, client, &["SHOW", &id]);
                            let had = ["ttl", "retry", "repl"].map(|name| field(&job, name));
                            prop_assert_eq!(had, [ttl as i64, retry as i64, 1], "{}", line);
                        }
                        other => prop_assert!(false, "{line} is answered {other:?}"),
                    }
                }
            }
        }
    }
}
