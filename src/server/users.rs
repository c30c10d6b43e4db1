//! Users: who may run which commands, on which queues.
//!
//! ```text
//! user mailer  sha256:2bb80d53...  produce           mail* sms*
//! user worker  sha256:8c6976e5...  consume,produce   mail*
//! user oncall  sha256:fcf730b6...  watch,operate
//! ```
//!
//! A line has a name, the hash of a password, roles, and globs of names of queues, none of which
//! means every queue. Which commands a role may run the manual says. Beside these users there
//! is `default`, who is an admin and whose password is `requirepass`; where there are users and no
//! `requirepass` there is no `default`. Where there is neither, whoever connects is `default`.
//!
//! A client keeps its [`User`]. When lines change it gets the new one before its next command. It is
//! closed if there is none, and if what it is in the midst of began with other permissions.

use std::sync::Arc;

use crate::base::limits::PASSWORD_MAX;
use crate::base::password::PasswordHash;
use crate::engine::scope::QueueScope;
use crate::manual::Roles;
use crate::proto::node_info::is_node_text;
use crate::proto::quoting;

use super::Server;
use super::client::Closing;
use super::config::Config;

/// The user whose password is `requirepass`.
pub const DEFAULT_USER: &str = "default";
/// Longest name of a user, in bytes.
const NAME_MAX: usize = 64;
/// Most users there may be.
const USERS_MAX: usize = 1000;
/// Most globs of one user: each is compared with each queue that it names.
const GLOBS_MAX: usize = 100;
/// Longest glob, in bytes: comparing takes as many steps as its length times that of the name.
const GLOB_MAX: usize = 255;

/// A user of a line.
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    password: PasswordHash,
    roles: Roles,
    pub queues: QueueScope,
}

impl User {
    /// Whether this user may run a command that these roles may.
    pub fn may_run(&self, roles: Roles) -> bool {
        self.roles.may_run(roles)
    }

    /// Whether it may do what the other may, and nothing else.
    fn may_the_same_as(&self, other: &Self) -> bool {
        self.roles == other.roles && self.queues == other.queues
    }

    fn text(&self) -> Vec<u8> {
        let Self { name, password, roles, queues } = self;
        let name = quoting::quote_if_needed(name.as_bytes());
        let mut text = [&name[..], format!(" {password} {roles}").as_bytes()].concat();
        for glob in queues.globs() {
            text.push(b' ');
            text.extend_from_slice(&quoting::quote_if_needed(glob));
        }
        text
    }
}

/// One line: a user, or a name alone, which takes the user of that name away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserLine {
    User(Arc<User>),
    Nobody(String),
}

impl UserLine {
    /// Reads the words of a line. An error says which is wrong.
    pub fn parse(words: &[Vec<u8>]) -> Result<Self, String> {
        let (name, rest) = words.split_first().ok_or("a name is missing")?;
        if name.is_empty() || !is_node_text(name, NAME_MAX) {
            return Err(format!(
                "the name must be 1 to {NAME_MAX} printable characters without spaces"
            ));
        }
        if name.eq_ignore_ascii_case(DEFAULT_USER.as_bytes()) {
            return Err("the password of the user default is requirepass".to_owned());
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let (password, roles, globs) = match rest {
            [] => return Ok(Self::Nobody(name)),
            [_] => return Err("roles are missing".to_owned()),
            [password, roles, globs @ ..] => (password, roles, globs),
        };
        let password = PasswordHash::parse(password)
            .ok_or("the password must be sha256: and 64 hexadecimal digits")?;
        let roles = Roles::parse(roles).ok_or_else(|| {
            let names = Roles::NAMES.map(|(_, name)| name).join(", ");
            format!("the roles must be of {names}, with commas between them and no spaces")
        })?;
        if globs.len() > GLOBS_MAX {
            return Err(format!("a user has at most {GLOBS_MAX} globs"));
        }
        if globs.iter().any(|glob| glob.len() > GLOB_MAX) {
            return Err(format!("a glob has at most {GLOB_MAX} bytes"));
        }
        let queues = QueueScope::new(globs);
        Ok(Self::User(Arc::new(User { name, password, roles, queues })))
    }

    /// The line as [`UserLine::parse`] reads it back, split into words.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Self::User(user) => user.text(),
            Self::Nobody(name) => quoting::quote_if_needed(name.as_bytes()),
        }
    }
}

/// All users of lines, in their order; no two have the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(Vec<Arc<User>>);

impl Users {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn lines(&self) -> Vec<UserLine> {
        self.0.iter().cloned().map(UserLine::User).collect()
    }

    /// Takes a line in: in the place of that of the same name, else behind all others.
    pub fn set(&mut self, line: UserLine) {
        let at = |users: &[Arc<User>], name: &str| users.iter().position(|user| user.name == name);
        match line {
            UserLine::User(user) => match at(&self.0, &user.name) {
                Some(at) => self.0[at] = user,
                None => self.0.push(user),
            },
            UserLine::Nobody(name) => {
                if let Some(at) = at(&self.0, &name) {
                    self.0.remove(at);
                }
            }
        }
    }

    /// Whether the others are the same, in whatever order.
    pub fn are_the_same_as(&self, others: &Self) -> bool {
        let is_there = |user: &Arc<User>| others.find(user.name.as_bytes()) == Some(user);
        self.0.len() == others.0.len() && self.0.iter().all(is_there)
    }

    /// Checks that there are not too many.
    pub fn check(&self) -> Result<(), String> {
        if self.0.len() > USERS_MAX { Err(format!("at most {USERS_MAX} users")) } else { Ok(()) }
    }

    fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.0.iter().find(|user| user.name.as_bytes() == name)
    }

    /// The user of this name, if this is its password. It takes as long whether there is one or
    /// not.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        if password.len() > PASSWORD_MAX {
            return None;
        }
        let given = PasswordHash::of(password);
        let user = self.find(name);
        let is_right = given.is_same(user.map_or(&PasswordHash::NONE, |user| &user.password));
        user.filter(|_| is_right).cloned()
    }
}

impl Config {
    /// Whether clients have to say who they are.
    pub fn has_logins(&self) -> bool {
        self.requirepass.is_some() || !self.users.is_empty()
    }

    /// Tells in the log when nobody may do everything, which one may want.
    pub fn warn_of_no_admin(&self) {
        let is_admin = |user: &Arc<User>| user.may_run(Roles::ADMIN);
        if self.requirepass.is_none()
            && !self.users.is_empty()
            && !self.users.0.iter().any(is_admin)
        {
            log::warn!(
                "WARNING: no user has the role admin, and requirepass is not set: nobody may use \
                 CONFIG or SHUTDOWN. The configuration file and signals are left."
            );
        }
    }
}

/// What CONFIG SET does before `next`, which has other users or another password for `default`,
/// becomes the configuration: each client is from now on the user of its name. As with Redis, who
/// is no user any more is closed. So is who watches by MONITOR and no longer may, and who waits, or
/// is in the midst of a long command, and may other things now than when that began.
///
/// Without users, before and after, nothing changes, as with C.
pub fn follow_users(server: &mut Server, next: &mut Config) -> Result<(), String> {
    next.users.check()?;
    if server.config.users.is_empty() && next.users.is_empty() {
        return Ok(());
    }
    if !next.has_logins() {
        return Err("Without users and without requirepass everybody may do everything: set \
                    requirepass first"
            .to_owned());
    }
    next.warn_of_no_admin();
    let (had_password, has_password) =
        (server.config.requirepass.is_some(), next.requirepass.is_some());
    let mut closing = Vec::new();
    for client in server.clients.iter_mut().filter(|client| client.closing.is_none()) {
        let is_under_way = client.is_blocked || client.busy.is_some();
        let stays = match &mut client.user {
            None => {
                // Who was let in with any password has shown nothing.
                let was_default = client.is_authenticated && had_password;
                client.is_authenticated = was_default && has_password;
                client.is_authenticated || !(was_default || client.is_monitor || is_under_way)
            }
            Some(user) => match next.users.find(user.name.as_bytes()) {
                Some(same) => {
                    let may_go_on = !is_under_way || user.may_the_same_as(same);
                    *user = Arc::clone(same);
                    may_go_on && (!client.is_monitor || user.may_run(Roles::ADMIN))
                }
                None => false,
            },
        };
        if !stays {
            // The lines of MONITOR would go on until all of them are read.
            let how = if client.is_monitor { Closing::AfterTurn } else { Closing::AfterReply };
            closing.push((client.id, how));
        }
    }
    for (id, how) in closing {
        server.close_later(id, how);
    }
    if next.users.is_empty() {
        server.engine.limit_commands(None);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn line(text: &str) -> Result<UserLine, String> {
        let text = text.replace("HASH", HASH);
        UserLine::parse(&quoting::split(text.as_bytes()).expect("balanced"))
    }

    fn users(lines: &[&str]) -> Users {
        let mut users = Users::default();
        lines.iter().for_each(|text| users.set(line(text).expect(text)));
        users
    }

    fn names(users: &Users) -> Vec<&str> {
        users.0.iter().map(|user| user.name.as_str()).collect()
    }

    #[test]
    fn errors_say_which_word_is_wrong() {
        let name = "the name must be 1 to 64 printable characters without spaces";
        let roles = "the roles must be of produce, consume, watch, operate, admin, with commas \
                     between them and no spaces";
        for (text, reason) in [
            ("", "a name is missing"),
            ("\"\" HASH admin", name),
            ("\"a b\" HASH admin", name),
            (&format!("{} HASH admin", "n".repeat(65)), name),
            ("default HASH admin", "the password of the user default is requirepass"),
            ("default", "the password of the user default is requirepass"),
            ("Default HASH watch", "the password of the user default is requirepass"),
            ("ann HASH", "roles are missing"),
            ("ann secret admin", "the password must be sha256: and 64 hexadecimal digits"),
            ("ann HASH admin,", roles),
            ("ann HASH root", roles),
            (&format!("ann HASH watch {}", "x".repeat(256)), "a glob has at most 255 bytes"),
            (&format!("ann HASH watch{}", " x".repeat(101)), "a user has at most 100 globs"),
        ] {
            assert_eq!(line(text), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_line_reads_back_what_it_writes() {
        for text in [
            "ann HASH produce",
            "ann HASH consume,produce mail* \"a b\" '' '\\*'",
            "\"'\" HASH admin *",
            "#ann HASH watch",
            "ann",
        ] {
            let first = line(text).expect(text);
            let words = quoting::split(&first.text()).expect("balanced");
            assert_eq!(UserLine::parse(&words), Ok(first), "{text}");
        }
    }

    #[test]
    fn a_line_takes_the_place_of_that_of_its_name_and_a_bare_one_takes_it_away() {
        let mut users = users(&["ann HASH watch", "bob HASH watch", "ann HASH admin a*"]);
        assert_eq!(names(&users), ["ann", "bob"]);
        assert!(users.0[0].may_run(Roles::ADMIN) && users.0[0].queues.has(b"ab"));
        users.set(line("ann").expect("right"));
        users.set(line("nosuch").expect("right"));
        assert_eq!(names(&users), ["bob"]);
        for number in 0..USERS_MAX - 1 {
            users.set(line(&format!("u{number} HASH watch")).expect("right"));
        }
        assert_eq!(users.check(), Ok(()));
        users.set(line("more HASH watch").expect("right"));
        assert_eq!(users.check(), Err("at most 1000 users".to_owned()));
    }

    #[test]
    fn only_the_password_of_a_user_logs_it_in() {
        let users = users(&["ann HASH watch"]);
        let name = |name: &str, password: &[u8]| {
            users.log_in(name.as_bytes(), password).map(|user| user.name.clone())
        };
        assert_eq!(name("ann", b"secret").as_deref(), Some("ann"));
        for (user, password) in
            [("ann", "secre"), ("ann", ""), ("Ann", "secret"), ("", "secret"), ("bob", "secret")]
        {
            assert_eq!(name(user, password.as_bytes()), None, "{user} {password}");
        }
        assert_eq!(name("ann", &[b'x'; 513]), None);
        assert_eq!(name("ann", HASH.as_bytes()), None, "the hash is no password");
    }
}
