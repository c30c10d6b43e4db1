//! The table of directives: the one place that knows their names.
//!
//! The same row is read by the configuration file, by `--options`, by CONFIG GET, SET
//! and REWRITE, and by the two texts made from it, `conf/disque.conf` and
//! `docs/configuration.md`. What reading or setting one does beside that stands in its row
//! too. Adding a directive is a field in [`Config`] and a row in the group where it belongs.

mod cluster;
mod diagnostics;
mod file;
mod jobs;
mod network;
mod process;
mod security;

use std::path::Path;

use super::Config;
use super::form::{DirectiveValue, ValueForm};
use crate::base::limits::CLIENT_PORT_MAX;
use crate::server::Server;

/// A directive: its name, the values it takes, and the field it stands for.
pub struct Directive {
    pub name: &'static str,
    pub form: ValueForm,
    pub access: Access,
    /// What it is for, in a few sentences.
    pub about: &'static str,
    /// `None` for `include`, which stands for other lines and not for a value.
    place: Option<FieldAccess>,
    /// What a line of the file, or an option, needs beside its form. May put the value
    /// right; `dir_before` is the working directory of the lines above.
    pub when_read: fn(config: &mut Config, dir_before: &Path) -> Result<(), String>,
    /// What CONFIG SET does before `next`, which has the new value, becomes the
    /// configuration. An error leaves the old one.
    pub when_set: fn(server: &mut Server, next: &mut Config) -> Result<(), String>,
}

/// Where a directive may be read and written.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Accepted in the file and as an option.
    pub file: bool,
    /// Shown by CONFIG GET.
    pub get: bool,
    /// Taken by CONFIG SET.
    pub set: bool,
    /// Written by CONFIG REWRITE, which leaves the lines of the others alone.
    pub rewrite: bool,
}

const LIVE: Access = Access { file: true, get: true, set: true, rewrite: true };
const AT_START: Access = Access { set: false, ..LIVE };
/// C does not show these either, so nothing expects them among the shown.
const UNSHOWN: Access = Access { get: false, ..AT_START };
const NOT_REWRITTEN: Access = Access { rewrite: false, ..AT_START };
const FILE_ONLY: Access = Access { file: true, get: false, set: false, rewrite: false };
/// A secret that is set and not shown.
const HIDDEN: Access = Access { get: false, ..LIVE };
/// Holds until the server ends.
const SET_ONLY: Access = Access { file: false, get: true, set: true, rewrite: false };

struct FieldAccess {
    read: fn(&Config) -> DirectiveValue,
    put: fn(&mut Config, DirectiveValue),
}

macro_rules! place {
    ($field:ident) => {{
        use $crate::server::config::directives::FieldAccess;
        use $crate::server::config::form::Field as _;
        Some(FieldAccess { read: |c| c.$field.value(), put: |c, value| c.$field.put(value) })
    }};
}
use place;

/// Directives that belong together.
pub struct DirectiveGroup {
    pub title: &'static str,
    pub directives: &'static [Directive],
}

const fn row(
    name: &'static str,
    form: ValueForm,
    access: Access,
    place: Option<FieldAccess>,
    about: &'static str,
) -> Directive {
    Directive {
        name,
        form,
        access,
        about,
        place,
        when_read: |_, _| Ok(()),
        when_set: |_, _| Ok(()),
    }
}

impl Directive {
    const fn when_read(mut self, check: fn(&mut Config, &Path) -> Result<(), String>) -> Self {
        self.when_read = check;
        self
    }

    const fn when_set(
        mut self,
        effect: fn(&mut Server, &mut Config) -> Result<(), String>,
    ) -> Self {
        self.when_set = effect;
        self
    }
}

const PORT_MAX: i64 = CLIENT_PORT_MAX as i64;

const fn up_to(max: i64) -> ValueForm {
    ValueForm::Number { min: 0, max, unit: "" }
}

const fn at_least(min: i64, unit: &'static str) -> ValueForm {
    ValueForm::Number { min, max: i64::MAX, unit }
}

const fn small_at_least(min: i64, unit: &'static str) -> ValueForm {
    ValueForm::Number { min, max: i32::MAX as i64, unit }
}

pub static SECTIONS: &[DirectiveGroup] = &[
    network::NETWORK,
    network::HTTP_PORT,
    process::GENERAL,
    process::LOG,
    security::SECURITY,
    jobs::JOBS,
    jobs::MEMORY,
    file::APPEND_ONLY_FILE,
    jobs::QUEUES,
    cluster::CLUSTER,
    diagnostics::DIAGNOSTICS,
];

/// Every directive in the order of the sections.
pub fn all() -> impl Iterator<Item = &'static Directive> {
    SECTIONS.iter().flat_map(|section| section.directives)
}

/// The directive of that name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Directive> {
    all().find(|directive| directive.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Directive {
    /// Takes the words that follow the name in a file or in options.
    pub fn take_words(&self, config: &mut Config, words: &[Vec<u8>]) -> Result<(), String> {
        let value = self.form.parse(words)?;
        self.put(config, value);
        Ok(())
    }

    /// Takes the argument of CONFIG SET.
    pub fn take_argument(&self, config: &mut Config, argument: &[u8]) -> Result<(), String> {
        let value = self.form.parse_argument(argument)?;
        self.put(config, value);
        Ok(())
    }

    /// The value as CONFIG GET shows it.
    pub fn shown(&self, config: &Config) -> Vec<u8> {
        self.form.shown(&self.value(config))
    }

    /// The lines that set the present value: one for most directives, none when there is none
    /// to set.
    pub fn lines(&self, config: &Config) -> Vec<Vec<u8>> {
        let values = match self.value(config) {
            DirectiveValue::Absent => vec![],
            DirectiveValue::Networks(networks) if networks.is_empty() => vec![],
            DirectiveValue::PolicyLines(lines) => {
                lines.into_iter().map(|line| DirectiveValue::PolicyLine(Box::new(line))).collect()
            }
            DirectiveValue::UserLines(lines) => {
                lines.into_iter().map(DirectiveValue::UserLine).collect()
            }
            value => vec![value],
        };
        let line = |value| [self.name.as_bytes(), b" ", &self.form.written(value)].concat();
        values.iter().map(line).collect()
    }

    pub fn is_default(&self, config: &Config) -> bool {
        self.value(config) == self.value(&Config::default())
    }

    fn value(&self, config: &Config) -> DirectiveValue {
        self.place.as_ref().map_or(DirectiveValue::Absent, |place| (place.read)(config))
    }

    fn put(&self, config: &mut Config, value: DirectiveValue) {
        if let Some(place) = &self.place {
            (place.put)(config, value);
        }
    }
}
