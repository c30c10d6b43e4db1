//! An answer of the HTTP port: a status, a type, and a body that is there or is written in
//! parts.

use std::fmt::Write as _;

use super::request::Refusal;
use crate::engine::More;
use crate::server::Server;

/// Bytes of a long answer that are written before they are sent.
pub const PIECE_LEN: usize = 16 * 1024;

/// What a connection is told that there is no place for.
pub const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";

pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";

/// A long answer, written step by step. A step takes well below 0.1 ms.
pub trait Parts {
    /// Writes a little more; tells whether there is still more.
    fn write_some(&mut self, server: &Server, out: &mut Vec<u8>) -> More;
}

pub enum Body {
    Whole(Vec<u8>),
    Parts(Box<dyn Parts>),
    /// It would have so many bytes, if that is known, and was not asked for.
    Unsent {
        len: Option<usize>,
    },
}

pub struct HttpAnswer {
    pub status: u16,
    content_type: &'static str,
    /// Further headers, each with its line end.
    headers: String,
    pub body: Body,
}

impl HttpAnswer {
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, headers: String::new(), body: Body::Whole(body.into()) }
    }

    /// An answer of one line.
    pub fn line(status: u16, line: &str) -> Self {
        Self::new(status, TEXT, format!("{line}\n"))
    }

    pub fn json(body: Vec<u8>) -> Self {
        Self::new(200, JSON, body)
    }

    pub fn parts(content_type: &'static str, parts: impl Parts + 'static) -> Self {
        let body = Body::Parts(Box::new(parts));
        Self { status: 200, content_type, headers: String::new(), body }
    }

    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        let _infallible = write!(self.headers, "{name}: {value}\r\n");
        self
    }

    pub fn refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed => Self::line(400, "this is no request of HTTP/1.1"),
            Refusal::Method => {
                Self::line(405, "there is only GET and HEAD").with_header("Allow", "GET, HEAD")
            }
            Refusal::Body => Self::line(413, "a request has no body here"),
            Refusal::TooLarge => Self::line(431, "the request is too long"),
            Refusal::TooSlow => Self::line(408, "the request took too long"),
        }
    }

    /// The same for HEAD.
    pub fn without_body(self) -> Self {
        let len = match &self.body {
            Body::Whole(body) => Some(body.len()),
            Body::Parts(_) | Body::Unsent { .. } => None,
        };
        Self { body: Body::Unsent { len }, ..self }
    }

    /// The status line and the headers.
    pub fn head(&self, is_chunked: bool, keeps_alive: bool) -> Vec<u8> {
        let Self { status, content_type, headers, body } = self;
        let mut head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\n{headers}",
            reason_phrase(*status)
        );
        let len = match body {
            Body::Whole(body) => Some(body.len()),
            Body::Unsent { len } => *len,
            Body::Parts(_) => None,
        };
        if let Some(len) = len {
            let _infallible = write!(head, "Content-Length: {len}\r\n");
        }
        if is_chunked {
            head.push_str("Transfer-Encoding: chunked\r\n");
        }
        if !keeps_alive {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "",
    }
}
