//! The engine alone, without sockets: nanoseconds and allocations a command, bytes a job.
//!
//! `cargo bench --bench engine [jobs]`; 1,000,000 jobs of 64 bytes unless said.

use disque::base::ids::{ClientId, NodeId};
use disque::base::memory::{self, CountingAllocator};
use disque::base::rng::Rng;
use disque::base::time::{MonoMs, Now, UnixMs};
use disque::engine::Engine;
use disque::engine::command::Call;
use disque::engine::commands;
use disque::engine::config::EngineConfig;
use disque::engine::policy::PolicyLine;
use disque::engine::records::Storage;
use disque::proto::aof_record::SumPlace;
use disque::proto::reply::Resp;
use disque::proto::request::{self, Args, Parsed, RequestParser, Sender};
use disque::store::aof_sums::{FileEnd, SumWriter};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CLIENT: ClientId = ClientId { slot: 0, generation: 0 };
const NOW: Now = Now { wall: UnixMs(1_767_225_600_000), mono: MonoMs(86_400_000) };
const BODY: [u8; 64] = [b'x'; 64];
/// As a traced application gives them: 82 bytes with their names.
const ATTRIBUTES: &[&[u8]] = &[
    b"ATTR",
    b"traceparent",
    b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    b"ATTR",
    b"type",
    b"mail.welcome",
];
/// All priorities, one after another.
const PRIORITIES: [&[u8]; 7] = [b"1", b"2", b"3", b"4", b"5", b"6", b"7"];
/// Commands between two drains of the replies, as in a turn with 50 clients of depth 16.
const DRAIN_EVERY: usize = 800;

/// Time that this thread was on a processor: other work on the machine does not count.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number of nanoseconds")
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut input = Vec::new();
    request::encode(words, &mut input);
    input
}

/// Runs a command once a request, prints what one costs, and returns the replies. Records
/// of the append only file go through `file`.
fn measure(
    engine: &mut Engine,
    name: &str,
    label: &str,
    mut requests: Vec<Vec<u8>>,
    file: &mut Option<SumWriter>,
) -> Vec<u8> {
    let command = commands::find(name.as_bytes()).expect("a command");
    let mut offset = 0;
    let count = requests.len();
    let mut replies = Vec::with_capacity(count * 150);
    let mut ranges = Vec::new();
    let allocations = memory::allocations();
    let started_at = cpu_ns();
    for (i, input) in requests.iter_mut().enumerate() {
        let parsed = RequestParser::default().parse(input, &mut ranges, Sender::Authenticated);
        assert!(matches!(parsed, Ok(Parsed::Request { .. })));
        let call = Call { client: CLIENT, resp: Resp::V2, args: Args::new(input, &ranges) };
        engine.call(NOW, command, &call);
        if i % DRAIN_EVERY == 0 || i + 1 == count {
            replies.extend_from_slice(&engine.out.replies.bytes);
            engine.out.replies.bytes.clear();
            engine.out.replies.segments.clear();
            if let Some(sums) = file {
                sums.fill(&mut engine.out.aof, offset);
            }
            offset += engine.out.aof.len() as u64;
            engine.out.aof.clear();
        }
    }
    println!(
        "{label:<24} {:>6.0} ns {:>8.3} allocations",
        (cpu_ns() - started_at) as f64 / count as f64,
        (memory::allocations() - allocations) as f64 / count as f64
    );
    replies
}

fn main() {
    let count = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(1_000_000);
    let config = EngineConfig::default();
    run(count, "", &[&[]], config.clone(), Storage::Off, None);
    let of_one: &[&[u8]] = &[b"PRIORITY", b"4"];
    run(count, ", one priority", &[of_one], config.clone(), Storage::Off, None);
    let of_seven = PRIORITIES.map(|priority| [&b"PRIORITY"[..], priority]);
    let of_seven: Vec<&[&[u8]]> = of_seven.iter().map(|words| &words[..]).collect();
    run(count, ", seven priorities", &of_seven, config.clone(), Storage::Off, None);
    run(count, ", kept", &[&[]], config.clone(), Storage::Works, None);
    run(count, ", two attributes", &[ATTRIBUTES], config.clone(), Storage::Off, None);
    run(count, ", kept, attributes", &[ATTRIBUTES], config.clone(), Storage::Works, None);
    for (how, trace_sample) in [(", traced", 1), (", 1 in 100 traced", 100)] {
        let config = EngineConfig { trace_sample, ..config.clone() };
        run(count, how, &[&[]], config, Storage::Off, None);
    }
    run_failing(count, "", &config, Storage::Off);
    run_failing(count, ", kept", &config, Storage::Works);
    let config = EngineConfig { aof_sums: SumPlace::Yes, ..config };
    let sums = SumWriter::new(Rng::from_seed([2; 32]), FileEnd::default());
    run(count, ", kept with sums", &[&[]], config, Storage::Works, Some(sums));
}

/// Adds, fetches and acknowledges jobs with one of these options each, in turn, whose attributes
/// are fetched too; with the append only file on, its records are made and not written.
fn run(
    count: usize,
    how: &str,
    options: &[&[&[u8]]],
    config: EngineConfig,
    storage: Storage,
    mut file: Option<SumWriter>,
) {
    let mut engine = Engine::new(config, NodeId([b'a'; 40]), [1; 32], NOW);
    engine.set_storage(NOW, storage);
    let mut measure = |engine: &mut Engine, name: &str, requests| {
        measure(engine, name, &format!("{name}{how}"), requests, &mut file)
    };
    let before = memory::used();
    let add: &[&[u8]] = &[b"ADDJOB", b"q", &BODY, b"0"];
    let adds: Vec<Vec<u8>> =
        options.iter().map(|options| request(&[add, *options].concat())).collect();
    let requests = adds.iter().cycle().take(count).cloned().collect();
    let replies = measure(&mut engine, "addjob", requests);
    let per_job = (memory::used() - before - replies.capacity()) as f64 / count as f64;
    println!("{per_job:>27.1} bytes a job, its body included");
    let ids: Vec<Vec<u8>> = replies.chunks(43).map(|line| line[1..41].to_vec()).collect();
    let get: &[&[u8]] = &[b"GETJOB", b"NOHANG", b"WITHATTRS", b"FROM", b"q"];
    let without: &[&[u8]] = &[b"GETJOB", b"NOHANG", b"FROM", b"q"];
    let get = request(if options == [ATTRIBUTES] { get } else { without });
    measure(&mut engine, "getjob", vec![get; count]);
    measure(&mut engine, "ackjob", ids.iter().map(|id| request(&[b"ACKJOB", id])).collect());
    assert_eq!(engine.job_count(), 0, "every job was acknowledged");
}

/// Jobs that are given back for a while, and then die of their first delivery.
fn run_failing(count: usize, how: &str, config: &EngineConfig, storage: Storage) {
    let mut config = config.clone();
    let line = ["q", "max-deliveries", "1"].map(|word| word.as_bytes().to_vec());
    config.policies.set(PolicyLine::parse(&line).expect("a right line"));
    let mut engine = Engine::new(config, NodeId([b'a'; 40]), [1; 32], NOW);
    engine.set_storage(NOW, storage);
    let mut step = |label: &str, requests: Vec<Vec<u8>>| {
        let name = label.split(' ').next().unwrap_or(label);
        measure(&mut engine, name, &format!("{label}{how}"), requests, &mut None)
    };
    let replies = step("addjob policy", vec![request(&[b"ADDJOB", b"q", &BODY, b"0"]); count]);
    let ids: Vec<Vec<u8>> = replies.chunks(43).map(|line| line[1..41].to_vec()).collect();
    let of_each = |words: &dyn Fn(&Vec<u8>) -> Vec<u8>| ids.iter().map(words).collect::<Vec<_>>();
    let get = request(&[b"GETJOB", b"NOHANG", b"FROM", b"q"]);
    step("getjob policy", vec![get.clone(); count]);
    step("nack delay", of_each(&|id| request(&[b"NACK", id, b"SILENT", b"DELAY", b"5"])));
    step("enqueue delayed", of_each(&|id| request(&[b"ENQUEUE", id])));
    step("getjob again", vec![get; count]);
    step("nack dying", of_each(&|id| request(&[b"NACK", id])));
    assert_eq!(engine.job_count(), count, "every job is dead, and there");
}
