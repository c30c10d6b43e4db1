//! Who a client is: AUTH, HELLO and ACL WHOAMI.

use std::hint;
use std::sync::Arc;

use crate::base::ids::ClientId;
use crate::base::limits::PASSWORD_MAX;
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::manual::Roles;
use crate::proto::reply::Resp;
use crate::server::Server;
use crate::server::version::DISQUE_VERSION;

use super::client::Closing;
use super::client::command as client;
use super::server_command::{ServerCommand, row};
use super::users::{DEFAULT_USER, User};

pub(super) static COMMANDS: &[ServerCommand] =
    &[row("auth", auth), row("hello", hello), row("acl", acl)];

const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Who a client has shown to be.
enum Login {
    Default,
    User(Arc<User>),
}

/// AUTH password -> OK: the user default. A wrong one takes away what an earlier right one gave.
/// AUTH user password -> OK. Who is not let in stays who it was.
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
        // With users there is a default one only if it has a password.
        let refusal = match server.config.users.is_empty() {
            true => "ERR Client sent AUTH, but no password is set",
            false => WRONGPASS,
        };
        server.reply(call).error(refusal);
        return Outcome::Done;
    };
    let is_right = is_same(password, &call.args[1]);
    if let Some(client) = server.client_mut(call.client) {
        client.is_authenticated = is_right;
        client.user = None;
    }
    server.end_monitor_unless_admin(call.client);
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
    let Some(login) = server.login(&call.args[1], &call.args[2]) else {
        return server.reply(call).error(WRONGPASS);
    };
    server.log_in(call.client, login);
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
    let is_known = !server.is_unauthenticated(call.client);
    let (mut login, mut name) = (None, None);
    let mut at = 2;
    while let Some(word) = call.args.get(at) {
        if word.eq_ignore_ascii_case(b"auth") && at + 2 < call.args.len() {
            let found = server.login(&call.args[at + 1], &call.args[at + 2]);
            login = Some(found.ok_or(WRONGPASS)?);
            at += 3;
        } else if word.eq_ignore_ascii_case(b"setname") && at + 1 < call.args.len() {
            name = Some(client::checked_name(&call.args[at + 1])?);
            at += 2;
        } else {
            return Err("ERR syntax error");
        }
    }
    if !is_known && login.is_none() {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                    the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                    client and select the RESP protocol version at the same time",
        );
    }
    if let Some(login) = login {
        server.log_in(call.client, login);
    }
    if let Some(client) = server.client_mut(call.client) {
        client.is_authenticated |= client.user.is_none();
        client.resp = resp;
        if let Some(name) = name {
            client.name = name.into();
        }
    }
    Ok(())
}

/// ACL WHOAMI -> the name of the user that the client is.
fn acl(server: &mut Server, call: &Call<'_>) -> Outcome {
    let name = server.client(call.client).map(|client| client.user_name(&server.config).to_owned());
    let has_users = !server.config.users.is_empty();
    let mut reply = server.reply(call);
    if call.args.len() == 2 && call.args[1].eq_ignore_ascii_case(b"whoami") {
        reply.bulk(name.unwrap_or_default());
    } else {
        reply.error(match has_users {
            true => {
                "ERR Unknown ACL subcommand or wrong number of arguments: users are lines of the \
                 directive user, and the password of default is requirepass"
            }
            false => {
                "ERR Unknown ACL subcommand or wrong number of arguments: the only user is \
                 default, whose password is requirepass"
            }
        });
    }
    Outcome::Done
}

impl Server {
    /// Who has this name and this password. Without a password to check, any is right for
    /// default. No name, which Redis refuses, is that of default: redis-cli sends it for the URL
    /// `redis://:password@host`.
    fn login(&self, name: &[u8], password: &[u8]) -> Option<Login> {
        let config = &self.config;
        if name != DEFAULT_USER.as_bytes() && !name.is_empty() {
            return config.users.log_in(name, password).map(Login::User);
        }
        let is_right = match &config.requirepass {
            Some(right) => is_same(right, password),
            None => config.users.is_empty(),
        };
        is_right.then_some(Login::Default)
    }

    fn log_in(&mut self, id: ClientId, login: Login) {
        let Some(client) = self.client_mut(id) else { return };
        client.is_authenticated = matches!(login, Login::Default);
        client.user = match login {
            Login::Default => None,
            Login::User(user) => Some(user),
        };
        self.end_monitor_unless_admin(id);
    }

    /// Closes who watches by MONITOR and has become somebody who may not. Without users it goes on,
    /// as with C.
    fn end_monitor_unless_admin(&mut self, id: ClientId) {
        let config = &self.config;
        let Some(client) = self.client(id).filter(|client| client.is_monitor) else { return };
        let is_admin = match &client.user {
            Some(user) => user.may_run(Roles::ADMIN),
            None => client.is_logged_in(config),
        };
        if !is_admin && !config.users.is_empty() {
            self.close_later(id, Closing::AfterTurn);
        }
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
