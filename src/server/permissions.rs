//! What a client's user may do: the gate of users, through which every command comes.
//!
//! Which roles may run a command, and which of its arguments name queues and jobs, the manual
//! says; no command asks by itself. The queues that a command names have to be in the scope of the
//! user, and so have those of the jobs whose IDs it names, as far as they are known here. What
//! producers and consumers may run takes dead letters too that died in such a queue. Scans, which
//! name none, leave out what is beyond it; so do commands that end jobs in batches, where
//! one refused job would hold up all the others. What concerns the whole node is not for users with
//! globs, unless it only looks.

use std::borrow::Cow;

use super::Server;
use super::command_table::NamedCommand;
use super::users::User;
use crate::base::ids::{ClientId, JobId};
use crate::engine::Engine;
use crate::engine::command::Call;
use crate::engine::error::CommandError;
use crate::manual::named_arguments::Named;
use crate::manual::{Command, Roles, Usage};
use crate::proto::request::Args;

/// As Redis has it for keys.
const QUEUE_REFUSED: &str = "NOPERM No permissions to access a queue";
const TOO_MANY_NAMES: &str = "ERR A user with globs may name at most 10000 queues and jobs at once";

/// Most names that are compared with globs before a command, since that happens in one go.
const NAMES_MAX: usize = 10_000;
/// Commands that look at each job by themselves, in slices, and pass over what is beyond the scope.
const PASS_OVER: [&str; 3] = ["ackjob", "fastack", "nack"];
/// Commands that leave out what is beyond the scope and not among their arguments.
const LEAVE_OUT: [&str; 3] = ["qscan", "jscan", "qredrive"];

impl Server {
    /// Whether a client may run a command, where clients have to say who they are. An error is
    /// the text of the refusal.
    #[inline(never)]
    pub(super) fn check_user(
        &mut self,
        call: &Call<'_>,
        named: NamedCommand,
    ) -> Result<(), Cow<'static, str>> {
        let command = self.commands.manual(named.place);
        let args = call.args.from(named.name_at);
        if self.is_unauthenticated(call.client) {
            return match may_log_in(command, args.len()) {
                true => Ok(()),
                false => Err("NOAUTH Authentication required.".into()),
            };
        }
        let user = self.client(call.client).and_then(|client| client.user.as_deref());
        if let Some(user) = user {
            check(user, command, args, &self.engine)?;
        }
        let looks_itself = PASS_OVER.contains(&command.name) || LEAVE_OUT.contains(&command.name);
        let scope = user.map(|user| &user.queues).filter(|scope| looks_itself && !scope.is_all());
        self.engine.limit_commands(scope.cloned());
        Ok(())
    }

    /// Whether the client has yet to say who it is.
    pub(super) fn is_unauthenticated(&self, client: ClientId) -> bool {
        self.config.has_logins()
            && !self.client(client).is_some_and(|client| client.is_logged_in(&self.config))
    }
}

/// Whether an unauthenticated client may try this command, which may authenticate it.
fn may_log_in(command: &Command, argument_count: usize) -> bool {
    command.name == "auth" || command.name == "hello" && argument_count > 1
}

/// Whether a user may run a command with these arguments, the name in front.
fn check(
    user: &User,
    command: &Command,
    args: Args<'_>,
    engine: &Engine,
) -> Result<(), Cow<'static, str>> {
    let usage = command.usage(args.get(1));
    let roles = usage.and_then(|usage| usage.roles).unwrap_or(command.roles);
    let subcommand = usage.map_or("", |usage| usage.subcommand);
    let scope = &user.queues;
    let has_names = usage.is_some_and(Usage::has_names);
    let changes_node = roles == Roles::OPERATE && !has_names;
    if !user.may_run(roles) || changes_node && !scope.is_all() && !user.may_run(Roles::ADMIN) {
        let separator = if subcommand.is_empty() { "" } else { "|" };
        let name = [command.name, separator, &subcommand.to_lowercase()].concat();
        return Err(format!(
            "NOPERM User {} has no permissions to run the '{name}' command",
            user.name
        )
        .into());
    }
    let Some(usage) = usage.filter(|_| has_names && !scope.is_all()) else { return Ok(()) };
    if PASS_OVER.contains(&command.name) {
        return Ok(());
    }
    let is_allowed = |named| match named {
        Named::Queue(name) => scope.has(name),
        Named::Job(id) => JobId::parse(id).is_none_or(|id| match is_for_owners(roles) {
            true => engine.is_of_scope(scope, &id),
            false => engine.queue_of(&id).is_none_or(|queue| scope.has(queue)),
        }),
    };
    let behind = args.from(1 + usize::from(!subcommand.is_empty()));
    let (mut is_refused, mut count) = (false, 0);
    let read = usage.visit_names(behind.iter(), |named| {
        count += 1;
        is_refused = is_refused || count <= NAMES_MAX && !is_allowed(named);
    });
    match read {
        _ if is_refused => Err(QUEUE_REFUSED.into()),
        _ if count > NAMES_MAX => Err(TOO_MANY_NAMES.into()),
        Ok(()) => Ok(()),
        Err(_) => Err(CommandError::Syntax.to_string().into()),
    }
}

/// Whether those run it whose jobs they are: they may see to them where they died, too.
fn is_for_owners(roles: Roles) -> bool {
    Roles::PRODUCE.and(Roles::CONSUME).meets(roles)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::base::ids::NodeId;
    use crate::base::time::{MonoMs, Now, UnixMs};
    use crate::engine::commands::find;
    use crate::engine::config::EngineConfig;
    use crate::manual::{self, Argument, Kind};
    use crate::proto::reply::Resp;
    use crate::proto::reply_reader::{ReplyReader, Value};
    use crate::proto::request::OwnedArgs;

    const NOW: Now = Now { wall: UnixMs(1_767_225_600_000), mono: MonoMs(86_400_000) };
    const CLIENT: ClientId = ClientId { slot: 0, generation: 0 };
    /// May look while the other one waits.
    const WATCHER: ClientId = ClientId { slot: 1, generation: 1 };

    fn call(engine: &mut Engine, client: ClientId, words: &[String]) -> Option<Value> {
        let _previous = std::mem::take(&mut engine.out.replies);
        engine.call_words(NOW, client, Resp::V2, &words.iter().collect());
        let mut reader = ReplyReader::default();
        reader.feed(&engine.out.replies.bytes);
        reader.next_value().expect("the engine writes replies")
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn texts(value: &Value) -> Vec<String> {
        match value {
            Value::Array(items) => items.iter().flat_map(texts).collect(),
            Value::Bulk(text) | Value::Status(text) => {
                vec![String::from_utf8_lossy(text).into_owned()]
            }
            _ => vec![],
        }
    }

    /// The queues of an engine, and those where its jobs go when they die.
    fn queues(engine: &mut Engine) -> BTreeSet<String> {
        let names =
            call(engine, WATCHER, &words("qscan busyloop")).map_or(vec![], |all| texts(&all));
        let jobs = call(engine, WATCHER, &words("jscan busyloop reply all"));
        let fields = jobs.map_or(vec![], |all| texts(&all));
        let dead = fields.windows(2).filter(|pair| pair[0] == "dead-queue");
        // In front is the cursor.
        names.into_iter().skip(1).chain(dead.map(|pair| pair[1].clone())).collect()
    }

    /// What may stand in a request where this argument may: the words, whether they fit or not.
    fn pieces(argument: &Argument) -> Vec<String> {
        let mut pieces: Vec<String> = match argument.kind {
            Kind::Word => vec![argument.name.to_owned()],
            Kind::OneOf(parts) => parts.iter().flat_map(pieces).collect(),
            _ => ["5", "q5 5", "q6", "deadqueue", "from"].map(str::to_owned).into(),
        };
        if let Some(token) = argument.token {
            pieces = pieces.iter().map(|piece| format!("{token} {piece}")).collect();
            pieces.push(token.to_lowercase());
        }
        pieces
    }

    fn requests() -> impl Strategy<Value = Vec<String>> {
        let named: Vec<&Command> = manual::all()
            .filter(|command| find(command.name.as_bytes()).is_some())
            .filter(|command| command.usages.iter().any(manual::Usage::has_names))
            .collect();
        prop::sample::select(named).prop_flat_map(|command| {
            let all = command.usages.iter().flat_map(|usage| usage.arguments);
            let pieces: Vec<String> = all.flat_map(pieces).collect();
            let head = prop::sample::select(vec!["q1 q2 5", "q1 q2", "q1", "TTL ttl 0", ""]);
            let tail = prop::collection::vec(prop::sample::select(pieces), 0..5);
            (head, tail).prop_map(move |(head, tail)| {
                let line = [&[command.name.to_owned(), head.to_owned()][..], &tail[..]].concat();
                let line = line.join(" ");
                line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn every_queue_that_a_command_works_on_was_found_in_its_arguments(request in requests()) {
            let owned: OwnedArgs = request.iter().collect();
            let args = owned.args();
            let command = find(request[0].as_bytes()).expect("it is the engine's").manual;
            if !command.accepts(args.len()) {
                return Ok(());
            }
            let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], NOW);
            let mut found = BTreeSet::new();
            let usage = command.usage(args.get(1)).expect("it has one");
            let read = usage.visit_names(args.from(1).iter(), |named| {
                if let Named::Queue(name) = named {
                    found.insert(String::from_utf8_lossy(name).into_owned());
                }
            });
            let reply = call(&mut engine, CLIENT, &request);
            if read.is_err() {
                let is_error = matches!(reply, Some(Value::Error(_)));
                prop_assert!(is_error, "{request:?} is refused to users with globs only");
            }
            let there = queues(&mut engine);
            prop_assert!(there.is_subset(&found), "{request:?}: {there:?}, of which {found:?}");
        }
    }
}
