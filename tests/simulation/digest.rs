//! What the runs of all seeds come to, to be compared with another version of the engine.
//!
//! A change that claims to leave behaviour as it is can show it: the traces of the runs,
//! which hash every byte that an engine emits, are recorded before and compared after.
//! `make digest` and `make same-digest` do both.

use std::env;
use std::fs;
use std::path::PathBuf;

/// The traces of one kind of run, a line a seed.
pub struct Digest {
    name: &'static str,
    lines: String,
}

impl Digest {
    pub fn new(name: &'static str) -> Self {
        Self { name, lines: String::new() }
    }

    pub fn note(&mut self, seed: u64, trace: u64) {
        self.lines.push_str(&format!("{seed} {trace:016x}\n"));
    }

    /// Records the lines in the folder `RECORD_DIGEST`, or compares them with those in the
    /// folder `COMPARE_DIGEST`.
    ///
    /// # Panics
    /// When a run differs from the recorded one, or was not recorded.
    pub fn finish(self) {
        let file = |folder| PathBuf::from(folder).join(self.name).with_extension("txt");
        if let Some(folder) = env::var_os("RECORD_DIGEST") {
            fs::create_dir_all(&folder).expect("the folder can be made");
            fs::write(file(folder), &self.lines).expect("the digest can be written");
        }
        if let Some(folder) = env::var_os("COMPARE_DIGEST") {
            let path = file(folder);
            let recorded = fs::read_to_string(&path)
                .unwrap_or_else(|e| panic!("{}: {e}; record it first", path.display()));
            let recorded: Vec<&str> = recorded.lines().collect();
            let differing: Vec<&str> =
                self.lines.lines().filter(|line| !recorded.contains(line)).collect();
            assert!(differing.is_empty(), "{} differ: {differing:?}", self.name);
        }
    }
}
