//! `--pipe`: protocol from standard input goes to the server as it is, replies are counted.
//!
//! One thread sends while this one reads, so neither side's buffers can fill up for good.
//! After the input a PING with a random message is sent: its echo is the last reply.
//! Differs from C: it ends with PING, because Disque has no ECHO and C waits for nothing.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::connection::{ServerConnection, ServerSocket};
use super::failure::{Failure, STATUS_FAILED};
use super::options::CliOptions;
use super::table::counted;
use super::terminal;
use crate::base::reason::reason;
use crate::proto::reply_reader::Value;
use crate::proto::request;

/// How often the reader checks whether it has waited long enough.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// Bytes read of the input at once.
const READ_LEN: usize = 64 * 1024;

/// Sends all of standard input and returns 1 when a reply was an error or missing.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let mut connection = ServerConnection::open(&options.address, options.login.as_ref(), None)?;
    connection.limit_waiting(CHECK_EVERY);
    let mark = random_mark()?;
    let (mut socket, own_mark) = (connection.raw_writer()?, mark.clone());
    let (ended, sender_ended) = channel();
    std::thread::spawn(move || {
        let sent = send_input(&mut socket, &own_mark);
        let is_cut = sent.is_err();
        // Nobody listens when the reader has ended first.
        let _ = ended.send(sent);
        if is_cut {
            // Wakes the reader, which finds the reason in the channel.
            socket.close();
        }
    });

    let (mut errors, mut replies) = (0_u64, 0_u64);
    let mut last_reply_at = Instant::now();
    let mut sending = true;
    let result = loop {
        match connection.receive() {
            Ok(Value::Bulk(message)) if message == mark => {
                terminal::print("Last reply received from server.\n")?;
                break Ok(());
            }
            Ok(reply) => {
                if let Value::Error(text) = reply {
                    terminal::complain(String::from_utf8_lossy(&text));
                    errors += 1;
                }
                replies += 1;
                last_reply_at = Instant::now();
            }
            Err(Failure::Silent) => {
                if sending && let Ok(sent) = sender_ended.try_recv() {
                    sent?;
                    sending = false;
                    last_reply_at = Instant::now();
                }
                let waited = last_reply_at.elapsed();
                if !sending && options.pipe_timeout.is_some_and(|timeout| waited > timeout) {
                    let secs = waited.as_secs();
                    terminal::complain(format!(
                        "No replies for {}: exiting.",
                        counted(secs, "second")
                    ));
                    errors += 1;
                    break Ok(());
                }
            }
            Err(failure) => match sender_ended.try_recv() {
                Ok(Err(cause)) => break Err(cause),
                _ => break Err(failure),
            },
        }
    };
    terminal::print(format!("errors: {errors}, replies: {replies}\n"))?;
    result.map(|()| if errors > 0 { STATUS_FAILED } else { 0 })
}

fn send_input(socket: &mut ServerSocket, mark: &[u8]) -> Result<(), Failure> {
    let mut input = io::stdin().lock();
    let mut buffer = vec![0; READ_LEN];
    loop {
        let len = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let why = reason(&error);
                return Err(Failure::Message(format!("Reading from standard input: {why}")));
            }
        };
        socket.write_all(buffer.get(..len).unwrap_or_default(), None)?;
    }
    terminal::print("All data transferred. Waiting for the last reply...\n")?;
    // The line end finishes an inline command that lacks its own; an empty line is no command.
    let mut end = b"\r\n".to_vec();
    request::encode(&[b"PING", mark], &mut end);
    socket.write_all(&end, None)
}

/// Draws a message by which the last reply is recognized.
fn random_mark() -> Result<Vec<u8>, Failure> {
    let mut random = [0; 10];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::Message(format!("No random numbers from the system: {error}")))?;
    let mut mark = String::new();
    for byte in random {
        let _ = write!(mark, "{byte:02x}");
    }
    Ok(mark.into_bytes())
}
