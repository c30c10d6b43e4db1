//! The two texts made from the table of directives: `conf/disque.conf`, a file to start
//! from, and `docs/configuration.md`, the reference. Tests hold the files to the table;
//! `REWRITE=1 cargo test documents` renews them.

use std::fmt::Write as _;

use super::Config;
use super::directives::{Access, Directive, SECTIONS};

/// Width of a comment in the sample file, its mark included.
const COMMENT_WIDTH: usize = 88;

/// Lines of the sample file that differ from the defaults, which are those of the C server:
/// they suit a server that is started by a service manager.
const SAMPLE_LINES: [(&str, &str); 5] = [
    ("protected-mode", "protected-mode yes"),
    ("dir", "# dir \"/var/lib/disque\""),
    ("retry-from", "retry-from delivery"),
    (
        "queue-policy",
        "# With this line an ADDJOB that does not say more is answered when the job is on two\n\
         # nodes, and a third copy is made after that. So one node of three may be down and\n\
         # producers go on. In return, a job whose two nodes are lost before the third has its\n\
         # copy is lost with them; without the line the reply waits for three.\n\
         queue-policy * default-sync 2",
    ),
    ("aof-restore-queues", "aof-restore-queues yes"),
];

/// A configuration file to start from, with every directive explained.
pub fn sample_file() -> String {
    let mut text = String::new();
    comment(
        &mut text,
        "Configuration of disque-server. Every directive stands here with its default, unless it \
         says otherwise; those without one are commented out. A directive may also be given on the \
         command line, as in disque-server disque.conf --port 7712, and most can be read and \
         changed in a running server with CONFIG GET, CONFIG SET and CONFIG REWRITE.",
    );
    text.push_str("#\n");
    comment(
        &mut text,
        "Words are separated by spaces; one that holds spaces goes in quotes. Sizes take b, k, \
         kb, m, mb, g and gb, where k is 1000 and kb is 1024.",
    );
    for section in SECTIONS {
        let _infallible = write!(text, "\n#### {} ####\n", section.title);
        for directive in section.directives.iter().filter(|directive| directive.access.file) {
            text.push('\n');
            comment(&mut text, directive.about);
            text.push_str(&sample_line(directive));
            text.push('\n');
        }
    }
    text
}

/// The line of a directive, below a comment if that is not its default.
fn sample_line(directive: &Directive) -> String {
    let default = default_line(directive);
    let sample = SAMPLE_LINES.iter().find(|(name, _)| *name == directive.name);
    match (sample, default) {
        (Some((_, line)), Some(default)) => format!("# The default: {default}\n{line}"),
        (Some((_, line)), None) => (*line).to_owned(),
        (None, Some(default)) => default,
        (None, None) => format!("# {} {}", directive.name, directive.form.placeholder()),
    }
}

/// The reference of all directives in Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "# Configuration\n\
         \n\
         A directive stands on a line of the configuration file (`disque-server FILE`, or `-`\n\
         for standard input) or on the command line (`--name value ...`), which is read after\n\
         the file. GET, SET and REWRITE say whether `CONFIG GET` shows it, `CONFIG SET` takes\n\
         it and `CONFIG REWRITE` writes it to the file. A size is a number and an optional\n\
         unit: `b`, `k` (1000), `kb` (1024), `m`, `mb`, `g`, `gb`.\n\
         \n\
         This page is made from the server's own table of directives.\n",
    );
    for section in SECTIONS {
        let _infallible = write!(text, "\n## {}\n", section.title);
        for directive in section.directives {
            let _infallible = write!(
                text,
                "\n### {}\n\n{}\n\n- Value: {}\n- Default: {}\n- {}\n",
                directive.name,
                directive.about,
                directive.form.explained(),
                default_line(directive).map_or("none".into(), |line| format!("`{line}`")),
                access_text(directive.access),
            );
        }
    }
    text
}

fn default_line(directive: &Directive) -> Option<String> {
    let line = directive.lines(&Config::default()).pop()?;
    Some(String::from_utf8(line).expect("the defaults are text"))
}

fn access_text(access: Access) -> String {
    let words = [
        (access.file, "file and options"),
        (access.get, "GET"),
        (access.set, "SET"),
        (access.rewrite, "REWRITE"),
    ];
    let words: Vec<&str> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    words.join(", ")
}

fn comment(text: &mut String, about: &str) {
    let mut width = 0;
    for word in about.split(' ') {
        if width > 0 && width + 1 + word.len() > COMMENT_WIDTH {
            text.push('\n');
            width = 0;
        }
        if width == 0 {
            text.push('#');
            width = 1;
        }
        text.push(' ');
        text.push_str(word);
        width += 1 + word.len();
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    use super::*;

    /// Compares a file of the repository with what the table makes of it.
    fn held_to(path: &str, made: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if env::var_os("REWRITE").is_some() {
            fs::create_dir_all(path.parent().expect("a file stands in a folder"))
                .and_then(|()| fs::write(&path, made))
                .expect("the repository is writable");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "{} is not up to date: REWRITE=1 renews it", path.display());
    }

    #[test]
    fn the_sample_file_is_up_to_date() {
        held_to("conf/disque.conf", &sample_file());
    }

    #[test]
    fn the_reference_is_up_to_date() {
        held_to("docs/configuration.md", &reference());
    }
}
