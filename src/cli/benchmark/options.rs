//! What one run does, as the command line says it. Parsed once, checked once: a value
//! of [`BenchmarkOptions`] that [`parse`] hands out makes sense as a whole, so nothing behind it
//! asks again whether, say, a peer knows acknowledgements.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::RunFailure;
use super::peer::{BenchmarkPeer, STAMP_LEN};
use crate::cli::address::{GivenAddress, ServerAddress};
use crate::cli::connection::Login;

/// The text of `--help`.
pub const USAGE: &str = "\
Usage: disque-benchmark [options]

Loads a job queue and measures how it bears it: jobs a second, latencies, and what the
server spends on a job.

What to talk to
  -h HOST            server's host (127.0.0.1); its port may follow, as in db1:7711
  -p PORT            server's port (7711)
  -a PASSWORD        log in with it; for disque better set DISQUE_AUTH, which other
                     users of the machine cannot see
  --server HOST:PORT a server; repeat it for several (instead of -h and -p)
  --peer PEER        disque, list, reliable, stream (Redis) or beanstalkd (disque)
  --pid PID          a server's process, for its CPU and memory; repeat it or use commas

What to do
  -w, --workload W   steps joined by commas, run one after the other (add,get,ack):
                       add      add jobs
                       get      fetch jobs
                       ack      acknowledge what `get` fetched (ACKJOB)
                       fastack  the same with FASTACK
                       drain    fetch and acknowledge; add-drain is add,drain
                       wait     GETJOB with a timeout on an empty queue; its latency is
                                how late the answer comes
                     or one flow:
                       mix         producers, and consumers that block
                       federation  the same, producers on the first server and
                                   consumers on the others
  -n JOBS            jobs in all (100000)
  -c CLIENTS         connections (50)
  -P DEPTH           requests in one write (1)
  --producers N      connections of a flow that add jobs (half of them)
  --window N         jobs of a flow under way at once (1000)
  --rate R           open loop: R jobs a second whatever the server does (mix,
                     federation, and add alone); a job counts from when it was due
  --seconds S        length of an open loop (5), or an end to a run that takes longer
  --idle N           further connections that do nothing
  --threads N        threads of this tool (1)
  --random-acks      acknowledge in random order
  --work US          microseconds of CPU spent on each fetched job, as a consumer that
                     does something with it (0)

The jobs
  -d BYTES           body (64)
  --queue NAME       queue (q)
  --queues N         queues NAME0 .. NAMEn (1)
  --count K          COUNT of a fetch, and IDs of one acknowledgement (1)
  --replicate N      REPLICATE N
  --async            ASYNC
  --with WORDS       further words of ADDJOB, as in --with 'RETRY 30 TTL 600'
  --timeout MS       ADDJOB's timeout (0); the timeout of `wait` (1000)

What to print
  --format F         text, csv or json (text)
  --plot FILE.svg    draw throughput and latencies
  --label TEXT       a name for this run
  --quiet            no progress line
  --help             this text
  --version          the version of this tool
";

/// One step of a run: every client does the same until the work is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Add,
    Get,
    Ack(AckCommand),
    Drain,
    Wait,
}

/// Which command acknowledges; the other peers know one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckCommand {
    AckJob,
    FastAck,
}

/// Where the two ends of a flow connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Producers and consumers spread over all servers.
    Everywhere,
    /// Producers on the first server, consumers on the others.
    Apart,
}

/// What paces the producers of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: at most this many jobs are under way.
    Window(u64),
    /// Open loop: this many jobs a second, for so long.
    Rate { per_second: f64, length: Duration },
}

/// Producers and consumers at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    pub name: &'static str,
    pub producers: usize,
    pub placement: Placement,
    pub pace: Pace,
}

/// What the run consists of.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    Steps(Vec<Step>),
    Flow(Flow),
}

/// The form of the figures on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureFormat {
    Text,
    Csv,
    Json,
}

/// The order in which fetched jobs are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOrder {
    AsFetched,
    Random,
}

/// Whether a line shows how far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressLine {
    Shown,
    Hidden,
}

/// One run, checked.
#[derive(Clone, Debug)]
pub struct BenchmarkOptions {
    pub peer: BenchmarkPeer,
    pub servers: Vec<SocketAddr>,
    pub login: Option<Login>,
    pub pids: Vec<u32>,
    pub workload: Workload,
    pub jobs: u64,
    pub clients: usize,
    pub depth: usize,
    pub body_len: usize,
    pub queue: String,
    pub queues: u32,
    pub count: usize,
    /// What follows ADDJOB's timeout.
    pub add_words: Vec<String>,
    pub add_timeout_ms: u64,
    pub wait_timeout_ms: u64,
    pub ack_order: AckOrder,
    /// What a consumer spends on a fetched job before it goes on.
    pub work: Duration,
    pub idle: usize,
    pub threads: usize,
    /// A closed loop stops here even when work is left.
    pub stop_after: Option<Duration>,
    pub format: FigureFormat,
    pub plot: Option<PathBuf>,
    pub label: String,
    pub progress: ProgressLine,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum BenchmarkRequest {
    Run(Box<BenchmarkOptions>),
    Help,
    Version,
}

/// The words of the command line before they are checked against each other.
struct Words {
    given: GivenAddress,
    servers: Vec<ServerAddress>,
    workload: String,
    producers: Option<usize>,
    window: u64,
    rate: Option<f64>,
    seconds: Option<f64>,
    timeout_ms: Option<u64>,
}

/// Reads a command line; the first argument is the program's name.
pub fn parse(
    args: impl IntoIterator<Item = std::ffi::OsString>,
) -> Result<BenchmarkRequest, RunFailure> {
    let mut words = Words {
        given: GivenAddress::default(),
        servers: Vec::new(),
        workload: "add,get,ack".into(),
        producers: None,
        window: 1000,
        rate: None,
        seconds: None,
        timeout_ms: None,
    };
    let mut options = BenchmarkOptions {
        peer: BenchmarkPeer::Disque,
        servers: Vec::new(),
        login: None,
        pids: Vec::new(),
        workload: Workload::Steps(Vec::new()),
        jobs: 100_000,
        clients: 50,
        depth: 1,
        body_len: 64,
        queue: "q".into(),
        queues: 1,
        count: 1,
        add_words: Vec::new(),
        add_timeout_ms: 0,
        wait_timeout_ms: 1000,
        ack_order: AckOrder::AsFetched,
        work: Duration::ZERO,
        idle: 0,
        threads: 1,
        stop_after: None,
        format: FigureFormat::Text,
        plot: None,
        label: String::new(),
        progress: ProgressLine::Shown,
    };
    let mut parser = lexopt::Parser::from_iter(args);
    while let Some(arg) = parser.next()? {
        use lexopt::Arg::{Long, Short};
        match arg {
            Long("help") => return Ok(BenchmarkRequest::Help),
            Long("version") => return Ok(BenchmarkRequest::Version),
            Short('h') => words.given.set_host(&text(&mut parser)?),
            Short('p') => words.given.port = Some(number(&mut parser)?),
            Short('a') => {
                options.login = Some(Login(vec![parser.value()?.into_vec()]));
            }
            Long("server") => {
                let text = text(&mut parser)?;
                let server = ServerAddress::parse(&text).ok_or_else(|| {
                    RunFailure::Usage(format!("a server is HOST:PORT, not '{text}'"))
                })?;
                words.servers.push(server);
            }
            Long("peer") => {
                let name = text(&mut parser)?;
                options.peer = BenchmarkPeer::named(&name)
                    .ok_or_else(|| RunFailure::Usage(format!("there is no peer '{name}'")))?;
            }
            Long("pid") => {
                for pid in text(&mut parser)?.split(',') {
                    options.pids.push(from_text(pid, "pid")?);
                }
            }
            Short('w') | Long("workload") => words.workload = text(&mut parser)?,
            Short('n') => options.jobs = number(&mut parser)?,
            Short('c') => options.clients = number(&mut parser)?,
            Short('P') => options.depth = number(&mut parser)?,
            Long("producers") => words.producers = Some(number(&mut parser)?),
            Long("window") => words.window = number(&mut parser)?,
            Long("rate") => words.rate = Some(number(&mut parser)?),
            Long("seconds") => words.seconds = Some(number(&mut parser)?),
            Long("idle") => options.idle = number(&mut parser)?,
            Long("threads") => options.threads = number(&mut parser)?,
            Long("random-acks") => options.ack_order = AckOrder::Random,
            Long("work") => {
                let work_us: f64 = number(&mut parser)?;
                options.work = Duration::try_from_secs_f64(work_us / 1e6).map_err(|_| {
                    RunFailure::Usage(format!("{work_us} microseconds is not a length of time"))
                })?;
            }
            Short('d') => options.body_len = number(&mut parser)?,
            Long("queue") => options.queue = text(&mut parser)?,
            Long("queues") => options.queues = number(&mut parser)?,
            Long("count") => options.count = number(&mut parser)?,
            Long("replicate") => {
                options.add_words.extend(["REPLICATE".into(), text(&mut parser)?]);
            }
            Long("async") => options.add_words.push("ASYNC".into()),
            Long("with") => {
                let more = text(&mut parser)?;
                options.add_words.extend(more.split_whitespace().map(str::to_owned));
            }
            Long("timeout") => words.timeout_ms = Some(number(&mut parser)?),
            Long("format") => {
                options.format = match text(&mut parser)?.as_str() {
                    "text" => FigureFormat::Text,
                    "csv" => FigureFormat::Csv,
                    "json" => FigureFormat::Json,
                    other => {
                        return Err(RunFailure::Usage(format!("there is no format '{other}'")));
                    }
                }
            }
            Long("plot") => options.plot = Some(parser.value()?.into()),
            Long("label") => options.label = text(&mut parser)?,
            Long("quiet") => options.progress = ProgressLine::Hidden,
            other => return Err(other.unexpected().into()),
        }
    }
    settle(words, &mut options)?;
    Ok(BenchmarkRequest::Run(Box::new(options)))
}

fn text(parser: &mut lexopt::Parser) -> Result<String, RunFailure> {
    parser
        .value()?
        .into_string()
        .map_err(|raw| RunFailure::Usage(format!("{} is not UTF-8", raw.to_string_lossy())))
}

fn number<T: FromStr>(parser: &mut lexopt::Parser) -> Result<T, RunFailure> {
    let value = text(parser)?;
    from_text(&value, "value")
}

fn from_text<T: FromStr>(value: &str, what: &str) -> Result<T, RunFailure> {
    value.parse().map_err(|_| RunFailure::Usage(format!("'{value}' is not a valid {what}")))
}

/// Puts the parts together and refuses what does not fit.
fn settle(mut words: Words, options: &mut BenchmarkOptions) -> Result<(), RunFailure> {
    let refuse = |why: &str| Err(RunFailure::Usage(why.into()));
    let seconds =
        match words.seconds {
            Some(secs) => Some(Duration::try_from_secs_f64(secs).map_err(|_| {
                RunFailure::Usage(format!("{secs} seconds is not a length of time"))
            })?),
            None => None,
        };
    if words.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
        return refuse("a rate is above 0");
    }
    options.servers = resolve(&mut words)?;
    options.workload = workload(&words, seconds, options.clients)?;
    if let Workload::Steps(_) | Workload::Flow(Flow { pace: Pace::Window(_), .. }) =
        options.workload
    {
        options.stop_after = seconds;
    }
    if let Some(timeout_ms) = words.timeout_ms {
        options.add_timeout_ms = timeout_ms;
        options.wait_timeout_ms = timeout_ms;
    }
    if options.clients == 0 || options.depth == 0 || options.count == 0 || options.queues == 0 {
        return refuse("-c, -P, --count and --queues are at least 1");
    }
    if options.threads == 0 || options.threads > options.clients {
        return refuse("--threads is at least 1 and at most the number of clients");
    }
    fits_the_peer(options)?;
    let Workload::Flow(flow) = &options.workload else { return Ok(()) };
    let consumers = options.clients - flow.producers;
    if options.body_len < STAMP_LEN && consumers > 0 {
        return Err(RunFailure::Usage(format!(
            "a flow writes the time into the body: -d is at least {STAMP_LEN}"
        )));
    }
    if consumers > 0 && usize::try_from(options.queues).is_ok_and(|queues| queues > consumers) {
        return refuse("a flow needs a consumer for each queue");
    }
    if flow.placement == Placement::Apart && options.servers.len() < 2 {
        return refuse("federation needs two servers: use --server twice");
    }
    Ok(())
}

fn resolve(words: &mut Words) -> Result<Vec<SocketAddr>, RunFailure> {
    let given = std::mem::take(&mut words.given).address().map_err(RunFailure::Greeting)?;
    let servers = match std::mem::take(&mut words.servers) {
        servers if servers.is_empty() => vec![given.unwrap_or_default()],
        servers => servers,
    };
    let first = |server: &ServerAddress| {
        let found = server.resolve().map_err(RunFailure::Greeting)?;
        let none = || RunFailure::Usage(format!("{server} resolves to no address"));
        found.first().copied().ok_or_else(none)
    };
    servers.iter().map(first).collect()
}

fn workload(
    words: &Words,
    seconds: Option<Duration>,
    clients: usize,
) -> Result<Workload, RunFailure> {
    let pace = match words.rate {
        Some(per_second) => {
            Pace::Rate { per_second, length: seconds.unwrap_or(Duration::from_secs(5)) }
        }
        None => Pace::Window(words.window.max(1)),
    };
    let flow = |name, placement| {
        let producers = words.producers.unwrap_or(clients / 2);
        if producers == 0 || producers >= clients {
            return Err(RunFailure::Usage(
                "a flow has producers and consumers: --producers is below -c".into(),
            ));
        }
        Ok(Workload::Flow(Flow { name, producers, placement, pace }))
    };
    match words.workload.as_str() {
        "mix" => return flow("mix", Placement::Everywhere),
        "federation" => return flow("federation", Placement::Apart),
        "add" if words.rate.is_some() => {
            let placement = Placement::Everywhere;
            return Ok(Workload::Flow(Flow { name: "add", producers: clients, placement, pace }));
        }
        _ if words.rate.is_some() => {
            return Err(RunFailure::Usage("--rate goes with add, mix and federation".into()));
        }
        _ => {}
    }
    let mut steps = Vec::new();
    for word in words.workload.split(',') {
        match word {
            "add" => steps.push(Step::Add),
            "get" => steps.push(Step::Get),
            "ack" => steps.push(Step::Ack(AckCommand::AckJob)),
            "fastack" => steps.push(Step::Ack(AckCommand::FastAck)),
            "drain" => steps.push(Step::Drain),
            "add-drain" => steps.extend([Step::Add, Step::Drain]),
            "wait" => steps.push(Step::Wait),
            _ => return Err(RunFailure::Usage(format!("there is no workload '{word}'"))),
        }
    }
    Ok(Workload::Steps(steps))
}

fn fits_the_peer(options: &BenchmarkOptions) -> Result<(), RunFailure> {
    let peer = options.peer;
    let name = peer.name();
    let refuse = |what: &str| Err(RunFailure::Usage(format!("{name} {what}")));
    let steps = match &options.workload {
        Workload::Steps(steps) => steps.as_slice(),
        Workload::Flow(_) => &[],
    };
    let acks = steps.iter().any(|step| matches!(step, Step::Ack(_)));
    if acks && peer == BenchmarkPeer::List {
        return refuse("has nothing to acknowledge: use -w add,get");
    }
    if peer == BenchmarkPeer::Disque {
        return Ok(());
    }
    if peer == BenchmarkPeer::Beanstalkd && options.login.is_some() {
        return refuse("has no passwords");
    }
    if steps.contains(&Step::Ack(AckCommand::FastAck)) || steps.contains(&Step::Wait) {
        return refuse("knows neither FASTACK nor GETJOB's timeout");
    }
    if !options.add_words.is_empty() {
        return refuse("takes no words of ADDJOB");
    }
    if options.queues > 1 && matches!(peer, BenchmarkPeer::Stream | BenchmarkPeer::Beanstalkd) {
        return refuse("is driven on one queue only");
    }
    if options.count > 1 && matches!(peer, BenchmarkPeer::Reliable | BenchmarkPeer::Beanstalkd) {
        return refuse("fetches one job at a time");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<BenchmarkOptions, String> {
        let args = std::iter::once("disque-benchmark").chain(line.split_whitespace());
        match parse(args.map(Into::into)) {
            Ok(BenchmarkRequest::Run(options)) => Ok(*options),
            Ok(_) => Err("no run".into()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    #[test]
    fn a_bare_command_line_adds_gets_and_acks_on_the_default_port() {
        let options = parsed("").unwrap();
        assert_eq!(options.servers, ["127.0.0.1:7711".parse().unwrap()]);
        let steps = vec![Step::Add, Step::Get, Step::Ack(AckCommand::AckJob)];
        assert_eq!(options.workload, Workload::Steps(steps));
    }

    #[test]
    fn a_server_is_given_as_to_every_tool() {
        let options = parsed("-h 127.0.0.1:7712 -a secret").unwrap();
        assert_eq!(options.servers, ["127.0.0.1:7712".parse().unwrap()]);
        assert_eq!(options.login, Some(Login(vec![b"secret".to_vec()])));
    }

    #[test]
    fn several_servers_and_pids_are_kept_in_order() {
        let options =
            parsed("--server 127.0.0.1:1 --server 127.0.0.1:2 --pid 3,4 --pid 5").unwrap();
        assert_eq!(options.servers.iter().map(SocketAddr::port).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(options.pids, [3, 4, 5]);
    }

    #[test]
    fn a_rate_makes_add_and_mix_open_loops() {
        for (line, producers) in [("-w add --rate 10", 50), ("-w mix --rate 10", 25)] {
            let Workload::Flow(flow) = parsed(line).unwrap().workload else {
                panic!("{line} is a flow")
            };
            let length = Duration::from_secs(5);
            assert_eq!(flow.pace, Pace::Rate { per_second: 10.0, length });
            assert_eq!(flow.producers, producers);
        }
    }

    #[test]
    fn words_of_addjob_are_kept_in_order() {
        let options = parsed("--replicate 3 --async").unwrap();
        assert_eq!(options.add_words, ["REPLICATE", "3", "ASYNC"]);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (line, why) in [
            ("--peer list", "nothing to acknowledge"),
            ("--peer beanstalkd -a secret", "no passwords"),
            ("--server 127.0.0.1", "HOST:PORT"),
            ("-h 127.0.0.1:1 -p 2", "-h says port 1"),
            ("--peer beanstalkd --count 2", "one job at a time"),
            ("--peer stream --queues 2", "one queue only"),
            ("--peer list -w add --replicate 3", "no words of ADDJOB"),
            ("--peer mq", "no peer"),
            ("-w federation", "two servers"),
            ("-w mix -d 8", "at least 16"),
            ("-w mix --queues 100", "a consumer for each queue"),
            ("-w mix --producers 50", "below -c"),
            ("-w get --rate 10", "--rate goes with"),
            ("-w jump", "no workload 'jump'"),
            ("-w mix --rate 0", "above 0"),
            ("-c 1 --threads 2", "--threads"),
            ("-n many", "not a valid value"),
            ("--nonsense", "nonsense"),
        ] {
            let text = parsed(line).expect_err(line);
            assert!(text.contains(why), "{line}: {text}");
        }
    }
}
