//! The options of `disque`.
//!
//! Before a command of the server, options end at its first word; before and after a verb
//! of the tool, or `--check`, they may stand anywhere. The options of the C client keep
//! their spelling and meaning, `-h HOST` and the exit statuses included. What a Redis server
//! could do and Disque never could is refused with a line that says what to use instead.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use lexopt::prelude::*;

use super::address::{GivenAddress, ServerAddress};
use super::connection::Login;
use super::failure::Failure;
use super::output::{Format, PrintForm};
use super::verb::{self, Verb};

/// Seconds --pipe waits for replies after everything was sent. C: DISQUE_CLI_DEFAULT_PIPE_TIMEOUT.
const PIPE_TIMEOUT_SECS: u64 = 30;

/// What the command line asks for.
#[derive(Debug)]
pub enum CliRequest {
    Run(Box<CliOptions>),
    Usage,
    Version,
}

/// A run of the tool.
#[derive(Clone, Debug)]
pub struct CliOptions {
    pub address: ServerAddress,
    pub login: Option<Login>,
    /// Whose password is asked for on the terminal; none is that of the user default.
    pub user: Option<Vec<u8>>,
    /// Ask for the password on the terminal.
    pub asks_password: bool,
    pub repeat: Repeat,
    pub interval: Option<Duration>,
    /// The last argument of the command is read from standard input.
    pub last_argument_from_stdin: bool,
    pub format: Format,
    /// An error reply ends the run with status 1.
    pub stops_at_error: bool,
    pub mode: RunMode,
    /// None: wait for ever.
    pub pipe_timeout: Option<Duration>,
    pub queue_limits: QueueLimits,
    pub check_scope: CheckScope,
    /// `trace` goes on until the job ends.
    pub watches: bool,
    /// What the tool itself is to do; the server is sent nothing then.
    pub verb: Option<&'static Verb>,
    /// The command for the server, or the arguments of the verb.
    pub command: Vec<Vec<u8>>,
}

/// How often a command is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Times(u64),
    Endless,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// Executes the command, or starts the interactive client when there is none.
    Command,
    Latency(LatencyReport),
    IntrinsicLatency {
        secs: u64,
    },
    Stat,
    Pipe,
    Check,
}

/// How the latency mode reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyReport {
    /// One line that is always rewritten.
    Running,
    /// A new line each interval.
    History,
    /// A line of percentiles each interval.
    Distribution,
}

/// What `--check` warns about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    pub length_max: Option<u64>,
    pub age_max_secs: Option<u64>,
}

/// Which nodes `--check` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckScope {
    Cluster,
    Local,
}

/// What options depend on besides the command line.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Standard output is a terminal, or FAKETTY says so.
    pub prints_to_terminal: bool,
    /// The environment's DISQUE_AUTH.
    pub password: Option<OsString>,
}

impl CliOptions {
    /// Reads the command line, without the program's name.
    pub fn parse<I>(args: I, surroundings: Surroundings) -> Result<CliRequest, Failure>
    where
        I: IntoIterator<Item = OsString>,
    {
        CliOptions::new(surroundings).with(args)
    }

    /// Reads further arguments: what they do not set stays as it is.
    pub fn with<I>(self, args: I) -> Result<CliRequest, Failure>
    where
        I: IntoIterator<Item = OsString>,
    {
        let mut options = self;
        let mut parser = lexopt::Parser::from_args(args);
        let mut given = GivenAddress::default();
        let mut word = String::new();
        loop {
            // The word as typed, for the complaint; absent in the middle of `-abc`.
            let rest = parser.try_raw_args();
            if let Some(typed) = rest.as_ref().and_then(|rest| rest.as_slice().first()) {
                word = typed.to_string_lossy().into_owned();
            }
            let is_last = rest.is_some_and(|rest| rest.as_slice().len() == 1);
            let bad = |_| unrecognized(&word);
            match parser.next().map_err(bad)? {
                None => break,
                Some(Short('h')) if is_last => return Ok(CliRequest::Usage),
                Some(Long("help")) => return Ok(CliRequest::Usage),
                Some(Short('v') | Long("version")) => return Ok(CliRequest::Version),
                Some(Value(first)) if options.takes_options_anywhere() => {
                    options.command.push(first.into_vec());
                }
                Some(Value(first)) if first == "-" => return Err(unrecognized("-")),
                Some(Value(first)) => {
                    let rest = parser.raw_args().map_err(bad)?;
                    let words: Vec<OsString> = std::iter::once(first).chain(rest).collect();
                    match verb::find(&words) {
                        Some((verb, rest)) => {
                            options.verb = Some(verb);
                            parser = lexopt::Parser::from_args(rest.to_vec());
                        }
                        None => {
                            options.command = words.into_iter().map(OsString::into_vec).collect();
                            break;
                        }
                    }
                }
                Some(Short(option)) => {
                    options.read_short(option, &mut given, &word, &mut parser)?;
                }
                Some(Long(option)) => {
                    let option = option.to_string();
                    options.read_long(&option, &word, &mut parser)?;
                }
            }
        }
        if let Some(address) = given.address()? {
            options.address = address;
        }
        options.name_user()?;
        Ok(CliRequest::Run(Box::new(options)))
    }

    /// Puts the name of --user in front of the password, unless that is to be asked for.
    fn name_user(&mut self) -> Result<(), Failure> {
        if self.asks_password {
            return Ok(());
        }
        let Some(user) = self.user.take() else { return Ok(()) };
        let password = self.login.take().and_then(|login| login.0.into_iter().last());
        let password = password.ok_or_else(|| {
            Failure::Message("--user needs a password: DISQUE_AUTH, --askpass or -a.".to_owned())
        })?;
        self.login = Some(Login(vec![user, password]));
        Ok(())
    }

    fn takes_options_anywhere(&self) -> bool {
        self.verb.is_some() || self.mode == RunMode::Check
    }

    fn read_short(
        &mut self,
        option: char,
        given: &mut GivenAddress,
        word: &str,
        parser: &mut lexopt::Parser,
    ) -> Result<(), Failure> {
        let mut value = || parser.value().map_err(|_| unrecognized(word));
        match option {
            'h' => given.set_host(&text(value()?)),
            'p' => given.port = Some(number(word, value()?, "a port, 1 to 65535")?),
            's' => given.socket = Some(value()?.into()),
            'a' => self.login = Some(Login(vec![value()?.into_vec()])),
            'r' => {
                let times: i64 = number(word, value()?, "a number of times")?;
                self.repeat = u64::try_from(times).map_or(Repeat::Endless, Repeat::Times);
            }
            'i' => self.interval = seconds(word, value()?)?,
            'n' => match text(value()?).as_str() {
                "0" => {}
                _ => return Err(without_use("-n", "has no databases; leave -n out")),
            },
            'x' => self.last_argument_from_stdin = true,
            'd' => self.format.delimiter = value()?.into_vec(),
            'e' => self.stops_at_error = true,
            // Nodes of Disque never redirect a client, so there is nothing to follow.
            'c' => {}
            _ => return Err(unrecognized(word)),
        }
        Ok(())
    }

    fn read_long(
        &mut self,
        option: &str,
        word: &str,
        parser: &mut lexopt::Parser,
    ) -> Result<(), Failure> {
        let mut value = || parser.value().map_err(|_| unrecognized(word));
        match option {
            "user" => self.user = Some(value()?.into_vec()),
            "askpass" => self.asks_password = true,
            "raw" => self.format.form = PrintForm::Raw,
            "no-raw" => self.format.form = PrintForm::Standard,
            "csv" => self.format.form = PrintForm::Csv,
            "json" => self.format.form = PrintForm::Json,
            "latency" => self.mode = RunMode::Latency(LatencyReport::Running),
            "latency-history" => self.mode = RunMode::Latency(LatencyReport::History),
            "latency-dist" => self.mode = RunMode::Latency(LatencyReport::Distribution),
            "intrinsic-latency" => {
                let secs = number(word, value()?, "a number of seconds")?;
                self.mode = RunMode::IntrinsicLatency { secs };
            }
            "stat" => self.mode = RunMode::Stat,
            "pipe" => self.mode = RunMode::Pipe,
            "pipe-timeout" => {
                let secs = number(word, value()?, "a number of seconds, 0 for ever")?;
                self.pipe_timeout = (secs > 0).then(|| Duration::from_secs(secs));
            }
            "check" => self.mode = RunMode::Check,
            "watch" => self.watches = true,
            "local" => self.check_scope = CheckScope::Local,
            "max-length" => {
                self.queue_limits.length_max = Some(number(word, value()?, "a number of jobs")?);
            }
            "max-age" => {
                self.queue_limits.age_max_secs =
                    Some(number(word, value()?, "a number of seconds")?);
            }
            _ => return Err(never_worked(option).unwrap_or_else(|| unrecognized(word))),
        }
        Ok(())
    }

    fn new(surroundings: Surroundings) -> CliOptions {
        CliOptions {
            address: ServerAddress::default(),
            login: surroundings.password.map(|password| Login(vec![password.into_vec()])),
            user: None,
            asks_password: false,
            repeat: Repeat::Times(1),
            interval: None,
            last_argument_from_stdin: false,
            format: Format {
                form: if surroundings.prints_to_terminal {
                    PrintForm::Standard
                } else {
                    PrintForm::Raw
                },
                delimiter: b"\n".to_vec(),
            },
            stops_at_error: false,
            mode: RunMode::Command,
            pipe_timeout: Some(Duration::from_secs(PIPE_TIMEOUT_SECS)),
            queue_limits: QueueLimits::default(),
            check_scope: CheckScope::Cluster,
            watches: false,
            verb: None,
            command: Vec::new(),
        }
    }
}

fn unrecognized(word: &str) -> Failure {
    Failure::Message(format!(
        "Unrecognized option or bad number of args for: '{word}'. See disque --help."
    ))
}

fn without_use(option: &str, why: &str) -> Failure {
    Failure::Unsupported(format!("{option} is of no use here: Disque {why}."))
}

/// Options the C client took over from Redis, which no Disque server ever answered.
fn never_worked(name: &str) -> Option<Failure> {
    let why = match name {
        "scan" | "pattern" => {
            "has no SCAN; `disque queues` lists queues, `disque jscan` lists jobs"
        }
        "bigkeys" => "has no keys; `disque queues` shows the longest queues first",
        "slave" => "has no SYNC; `disque monitor` shows commands as they come",
        "rdb" => "has no RDB files; `disque bgrewriteaof` writes all jobs to the append only file",
        "eval" => "has no scripts; send the commands one by one or through --pipe",
        _ => return None,
    };
    Some(without_use(&format!("--{name}"), why))
}

fn text(value: OsString) -> String {
    value.to_string_lossy().into_owned()
}

fn number<N: std::str::FromStr>(option: &str, value: OsString, what: &str) -> Result<N, Failure> {
    value.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        Failure::Message(format!("{option} takes {what}, not '{}'", value.to_string_lossy()))
    })
}

/// Reads seconds, fractions included; none at all is no pause.
fn seconds(option: &str, value: OsString) -> Result<Option<Duration>, Failure> {
    let secs: f64 = number(option, value.clone(), "a number of seconds")?;
    match Duration::try_from_secs_f64(secs) {
        Ok(Duration::ZERO) => Ok(None),
        Ok(interval) => Ok(Some(interval)),
        Err(_) => number::<u64>(option, value, "a number of seconds").map(|_| None),
    }
}

/// Returns the line that a program prints on `--version`, with the commit if the build has it.
pub fn version(program: &str) -> String {
    let mut line = format!("{program} {}", env!("CARGO_PKG_VERSION"));
    if let Some(sha) = option_env!("DISQUE_GIT_SHA1") {
        let dirty = if option_env!("DISQUE_GIT_DIRTY") == Some("1") { "-dirty" } else { "" };
        let _ = write!(line, " (git:{sha}{dirty})");
    }
    line
}

/// Returns the text printed by `--help`.
pub fn usage() -> String {
    let mut out =
        format!("{}\n\nUsage: disque [OPTIONS] [cmd [arg [arg ...]]]\n", version("disque"));
    for (option, meaning) in USAGE {
        write_entry(&mut out, option, meaning);
    }
    out.push_str("\nCommands of this tool, beside those of the server:\n");
    for verb in verb::VERBS {
        write_entry(&mut out, &verb.usage(), &format!("{}.", verb.summary));
    }
    out.push_str(EXAMPLES);
    out
}

/// Writes what is explained, and the explanation beside or under it.
fn write_entry(out: &mut String, name: &str, meaning: &str) {
    let mut name = name;
    for line in meaning.lines() {
        if name.len() > 18 {
            let _ = writeln!(out, "  {name}");
            name = "";
        }
        let _ = writeln!(out, "  {name:<18} {line}");
        name = "";
    }
}

const USAGE: &[(&str, &str)] = &[
    (
        "-h <hostname>",
        "The server's host (default: 127.0.0.1); its port may follow, as in\ndb1:7711.",
    ),
    ("-p <port>", "The server's port (default: 7711)."),
    ("-s <socket>", "The server's unix socket, instead of host and port."),
    (
        "-a <password>",
        "Log in with this password. It can be seen in the process list:\nbetter set DISQUE_AUTH, or use --askpass.",
    ),
    ("--user <name>", "The user whose password this is (default: default)."),
    ("--askpass", "Ask for the password on the terminal."),
    ("-r <repeat>", "Execute the command this many times; -1 is endless."),
    (
        "-i <interval>",
        "Seconds between repeated commands, and between the lines of --stat,\n--latency-history, --latency-dist, queues, top and trace --watch. Fractions\nwork.",
    ),
    ("-x", "Read the last argument of the command from standard input."),
    ("-e", "Exit with status 1 when the server answers with an error."),
    ("-d <delimiter>", "Between the elements of an array in raw form (default: \\n)."),
    ("-c", "Accepted and without effect: nodes never redirect clients."),
    ("-n <db>", "Accepted when 0: there are no databases."),
    ("--raw", "Print replies as they are (default when standard output is\nnot a terminal)."),
    ("--no-raw", "Print replies for people, whatever standard output is."),
    ("--csv", "Print replies and tables comma separated."),
    ("--json", "Print one JSON value for each reply, and tables as JSON too."),
    ("--latency", "Keep sampling the time of a PING, in milliseconds."),
    ("--latency-history", "The same with a new line every 15 seconds, or as -i says."),
    ("--latency-dist", "Percentiles of the time of a PING every second, or as -i says."),
    (
        "--intrinsic-latency <sec>",
        "Measure for this many seconds how long the system keeps a busy\nprocess from running. Needs no server.",
    ),
    ("--stat", "A line about the server every second, or as -i says."),
    ("--pipe", "Send protocol from standard input, count replies and errors."),
    (
        "--pipe-timeout <sec>",
        "Give up when no reply came for this long after everything was\nsent (default: 30; 0 waits for ever).",
    ),
    (
        "--check",
        "Health of the cluster in one line: status 0 ok, 1 warning,\n2 critical. Words after it name queues, which may be patterns.",
    ),
    ("--local", "With --check: the server alone, and no other node."),
    ("--max-length <jobs>", "With --check: warn when a queue is longer."),
    ("--max-age <sec>", "With --check: warn when the oldest job of a queue is older."),
    (
        "--watch",
        "With trace: go on until the job ends, and look every half second, or\nas -i says.",
    ),
    ("--help", "Print this help."),
    ("-v, --version", "Print the version."),
];

const EXAMPLES: &str = "
Examples:
  disque addjob mail 'to: ann' 0 retry 60
  disque getjob from mail
  disque queues --json 'mail*'
  disque --pipe < commands.txt
  disque -r 100 -i 1 info | grep used_memory_human:
  disque --check --max-length 10000 --max-age 600 mail

Exit status: 0 done, also when the server answered with an error (see -e);
1 failed; 2 --check found something critical, or what was asked for does not
exist in Disque.

Without a command, disque starts in interactive mode: type \"help\" there.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CliRequest, Failure> {
        let words = line.split_whitespace().map(OsString::from);
        CliOptions::parse(words, Surroundings::default())
    }

    fn options(line: &str) -> CliOptions {
        match parse(line) {
            Ok(CliRequest::Run(options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn failure(line: &str) -> (String, u8) {
        let failure = parse(line).expect_err(line);
        (failure.to_string(), failure.status())
    }

    #[test]
    fn the_first_plain_word_ends_the_options() {
        let options = options("-h db1 -p 7 -r -1 addjob -5 --raw");
        assert_eq!(options.address.to_string(), "db1:7");
        assert_eq!(options.repeat, Repeat::Endless);
        assert_eq!(options.command, [&b"addjob"[..], b"-5", b"--raw"]);
        assert_eq!(options.format.form, PrintForm::Raw);
    }

    #[test]
    fn options_stand_before_and_after_a_verb_and_the_words_of_check() {
        let options = |line| self::options(line);
        let queues = options("-p 7 queues mail --json -i 2 -- -odd");
        assert_eq!(queues.verb.map(|verb| verb.name), Some("queues"));
        assert_eq!(queues.command, [&b"mail"[..], b"-odd"]);
        assert_eq!(queues.format.form, PrintForm::Json);
        assert_eq!(queues.interval, Some(Duration::from_secs(2)));
        assert_eq!(options("Cluster CHECK").verb.map(|verb| verb.name), Some("cluster check"));
        let nodes = options("cluster nodes --json");
        assert!(nodes.verb.is_none());
        assert_eq!(nodes.command, [&b"cluster"[..], b"nodes", b"--json"]);
        let check = options("--check mail --max-length 3");
        assert_eq!(check.command, [b"mail"]);
        assert_eq!(check.queue_limits.length_max, Some(3));
    }

    #[test]
    fn the_host_may_bring_the_port() {
        assert_eq!(options("-h db1:7712 ping").address.to_string(), "db1:7712");
        assert_eq!(options("-p 7712 -h db1:7712 ping").address.to_string(), "db1:7712");
        assert_eq!(options("-h ::1 ping").address.to_string(), "[::1]:7711");
        assert_eq!(options("-h [::1]:7712 ping").address.to_string(), "[::1]:7712");
        assert_eq!(failure("-h db1:7712 -p 7 ping").0, "-h says port 7712 and -p says 7.");
    }

    #[test]
    fn h_alone_is_help_and_h_with_a_word_is_the_host() {
        assert!(matches!(parse("-p 7 -h"), Ok(CliRequest::Usage)));
        assert_eq!(options("-h --help").address.to_string(), "--help:7711");
    }

    #[test]
    fn a_bad_option_is_named_as_typed() {
        for (line, word) in [
            ("--nope", "--nope"),
            ("-yz", "-yz"),
            ("-", "-"),
            ("-r", "-r"),
            ("--raw=5 ping", "--raw=5"),
        ] {
            let sentence = format!(
                "Unrecognized option or bad number of args for: '{word}'. See disque --help."
            );
            assert_eq!(failure(line), (sentence, 1), "{line}");
        }
        let (sentence, status) = failure("-p seven");
        assert_eq!(sentence, "-p takes a port, 1 to 65535, not 'seven'");
        assert_eq!(status, 1);
        assert_eq!(failure("-i -1").1, 1);
    }

    #[test]
    fn what_only_redis_can_do_is_refused_with_a_way_out() {
        for line in
            ["-n 3 ping", "--scan", "--pattern x", "--bigkeys", "--slave", "--rdb f", "--eval f"]
        {
            let (sentence, status) = failure(line);
            assert_eq!(status, 2, "{line}");
            assert_eq!(sentence.lines().count(), 1, "{line}");
        }
        assert_eq!(options("-n 0 -c ping").command, [b"ping"]);
    }

    #[test]
    fn the_environment_gives_a_password_and_a_overrides_it() {
        let surroundings =
            || Surroundings { prints_to_terminal: true, password: Some("env".into()) };
        let parse = |words: &[&str]| match CliOptions::parse(
            words.iter().map(OsString::from),
            surroundings(),
        ) {
            Ok(CliRequest::Run(options)) => *options,
            other => panic!("{other:?}"),
        };
        assert_eq!(parse(&["ping"]).login, Some(Login(vec![b"env".to_vec()])));
        assert_eq!(parse(&["-a", "arg"]).login, Some(Login(vec![b"arg".to_vec()])));
        assert_eq!(parse(&[]).format.form, PrintForm::Standard);
        let of_ann = |password: &[u8]| Some(Login(vec![b"ann".to_vec(), password.to_vec()]));
        assert_eq!(parse(&["--user", "ann", "ping"]).login, of_ann(b"env"));
        assert_eq!(parse(&["-a", "arg", "--user", "ann"]).login, of_ann(b"arg"));
        assert_eq!(parse(&["--user", "ann", "--askpass"]).user.as_deref(), Some(&b"ann"[..]));
    }

    #[test]
    fn a_user_needs_a_password() {
        let sentence = "--user needs a password: DISQUE_AUTH, --askpass or -a.";
        assert_eq!(failure("--user ann ping"), (sentence.to_owned(), 1));
    }

    #[test]
    fn every_option_of_the_usage_exists() {
        for (shown, _) in USAGE {
            for spelling in shown.split(", ") {
                let line = spelling.replace(['<', '>'], "");
                let with_number = line.split(' ').next().map(|option| format!("{option} 0"));
                let accepted = [Some(line), with_number].into_iter().flatten().any(|line| {
                    parse(&format!("-a password {line}")).is_ok_and(|request| match request {
                        CliRequest::Run(options) => options.command.len() <= 1,
                        _ => true,
                    })
                });
                assert!(accepted, "{spelling}");
            }
        }
    }
}
