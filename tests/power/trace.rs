//! What a server did to the files of its folder, and what it sent, in that order.
//!
//! `recorder.c` says how a trace is written; it is built with the system's compiler when it
//! is first wanted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names are below the server's folder; the folder itself is "".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// For writing; it may be new.
    Open {
        name: String,
        inode: u64,
    },
    Write {
        name: String,
        inode: u64,
        place: usize,
        bytes: Vec<u8>,
    },
    Cut {
        inode: u64,
        len: usize,
    },
    Sync {
        inode: u64,
    },
    SyncFolder,
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    Send {
        socket: u64,
        bytes: Vec<u8>,
    },
}

/// The words that start a server under the recorder. `busy` are files that no other can be
/// renamed over.
pub fn recorded(trace: &Path, folder: &Path, busy: &[&str]) -> Vec<String> {
    let set = |name: &str, value: &str| format!("{name}={value}");
    let folder = folder.canonicalize().expect("the folder is there");
    vec![
        "env".into(),
        set("RECORDER_TRACE", trace.to_str().expect("a text")),
        set("RECORDER_ROOT", folder.to_str().expect("a text")),
        set("RECORDER_BUSY", &format!(":{}:", busy.join(":"))),
        set("LD_PRELOAD", recorder().to_str().expect("a text")),
    ]
}

fn recorder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/power/recorder.c");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // Tests that run at once each build their own.
        let library = folder.join(format!("recorder-{}.so", std::process::id()));
        let built = Command::new("gcc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([library.as_os_str(), source.as_ref()])
            .status()
            .expect("gcc is there: the allocator wants it as well");
        assert!(built.success(), "the recorder is built");
        let name = folder.join("recorder.so");
        fs::rename(library, &name).expect("both are in one folder");
        name
    })
}

/// Reads a trace. A last event that is cut off is left out.
pub fn read(path: &Path) -> Vec<Event> {
    let bytes = fs::read(path).expect("the server was recorded");
    let mut rest = bytes.as_slice();
    let mut events = Vec::new();
    while let Some(event) = take(&mut rest) {
        events.push(event);
    }
    events
}

fn take(rest: &mut &[u8]) -> Option<Event> {
    let (header, mut body) = rest.split_at_checked(32)?;
    let u32_at = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    let u64_at = |at: usize| u64::from_ne_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let mut field = |len: u32| -> Option<Vec<u8>> {
        let (field, behind) = body.split_at_checked(len as usize)?;
        body = behind;
        Some(field.to_vec())
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("names of tests are text");
    let (name, bytes) = (text(field(u32_at(4))?), field(u32_at(8))?);
    *rest = body;
    let (inode, place) = (u64_at(16), usize::try_from(u64_at(24)).expect("a small file"));
    Some(match u32_at(0) {
        1 => Event::Open { name, inode },
        2 => Event::Write { name, inode, place, bytes },
        3 => Event::Cut { inode, len: place },
        4 => Event::Sync { inode },
        5 => Event::SyncFolder,
        6 => Event::Rename { from: name, to: text(bytes) },
        7 => Event::Remove { name },
        8 => Event::Send { socket: inode, bytes },
        kind => panic!("the recorder knows no kind {kind}"),
    })
}
