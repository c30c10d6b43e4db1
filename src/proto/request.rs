//! Requests of clients: arrays of bulks, and inline lines for people with a terminal.
//!
//! The parser is handed the unprocessed input of one client, which begins with the
//! request that is next. It leaves where the arguments stand, not the arguments:
//! [`Args`] reads them in place. While a request is incomplete the caller keeps its
//! bytes and calls again when there are more; the parser goes on where it stopped, so
//! a request costs time by its length however many pieces it comes in. It holds no
//! memory unless an array is half received: an idle client costs one pointer.
//!
//! An unauthenticated client's requests are held to small limits, so that nobody without
//! the password can have the server keep much.
//!
//! Invariant: every range it leaves lies within the input it was left for.

use std::fmt;
use std::ops::Index;

use super::quoting;
use crate::base::{limits, number};

/// Where one argument stands in the bytes of its request.
///
/// 32 bits do, since a query buffer is at most [`limits::QUERY_BUFFER_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgRange {
    start: u32,
    end: u32,
}

impl ArgRange {
    fn new(start: usize, end: usize) -> Self {
        let offset =
            |at| u32::try_from(at).expect("a query buffer is shorter than 32 bits can count");
        Self { start: offset(start), end: offset(end) }
    }

    /// Gives the argument's bytes out of those it was parsed from.
    ///
    /// # Panics
    /// When `bytes` are not those.
    pub fn slice(self, bytes: &[u8]) -> &[u8] {
        let offset = |at| usize::try_from(at).ok();
        offset(self.start)
            .zip(offset(self.end))
            .and_then(|(start, end)| bytes.get(start..end))
            .expect("a range is used with the bytes it was parsed from")
    }
}

/// The arguments of one request, the command's name first.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [ArgRange],
}

impl<'a> Args<'a> {
    /// Joins ranges with the input that they were parsed from.
    pub fn new(bytes: &'a [u8], ranges: &'a [ArgRange]) -> Self {
        Self { bytes, ranges }
    }

    /// Tells how many arguments there are, the name included.
    pub fn len(self) -> usize {
        self.ranges.len()
    }

    /// Whether there are no arguments.
    pub fn is_empty(self) -> bool {
        self.ranges.is_empty()
    }

    /// Gives one argument, if there are that many.
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|range| range.slice(self.bytes))
    }

    /// Gives the arguments from `index` on; none when there are not that many.
    pub fn from(self, index: usize) -> Self {
        Self { bytes: self.bytes, ranges: self.ranges.get(index..).unwrap_or_default() }
    }

    /// Gives the first of the arguments, no more than `count` of them.
    pub fn up_to(self, count: usize) -> Self {
        let end = count.min(self.ranges.len());
        Self { bytes: self.bytes, ranges: self.ranges.get(..end).unwrap_or_default() }
    }

    /// Gives the arguments one after another.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone {
        self.ranges.iter().map(move |range| range.slice(self.bytes))
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.get(index).expect("the caller has checked the number of arguments")
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|arg| format!("{}", arg.escape_ascii()))).finish()
    }
}

/// Arguments that are kept together, when they did not come from a client.
#[derive(Default)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    ranges: Vec<ArgRange>,
}

impl OwnedArgs {
    /// Gives them as the arguments of a request.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.ranges)
    }
}

impl<W: AsRef<[u8]>> FromIterator<W> for OwnedArgs {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Self {
        let mut all = Self::default();
        for word in words {
            let start = all.bytes.len();
            all.bytes.extend_from_slice(word.as_ref());
            all.ranges.push(ArgRange::new(start, all.bytes.len()));
        }
        all
    }
}

/// Appends a request as an array of bulk strings.
pub fn encode<W: AsRef<[u8]>>(words: &[W], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// What the parser made of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The request goes on past the input. At least `missing` bytes more are needed, so a
    /// big argument can be read into a buffer of its size.
    Incomplete { missing: usize },
    /// Nothing to do: an array of no elements or a blank line, `consumed` bytes long.
    Empty { consumed: usize },
    /// A whole request, `consumed` bytes long; its arguments have been left.
    Request { consumed: usize },
}

/// A protocol error. Its text goes to the client after `-ERR `; then the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    InlineTooBig,
    UnbalancedQuotes,
    CountTooBig,
    BadCount,
    BulkLengthTooBig,
    DollarExpected {
        got: u8,
    },
    BadBulkLength,
    /// Over [`limits::UNAUTHENTICATED_ARGUMENTS_MAX`].
    UnauthenticatedCount,
    /// Over [`limits::UNAUTHENTICATED_BULK_MAX`].
    UnauthenticatedBulkLength,
    /// Not a request but one of HTTP: from a web page, it may be an attack.
    Http,
    /// Not a request but the beginning of TLS.
    Tls,
    /// The arguments together are over [`limits::QUERY_BUFFER_MAX`]. The C server closes
    /// the connection without a word.
    QueryTooBig,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match *self {
            Self::InlineTooBig => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Self::CountTooBig => f.write_str("too big mbulk count string"),
            Self::BadCount => f.write_str("invalid multibulk length"),
            Self::BulkLengthTooBig => f.write_str("too big bulk count string"),
            Self::DollarExpected { got } => {
                // A byte that cannot be shown is a space; in C only CR and LF are.
                let shown = if got.is_ascii_graphic() { char::from(got) } else { ' ' };
                write!(f, "expected '$', got '{shown}'")
            }
            Self::BadBulkLength => f.write_str("invalid bulk length"),
            // Both as Redis has them; C has no such limits.
            Self::UnauthenticatedCount => f.write_str("unauthenticated multibulk length"),
            Self::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
            Self::Http => f.write_str("this looks like HTTP"),
            Self::Tls => f.write_str("this looks like TLS"),
            Self::QueryTooBig => f.write_str("too big query"),
        }
    }
}

impl std::error::Error for RequestError {}

/// Whose request is parsed, which decides how large it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Up to [`limits::ARGUMENTS_MAX`] arguments of up to [`limits::BULK_MAX`] bytes.
    Authenticated,
    /// Up to [`limits::UNAUTHENTICATED_ARGUMENTS_MAX`] arguments of up to
    /// [`limits::UNAUTHENTICATED_BULK_MAX`] bytes.
    Unauthenticated,
}

/// Gives an argument of the request at the beginning of `input`, the name being number 0.
///
/// `None`: it has none, or it is not there yet, and [`RequestParser::parse`] finds no whole
/// request either.
pub fn argument(input: &[u8], index: usize) -> Option<&[u8]> {
    if input.first() != Some(&b'*') {
        let line_end = memchr::memchr(b'\n', input)?;
        let line = input.get(..line_end)?.trim_ascii();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return words.nth(index);
    }
    let Ok(Begin::Array(array)) = Array::begin(input, Sender::Authenticated) else { return None };
    let mut rest = input.get(array.at..)?;
    for _ in 0..array.remaining.min(index) {
        let (len, line_len) = read_bulk_line(rest, Sender::Authenticated).ok()??;
        rest = rest.get(line_len + len + 2..)?;
    }
    if index >= array.remaining {
        return None;
    }
    let (len, line_len) = read_bulk_line(rest, Sender::Authenticated).ok()??;
    rest.get(line_len..line_len + len)
}

/// The parser of one client.
#[derive(Default)]
pub struct RequestParser {
    /// An array of which the beginning has been seen.
    partial: Option<Box<Partial>>,
}

struct Partial {
    array: Array,
    ranges: Vec<ArgRange>,
}

/// How far an array has been read.
#[derive(Clone, Copy)]
struct Array {
    /// Arguments still to come, the current one included.
    remaining: usize,
    /// Where the next line, or the current argument's bytes, begin.
    at: usize,
    /// The length of the current argument once its line has been read.
    bulk_len: Option<usize>,
}

impl RequestParser {
    /// Parses one request from the beginning of `input` and leaves its arguments in `args`.
    ///
    /// After `Incomplete` the next call must bring the same bytes and more. After `Empty`
    /// and `Request` they are done with: an inline request is unquoted in place, so parsing
    /// it again would give something else. After an error the parser is of no further use.
    pub fn parse(
        &mut self,
        input: &mut [u8],
        args: &mut Vec<ArgRange>,
        sender: Sender,
    ) -> Result<Parsed, RequestError> {
        args.clear();
        if let Some(partial) = &mut self.partial {
            let missing = partial.array.read_arguments(input, &mut partial.ranges, sender)?;
            if let Some(missing) = missing {
                return Ok(Parsed::Incomplete { missing });
            }
            let consumed = partial.array.at;
            *args = std::mem::take(&mut partial.ranges);
            self.partial = None;
            return Ok(Parsed::Request { consumed });
        }
        let mut array = match input.first() {
            None => return Ok(Parsed::Incomplete { missing: 1 }),
            Some(b'*') => match Array::begin(input, sender)? {
                Begin::Array(array) => array,
                Begin::Empty { consumed } => return Ok(Parsed::Empty { consumed }),
                Begin::Incomplete => return Ok(Parsed::Incomplete { missing: 1 }),
            },
            Some(_) if input.starts_with(TLS_HANDSHAKE) => return Err(RequestError::Tls),
            Some(_) => return parse_inline(input, args),
        };
        match array.read_arguments(input, args, sender)? {
            None => Ok(Parsed::Request { consumed: array.at }),
            Some(missing) => {
                self.partial = Some(Box::new(Partial { array, ranges: args.clone() }));
                Ok(Parsed::Incomplete { missing })
            }
        }
    }

    /// Returns how many bytes of memory the parser holds for an array that is half received.
    pub fn memory(&self) -> usize {
        let ranges = self.partial.as_ref().map_or(0, |partial| partial.ranges.capacity());
        ranges * size_of::<ArgRange>()
    }
}

enum Begin {
    Array(Array),
    Empty { consumed: usize },
    Incomplete,
}

impl Array {
    /// Reads the `*N` line.
    fn begin(input: &[u8], sender: Sender) -> Result<Begin, RequestError> {
        let (count, line_len) = match read_small_number(input) {
            Some(read) => read,
            None => match find_line(input, RequestError::CountTooBig)? {
                None => return Ok(Begin::Incomplete),
                Some(line) => {
                    let count = parse_length(line.text).ok_or(RequestError::BadCount)?;
                    // A count below 0 is one of 0.
                    (usize::try_from(count).unwrap_or(0), line.len)
                }
            },
        };
        if count > limits::ARGUMENTS_MAX {
            return Err(RequestError::BadCount);
        }
        if count > limits::UNAUTHENTICATED_ARGUMENTS_MAX && sender == Sender::Unauthenticated {
            return Err(RequestError::UnauthenticatedCount);
        }
        Ok(match count {
            0 => Begin::Empty { consumed: line_len },
            _ => Begin::Array(Self { remaining: count, at: line_len, bulk_len: None }),
        })
    }

    /// Reads arguments until the array is complete (`None`) or the input ends: then gives
    /// how many bytes are missing at least.
    fn read_arguments(
        &mut self,
        input: &[u8],
        args: &mut Vec<ArgRange>,
        sender: Sender,
    ) -> Result<Option<usize>, RequestError> {
        while self.remaining > 0 {
            let bulk_len = match self.bulk_len {
                Some(bulk_len) => bulk_len,
                None => match read_bulk_line(input.get(self.at..).unwrap_or_default(), sender)? {
                    None => return Ok(Some(1)),
                    Some((bulk_len, line_len)) => {
                        self.at += line_len;
                        bulk_len
                    }
                },
            };
            let end = self.at + bulk_len;
            // C: networking.c processMultibulkBuffer, the two bytes behind an argument are
            // skipped whatever they are.
            let next = end + 2;
            if next > input.len() {
                if next > limits::QUERY_BUFFER_MAX {
                    return Err(RequestError::QueryTooBig);
                }
                self.bulk_len = Some(bulk_len);
                return Ok(Some(next - input.len()));
            }
            args.push(ArgRange::new(self.at, end));
            self.at = next;
            self.bulk_len = None;
            self.remaining -= 1;
        }
        Ok(None)
    }
}

/// Reads a `$N` line: the number and the line's length, or `None` while it is incomplete.
fn read_bulk_line(rest: &[u8], sender: Sender) -> Result<Option<(usize, usize)>, RequestError> {
    if let ([b'$', ..], Some(read)) = (rest, read_small_number(rest)) {
        return Ok(Some(read));
    }
    let Some(line) = find_line(rest, RequestError::BulkLengthTooBig)? else { return Ok(None) };
    if line.first != b'$' {
        return Err(RequestError::DollarExpected { got: line.first });
    }
    let bulk_len = parse_length(line.text)
        .and_then(|len| usize::try_from(len).ok())
        .filter(|&len| len <= limits::BULK_MAX)
        .ok_or(RequestError::BadBulkLength)?;
    if bulk_len > limits::UNAUTHENTICATED_BULK_MAX && sender == Sender::Unauthenticated {
        return Err(RequestError::UnauthenticatedBulkLength);
    }
    Ok(Some((bulk_len, line.len)))
}

/// Reads the number of a whole line of up to three digits, and the line's length. Nearly all
/// lines are such; the rest is left to [`find_line`].
fn read_small_number(line: &[u8]) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte - b'0');
    match *line {
        [_, a @ b'0'..=b'9', b'\r', _, ..] => Some((digit(a), 4)),
        [_, a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', _, ..] => Some((digit(a) * 10 + digit(b), 5)),
        [_, a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\r', _, ..] => {
            Some((digit(a) * 100 + digit(b) * 10 + digit(c), 6))
        }
        _ => None,
    }
}

/// A line that begins with a type byte.
struct Line<'a> {
    first: u8,
    /// Between the type byte and the CR.
    text: &'a [u8],
    /// The whole line's length, end included.
    len: usize,
}

/// Finds the line at the beginning of `rest`, or `None` while it is incomplete.
///
/// C: networking.c processMultibulkBuffer, a line ends at CR and one more byte, whatever
/// that is, and nothing is judged before they are there.
fn find_line(rest: &[u8], too_big: RequestError) -> Result<Option<Line<'_>>, RequestError> {
    let window = rest.get(..limits::INLINE_MAX).unwrap_or(rest);
    let Some(line_end) = memchr::memchr(b'\r', window) else {
        return if rest.len() > limits::INLINE_MAX { Err(too_big) } else { Ok(None) };
    };
    let len = line_end + 2;
    if len > rest.len() {
        return Ok(None);
    }
    Ok(match rest.get(..line_end) {
        Some([first, text @ ..]) => Some(Line { first: *first, text, len }),
        _ => Some(Line { first: b'\r', text: &[], len }),
    })
}

/// Reads a count or length: decimal without leading zeros or a plus.
fn parse_length(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..] => number::parse_i64(text),
        _ => None,
    }
}

/// What TLS of any version begins with: a record of the kind handshake, and the first byte of
/// its version.
const TLS_HANDSHAKE: &[u8] = &[22, 3];

/// Whether a line is one of an HTTP request.
///
/// Of a page in somebody's browser the body may be anything, so the connection has to be closed
/// before that. The request line has a target that begins with a slash and a version, or else
/// the method is POST, or there is the header `Host` at least, as all of today's browsers send
/// it. The last two are all that Redis knows.
fn is_http(words: &[Vec<u8>]) -> bool {
    let begins = |word: &[u8], start: &[u8]| {
        word.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    match words {
        [_, target, version] if begins(target, b"/") && begins(version, b"HTTP/") => true,
        [first, ..] => first.eq_ignore_ascii_case(b"post") || begins(first, b"host:"),
        [] => false,
    }
}

/// Parses a line of words, ended by LF or CRLF.
///
/// Differs from C: a bare LF does not take the byte after it along, because `PING\nPING\n`
/// is two commands; and an empty word in quotes counts, because a body may be empty.
fn parse_inline(input: &mut [u8], args: &mut Vec<ArgRange>) -> Result<Parsed, RequestError> {
    let window = input.get(..=limits::INLINE_MAX).unwrap_or(input);
    let Some(line_end) = memchr::memchr(b'\n', window) else {
        return if input.len() > limits::INLINE_MAX {
            Err(RequestError::InlineTooBig)
        } else {
            Ok(Parsed::Incomplete { missing: 1 })
        };
    };
    let consumed = line_end + 1;
    let line = window.get(..line_end).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words = quoting::split(line).map_err(|_| RequestError::UnbalancedQuotes)?;
    if words.is_empty() {
        return Ok(Parsed::Empty { consumed });
    }
    if is_http(&words) {
        return Err(RequestError::Http);
    }
    let mut at = 0;
    for word in &words {
        let end = at + word.len();
        input
            .get_mut(at..end)
            .expect("unquoted words are no longer than their line")
            .copy_from_slice(word);
        args.push(ArgRange::new(at, end));
        at = end;
    }
    Ok(Parsed::Request { consumed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Requests = Vec<Vec<Vec<u8>>>;

    /// Feeds the pieces one after another, as a connection would, and gives all requests.
    fn parse_pieces<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Requests, (Requests, RequestError)> {
        parse_pieces_of(Sender::Authenticated, pieces)
    }

    fn parse_pieces_of<'a>(
        sender: Sender,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Requests, (Requests, RequestError)> {
        let mut parser = RequestParser::default();
        let (mut buffer, mut args, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match parser.parse(&mut buffer, &mut args, sender) {
                    Ok(Parsed::Incomplete { missing }) => {
                        assert!(missing > 0);
                        break;
                    }
                    Ok(Parsed::Empty { consumed }) => drop(buffer.drain(..consumed)),
                    Ok(Parsed::Request { consumed }) => {
                        let args = Args::new(&buffer, &args);
                        requests.push(args.iter().map(<[u8]>::to_vec).collect());
                        buffer.drain(..consumed);
                    }
                    Err(error) => return Err((requests, error)),
                }
            }
        }
        Ok(requests)
    }

    fn parse_text(text: &[u8]) -> Requests {
        parse_pieces([text]).expect("the text is well-formed")
    }

    fn error_of(text: &[u8]) -> String {
        parse_pieces([text]).expect_err("the text is malformed").1.to_string()
    }

    #[test]
    fn arrays_and_lines_mix_in_one_pipeline() {
        let requests = parse_text(
            b"*2\r\n$4\r\nQLEN\r\n$1\r\nq\r\nPING\r\n\r\n*0\r\n*-1\r\nADDJOB q \"a b\" 0\n*1\r\n$4\r\nQUIT\r\n",
        );
        let words: Vec<Vec<String>> = requests
            .iter()
            .map(|request| request.iter().map(|arg| arg.escape_ascii().to_string()).collect())
            .collect();
        assert_eq!(
            words,
            [vec!["QLEN", "q"], vec!["PING"], vec!["ADDJOB", "q", "a b", "0"], vec!["QUIT"]]
        );
    }

    #[test]
    fn a_bare_line_feed_ends_a_line_without_eating_the_next_byte() {
        assert_eq!(parse_text(b"PING\nPING\n"), [[b"PING".to_vec()], [b"PING".to_vec()]]);
    }

    #[test]
    fn an_empty_word_in_quotes_is_an_argument() {
        assert_eq!(parse_text(b"a \"\" b\r\n"), [[b"a".to_vec(), vec![], b"b".to_vec()]]);
    }

    #[test]
    fn each_protocol_error_has_the_text_of_the_c_server() {
        let long = |head: &[u8]| [head, &vec![b'1'; limits::INLINE_MAX + 1]].concat();
        for (text, error) in [
            (&long(b"x")[..], "too big inline request"),
            (&[&long(b"x")[..], b"\r\n"].concat(), "too big inline request"),
            (b"PING \"abc\r\n", "unbalanced quotes in request"),
            (&long(b"*"), "too big mbulk count string"),
            (b"*abc\r\n", "invalid multibulk length"),
            (b"*\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"*+1\r\n", "invalid multibulk length"),
            (b"*-0\r\n", "invalid multibulk length"),
            (b"*1048577\r\n", "invalid multibulk length"),
            (b"*9223372036854775808\r\n", "invalid multibulk length"),
            (&long(b"*1\r\n$"), "too big bulk count string"),
            (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
            (b"*1\r\n1\r\n", "expected '$', got '1'"),
            (b"*1\r\n\r\n", "expected '$', got ' '"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$x\r\n", "invalid bulk length"),
            (b"*1\r\n$\r\n", "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        ] {
            assert_eq!(error_of(text), format!("Protocol error: {error}"));
        }
    }

    #[test]
    fn an_unauthenticated_client_may_send_ten_arguments_of_sixteen_kibibytes() {
        let bulk =
            |len: usize| [format!("${len}\r\n").as_bytes(), &vec![b'x'; len], b"\r\n"].concat();
        let most = limits::UNAUTHENTICATED_BULK_MAX;
        let largest = [&b"*10\r\n"[..], &bulk(most).repeat(10)].concat();
        let of = |text: &[u8]| parse_pieces_of(Sender::Unauthenticated, text.chunks(1000));
        assert_eq!(of(&largest).map(|requests| requests.len()), Ok(1));
        for (text, error) in [
            (b"*11\r\n".to_vec(), RequestError::UnauthenticatedCount),
            (b"*1048576\r\n".to_vec(), RequestError::UnauthenticatedCount),
            (b"*1048577\r\n".to_vec(), RequestError::BadCount),
            (b"*1\r\n$16385\r\n".to_vec(), RequestError::UnauthenticatedBulkLength),
            (b"*1\r\n$536870913\r\n".to_vec(), RequestError::BadBulkLength),
        ] {
            assert_eq!(of(&text), Err((vec![], error)), "before the bytes come");
        }
    }

    #[test]
    fn http_and_tls_are_told_from_requests() {
        for text in [
            &b"POST x\r\n"[..],
            b"Post\n",
            b"GET / HTTP/1.0\r\n",
            b"delete /x http/2\r\n",
            b"Host: x\r\n",
            b"HOST:x\r\n",
        ] {
            assert_eq!(error_of(text), "Protocol error: this looks like HTTP");
        }
        for text in [&b"\x16\x03\x01"[..], b"\x16\x03\n"] {
            assert_eq!(error_of(text), "Protocol error: this looks like TLS");
        }
        for text in [
            &b"POSTS x\r\n"[..],
            b"QPEEK / 1\r\n",
            b"GETJOB FROM HTTP/1.1\r\n",
            b"*1\r\n$4\r\nPOST\r\n",
            b"hosts\r\n",
            b"\x16\x04\n",
        ] {
            assert_eq!(parse_text(text).len(), 1);
        }
        assert_eq!(parse_text(b"\x16").len(), 0);
    }

    #[test]
    fn a_name_is_found_as_soon_as_it_is_there() {
        let long = [&b"*1000\r\n$6\r\nACKJOB\r\n"[..], &b"$1\r\nx\r\n".repeat(999)].concat();
        for (text, expected) in [
            (&b""[..], None),
            (b"*2\r\n$4\r\nQLE", None),
            (b"*2\r\n$4\r\nQLEN", Some("QLEN")),
            (&long, Some("ACKJOB")),
            (b"*0\r\n*1\r\n$4\r\nPING\r\n", None),
            (b"*x\r\n", None),
            (b"PING", None),
            (b" PING a\nQLEN q\n", Some("PING")),
            (b"PING\r\n", Some("PING")),
            (b" \r\nPING\r\n", None),
        ] {
            let expected = expected.map(str::as_bytes);
            assert_eq!(argument(text, 0), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn requests_before_an_error_are_given_first() {
        let (requests, _) = parse_pieces([&b"PING\r\n*x\r\n"[..]]).expect_err("the second is bad");
        assert_eq!(requests, [[b"PING".to_vec()]]);
    }

    #[test]
    fn missing_counts_the_bytes_of_a_big_argument() {
        let mut parser = RequestParser::default();
        let mut input = b"*2\r\n$1\r\na\r\n$1000000\r\nabc".to_vec();
        let parsed = parser.parse(&mut input, &mut Vec::new(), Sender::Authenticated);
        assert_eq!(parsed, Ok(Parsed::Incomplete { missing: 1_000_002 - 3 }));
        assert!(parser.partial.is_some());
    }

    #[test]
    fn arguments_over_the_query_buffer_are_refused_before_they_come() {
        let array = Array { remaining: 1, at: limits::QUERY_BUFFER_MAX - 10, bulk_len: Some(9) };
        let read = { array }.read_arguments(b"", &mut Vec::new(), Sender::Authenticated);
        assert_eq!(read, Err(RequestError::QueryTooBig));
    }

    #[test]
    fn a_million_arguments_in_pieces_take_linear_time() {
        let count = limits::ARGUMENTS_MAX;
        let text = [format!("*{count}\r\n").as_bytes(), &b"$1\r\nx\r\n".repeat(count)].concat();
        let mut parser = RequestParser::default();
        let mut args = Vec::new();
        let mut text = text;
        for end in (4096..text.len()).step_by(4096) {
            let parsed = parser.parse(&mut text[..end], &mut args, Sender::Authenticated);
            assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })));
        }
        let consumed = text.len();
        assert!((8 * count..=16 * count + 64).contains(&parser.memory()), "of the arguments");
        let parsed = parser.parse(&mut text, &mut args, Sender::Authenticated);
        assert_eq!(parsed, Ok(Parsed::Request { consumed }));
        assert_eq!((args.len(), parser.memory()), (count, 0));
    }

    #[test]
    fn arguments_are_read_by_index_tail_and_from_the_end() {
        let mut input = b"a bb ccc\r\n".to_vec();
        let mut ranges = Vec::new();
        let parsed = RequestParser::default().parse(&mut input, &mut ranges, Sender::Authenticated);
        parsed.expect("well-formed");
        let args = Args::new(&input, &ranges);
        assert_eq!(&args[1], b"bb");
        assert_eq!(args.get(3), None);
        assert_eq!(args.from(1).len(), 2);
        assert!(args.from(9).is_empty());
        assert_eq!(args.iter().next_back(), Some(&b"ccc"[..]));
    }

    fn any_request() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let arg = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..12),
            prop::collection::vec(any::<u8>(), 95..1200),
        ];
        prop::collection::vec(arg, 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_request_split_at_every_byte_gives_the_same_arguments(request in any_request()) {
            let mut text = Vec::new();
            encode(&request, &mut text);
            prop_assert_eq!(&parse_text(&text), std::slice::from_ref(&request));
            for at in 0..text.len() {
                let (head, tail) = text.split_at(at);
                prop_assert_eq!(parse_pieces([head, tail]), Ok(vec![request.clone()]));
            }
            prop_assert_eq!(parse_pieces(text.chunks(1)), Ok(vec![request]));
        }

        #[test]
        fn inline_words_split_at_every_byte_are_the_same(
            request in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..8), 1..5),
        ) {
            let mut text = Vec::new();
            for word in &request {
                quoting::append_quoted(&mut text, word);
                text.push(b' ');
            }
            text.extend_from_slice(b"\r\n");
            prop_assert_eq!(parse_pieces(text.chunks(1)), Ok(vec![request]));
        }

        #[test]
        fn no_request_is_whole_before_it_has_a_name(
            text in prop::collection::vec(prop::sample::select(&b"*1$4\r\n\r\n\"' xPING"[..]), 0..30),
        ) {
            let name = argument(&text, 0).map(<[u8]>::to_vec);
            let parsed = RequestParser::default()
                .parse(&mut text.clone(), &mut Vec::new(), Sender::Authenticated);
            let is_whole = matches!(parsed, Ok(Parsed::Request { .. }));
            prop_assert!(name.is_some() || !is_whole);
        }

        #[test]
        fn junk_is_an_error_or_requests_but_never_a_panic(
            text in prop::collection::vec(prop::sample::select(&b"*$-019\r\n\r\n\r\n\"' x"[..]), 0..60),
        ) {
            let whole = parse_pieces([&text[..]]);
            let in_bytes = parse_pieces(text.chunks(1));
            prop_assert_eq!(whole, in_bytes);
        }
    }
}
