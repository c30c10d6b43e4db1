//! The reply to INFO, and the like of CLUSTER INFO: lines of `name:value`.

use super::connection::ServerConnection;
use super::failure::Failure;
use crate::proto::reply_reader::Value;

/// A text of `name:value` lines.
#[derive(Debug)]
pub struct Info(String);

impl Info {
    /// Asks a node for INFO. Fails with the server's text when that is an error, and when it is
    /// not what a Disque server would say.
    pub fn read(connection: &mut ServerConnection) -> Result<Info, Failure> {
        let info = Info(text_of(connection.call(&["INFO"])?)?);
        match info.field("registered_jobs") {
            Some(_) => Ok(info),
            None => Err(Failure::Protocol(
                "INFO was answered by something else than Disque".to_string(),
            )),
        }
    }

    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    /// Returns the version of ours, or of Disque where it is the C server.
    pub fn version(&self) -> Option<&str> {
        self.field("server_version").or_else(|| self.field("disque_version"))
    }

    /// Returns the value of a field that counts something, or 0.
    pub fn number(&self, name: &str) -> u64 {
        self.field(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }
}

/// Takes the text out of a reply; fails with the server's text when that is an error.
pub fn text_of(reply: Value) -> Result<String, Failure> {
    match reply {
        Value::Bulk(bytes) | Value::Status(bytes) => {
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        Value::Error(text) => {
            let text = String::from_utf8_lossy(&text);
            let advice = if text.starts_with("NOAUTH") {
                " Give the password in DISQUE_AUTH or with --askpass."
            } else {
                ""
            };
            Err(Failure::Message(format!("ERROR: {text}{advice}")))
        }
        _ => Err(Failure::Protocol("an unexpected kind of reply".to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let info =
            Info("# Memory\r\nused_memory_human:1M\r\nused_memory:1048576\r\nos:a:b\r\n".into());
        assert_eq!(info.number("used_memory"), 1_048_576);
        assert_eq!(info.field("os"), Some("a:b"));
        assert_eq!(info.field("used"), None);
        assert_eq!(info.number("absent"), 0);
    }
}
