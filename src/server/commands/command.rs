//! COMMAND: what commands there are.

use crate::engine::command::{Call, Flags, Outcome, Spec};
use crate::manual as pages;
use crate::proto::reply::ReplyWriter;
use crate::server::Server;

/// COMMAND -> a row for each command: name, arity, flags, and 0 0 0 where Redis tells the
/// places of keys.
/// COMMAND COUNT -> how many there are.
/// COMMAND INFO name ... -> their rows; null for an unknown name.
/// COMMAND DOCS [name ...] -> a map from names to what their pages say. Differs from C,
/// which has no such thing: redis-cli asks when it starts.
pub fn command(server: &mut Server, call: &Call<'_>) -> Outcome {
    let args = call.args;
    let commands = &server.commands;
    let mut reply = server.engine.out.replies.to(call.client, call.resp);
    let is = |word: &str| args.len() > 1 && args[1].eq_ignore_ascii_case(word.as_bytes());
    if args.len() == 1 {
        reply.array(commands.specs().len());
        commands.specs().for_each(|spec| describe(&mut reply, spec));
    } else if is("info") {
        reply.array(args.len() - 2);
        for name in args.from(2).iter() {
            match commands.find(name) {
                Some(place) => describe(&mut reply, commands.spec(place)),
                None => reply.null_bulk(),
            }
        }
    } else if is("count") && args.len() == 2 {
        reply.integer(i64::try_from(commands.specs().len()).expect("there are dozens"));
    } else if is("docs") {
        let all = commands.specs().map(|spec| spec.name.as_bytes());
        let names: Vec<&[u8]> =
            if args.len() == 2 { all.collect() } else { args.from(2).iter().collect() };
        let specs: Vec<&Spec> = names
            .into_iter()
            .filter_map(|name| commands.find(name))
            .map(|place| commands.spec(place))
            .collect();
        reply.map(specs.len());
        for spec in specs {
            reply.bulk(spec.name);
            let page = pages::page(spec.name).expect("a test holds the pages to the tables");
            reply.map(3);
            reply.bulk("summary");
            reply.bulk(page.summary);
            reply.bulk("since");
            reply.bulk("1.0.0");
            reply.bulk("group");
            reply.bulk(page.group.name());
        }
    } else {
        reply.error("ERR Unknown subcommand or wrong number of arguments.");
    }
    Outcome::Done
}

fn describe(reply: &mut ReplyWriter<'_>, spec: &Spec) {
    let flags = Flags::NAMES.into_iter().filter(|&(flag, _)| spec.flags.has(flag));
    reply.array(6);
    reply.bulk(spec.name);
    reply.integer(i64::from(spec.arity));
    reply.array(flags.clone().count());
    flags.for_each(|(_, name)| reply.status(name));
    for _ in 0..3 {
        reply.integer(0);
    }
}
