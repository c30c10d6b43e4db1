//! A request of the HTTP port: GET or HEAD, a path with a query, and the few headers that
//! matter. Anything else is refused, with the status that says why.

use httparse::{Error, Header, Request, Status};

/// Longest request line with all headers, in bytes: browsers send the cookies of everything
/// that runs on the same host.
pub const HEADER_MAX: usize = 16 * 1024;
/// Most headers.
const HEADERS_MAX: usize = 64;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Only the head of the answer is wanted.
    pub is_head: bool,
    pub path: String,
    /// Names and values in their order, decoded.
    query: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the client accepts; empty without such a header.
    pub accept: String,
    /// The token of `Authorization: Bearer TOKEN`.
    pub token: Option<Vec<u8>>,
    /// The host that the client meant, without its port.
    pub host: Option<String>,
    pub is_http_1_1: bool,
    pub keeps_alive: bool,
}

/// What came so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedHttp {
    Incomplete,
    Request(HttpRequest),
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not HTTP/1, or not as it has to be.
    Malformed,
    /// Neither GET nor HEAD.
    Method,
    /// It has a body.
    Body,
    TooLarge,
    TooSlow,
}

impl HttpRequest {
    /// The value of the first parameter of that name.
    pub fn parameter(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.query.iter().filter(|(known, _)| known == name.as_bytes());
        values.next().map(|(_, value)| value.as_slice())
    }
}

/// Reads the request at the beginning of `input`; `None` while it is not whole. Also returns
/// how many bytes it has.
pub fn parse(input: &[u8]) -> Result<Option<(HttpRequest, usize)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let len = match request.parse(input) {
        Ok(Status::Complete(len)) if len <= HEADER_MAX => len,
        Ok(Status::Complete(_)) => return Err(Refusal::TooLarge),
        Ok(Status::Partial) if input.len() >= HEADER_MAX => return Err(Refusal::TooLarge),
        Ok(Status::Partial) => return Ok(None),
        Err(Error::TooManyHeaders) => return Err(Refusal::TooLarge),
        Err(_) => return Err(Refusal::Malformed),
    };
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refusal::Method),
    };
    if has_body(request.headers) {
        return Err(Refusal::Body);
    }
    let target = request.path.filter(|path| path.starts_with('/')).ok_or(Refusal::Malformed)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let text = |name| header(request.headers, name).and_then(|value| str::from_utf8(value).ok());
    let connection = text("connection").unwrap_or("").to_ascii_lowercase();
    let is_http_1_1 = request.version == Some(1);
    let request = HttpRequest {
        is_head,
        path: path.to_owned(),
        query: pairs(query).ok_or(Refusal::Malformed)?,
        accept: text("accept").unwrap_or("").to_owned(),
        token: header(request.headers, "authorization").and_then(bearer).map(<[u8]>::to_vec),
        host: text("host").map(without_port),
        is_http_1_1,
        keeps_alive: if is_http_1_1 {
            !connection.contains("close")
        } else {
            connection.contains("keep-alive")
        },
    };
    Ok(Some((request, len)))
}

/// The value of the only header of that name; `None` with several, which nobody has to guess
/// from.
fn header<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a [u8]> {
    let mut found = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let only = found.next().map(|header| header.value.trim_ascii());
    if found.next().is_some() { None } else { only }
}

fn has_body(headers: &[Header<'_>]) -> bool {
    headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            || header.name.eq_ignore_ascii_case("content-length")
                && header.value.trim_ascii() != b"0"
    })
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn without_port(host: &str) -> String {
    let is_port = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    match host.rsplit_once(':') {
        // An IPv6 address stands in brackets; what follows its own colons is no port.
        Some((name, port)) if is_port(port) && !name.ends_with(':') => name.to_owned(),
        _ => host.to_owned(),
    }
}

/// The decoded names and values of a query; `None` when something is not encoded as it should.
fn pairs(query: &str) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let pieces = query.split('&').filter(|piece| !piece.is_empty());
    pieces
        .map(|piece| {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            Some((decoded(name)?, decoded(value)?))
        })
        .collect()
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                u8::try_from(16 * high + low).ok()?
            }
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> HttpRequest {
        let (request, len) = parse(text.as_bytes()).expect("right").expect("whole");
        assert_eq!(len, text.len());
        request
    }

    #[test]
    fn a_request_is_read_once_it_is_whole() {
        let text = "GET /api/queue?name=a%20b%ff+c&x HTTP/1.1\r\nHost: localhost:9711\r\n\
                    Authorization: bearer s3cret\r\nAccept: text/plain\r\n\r\n";
        for len in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..len]), Ok(None), "{len}");
        }
        let request = whole(text);
        assert_eq!((request.is_head, request.keeps_alive), (false, true));
        assert_eq!(request.path, "/api/queue");
        assert_eq!(request.parameter("name"), Some(&b"a b\xff c"[..]));
        assert_eq!((request.parameter("x"), request.parameter("y")), (Some(&b""[..]), None));
        assert_eq!(request.token.as_deref(), Some(&b"s3cret"[..]));
        assert_eq!(request.host.as_deref(), Some("localhost"));
        assert_eq!(request.accept, "text/plain");
    }

    #[test]
    fn connections_stay_as_the_version_and_the_client_say() {
        let keeps = |head: &str| whole(&format!("HEAD / {head}\r\n\r\n")).keeps_alive;
        assert!(keeps("HTTP/1.1") && keeps("HTTP/1.0\r\nConnection: Keep-Alive"));
        assert!(!keeps("HTTP/1.0") && !keeps("HTTP/1.1\r\nConnection: close"));
    }

    #[test]
    fn hosts_lose_their_port_only() {
        let host = |host: &str| whole(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).host;
        for (given, name) in
            [("a.b:80", "a.b"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("a", "a"), ("", "")]
        {
            assert_eq!(host(given).as_deref(), Some(name));
        }
    }

    #[test]
    fn what_is_no_plain_question_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEADER_MAX));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        for (text, refusal) in [
            ("POST / HTTP/1.1\r\n\r\n", Refusal::Method),
            ("OPTIONS * HTTP/1.1\r\n\r\n", Refusal::Method),
            ("GET / HTTP/1.1\r\nContent-Length: 4\r\n\r\n", Refusal::Body),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::Body),
            ("GET http://a/ HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("GET /?a=%4 HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/2.0\r\n\r\n", Refusal::Malformed),
            ("*1\r\n$4\r\nPING\r\n", Refusal::Malformed),
            ("\x16\x03\x01\x02", Refusal::Malformed),
            (&long, Refusal::TooLarge),
            (&many, Refusal::TooLarge),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(refusal), "{text:.60}");
        }
    }

    #[test]
    fn of_two_headers_none_counts() {
        let request =
            whole("GET / HTTP/1.1\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n");
        assert_eq!(request.token, None);
    }
}
