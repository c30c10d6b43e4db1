//! Who a client is: AUTH, HELLO and ACL WHOAMI.

use std::hint;

use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::proto::reply::Resp;
use crate::server::Server;
use crate::server::version::DISQUE_VERSION;

use super::client::command as client;
use super::server_command::{ServerCommand, row};

pub(super) static COMMANDS: &[ServerCommand] =
    &[row("auth", auth), row("hello", hello), row("acl", acl)];

/// The only user there is.
const USER: &[u8] = b"default";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Longest password. C: CONFIG_AUTHPASS_MAX_LEN.
const PASSWORD_MAX: usize = 512;

/// AUTH password -> OK. A wrong one takes away what an earlier right one gave.
/// AUTH user password -> OK. Who is not let in stays what it was.
///
/// Differs from C, which knows the first form only: clients that are given a URL with a user
/// send the other. More arguments are a syntax error, as with Redis: told of a wrong number of
/// them, redis-py sends the password alone, and a wrong user would get in.
fn auth(server: &mut Server, call: &Call<'_>) -> Outcome {
    if call.args.len() > 2 {
        auth_user(server, call);
        return Outcome::Done;
    }
    let Some(password) = &server.config.requirepass else {
        server.reply(call).error("ERR Client sent AUTH, but no password is set");
        return Outcome::Done;
    };
    let is_right = is_same(password, &call.args[1]);
    if let Some(client) = server.client_mut(call.client) {
        client.is_authenticated = is_right;
    }
    let mut reply = server.reply(call);
    if is_right {
        reply.status("OK")
    } else {
        reply.error("ERR invalid password")
    }
    Outcome::Done
}

fn auth_user(server: &mut Server, call: &Call<'_>) {
    if call.args.len() > 3 {
        return server.reply(call).error(CommandError::Syntax.to_string());
    }
    if !server.knows(&call.args[1], &call.args[2]) {
        return server.reply(call).error(WRONGPASS);
    }
    if let Some(client) = server.client_mut(call.client) {
        client.is_authenticated = true;
    }
    server.reply(call).status("OK");
}

/// Compares in the same time wherever the first difference is.
fn is_same(password: &[u8], given: &[u8]) -> bool {
    if given.len() > PASSWORD_MAX {
        return false;
    }
    let byte = |text: &[u8], at: usize| text.get(at).copied().unwrap_or(0);
    let differences = (0..PASSWORD_MAX)
        .fold(0, |sum, at| hint::black_box(sum | (byte(password, at) ^ byte(given, at))));
    (differences == 0) & (password.len() == given.len())
}

/// HELLO -> 1, this node's ID, and a row for each node: ID, address, port, priority.
/// HELLO 2|3 [AUTH user password] [SETNAME name] -> what this server is.
///
/// Differs from C, which knows the bare form only: the other is how today's Redis
/// clients begin. Nothing is changed unless everything in it is right.
fn hello(server: &mut Server, call: &Call<'_>) -> Outcome {
    if call.args.len() == 1 {
        server.engine.hello(server.clock.now, call.client, call.resp);
        return Outcome::Done;
    }
    match greet(server, call) {
        Ok(()) => server.introduce(call),
        Err(error) => server.reply(call).error(error),
    }
    Outcome::Done
}

/// Does what the words of a HELLO ask for, all of it or nothing.
fn greet(server: &mut Server, call: &Call<'_>) -> Result<(), &'static str> {
    let resp = match &call.args[1] {
        b"2" => Resp::V2,
        b"3" => Resp::V3,
        _ => return Err("NOPROTO unsupported protocol version"),
    };
    let mut is_known = !server.is_unauthenticated(call.client);
    let mut name = None;
    let mut at = 2;
    while let Some(word) = call.args.get(at) {
        if word.eq_ignore_ascii_case(b"auth") && at + 2 < call.args.len() {
            if !server.knows(&call.args[at + 1], &call.args[at + 2]) {
                return Err(WRONGPASS);
            }
            is_known = true;
            at += 3;
        } else if word.eq_ignore_ascii_case(b"setname") && at + 1 < call.args.len() {
            name = Some(client::checked_name(&call.args[at + 1])?);
            at += 2;
        } else {
            return Err("ERR syntax error");
        }
    }
    if !is_known {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                    the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                    client and select the RESP protocol version at the same time",
        );
    }
    if let Some(client) = server.client_mut(call.client) {
        client.is_authenticated = true;
        client.resp = resp;
        if let Some(name) = name {
            client.name = name.into();
        }
    }
    Ok(())
}

/// ACL WHOAMI -> the only user there is.
fn acl(server: &mut Server, call: &Call<'_>) -> Outcome {
    let mut reply = server.reply(call);
    if call.args.len() == 2 && call.args[1].eq_ignore_ascii_case(b"whoami") {
        reply.bulk(USER);
    } else {
        reply.error(
            "ERR Unknown ACL subcommand or wrong number of arguments: the only user is default, \
             whose password is requirepass",
        );
    }
    Outcome::Done
}

impl Server {
    /// Whether a user with this password is let in. Without a password to check, any is right.
    /// No name, which Redis refuses, is that of the only user: redis-cli sends it for the URL
    /// `redis://:password@host`.
    fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        let is_right =
            self.config.requirepass.as_ref().is_none_or(|right| is_same(right, password));
        is_right & (user == USER || user.is_empty())
    }

    fn introduce(&mut self, call: &Call<'_>) {
        let Some(client) = self.client(call.client) else { return };
        let (number, resp) = (client.number, client.resp);
        let mut reply = self.engine.out.replies.to(call.client, client.reply_form());
        let zone = &self.config.availability_zone;
        reply.map(7 + usize::from(!zone.is_empty()));
        reply.bulk("server");
        reply.bulk("disque");
        reply.bulk("version");
        reply.bulk(DISQUE_VERSION);
        reply.bulk("proto");
        reply.integer(if resp == Resp::V3 { 3 } else { 2 });
        reply.bulk("id");
        reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
        reply.bulk("mode");
        reply.bulk("cluster");
        reply.bulk("role");
        reply.bulk("master");
        reply.bulk("modules");
        reply.array(0);
        if !zone.is_empty() {
            reply.bulk("availability_zone");
            reply.bulk(zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn passwords_are_the_same_byte_for_byte_and_in_length() {
        assert!(is_same(b"secret", b"secret"));
        assert!(!is_same(b"secret", b"secreT"));
        assert!(!is_same(b"secret", b"secret\0"));
        assert!(!is_same(b"secret", b""));
        assert!(!is_same(&[b'a'; 512], &[b'a'; 513]));
        assert!(is_same(&[b'a'; 512], &[b'a'; 512]));
    }
}
