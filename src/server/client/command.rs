//! CLIENT: the connections, seen and changed from one of them.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::base::ids::ClientId;
use crate::base::number;
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::server::Server;
use crate::server::client::{Client, Closing, ReplyMode};
use crate::server::server_command::{ServerCommand, row};

pub(in crate::server) static COMMANDS: &[ServerCommand] = &[row("client", client)];

const USAGE: &str =
    "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)";

/// Longest CLIENT PAUSE: a day. Whoever wants more than that wants the clients gone.
const PAUSE_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// CLIENT LIST | INFO | ID | GETNAME | SETNAME name | SETINFO what value | REPLY ON|OFF|SKIP |
/// KILL ... | PAUSE ms | UNPAUSE | NO-EVICT ON|OFF | NO-TOUCH ON|OFF | TRACKING OFF.
fn client(server: &mut Server, call: &Call<'_>) -> Outcome {
    let args = call.args;
    let is =
        |word: &str, len: usize| args.len() == len && args[1].eq_ignore_ascii_case(word.as_bytes());
    if is("list", 2) {
        let list = server.client_list();
        server.reply(call).bulk(list);
    } else if is("info", 2) {
        let line = server.client(call.client).map(|client| server.client_line(client) + "\n");
        server.reply(call).bulk(line.unwrap_or_default());
    } else if is("id", 2) {
        let number = server.client(call.client).map_or(0, |client| client.number);
        server.reply(call).integer(i64::try_from(number).unwrap_or(i64::MAX));
    } else if is("getname", 2) {
        let name = server.client(call.client).map(|client| client.name.clone());
        let mut reply = server.reply(call);
        match name {
            Some(name) if !name.is_empty() => reply.bulk(name),
            _ => reply.null_bulk(),
        }
    } else if is("setname", 3) {
        set_name(server, call);
    } else if is("setinfo", 4) {
        // Libraries send their name and version; nobody asks for them.
        server.reply(call).status("OK");
    } else if is("reply", 3) {
        set_replies(server, call);
    } else if is("no-evict", 3) || is("no-touch", 3) {
        // Nothing is ever evicted or touched.
        match is_on(&call.args[2]) {
            Some(_) => server.reply(call).status("OK"),
            None => server.reply(call).error(CommandError::Syntax.to_string()),
        }
    } else if args.len() > 2 && args[1].eq_ignore_ascii_case(b"tracking") {
        set_tracking(server, call);
    } else if is("pause", 3) {
        pause(server, call);
    } else if is("unpause", 2) {
        server.unpause_clients();
        server.reply(call).status("OK");
    } else if args[1].eq_ignore_ascii_case(b"kill") {
        kill(server, call);
    } else {
        server.reply(call).error(USAGE);
    }
    Outcome::Done
}

/// A name that CLIENT LIST can show without ambiguity; an empty one takes the name away.
pub fn checked_name(name: &[u8]) -> Result<&[u8], &'static str> {
    if name.iter().all(u8::is_ascii_graphic) {
        Ok(name)
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.")
    }
}

fn set_name(server: &mut Server, call: &Call<'_>) {
    match checked_name(&call.args[2]) {
        Ok(name) => {
            if let Some(client) = server.client_mut(call.client) {
                client.name = name.into();
            }
            server.reply(call).status("OK");
        }
        Err(error) => server.reply(call).error(error),
    }
}

fn set_replies(server: &mut Server, call: &Call<'_>) {
    let Some(client) = server.client_mut(call.client) else { return };
    let mode = &call.args[2];
    if mode.eq_ignore_ascii_case(b"on") {
        client.replies = ReplyMode::On;
        let resp = client.reply_form();
        server.engine.out.replies.to(call.client, resp).status("OK");
    } else if mode.eq_ignore_ascii_case(b"off") {
        client.replies = ReplyMode::Off;
    } else if mode.eq_ignore_ascii_case(b"skip") {
        if client.replies != ReplyMode::Off {
            client.replies = ReplyMode::SkipNext;
        }
    } else {
        server.reply(call).error(CommandError::Syntax.to_string());
    }
}

fn is_on(mode: &[u8]) -> Option<bool> {
    let modes = [(&b"on"[..], true), (b"off", false)];
    modes.iter().find(|(word, _)| mode.eq_ignore_ascii_case(word)).map(|&(_, is_on)| is_on)
}

/// CLIENT TRACKING ON|OFF ... -> OK when nothing is to be tracked.
fn set_tracking(server: &mut Server, call: &Call<'_>) {
    let mut reply = server.reply(call);
    match is_on(&call.args[2]) {
        Some(true) => {
            reply.error("ERR Client tracking is not supported: there are no keys to track");
        }
        Some(false) if call.args.len() == 3 => reply.status("OK"),
        _ => reply.error(CommandError::Syntax.to_string()),
    }
}

/// CLIENT PAUSE ms -> OK.
///
/// Differs from C, which takes any time, and lets nobody end it.
fn pause(server: &mut Server, call: &Call<'_>) {
    let timeout = number::parse_i64(&call.args[2]);
    match timeout.map(u64::try_from) {
        Some(Ok(pause_ms)) if pause_ms > PAUSE_MAX_MS => {
            server
                .reply(call)
                .error("ERR timeout is out of range: a pause has at most 86400000 ms");
        }
        Some(Ok(pause_ms)) => {
            server.pause_clients(pause_ms);
            server.reply(call).status("OK");
        }
        Some(Err(_)) => server.reply(call).error(CommandError::TimeoutNegative.to_string()),
        None => server.reply(call).error(CommandError::TimeoutNotAnInteger.to_string()),
    }
}

/// Which clients a KILL means.
struct Victims {
    address: Option<Address>,
    number: Option<u64>,
    spared: Option<ClientId>,
}

/// An address as CLIENT LIST shows it.
#[derive(Clone, Copy)]
enum Address {
    Tcp(SocketAddr),
    Unix,
    /// That of no client.
    Nobody,
}

/// CLIENT KILL ip:port -> OK, or an error when there is no such client.
/// CLIENT KILL [ID n] [ADDR ip:port] [TYPE normal] [SKIPME yes|no] ... -> how many. With
/// nothing wrong in it only; the caller is spared unless SKIPME says no.
fn kill(server: &mut Server, call: &Call<'_>) {
    let is_old_form = call.args.len() == 3;
    let victims = if is_old_form {
        let address = Some(server.parse_address(&call.args[2]));
        Ok(Victims { address, number: None, spared: None })
    } else {
        parse_kill(server, call)
    };
    let victims = match victims {
        Ok(victims) => victims,
        Err(error) => return server.reply(call).error(error),
    };
    let killed: Vec<ClientId> = server
        .clients
        .iter()
        .filter(|client| client.closing.is_none() && victims.include(client))
        .map(|client| client.id)
        .collect();
    for &id in &killed {
        let how = if id == call.client { Closing::AfterReply } else { Closing::AfterTurn };
        server.close_later(id, how);
    }
    let mut reply = server.reply(call);
    match (is_old_form, killed.len()) {
        (true, 0) => reply.error("ERR No such client"),
        (true, _) => reply.status("OK"),
        (false, count) => reply.integer(i64::try_from(count).unwrap_or(i64::MAX)),
    }
}

fn parse_kill(server: &Server, call: &Call<'_>) -> Result<Victims, Vec<u8>> {
    let syntax = || CommandError::Syntax.to_string().into_bytes();
    let args = call.args;
    let mut victims = Victims { address: None, number: None, spared: Some(call.client) };
    if args.len() < 4 || args.len() % 2 == 1 {
        return Err(syntax());
    }
    for at in (2..args.len()).step_by(2) {
        let (option, value) = (&args[at], args.get(at + 1).unwrap_or_default());
        if option.eq_ignore_ascii_case(b"id") {
            let number = number::parse_i64(value)
                .ok_or_else(|| CommandError::NotAnInteger.to_string().into_bytes())?;
            // C: networking.c clientCommand, ID 0 means any client.
            victims.number = Some(number.cast_unsigned()).filter(|&number| number != 0);
        } else if option.eq_ignore_ascii_case(b"addr") {
            victims.address = Some(server.parse_address(value));
        } else if option.eq_ignore_ascii_case(b"type") {
            if !value.eq_ignore_ascii_case(b"normal") {
                return Err([b"ERR Unknown client type '", value, b"'"].concat());
            }
        } else if option.eq_ignore_ascii_case(b"skipme") {
            let skips = number::parse_yes_no(value).ok_or_else(syntax)?;
            victims.spared = skips.then_some(call.client);
        } else {
            return Err(syntax());
        }
    }
    Ok(victims)
}

impl Victims {
    fn include(&self, client: &Client) -> bool {
        let is_addressed = |address| match address {
            Address::Tcp(address) => client.connection.peer() == Some(address),
            Address::Unix => client.connection.peer().is_none(),
            Address::Nobody => false,
        };
        self.address.is_none_or(is_addressed)
            && self.number.is_none_or(|number| number == client.number)
            && self.spared != Some(client.id)
    }
}

impl Server {
    /// Which clients' address this is, written as CLIENT LIST writes it and not otherwise.
    fn parse_address(&self, text: &[u8]) -> Address {
        let address = str::from_utf8(text).ok().and_then(|text| text.parse::<SocketAddr>().ok());
        match address {
            Some(address) if address.to_string().as_bytes() == text => Address::Tcp(address),
            _ if self.unix_address().as_bytes() == text => Address::Unix,
            _ => Address::Nobody,
        }
    }

    /// A line for each client, as CLIENT LIST and crash reports show them.
    pub fn client_list(&self) -> String {
        let mut list = String::new();
        for client in self.clients.iter() {
            let _infallible = writeln!(list, "{}", self.client_line(client));
        }
        list
    }

    fn client_line(&self, client: &Client) -> String {
        let now = self.clock.now.mono;
        let connection = &client.connection;
        let unsent = connection.unsent();
        format!(
            "id={} addr={} fd={} name={} age={} idle={} flags={} qbuf={} qbuf-free={} obl=0 \
             oll={} omem={} events={} cmd={}{}",
            client.number,
            self.address_of(client),
            connection.fd(),
            String::from_utf8_lossy(&client.name),
            now.ms_since(client.connected_at) / 1000,
            now.ms_since(client.active_at) / 1000,
            flags(client),
            connection.input.len(),
            connection.input.free_capacity(),
            usize::from(unsent > 0),
            connection.output_capacity(),
            if unsent > 0 { "rw" } else { "r" },
            client.last_command.unwrap_or("NULL"),
            if self.config.users.is_empty() {
                String::new()
            } else {
                format!(" user={}", client.user_name(&self.config))
            },
        )
    }
}

fn flags(client: &Client) -> String {
    let flags = [
        (client.is_monitor, 'O'),
        (client.is_blocked, 'b'),
        (client.closing == Some(Closing::AfterReply), 'c'),
        (client.closing == Some(Closing::AfterTurn), 'A'),
        (client.connection.peer().is_none(), 'U'),
    ];
    let set: String = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, c)| c).collect();
    if set.is_empty() { "N".to_owned() } else { set }
}
