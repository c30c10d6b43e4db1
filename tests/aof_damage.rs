//! What damage does to the two files: every byte changed in three ways, and every length.
//!
//! A damaged append only file loads with the one field different, or is taken for cut off
//! at the end of a whole record, or is refused with the file's name and the offset. For
//! nodes.conf it is the same with the line. Nothing panics. A few damages are shown to the
//! server program by the integration tests of its start.

use std::path::Path;

use disque::base::ids::NodeId;
use disque::base::time::{MonoMs, Now, UnixMs};
use disque::engine::Engine;
use disque::engine::config::{EngineConfig, EnqueueAtLoad};
use disque::engine::records::Storage;
use disque::proto::aof_record::{self, AofRecord};
use disque::proto::nodes_conf;
use disque::store::aof_load::{AofReader, LoadError, LoadProgress};

const AOF: &[u8] = include_bytes!("golden/disque.aof");
const NODES_CONF: &[u8] = include_bytes!("golden/nodes.conf");
const CHANGES: [u8; 3] = [0x01, 0x20, 0x80];

fn records(file: &[u8]) -> Vec<&[u8]> {
    let (mut records, mut rest) = (Vec::new(), file);
    while let Ok(Some((len, _))) = aof_record::next(rest) {
        records.push(&rest[..len]);
        rest = &rest[len..];
    }
    records
}

/// Loads a file into an engine, as the server does.
fn load(file: &[u8]) -> (Vec<Vec<u8>>, Result<LoadProgress, LoadError>) {
    let Ok(Some((_, AofRecord::LoadJob(first)))) = aof_record::next(AOF) else {
        panic!("the file begins with a job")
    };
    let now = Now { wall: UnixMs(first.ctime / 1_000_000), mono: MonoMs(1_000_000) };
    let config = EngineConfig { enqueue_at_load: EnqueueAtLoad::Yes, ..EngineConfig::default() };
    let mut engine = Engine::new(config, NodeId([b'a'; 40]), [1; 32], now);
    engine.set_storage(now, Storage::Loading { written_at: now.wall });
    let mut taken = Vec::new();
    let mut offset = 0;
    let mut reader = AofReader::new(Path::new("x.aof"), file, file.len() as u64);
    let progress = reader.read(usize::MAX, |record| {
        engine.load(now, record);
        let (len, _) = aof_record::next(&file[offset..]).ok().flatten().expect("it was taken");
        taken.push(file[offset..offset + len].to_vec());
        offset += len;
    });
    engine.set_storage(now, Storage::Works);
    engine.check_invariants();
    (taken, progress)
}

/// How many of the records differ.
fn difference_count(taken: &[Vec<u8>], expected: &[&[u8]]) -> usize {
    taken.iter().zip(expected).filter(|(taken, expected)| taken != *expected).count()
}

#[test]
fn a_changed_byte_of_the_append_only_file_changes_one_record_or_is_told() {
    let whole = records(AOF);
    let (mut loaded, mut cut, mut refused) = (0, 0, 0);
    for at in 0..AOF.len() {
        for change in CHANGES {
            let mut file = AOF.to_vec();
            file[at] ^= change;
            let (taken, progress) = load(&file);
            assert!(difference_count(&taken, &whole) <= 1, "byte {at} with {change:#x}");
            match progress {
                Ok(LoadProgress::Complete) => {
                    assert_eq!(taken.len(), whole.len(), "byte {at} with {change:#x}");
                    loaded += 1;
                }
                Ok(LoadProgress::Truncated { valid_len }) => {
                    // A length that claims more than is there: the rest may be missing.
                    assert!(valid_len <= at as u64, "byte {at} with {change:#x}");
                    cut += 1;
                }
                Ok(LoadProgress::More) => panic!("it was to read to the end"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.starts_with("x.aof: byte "), "{text}");
                    refused += 1;
                }
            }
        }
    }
    assert!(loaded > 0 && cut > 0 && refused > 0, "{loaded}, {cut}, {refused}");
}

#[test]
fn an_append_only_file_of_any_length_loads_up_to_its_last_whole_record() {
    let whole = records(AOF);
    for len in 0..=AOF.len() {
        let (taken, progress) = load(&AOF[..len]);
        assert_eq!(difference_count(&taken, &whole), 0, "length {len}");
        let valid_len: usize = taken.iter().map(Vec::len).sum();
        let expected = if valid_len == len {
            LoadProgress::Complete
        } else {
            LoadProgress::Truncated { valid_len: valid_len as u64 }
        };
        assert_eq!(progress.expect("it is not damaged"), expected, "length {len}");
    }
}

#[test]
fn a_damaged_nodes_conf_differs_in_one_line_or_is_refused_with_the_line() {
    let whole = nodes_conf::parse(NODES_CONF).expect("a good file");
    let (mut read, mut refused) = (0, 0);
    for at in 0..NODES_CONF.len() {
        for change in CHANGES {
            let mut file = NODES_CONF.to_vec();
            file[at] ^= change;
            match nodes_conf::parse(&file) {
                Ok(nodes) => {
                    assert_eq!(nodes.len(), whole.len(), "byte {at} with {change:#x}");
                    let differ = nodes.iter().zip(&whole).filter(|(a, b)| a != b).count();
                    assert!(differ <= 1, "byte {at} with {change:#x}");
                    read += 1;
                }
                Err(error) => {
                    assert!(error.to_string().starts_with("line "), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 0 && refused > 0, "{read}, {refused}");
}

#[test]
fn a_nodes_conf_of_any_length_is_read_as_it_stands_or_refused_with_the_line() {
    for len in 0..NODES_CONF.len() {
        match nodes_conf::parse(&NODES_CONF[..len]) {
            Ok(nodes) => assert!(nodes.len() <= 20, "length {len}"),
            Err(error) => assert!(error.to_string().starts_with("line "), "{error}"),
        }
    }
}
