//! `docs/commands.md`, the reference made from the manual. A test holds the file to it;
//! `REWRITE=1 cargo test reference` renews it.

use core::fmt::Write as _;

use super::{Command, Flags, Group, Roles, Usage, all};

/// The reference of all commands in Markdown.
pub fn text() -> String {
    let mut text = String::from(OPENING);
    for group in Group::ALL {
        let _infallible = write!(text, "\n## {}\n", capitalized(group.name()));
        for command in all().filter(|command| command.group == group) {
            write_command(&mut text, command);
        }
    }
    text
}

const OPENING: &str = "\
# Commands

Names of commands, subcommands and options are taken in any case; names of queues and IDs of
jobs are bytes as they are. In a syntax `[x]` may be left out, `a|b` is one of them, `...` is
more of the same. Times are in milliseconds where the name says `ms`, else in seconds. What
is called null here is under RESP3 always the one null.

Any command may be answered by one of these, in this order:

- `ERR unknown command '<name>'`
- `ERR wrong number of arguments for '<name>' command`
- `NOAUTH Authentication required.` unless the command is AUTH, or HELLO with arguments
- `NOPERM User <name> has no permissions to run the '<command>' command` to a user of another role
- `NOPERM No permissions to access a queue` to a user with globs that match it not
- `OOM command not allowed when used memory > 'maxmemory'.` if it has the flag denyoom
- `MISCONF Errors writing to the AOF file: <reason>` if it has the flag denyoom, and to PING
- `LOADING Disque is loading the dataset in memory` unless it has the flag loading

Every command is found as `DISQUE.NAME` and as `DISQUE NAME` too, for proxies and servers that
have other stores beside: where no command has the name that was sent. A command that was renamed
is found so under its new name. Errors, COMMAND INFO, MONITOR and SLOWLOG show what was sent.

Roles are those of users that may run a command, see [security.md](security.md). The role admin may
run all, and so may everybody where neither `user` nor `requirepass` is set.

QUIT stands in no table: it is answered OK, before the password and with any arguments, and
the connection is closed.

This page is made from the server's own manual, which COMMAND DOCS and the help of the
command line client show too.
";

fn write_command(text: &mut String, command: &Command) {
    let Command { name, summary, usages, .. } = command;
    let _infallible = write!(text, "\n### {}\n\n{summary}.\n\n", name.to_uppercase());
    for usage in *usages {
        write_usage(text, usage, command);
    }
    let _infallible = writeln!(text, "- Arguments: {}", arity_text(command.arity));
    let _infallible = writeln!(text, "- Flags: {}", flags_text(command.flags));
    let _infallible = writeln!(text, "- Roles: {}", roles_text(command.roles));
    if !command.errors.is_empty() {
        text.push_str("- Errors:\n");
        for error in command.errors {
            let _infallible = writeln!(text, "  - `{error}`");
        }
    }
}

fn write_usage(text: &mut String, usage: &Usage, command: &Command) {
    let _infallible = write!(text, "- `{}`  \n  ", usage.syntax(command));
    if !usage.summary.is_empty() {
        let _infallible = write!(text, "{}. ", usage.summary);
    }
    let _infallible = write!(text, "{}", usage.reply);
    if let Some(roles) = usage.roles {
        let _infallible = write!(text, " Roles: {}.", roles_text(roles));
    }
    text.push('\n');
}

/// How many arguments there may be, without the name.
fn arity_text(arity: i8) -> String {
    match arity {
        0 | -1 => "any number".into(),
        1 => "none".into(),
        2.. => (arity - 1).to_string(),
        _ => format!("{} or more", arity.unsigned_abs() - 1),
    }
}

fn flags_text(flags: Flags) -> String {
    flags.names().collect::<Vec<_>>().join(", ")
}

/// Who may run a command; of admin it is said once for all of them.
fn roles_text(roles: Roles) -> String {
    if roles == Roles::ALL { "all".into() } else { roles.names().collect::<Vec<_>>().join(", ") }
}

fn capitalized(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    #[test]
    fn the_reference_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
        let made = super::text();
        if env::var_os("REWRITE").is_some() {
            fs::write(&path, &made).expect("the repository is writable");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "{} is not up to date: REWRITE=1 renews it", path.display());
    }
}
