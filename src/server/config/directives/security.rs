//! Directives about who may do what.

use super::{DirectiveGroup, FILE_ONLY, LIVE, place, row};
use crate::server::command_names::CommandNames;
use crate::server::config::form::ValueForm;

pub(super) const SECURITY: DirectiveGroup = DirectiveGroup {
    title: "Security",
    directives: &[
        row(
            "requirepass",
            ValueForm::Password,
            LIVE,
            place!(requirepass),
            "The password a client must give with AUTH before anything else. Somebody can try \
             very many in a second, so make it long. It does not protect the bus. Until then a \
             request may have 10 arguments of 16kb.",
        ),
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
