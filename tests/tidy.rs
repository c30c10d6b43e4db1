//! The rules of the house that a machine can check: who may use whom, how long a file may
//! get, what must not stand in it, and what must not be forgotten.
//!
//! Each test gathers all complaints and fails with the list of them. A rule that hurts is
//! changed here, in the open, with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use disque::manual::{self, Argument, Kind};

/// Which crates a layer may use beside std and the layers drawn in `src/lib.rs`.
/// The server is where everything meets: it may use them all.
const CRATES_OF_LAYER: &[(&str, &[&str])] = &[
    ("base", &["hashbrown", "libc", "rand_chacha", "sha2", "siphasher", "tikv_jemallocator"]),
    ("manual", &[]),
    ("proto", &["crc_fast", "memchr"]),
    ("engine", &["log"]),
    ("ae", &["mio"]),
    ("net", &["mio", "slab", "socket2", "libc"]),
    ("store", &["libc", "log", "memchr"]),
    (
        "cli",
        &[
            "getrandom",
            "hdrhistogram",
            "indicatif",
            "lexopt",
            "libc",
            "memchr",
            "mio",
            "rustyline",
            "signal_hook",
            "socket2",
        ],
    ),
];

/// The layers that are handed everything: no clock, no file, no socket of their own.
const PURE_LAYERS: &[&str] = &["base", "manual", "proto", "engine"];
const IMPURE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::process",
    "std::thread",
    "SystemTime::now",
    "Instant::now",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
];

const FILE_LINES_MAX: usize = 800;
/// Files that may be longer than that, and why.
const LONG_FILES: &[(&str, &str)] = &[];

/// Words that have no place in the tree, split so that this file may name them.
const BANNED_WORDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("db", "g!("),
    concat!("#[ign", "ore"),
    concat!("```ign", "ore"),
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/tmp/", "wt"),
    concat!("/tmp/", "team"),
    concat!("/tmp/", "oracle"),
    concat!("art", "ifactory"),
];

/// Private words of ours, and the plain ones that readers know. `|` stands around a heading.
const DIALECT: &[(&[&str], &str)] = &[
    (&["| room |", "house"], "module, project"),
    (&["chance", "chances"], "randomness, a random draw"),
    (&["stranger", "strangers"], "an unauthenticated client, an unknown node"),
    (&["wish", "wishes", "wished", "wishing"], "a request"),
    (&["doomed"], "closing"),
    (&["hear of", "hears of", "heard of"], "is notified of, receives"),
    (&["look after", "looks after", "looked after", "looking after"], "scan, check"),
    (&["put off", "puts off", "putting off"], "postpone"),
    (&["time error"], "jitter"),
    (&["he", "him", "his", "himself"], "it"),
];
/// How many of them each file still has: never more. `REWRITE=1` writes down where they have
/// become fewer.
const DIALECT_LEFT: &str = "tests/dialect.txt";

/// What stands in the folder of tests and sends no command by itself.
const NOT_TESTS: &[&str] = &["tests/tidy.rs", "tests/fuzz/commands.txt"];

/// A text file of the tree: its path from the root, with `/`, and what stands in it.
struct File {
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The text without comments. What looks like a comment inside of a string goes too.
    fn code(&self) -> String {
        let lines = self.text.lines().map(|line| line.split("//").next().unwrap_or(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The code before the tests, which stand at the bottom.
    fn code_without_tests(&self) -> String {
        let code = self.code();
        code.split("#[cfg(test)]\nmod tests {").next().unwrap_or("").to_string()
    }

    /// `engine` for `src/engine/commands/ack.rs`, `bin` for the binaries.
    fn layer(&self) -> Option<&str> {
        let (first, rest) = self.path.strip_prefix("src/")?.split_once('/')?;
        assert!(!rest.is_empty(), "{} has a name", self.path);
        Some(first)
    }
}

/// Every text file of the tree, but what was built and what git keeps for itself.
fn tree() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder was just listed") {
            let path = entry.expect("the folder can be read").path();
            let name = path.strip_prefix(root).expect("it is below the root");
            let name = name.to_str().expect("names are UTF-8").replace('\\', "/");
            if matches!(name.as_str(), "target" | ".git") || name.ends_with("__pycache__") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                files.push(File { path: name, text });
            }
        }
    }
    assert!(files.len() > 20, "the tree was found");
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn rust_files() -> Vec<File> {
    tree().into_iter().filter(File::is_rust).collect()
}

fn file(path: &str) -> File {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(path)).expect(path);
    File { path: path.to_string(), text }
}

fn assert_none(complaints: &[String], rule: &str) {
    assert!(complaints.is_empty(), "{rule}:\n  {}", complaints.join("\n  "));
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` stands in `text` and is not a part of a longer word.
fn mentions(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word)
    })
}

/// What follows `head::` wherever `head` opens a path: `a` of `head::a::b`, and each of
/// `a`, `c` of `head::{a::b, c}`.
fn paths_from(code: &str, head: &str) -> BTreeSet<String> {
    let prefix = format!("{head}::");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(&prefix) {
        if code[..at].ends_with(|c: char| is_word(c) || c == ':' || c == '.') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group_heads(group)),
            None => found.extend(rest.split(|c| !is_word(c)).next().map(str::to_string)),
        }
    }
    found
}

/// The first word of each item of a `use` group, given what follows its brace.
fn group_heads(group: &str) -> Vec<String> {
    let mut depth = 1;
    let mut heads = vec![String::new()];
    let mut in_head = true;
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => {
                heads.push(String::new());
                in_head = true;
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
        let head = heads.last_mut().expect("there is one from the start");
        if in_head && is_word(c) {
            head.push(c);
        } else if !head.is_empty() {
            in_head = false;
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

/// The drawing in `src/lib.rs`: each layer, and the layers it may use.
fn layers() -> Vec<(String, BTreeSet<String>)> {
    let drawing = file("src/lib.rs").text;
    let lines = drawing.lines().skip_while(|line| !line.starts_with("//! ```text"));
    let layers: Vec<_> = lines
        .skip(1)
        .take_while(|line| !line.starts_with("//! ```"))
        .map(|line| {
            let line = line.trim_start_matches("//! ");
            let (layer, rest) = line.split_once('/').expect("a layer is a folder");
            let list = rest.split_once("may use:").map_or("", |(_, list)| list.trim());
            let list = list.split("  ").next().unwrap_or("").split('(').next().unwrap_or("");
            let uses = list.split(',').map(|name| name.trim().to_string());
            (layer.to_string(), uses.filter(|name| !name.is_empty()).collect())
        })
        .collect();
    assert_eq!(layers.len(), 10, "the drawing has one line a layer");
    layers
}

fn dependencies() -> Vec<String> {
    let manifest = file("Cargo.toml").text;
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    section
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.replace('-', "_"))
        .collect()
}

#[test]
fn layers_use_what_the_drawing_allows() {
    let layers = layers();
    let mut complaints = Vec::new();
    for file in rust_files() {
        let Some(layer) = file.layer() else { continue };
        let Some((_, allowed)) = layers.iter().find(|(name, _)| name == layer) else {
            complaints.push(format!("{}: the drawing has no layer {layer}", file.path));
            continue;
        };
        let code = file.code();
        for used in paths_from(&code, "crate").union(&paths_from(&code, "disque")) {
            let is_layer = layers.iter().any(|(name, _)| name == used);
            if is_layer && used != layer && !allowed.contains(used) {
                complaints.push(format!("{}: {layer} must not use {used}", file.path));
            }
        }
    }
    assert_none(&complaints, "src/lib.rs draws who may use whom");
}

#[test]
fn crates_stay_in_their_layers() {
    let crates = dependencies();
    assert!(crates.len() > 10, "the manifest was understood");
    let mut complaints = Vec::new();
    for file in rust_files() {
        let Some(layer) = file.layer() else { continue };
        let Some((_, allowed)) = CRATES_OF_LAYER.iter().find(|(name, _)| *name == layer) else {
            continue;
        };
        let code = file.code();
        for name in crates.iter().filter(|name| !allowed.contains(&name.as_str())) {
            // `log` is a module of ours as well, but then it does not open the path.
            if !paths_from(&code, name).is_empty() || code.contains(&format!("use {name};")) {
                complaints.push(format!("{}: {layer} does without {name}", file.path));
            }
        }
    }
    assert_none(&complaints, "CRATES_OF_LAYER says which crates serve a layer");
}

#[test]
fn pure_layers_touch_nothing() {
    let mut complaints = Vec::new();
    for file in rust_files() {
        if !file.layer().is_some_and(|layer| PURE_LAYERS.contains(&layer)) {
            continue;
        }
        let code = file.code_without_tests();
        for name in IMPURE.iter().filter(|name| mentions(&code, name)) {
            complaints.push(format!("{}: {name}", file.path));
        }
    }
    assert_none(&complaints, "base, proto and engine are handed what they need");
}

#[test]
fn numbers_in_proto_never_lose_bits_silently() {
    let widths = ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize"];
    let mut complaints = Vec::new();
    for file in rust_files().iter().filter(|file| file.layer() == Some("proto")) {
        let code = file.code_without_tests();
        for (number, line) in (1..).zip(code.lines()) {
            if widths.iter().any(|width| mentions(line, &format!("as {width}"))) {
                complaints.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    assert_none(&complaints, "proto converts with From and TryFrom");
}

#[test]
fn files_stay_short_or_say_why_not() {
    let files = rust_files();
    let mut complaints = Vec::new();
    for file in &files {
        let lines = file.text.lines().count();
        let excused = LONG_FILES.iter().any(|(path, _)| *path == file.path);
        if lines > FILE_LINES_MAX && !excused {
            complaints.push(format!("{}: {lines} lines", file.path));
        } else if lines <= FILE_LINES_MAX && excused {
            complaints.push(format!("{}: {lines} lines need no excuse any more", file.path));
        }
    }
    for (path, _) in LONG_FILES {
        if !files.iter().any(|file| file.path == *path) {
            complaints.push(format!("{path}: excused, but not there"));
        }
    }
    assert_none(&complaints, "a file of more than 800 lines is two files");
}

#[test]
fn files_open_by_saying_what_they_are() {
    let mut complaints = Vec::new();
    for file in rust_files() {
        let opening = file.text.lines().next().unwrap_or("");
        let said = opening.strip_prefix("//! ").unwrap_or("");
        if said.split_whitespace().count() < 3 {
            complaints.push(format!("{}: {opening:?}", file.path));
        }
    }
    assert_none(&complaints, "the first line of a file is `//!` and a sentence");
}

/// The order in which traits are derived.
const DERIVES: [&str; 9] =
    ["Clone", "Copy", "Debug", "Default", "PartialEq", "Eq", "PartialOrd", "Ord", "Hash"];

#[test]
fn derives_stand_in_one_order() {
    let mut complaints = Vec::new();
    for file in rust_files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            let list = line.trim().strip_prefix("#[derive(").and_then(|it| it.strip_suffix(")]"));
            let Some(list) = list else { continue };
            let place = |name: &str| DERIVES.iter().position(|known| *known == name);
            let places: Vec<_> = list.split(", ").map(place).collect();
            if places.contains(&None) || !places.is_sorted() {
                complaints.push(format!("{}:{number}: {list}", file.path));
            }
        }
    }
    assert_none(&complaints, "DERIVES has the order of derived traits");
}

#[test]
fn banned_words_stand_nowhere() {
    let mut complaints = Vec::new();
    for file in tree() {
        for word in BANNED_WORDS.iter().filter(|word| file.text.contains(**word)) {
            let line = file.text.lines().position(|line| line.contains(word));
            let line = line.expect("the word is in one of the lines") + 1;
            complaints.push(format!("{}:{line}: {word}", file.path));
        }
    }
    assert_none(&complaints, "what is left to do and where it was done stand elsewhere");
}

/// The words of the dialect in a text, each as often as it stands there, with what to say.
fn dialect(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let mut found = Vec::new();
    for (ours, plain) in DIALECT {
        for words in *ours {
            let is_whole = |(at, _): &(usize, &str)| {
                !text[..*at].ends_with(is_word) && !text[at + words.len()..].starts_with(is_word)
            };
            let count = text.match_indices(words).filter(is_whole).count();
            found.extend(std::iter::repeat_n(format!("\"{words}\", say {plain}"), count));
        }
    }
    found
}

#[test]
fn words_are_those_that_readers_know() {
    let list = file(DIALECT_LEFT).text;
    let known: BTreeMap<&str, usize> = list
        .lines()
        .map(|line| line.rsplit_once(' ').expect("a line is a path and a number"))
        .map(|(path, count)| (path, count.parse().expect("a number")))
        .collect();
    let (mut complaints, mut left) = (Vec::new(), String::new());
    let is_prose =
        |path: &str| path.starts_with("src/") || path.starts_with("docs/") || path == "README.md";
    for file in tree().iter().filter(|file| is_prose(&file.path)) {
        let found = dialect(&file.text);
        let known = known.get(&*file.path).copied().unwrap_or(0);
        if found.len() > known {
            complaints.push(format!("{}: {known} are known of {found:?}", file.path));
        }
        let count = found.len().min(known);
        if count > 0 {
            left += &format!("{} {count}\n", file.path);
        }
    }
    if std::env::var_os("REWRITE").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DIALECT_LEFT);
        fs::write(path, left).expect("the list can be written");
    }
    assert_none(&complaints, "plain words for readers who know the field and not us");
}

#[test]
fn limits_are_all_enforced_somewhere() {
    let limits = file("src/base/limits.rs");
    let names: Vec<&str> = limits
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next())
        .collect();
    assert!(names.len() > 10, "the limits were found");
    let others: Vec<File> = rust_files()
        .into_iter()
        .filter(|file| file.path.starts_with("src/") && file.path != limits.path)
        .collect();
    let code: Vec<String> = others.iter().map(File::code).collect();
    let complaints: Vec<String> = names
        .iter()
        .filter(|name| !code.iter().any(|code| mentions(code, name)))
        .map(|name| (*name).to_string())
        .collect();
    assert_none(&complaints, "a limit that nothing looks at limits nothing");
}

/// The names of the commands, in upper case.
fn commands() -> Vec<String> {
    manual::all().map(|command| command.name.to_uppercase()).collect()
}

#[test]
fn commands_are_documented_where_they_are_carried_out() {
    let files = rust_files();
    let mut complaints = commands();
    complaints.retain(|name| {
        !files.iter().any(|file| {
            let opening = format!("/// {name}");
            file.text.lines().any(|line| line.starts_with(&opening))
        })
    });
    assert_none(&complaints, "a command's function opens with `/// NAME arguments -> reply`");
}

#[test]
fn commands_are_each_in_the_reference() {
    let reference = file("docs/commands.md").text;
    let mut complaints = commands();
    complaints.retain(|name| !reference.contains(&format!("\n### {name}\n")));
    assert_none(&complaints, "docs/commands.md has a part for each command");
}

#[test]
fn errors_in_the_reference_are_those_of_the_code() {
    let is_answering = |file: &&File| {
        file.is_rust()
            && (file.path.starts_with("src/engine/") || file.path.starts_with("src/server/"))
    };
    let files = tree();
    let code: Vec<String> = files.iter().filter(is_answering).map(|f| joined(&f.text)).collect();
    let reference = file("docs/commands.md").text;
    let errors = reference.lines().filter_map(|line| line.strip_prefix("  - `"));
    let mut complaints: Vec<String> =
        errors.filter_map(|line| line.strip_suffix('`')).map(str::to_owned).collect();
    assert!(complaints.len() > 50, "the errors were found");
    complaints.retain(|error| {
        // The code may put the first word and what is in angle brackets in by itself.
        let text = error.strip_prefix("ERR ").unwrap_or(error);
        let parts = text.split('<').map(|part| part.rsplit('>').next().unwrap_or(part));
        let part = parts.max_by_key(|part| part.len()).expect("there is a first part");
        !code.iter().any(|code| code.contains(part))
    });
    assert_none(&complaints, "docs/commands.md quotes what is answered");
}

/// The text with string literals that go over several lines in one piece.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

#[test]
fn commands_are_each_sent_by_a_test() {
    let tests: Vec<File> = tree()
        .into_iter()
        .filter(|file| file.path.starts_with("tests/") && !NOT_TESTS.contains(&&*file.path))
        .collect();
    let mut complaints = commands();
    complaints.retain(|name| !tests.iter().any(|file| mentions(&file.text, name)));
    assert_none(&complaints, "a command that no test sends may not work");
}

/// The words of a call that are typed as they stand.
fn literal_words(arguments: &[Argument]) -> Vec<&str> {
    let words = arguments.iter().flat_map(|argument| {
        let mut words = match argument.kind {
            Kind::Word => vec![argument.name],
            Kind::OneOf(parts) | Kind::Block(parts) => literal_words(parts),
            _ => vec![],
        };
        words.extend(argument.token);
        words
    });
    words.collect()
}

#[test]
fn commands_and_their_options_are_each_fuzzed() {
    let seeds = file("tests/fuzz/commands.txt").text;
    let mut complaints = Vec::new();
    for command in manual::all() {
        let name = command.name.to_uppercase();
        let seeds = seeds.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let seeds: Vec<_> = seeds.filter(|words| words[0] == name).collect();
        for usage in command.usages {
            let subcommand = Some(usage.subcommand).filter(|subcommand| !subcommand.is_empty());
            let seeds = seeds.iter().filter(|words| {
                subcommand.is_none_or(|subcommand| words.get(1) == Some(&subcommand))
            });
            let seeded: BTreeSet<&str> = seeds.flatten().copied().collect();
            let words = literal_words(usage.arguments).into_iter().chain([&*name]);
            let missing = words.filter(|word| !seeded.contains(word));
            complaints.extend(missing.map(|word| format!("{}: {word}", usage.syntax(command))));
        }
    }
    assert_none(&complaints, "tests/fuzz/commands.txt has each subcommand and option");
}

#[test]
fn tests_start_the_server_that_the_environment_names() {
    let this_builds = concat!("CARGO_BIN_EXE_", "disque-server");
    let mut files = rust_files();
    files.retain(|file| file.text.contains(this_builds));
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["tests/integration/support.rs"], "DISQUE_SERVER names it to all tests");
}

#[test]
fn paths_are_found_in_every_form() {
    let found = |code: &str| paths_from(code, "crate").into_iter().collect::<Vec<_>>();
    assert_eq!(found("use crate::base::limits;"), ["base"]);
    assert_eq!(found("use crate::{proto::{a, b}, base};\nuse std::io;"), ["base", "proto"]);
    assert_eq!(found("let x = crate::net::open(crate::ae::new());"), ["ae", "net"]);
    assert_eq!(found("use other_crate::net; a::crate::net"), Vec::<String>::new());
}
