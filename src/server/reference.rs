//! `docs/commands.md`, the reference made from the command tables and their [`PAGES`].
//! A test holds the file to them; `REWRITE=1 cargo test manual` renews it.

use std::fmt::Write as _;

use super::command_table::CommandTable;
use crate::engine::command::{Flags, Spec};
use crate::manual::{Group, PAGES, Page, Usage};

/// The reference of all commands in Markdown.
pub fn reference() -> String {
    let table = CommandTable::new(&[]).expect("nothing is renamed");
    let mut text = String::from(OPENING);
    for group in Group::ALL {
        let _infallible = write!(text, "\n## {}\n", capitalized(group.name()));
        for page in PAGES.iter().filter(|page| page.group == group) {
            let place = table.find(page.name.as_bytes()).expect("every page has a row");
            write_page(&mut text, page, table.spec(place));
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
- `NOAUTH Authentication required.` unless the command is AUTH, or HELLO with words
- `OOM command not allowed when used memory > 'maxmemory'.` if it has the flag denyoom
- `MISCONF Errors writing to the AOF file: <reason>` if it has the flag denyoom, and to PING
- `LOADING Disque is loading the dataset in memory` unless it has the flag loading

QUIT stands in no table: it is answered OK, before the password and with any words, and the
connection is closed.

This page is made from the server's own tables of commands.
";

fn write_page(text: &mut String, page: &Page, spec: &Spec) {
    let _infallible = write!(text, "\n### {}\n\n{}.\n\n", page.name.to_uppercase(), page.summary);
    for Usage { syntax, reply } in page.forms {
        let _infallible = writeln!(text, "- `{syntax}`  \n  {reply}");
    }
    let _infallible = writeln!(text, "- Words: {}", arity_text(spec.arity));
    let _infallible = writeln!(text, "- Flags: {}", flags_text(spec.flags));
    if !page.errors.is_empty() {
        text.push_str("- Errors:\n");
        for error in page.errors {
            let _infallible = writeln!(text, "  - `{error}`");
        }
    }
}

fn arity_text(arity: i8) -> String {
    match arity {
        0 | -1 => "any number".into(),
        1.. => arity.to_string(),
        _ => format!("{} or more", arity.unsigned_abs()),
    }
}

fn flags_text(flags: Flags) -> String {
    let names: Vec<&str> = Flags::NAMES
        .into_iter()
        .filter(|&(flag, _)| flags.contains(flag))
        .map(|(_, name)| name)
        .collect();
    names.join(", ")
}

fn capitalized(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::{env, fs};

    use super::*;
    use crate::manual as pages;

    #[test]
    fn every_command_has_one_page_and_every_page_its_command() {
        let table = CommandTable::new(&[]).expect("nothing is renamed");
        let rows: BTreeSet<&str> = table.specs().map(|spec| spec.name).collect();
        let pages: BTreeSet<&str> = PAGES.iter().map(|page| page.name).collect();
        assert_eq!(rows, pages);
        assert_eq!(pages.len(), PAGES.len(), "no command has two pages");
    }

    /// How many words of a syntax are not in brackets.
    fn demanded(syntax: &str) -> usize {
        let mut depth = 0;
        let is_demanded = |word: &&str| {
            let before = depth;
            depth += word.matches('[').count();
            depth -= word.matches(']').count();
            before == 0 && !word.starts_with('[')
        };
        syntax.split(' ').filter(is_demanded).count()
    }

    #[test]
    fn a_syntax_begins_with_the_name_and_demands_what_the_row_does() {
        let table = CommandTable::new(&[]).expect("nothing is renamed");
        for spec in table.specs() {
            let page = pages::page(spec.name).expect("it has a page");
            let syntaxes = || page.forms.iter().map(|form| form.syntax);
            let name = spec.name.to_uppercase();
            assert!(syntaxes().all(|syntax| syntax.split(' ').next() == Some(&name)), "{name}");
            let least = syntaxes().map(demanded).min().expect("a page has a form");
            assert!(spec.accepts(least), "{name} wants {} words", spec.arity);
        }
    }

    #[test]
    fn the_reference_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
        let made = reference();
        if env::var_os("REWRITE").is_some() {
            fs::write(&path, &made).expect("the repository is writable");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "{} is not up to date: REWRITE=1 renews it", path.display());
    }
}
