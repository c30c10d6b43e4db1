//! Directives about listening and connections, and about the HTTP port.

use super::{
    AT_START, DirectiveGroup, HIDDEN, LIVE, PORT_MAX, at_least, place, row, small_at_least, up_to,
};
use crate::server::config::Config;
use crate::server::config::form::ValueForm;
use crate::server::{Server, daemon};

pub(super) const NETWORK: DirectiveGroup = DirectiveGroup {
    title: "Network",
    directives: &[
        row(
            "port",
            // Differs from C: 0 is refused, because C then closes the client port and
            // still opens a bus on port 10000.
            ValueForm::Number { min: 1, max: PORT_MAX, unit: "" },
            AT_START,
            place!(port),
            "TCP port for clients. The cluster bus listens on this port + 10000.",
        ),
        row(
            "bind",
            ValueForm::Addresses,
            AT_START,
            place!(bind),
            "Addresses to listen on, for clients and for the bus; without this line, all of \
             them. Connections to other nodes come from the first one that can reach them. The bus \
             asks nobody for a password: bind to a trusted network or put a firewall in front.",
        ),
        row(
            "protected-mode",
            ValueForm::YesNo,
            LIVE,
            place!(protected_mode),
            "With yes, while neither requirepass nor a user nor bind is set, clients from other hosts \
             are refused: only the loopback interface and the unix socket are served. The bus has \
             cluster-allow, the HTTP port http-bind.",
        ),
        row(
            "unixsocket",
            ValueForm::OptionalPath,
            AT_START,
            place!(unixsocket),
            "Path of a unix socket to listen on besides TCP. A file already there is removed.",
        ),
        row(
            "unixsocketperm",
            ValueForm::Mode,
            AT_START,
            place!(unixsocketperm),
            "Permissions of the unix socket in octal; 0 leaves what the umask gives.",
        ),
        row(
            "tcp-backlog",
            small_at_least(0, ""),
            AT_START,
            place!(tcp_backlog),
            "Connections the kernel may keep waiting for the server to accept them. Linux \
             cuts this at net.core.somaxconn, so raise both.",
        ),
        row(
            "timeout",
            at_least(0, "seconds"),
            LIVE,
            place!(timeout_secs),
            "Closes a client that has sent nothing for so long; 0 never does. Clients that \
             wait for a job or for replication are left alone.",
        ),
        row(
            "tcp-keepalive",
            // Differs from C: the file takes yes and no and CONFIG SET takes seconds too,
            // because C accepts either in one of the two places only.
            ValueForm::SecondsOrYesNo { max: i32::MAX as i64 },
            LIVE,
            place!(tcp_keepalive_secs),
            // Differs from C, where it is 0: the consumer of a host that vanished would be
            // kept for ever, and swallow the next job of its queue.
            "Seconds after which a silent client's connection is probed, so that those of hosts \
             that vanished are closed, after twice as long, and firewalls keep the others \
             open; 0 sends no probes. A consumer that is gone and still waits swallows the next \
             job of its queue until its retry. Linux takes 32767 at most, which is what higher \
             values mean.",
        ),
        row(
            "maxclients",
            ValueForm::Number { min: 1, max: i32::MAX as i64, unit: "" },
            LIVE,
            place!(maxclients),
            "Most clients connected at once; one more gets an error and is closed. Lowered at \
             start when the limit of open files does not allow it: 1568 more are kept for \
             the server and its links to other nodes, which is enough for 500 nodes. Of a \
             low limit the links get a quarter.",
        )
        .when_set(raise_file_limit),
        row(
            "client-output-buffer-limit",
            ValueForm::OutputLimit,
            LIVE,
            place!(client_output_buffer_limit),
            "Drops a client that does not read: at once over the first size, or after so many \
             seconds on end over the second; 0 is no limit. The only class is normal.",
        ),
    ],
};

pub(super) const HTTP_PORT: DirectiveGroup = DirectiveGroup {
    title: "HTTP port for operators",
    directives: &[
        row(
            "http-port",
            up_to(u16::MAX as i64),
            AT_START,
            place!(http_port),
            "TCP port for what operators' tools ask over HTTP: /metrics for Prometheus, /livez \
             and /readyz for probes, /api/... in JSON, and a page at /. 0, the default, is no \
             such port. It answers only questions; docs/operations.md has them.",
        ),
        row(
            "http-bind",
            ValueForm::Addresses,
            AT_START,
            place!(http_bind),
            "Addresses that the HTTP port listens on. Whoever reaches one of them may read the \
             names of queues, numbers and, without requirepass and users, bodies of jobs, unless \
             http-token is set; nothing is encrypted.",
        ),
        row(
            "http-token",
            ValueForm::Password,
            HIDDEN,
            place!(http_token),
            "What a client of the HTTP port has to send with everything but /livez, /readyz and \
             the page itself: Authorization: Bearer TOKEN. The page asks for it. Visible ASCII \
             characters; empty is none. CONFIG GET does not show it.",
        )
        .when_read(|config, _| check_http_token(config))
        .when_set(|_, next| check_http_token(next)),
    ],
};

fn check_http_token(config: &mut Config) -> Result<(), String> {
    let is_sendable = |token: &Vec<u8>| token.iter().all(u8::is_ascii_graphic);
    let is_right = config.http_token.as_ref().is_none_or(is_sendable);
    is_right.then_some(()).ok_or("http-token has characters that no header can have".into())
}

fn raise_file_limit(server: &mut Server, next: &mut Config) -> Result<(), String> {
    if next.maxclients <= server.config.maxclients {
        return Ok(());
    }
    let granted = daemon::raise_file_limit(next.maxclients).clients;
    if granted < next.maxclients {
        return Err(format!(
            "The operating system is not able to handle the specified number of clients, try \
             with {granted}"
        ));
    }
    Ok(())
}
