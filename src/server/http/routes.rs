//! What the HTTP port has to say, and to whom.
//!
//! Health and the page itself are for everybody who reaches the port: a probe has no secrets,
//! and the page holds none. Numbers, names and bodies need the token, if there is one.
//!
//! Without a token whoever reaches the port may read all of it, which `http-bind` limits to
//! this machine. A page of another site in a browser on this machine cannot: it could have its
//! own name resolved to this address, and then reads what the browser takes for its own. So on a
//! loopback address a name that is not this machine's is refused.

use std::hint;
use std::net::IpAddr;

use super::answer::HttpAnswer;
use super::request::HttpRequest;
use super::{api, health, metrics};
use crate::server::Server;

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Everybody,
    /// Who has the token, if there is one.
    Token,
}

struct Route {
    path: &'static str,
    who: For,
    answer: fn(&Server, &HttpRequest) -> HttpAnswer,
}

const fn route(
    path: &'static str,
    who: For,
    answer: fn(&Server, &HttpRequest) -> HttpAnswer,
) -> Route {
    Route { path, who, answer }
}

static ROUTES: &[Route] = &[
    route("/", For::Everybody, page),
    route("/livez", For::Everybody, health::livez),
    route("/readyz", For::Everybody, health::readyz),
    route("/metrics", For::Token, metrics::answer),
    route("/api/overview", For::Token, api::overview),
    route("/api/queues", For::Token, api::queues),
    route("/api/queue", For::Token, api::queue),
    route("/api/nodes", For::Token, api::nodes),
    route("/api/dead", For::Token, api::dead),
    route("/api/job", For::Token, api::job),
    route("/api/trace", For::Token, api::trace),
];

/// Answers a request.
pub(super) fn answer(server: &Server, request: &HttpRequest) -> HttpAnswer {
    let Some(route) = ROUTES.iter().find(|route| route.path == request.path) else {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        return HttpAnswer::line(404, &format!("not found; there is {}", paths.join(" ")));
    };
    if route.who == For::Token
        && let Some(refused) = refused(server, request)
    {
        return refused;
    }
    (route.answer)(server, request)
}

fn refused(server: &Server, request: &HttpRequest) -> Option<HttpAnswer> {
    match &server.config.http_token {
        Some(token) => {
            let is_right = request.token.as_ref().is_some_and(|given| is_same(token, given));
            (!is_right).then(|| {
                HttpAnswer::line(401, "this needs the token: Authorization: Bearer TOKEN")
                    .with_header("WWW-Authenticate", "Bearer")
            })
        }
        None => {
            let host = request.host.as_deref().unwrap_or("localhost");
            (is_for_loopback_only(server) && !is_this_machine(host)).then(|| {
                HttpAnswer::line(
                    403,
                    "the host of this request is neither an address nor localhost, so it may come \
                     from a page of another site: set http-token",
                )
            })
        }
    }
}

/// Whether only processes of this machine reach the port.
fn is_for_loopback_only(server: &Server) -> bool {
    server
        .config
        .http_bind
        .iter()
        .all(|bind| bind == "localhost" || bind.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

fn is_this_machine(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// Compares in a time that says nothing of where the first difference is.
fn is_same(token: &[u8], given: &[u8]) -> bool {
    let differences = token
        .iter()
        .zip(given)
        .fold(0, |sum, (right, given)| hint::black_box(sum | (right ^ given)));
    (differences == 0) & (token.len() == given.len())
}

/// The page, in one file. Its script and its style are named by a number that is drawn for each
/// answer, so that no other script runs in it, whatever is in names and bodies.
const PAGE: &str = include_str!("page.html");
/// Where the number stands in the page.
const NONCE: &str = "@nonce@";

fn page(_: &Server, _: &HttpRequest) -> HttpAnswer {
    let mut random = [0; 16];
    if getrandom::fill(&mut random).is_err() {
        return HttpAnswer::line(503, "the system gives no random bytes");
    }
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    );
    HttpAnswer::new(200, "text/html; charset=utf-8", PAGE.replace(NONCE, &nonce))
        .with_header("Content-Security-Policy", &policy)
        .with_header("Referrer-Policy", "no-referrer")
        .with_header("Cross-Origin-Opener-Policy", "same-origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_small_file_without_outside_things() {
        assert!(PAGE.len() < 60 * 1024, "{} bytes", PAGE.len());
        let tags = ["<script nonce=\"@nonce@\">", "<style nonce=\"@nonce@\">"];
        assert!(tags.iter().all(|tag| PAGE.matches(tag).count() == 1));
        assert_eq!(PAGE.matches("<script").count(), 1);
        for foreign in ["http://", "https://", "@import", "url(", "innerHTML", "eval("] {
            let stands = PAGE.replace("http://www.w3.org/2000/svg", "").contains(foreign);
            assert!(!stands, "{foreign}");
        }
    }

    #[test]
    fn addresses_and_localhost_are_this_machine() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "10.0.0.7"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["evil.example", "", "127.0.0.1.evil.example", "localhost.evil.example"] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn only_the_whole_token_is_right() {
        assert!(is_same(b"token", b"token"));
        for wrong in [&b""[..], b"toke", b"tokens", b"Token"] {
            assert!(!is_same(b"token", wrong));
        }
    }
}
