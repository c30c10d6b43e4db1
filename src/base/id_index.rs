//! From an ID to a reference: the hash index beside a [`super::table::Table`].
//!
//! The IDs stay inside the items; the index keeps 32 bits of hash and a reference an
//! item. It is split in 1024 small tables by other bits of the hash. One of them
//! growing moves a thousandth of the entries and reads no item, so no command waits
//! long behind it.
//!
//! Clients choose job IDs and queue names, so hashes come from [`IdHasher`], which is
//! keyed. The index has no order to walk: nothing can depend on the key.

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::table::Ref;

const TABLES: usize = 1024;

/// A table gives memory back when it is filled less than one to this ...
const SPARSE: usize = 8;
/// ... unless it is at most this large.
const SMALL_CAPACITY: usize = 28;

/// Hashes IDs with SipHash-1-3 under a key that clients cannot know.
#[derive(Clone)]
pub struct IdHasher(SipHasher13);

impl IdHasher {
    pub fn new(key: &[u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(key))
    }

    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.0.hash(bytes)
    }
}

/// References by the hash of their items' IDs; see the module's text.
pub struct IdIndex<T> {
    tables: Box<[HashTable<IndexEntry<T>>]>,
    len: usize,
}

struct IndexEntry<T> {
    hash: u32,
    at: Ref<T>,
}

impl<T> Default for IdIndex<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> IdIndex<T> {
    /// An empty index: the headers of its tables, 32 KiB.
    pub fn new() -> Self {
        Self { tables: (0..TABLES).map(|_| HashTable::new()).collect(), len: 0 }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The reference with this hash for which `eq` holds. `eq` is asked only about
    /// references with the same 42 bits of hash.
    pub fn find(&self, hash: u64, mut eq: impl FnMut(Ref<T>) -> bool) -> Option<Ref<T>> {
        let (table, part) = split(hash);
        let entry = self.tables[table].find(spread(part), |e| e.hash == part && eq(e.at))?;
        Some(entry.at)
    }

    /// Adds a reference. The caller has searched for its ID and not found it.
    pub fn insert(&mut self, hash: u64, at: Ref<T>) {
        let (table, part) = split(hash);
        let entry = IndexEntry { hash: part, at };
        self.tables[table].insert_unique(spread(part), entry, |e| spread(e.hash));
        self.len += 1;
    }

    /// Takes out the reference with this hash for which `eq` holds.
    pub fn remove(&mut self, hash: u64, mut eq: impl FnMut(Ref<T>) -> bool) -> Option<Ref<T>> {
        let (table, part) = split(hash);
        let table = &mut self.tables[table];
        let found = table.find_entry(spread(part), |e| e.hash == part && eq(e.at)).ok()?;
        let (entry, _) = found.remove();
        if table.capacity() > SMALL_CAPACITY && table.len() * SPARSE < table.capacity() {
            table.shrink_to(table.len() * 2, |e| spread(e.hash));
        }
        self.len -= 1;
        Some(entry.at)
    }
}

/// The number of the table, and the part of the hash that counts inside of it.
const fn split(hash: u64) -> (usize, u32) {
    ((hash >> 32) as usize % TABLES, hash as u32)
}

/// A table reads its positions at the low end of a hash and its tags at the high end.
const fn spread(part: u32) -> u64 {
    ((part as u64) << 32) | part as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::table::Table;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_entry_takes_eight_bytes_and_an_empty_table_its_header() {
        assert_eq!(size_of::<IndexEntry<String>>(), 8);
        assert_eq!(size_of::<HashTable<IndexEntry<String>>>() * TABLES, 32 * 1024);
        assert!(IdIndex::<String>::new().tables.iter().all(|table| table.capacity() == 0));
    }

    #[test]
    fn the_hash_depends_on_the_key_and_is_siphash_1_3() {
        let hash = |key: &[u8; 16]| IdHasher::new(key).hash(b"queue");
        assert_eq!(hash(b"0123456789abcdef"), hash(b"0123456789abcdef"));
        assert_ne!(hash(b"0123456789abcdef"), hash(b"0123456789abcdeg"));
        let mut key = [0; 16];
        (0..16).for_each(|i| key[i] = i as u8);
        assert_eq!(IdHasher::new(&key).hash(b""), 0xabac_0158_050f_c4dc);
    }

    #[test]
    fn entries_spread_over_the_tables_and_memory_comes_back() {
        let hasher = IdHasher::new(&[7; 16]);
        let mut index = IdIndex::<u64>::new();
        let hash = |i: u32| hasher.hash(&i.to_le_bytes());
        (0..200_000).for_each(|i| index.insert(hash(i), Ref::from_slot(i)));
        assert!(index.tables.iter().all(|table| (100..300).contains(&table.len())));
        for i in 0..200_000 {
            let found = index.remove(hash(i), |at| at.slot() == i);
            assert_eq!(found, Some(Ref::from_slot(i)));
        }
        assert!(index.is_empty());
        assert!(index.tables.iter().all(|table| table.capacity() <= SMALL_CAPACITY));
    }

    proptest! {
        /// Hashes from a tiny range, so that many IDs share one hash.
        #[test]
        fn behaves_like_a_map(
            steps in prop::collection::vec((any::<bool>(), 0..200_u16), 1..2000)
        ) {
            let hash = |id: u16| (u64::from(id % 7) << 31) | u64::from(id % 3);
            let mut items = Table::new();
            let mut index = IdIndex::new();
            let mut model = BTreeMap::new();
            for (add, id) in steps {
                let found = index.find(hash(id), |at| items[at] == id);
                prop_assert_eq!(found, model.get(&id).copied());
                if add && found.is_none() {
                    let at = items.insert(id);
                    index.insert(hash(id), at);
                    model.insert(id, at);
                } else if !add {
                    let removed = index.remove(hash(id), |at| items[at] == id);
                    prop_assert_eq!(removed, model.remove(&id));
                    removed.map(|at| items.remove(at));
                }
                prop_assert_eq!(index.len(), model.len());
            }
        }
    }
}
