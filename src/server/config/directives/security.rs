//! Directives about who may do what.

use super::{DirectiveGroup, FILE_ONLY, LIVE, place, row};
use crate::server::command_names::CommandNames;
use crate::server::config::form::ValueForm;
use crate::server::users::follow_users;

pub(super) const SECURITY: DirectiveGroup = DirectiveGroup {
    title: "Security",
    directives: &[
        row(
            "requirepass",
            ValueForm::Password,
            LIVE,
            place!(requirepass),
            "The password a client must give with AUTH before anything else; the client is then \
             the user default, who may do everything. Somebody can try \
             very many in a second, so make it long. It does not protect the bus. Until then a \
             request may have 10 arguments of 16kb.",
        )
        .when_set(follow_users),
        row(
            "user",
            ValueForm::User,
            LIVE,
            place!(users),
            "A user that logs in with AUTH name password, or with HELLO. The file has the SHA-256 of \
             its password: disque user-line asks for one and prints the line. Roles say which commands it \
             may run, docs/commands.md has them at each command: produce adds jobs, consume fetches \
             and acknowledges them, watch looks, operate pauses, moves and deletes, and admin may do \
             everything. Without globs it may use every queue, else those whose names match one, \
             in arguments of commands, in what scans show, and as queues of jobs whose IDs it names. There \
             may be up to 1000 users, of up to 100 globs each. With users and without requirepass there is no \
             user default, and who has not logged in may do nothing. A later line of the same \
             name takes the place of the first, and a name alone takes the user away. CONFIG \
             SET takes such lines and changes those users; it counts from their next command, and clients \
             of a user that is taken away are closed. Other nodes are not told: set it on all of them.",
        )
        .when_read(|config, _| config.users.check())
        .when_set(follow_users),
        row(
            "rename-command",
            ValueForm::Rename,
            FILE_ONLY,
            place!(rename_commands),
            "Gives a command another name, or takes it away when the new name is empty. \
             Renaming does not reach the append only file, which keeps the first names.",
        )
        .when_read(|config, _| CommandNames::new(&config.rename_commands).map(|_| ())),
    ],
};
