//! Roles: what a user is there for, and so which commands it may run.
//!
//! | role | is for |
//! |---|---|
//! | produce | those who add jobs, and want to know what became of them |
//! | consume | those who fetch and acknowledge jobs |
//! | watch | those who look and change nothing |
//! | operate | those who pause, move and delete jobs, and, of all queues, see to the node |
//! | admin | everything |
//!
//! A role holds no other, but admin, which holds all. What several may do stands with each of
//! them in the column `roles` of the manual's commands.

use core::fmt;

/// A set of roles: those of a user, or those that may run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    pub const PRODUCE: Self = Self(1);
    pub const CONSUME: Self = Self(2);
    pub const WATCH: Self = Self(4);
    pub const OPERATE: Self = Self(8);
    pub const ADMIN: Self = Self(16);
    /// Who may look at what is there beyond its own jobs.
    pub const WATCH_OR_OPERATE: Self = Self::WATCH.and(Self::OPERATE);
    /// Whoever is logged in.
    pub const ALL: Self = Self(31);

    /// The names, in the order in which they are written.
    pub const NAMES: [(Self, &'static str); 5] = [
        (Self::PRODUCE, "produce"),
        (Self::CONSUME, "consume"),
        (Self::WATCH, "watch"),
        (Self::OPERATE, "operate"),
        (Self::ADMIN, "admin"),
    ];

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any role is in both.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a user of these roles may run what those of `command` may.
    pub const fn may_run(self, command: Self) -> bool {
        self.meets(command.and(Self::ADMIN))
    }

    /// Reads names with commas between them.
    pub fn parse(text: &[u8]) -> Option<Self> {
        text.split(|&byte| byte == b',').try_fold(Self(0), |roles, word| {
            let is_meant = |(_, name): &&(Self, &str)| name.as_bytes().eq_ignore_ascii_case(word);
            Self::NAMES.iter().find(is_meant).map(|(role, _)| roles.and(*role))
        })
    }

    /// The names of those that are in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(role, _)| self.0 & role.0 != 0).map(|(_, name)| name)
    }
}

/// What [`Roles::parse`] reads.
impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_joined_by_commas() {
        let both = Roles::PRODUCE.and(Roles::CONSUME);
        assert_eq!(Roles::parse(b"Consume,produce"), Some(both));
        assert_eq!(both.to_string(), "produce,consume");
        assert_eq!(Roles::parse(b"watch,watch"), Some(Roles::WATCH));
        for wrong in ["", ",", "watch,", "watch, operate", "watcher", "all"] {
            assert_eq!(Roles::parse(wrong.as_bytes()), None, "{wrong}");
        }
        let all = Roles::ALL.to_string();
        assert_eq!(Roles::parse(all.as_bytes()), Some(Roles::ALL));
    }

    #[test]
    fn admin_may_run_everything_and_others_what_names_them() {
        for (role, _) in Roles::NAMES {
            assert!(role.may_run(Roles::ALL) && role.may_run(role));
            assert!(Roles::ADMIN.may_run(role));
            assert_eq!(role.may_run(Roles::ADMIN), role == Roles::ADMIN);
        }
        assert!(!Roles::OPERATE.may_run(Roles::WATCH));
        assert!(Roles::WATCH.and(Roles::PRODUCE).may_run(Roles::PRODUCE));
    }
}
