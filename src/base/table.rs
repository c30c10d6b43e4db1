//! A table of items with 32-bit references that stay valid until the item goes.
//!
//! Items live in chunks of 1024 slots that never move, so growing by an item costs
//! the same at ten jobs and at ten million. A new item takes the lowest chunk with
//! space: after a peak the high chunks drain and are given back. The engine keeps its
//! jobs and queues here; the indexes beside it ([`super::id_index`],
//! [`super::ordered`], [`super::wheel`]) hold references only.
//!
//! Invariants: a bit in a chunk's map is set exactly when its slot holds an item; a
//! chunk has slots exactly when it holds an item; the last chunk has slots. A
//! reference must not be used after its item was removed: its slot may be somebody
//! else's by then.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

const CHUNK_SLOTS: usize = 1024;
const CHUNK_WORDS: usize = CHUNK_SLOTS / 64;

/// ChunkSlots are numbered below this. The upper half of the 32 bits is free for those who
/// store slots and need a flag beside them.
pub const SLOTS_MAX: u32 = 1 << 31;

/// A reference to an item of a `Table<T>`: its slot, in four bytes, also inside an
/// `Option`.
pub struct Ref<T> {
    slot_plus_one: NonZeroU32,
    item: PhantomData<fn() -> T>,
}

impl<T> Ref<T> {
    /// The number of the slot, for cursors and for links kept inside of items.
    pub const fn slot(self) -> u32 {
        self.slot_plus_one.get() - 1
    }

    /// The reference to the item in `slot`, which must be below [`SLOTS_MAX`].
    pub const fn from_slot(slot: u32) -> Self {
        let slot_plus_one = NonZeroU32::new(slot.wrapping_add(1)).expect("slots are below 2^31");
        Self { slot_plus_one, item: PhantomData }
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.slot_plus_one == other.slot_plus_one
    }
}

impl<T> Eq for Ref<T> {}

impl<T> PartialOrd for Ref<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ref<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.slot_plus_one.cmp(&other.slot_plus_one)
    }
}

impl<T> Hash for Ref<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.slot_plus_one.hash(state);
    }
}

impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.slot())
    }
}

/// Items by [`Ref`]; see the module's text.
pub struct Table<T> {
    chunks: Vec<Chunk<T>>,
    /// Chunks with slots, some of them vacant.
    with_room: ChunkSet,
    /// How many chunks have slots.
    live_chunks: usize,
    /// The slots of the chunk that emptied last, so that a table that hovers around a
    /// multiple of 1024 items does not allocate and free all the time.
    spare: Option<ChunkSlots<T>>,
    len: usize,
}

type ChunkSlots<T> = Box<[Option<T>; CHUNK_SLOTS]>;

struct Chunk<T> {
    slots: Option<ChunkSlots<T>>,
    /// One bit a slot.
    occupied: [u64; CHUNK_WORDS],
    len: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Table<T> {
    /// An empty table; it allocates with the first item.
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), with_room: ChunkSet::new(), live_chunks: 0, spare: None, len: 0 }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every slot in use is below this.
    pub fn slots_end(&self) -> u32 {
        (self.chunks.len() * CHUNK_SLOTS) as u32
    }

    /// The slot that the next item will be stored in.
    pub fn next_slot(&mut self) -> u32 {
        let (index, slot) = match self.with_room.lowest() {
            Some(index) => (index, self.chunks[index].lowest_vacant()),
            None => (self.absent_chunk().unwrap_or(self.chunks.len()), 0),
        };
        (index * CHUNK_SLOTS + slot) as u32
    }

    /// Stores an item in the lowest chunk with a vacant slot.
    pub fn insert(&mut self, item: T) -> Ref<T> {
        let index = match self.with_room.lowest() {
            Some(index) => index,
            None => self.add_chunk(),
        };
        let chunk = &mut self.chunks[index];
        let slot = chunk.insert(item);
        if chunk.is_full() {
            self.with_room.remove(index);
        }
        self.len += 1;
        Ref::from_slot((index * CHUNK_SLOTS + slot) as u32)
    }

    /// Takes an item out. Panics when there is none: its owner removed it twice.
    pub fn remove(&mut self, at: Ref<T>) -> T {
        let (index, slot) = place(at);
        let chunk = &mut self.chunks[index];
        let was_full = chunk.is_full();
        let item = chunk.remove(slot).expect("a removed item was in the table");
        self.len -= 1;
        if chunk.len == 0 {
            self.free_chunk(index);
        } else if was_full {
            self.with_room.insert(index);
        }
        item
    }

    pub fn get(&self, at: Ref<T>) -> Option<&T> {
        let (index, slot) = place(at);
        self.chunks.get(index)?.slots.as_ref()?[slot].as_ref()
    }

    pub fn get_mut(&mut self, at: Ref<T>) -> Option<&mut T> {
        let (index, slot) = place(at);
        self.chunks.get_mut(index)?.slots.as_mut()?[slot].as_mut()
    }

    /// The first item at `slot` or behind it. ChunkSlots do not move, so a walk that goes
    /// on from the last slot it saw meets every item that was there all along exactly
    /// once, whatever came and went meanwhile.
    pub fn next_from(&self, slot: u32) -> Option<Ref<T>> {
        let first = slot as usize / CHUNK_SLOTS;
        let mut from = slot as usize % CHUNK_SLOTS;
        for (index, chunk) in self.chunks.iter().enumerate().skip(first) {
            if chunk.len > 0
                && let Some(slot) = chunk.next_occupied(from)
            {
                return Some(Ref::from_slot((index * CHUNK_SLOTS + slot) as u32));
            }
            from = 0;
        }
        None
    }

    /// All items, by slot.
    pub fn refs(&self) -> impl Iterator<Item = Ref<T>> + '_ {
        std::iter::successors(self.next_from(0), |at| self.next_from(at.slot() + 1))
    }

    /// Gives the lowest chunk without slots its slots.
    fn add_chunk(&mut self) -> usize {
        let index = self.absent_chunk().unwrap_or_else(|| {
            assert!(self.slots_end() < SLOTS_MAX, "the table is full");
            self.chunks.push(Chunk { slots: None, occupied: [0; CHUNK_WORDS], len: 0 });
            self.chunks.len() - 1
        });
        self.chunks[index].slots = Some(self.spare.take().unwrap_or_else(vacant_slots));
        self.live_chunks += 1;
        self.with_room.insert(index);
        index
    }

    /// The lowest chunk without slots that has a number.
    fn absent_chunk(&self) -> Option<usize> {
        if self.live_chunks == self.chunks.len() {
            return None;
        }
        self.chunks.iter().position(|chunk| chunk.slots.is_none())
    }

    fn free_chunk(&mut self, index: usize) {
        let slots = self.chunks[index].slots.take();
        if self.spare.is_none() {
            self.spare = slots;
        }
        self.live_chunks -= 1;
        self.with_room.remove(index);
        while self.chunks.last().is_some_and(|chunk| chunk.slots.is_none()) {
            self.chunks.pop();
        }
    }
}

impl<T> Index<Ref<T>> for Table<T> {
    type Output = T;

    fn index(&self, at: Ref<T>) -> &T {
        self.get(at).expect("a reference outlived its item")
    }
}

impl<T> IndexMut<Ref<T>> for Table<T> {
    fn index_mut(&mut self, at: Ref<T>) -> &mut T {
        self.get_mut(at).expect("a reference outlived its item")
    }
}

impl<T> Chunk<T> {
    const fn is_full(&self) -> bool {
        self.len as usize == CHUNK_SLOTS
    }

    fn lowest_vacant(&self) -> usize {
        let word = self.occupied.iter().position(|&word| word != u64::MAX);
        let word = word.expect("a chunk that is not full has a vacant slot");
        word * 64 + self.occupied[word].trailing_ones() as usize
    }

    /// Fills the lowest vacant slot and says which it was.
    fn insert(&mut self, item: T) -> usize {
        let slot = self.lowest_vacant();
        let slots = self.slots.as_mut().expect("a chunk that is not full has slots");
        slots[slot] = Some(item);
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.len += 1;
        slot
    }

    fn remove(&mut self, slot: usize) -> Option<T> {
        let item = self.slots.as_mut()?[slot].take()?;
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        self.len -= 1;
        Some(item)
    }

    fn next_occupied(&self, from: usize) -> Option<usize> {
        let first = from / 64;
        let mut mask = u64::MAX << (from % 64);
        for (word, &bits) in self.occupied.iter().enumerate().skip(first) {
            if bits & mask != 0 {
                return Some(word * 64 + (bits & mask).trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }
}

/// A set of chunk numbers that knows its lowest member.
struct ChunkSet {
    words: Vec<u64>,
    /// No word before this one has a member.
    lowest_word: usize,
}

impl ChunkSet {
    const fn new() -> Self {
        Self { words: Vec::new(), lowest_word: 0 }
    }

    fn insert(&mut self, chunk: usize) {
        let word = chunk / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (chunk % 64);
        self.lowest_word = self.lowest_word.min(word);
    }

    fn remove(&mut self, chunk: usize) {
        self.words[chunk / 64] &= !(1 << (chunk % 64));
    }

    /// A word stands for 65536 slots, so the walk is short even for millions of items.
    fn lowest(&mut self) -> Option<usize> {
        while *self.words.get(self.lowest_word)? == 0 {
            self.lowest_word += 1;
        }
        let bit = self.words[self.lowest_word].trailing_zeros() as usize;
        Some(self.lowest_word * 64 + bit)
    }
}

fn place<T>(at: Ref<T>) -> (usize, usize) {
    let slot = at.slot() as usize;
    (slot / CHUNK_SLOTS, slot % CHUNK_SLOTS)
}

/// Built through a slice: an array would be made on the stack first.
fn vacant_slots<T>() -> ChunkSlots<T> {
    let slots: Box<[Option<T>]> = (0..CHUNK_SLOTS).map(|_| None).collect();
    slots.try_into().ok().expect("the slice was built with the array's length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Of the shape of a job: a box and nothing else with a niche, 120 bytes.
    struct JobLike {
        _body: Box<[u8]>,
        _rest: [u64; 13],
    }

    #[test]
    fn a_reference_takes_four_bytes_with_and_without_option() {
        assert_eq!(size_of::<Ref<JobLike>>(), 4);
        assert_eq!(size_of::<Option<Ref<JobLike>>>(), 4);
    }

    #[test]
    fn a_slot_is_not_larger_than_an_item_with_a_box() {
        assert_eq!(size_of::<JobLike>(), 120);
        assert_eq!(size_of::<ChunkSlots<JobLike>>(), 8);
        assert_eq!(size_of::<[Option<JobLike>; CHUNK_SLOTS]>(), 120 * CHUNK_SLOTS);
    }

    #[test]
    fn items_stay_where_they_are_while_the_table_grows() {
        let mut table = Table::new();
        let first = table.insert(0);
        let address: *const i32 = &table[first];
        (1..100_000).for_each(|i| assert_eq!(table.insert(i).slot(), i as u32));
        assert_eq!(address, &raw const table[first]);
        assert_eq!(table.slots_end(), 98 * 1024);
    }

    #[test]
    fn the_lowest_chunk_with_room_is_filled_first() {
        let mut table = Table::new();
        let refs: Vec<_> = (0..5000).map(|i| table.insert(i)).collect();
        table.remove(refs[4500]);
        table.remove(refs[1030]);
        table.remove(refs[2050]);
        assert_eq!(table.insert(-1).slot(), 1030);
        assert_eq!(table.insert(-2).slot(), 2050);
        assert_eq!(table.insert(-3).slot(), 4500);
        assert_eq!(table.insert(-4).slot(), 5000);
    }

    #[test]
    fn empty_chunks_are_freed_but_one() {
        let mut table = Table::new();
        let refs: Vec<_> = (0..4096).map(|i| table.insert(i)).collect();
        for &at in &refs[1024..3072] {
            table.remove(at);
        }
        assert_eq!(table.live_chunks, 2);
        assert!(table.spare.is_some());
        assert_eq!(table.slots_end(), 4096);
        assert_eq!(table.next_from(1024), Some(refs[3072]));
        assert_eq!(table.insert(0), refs[1024]);
        assert!(table.spare.is_none());
        for &at in &refs[3072..] {
            table.remove(at);
        }
        assert_eq!(table.slots_end(), 2048);
    }

    #[test]
    fn a_reference_to_nothing_gets_none() {
        let mut table = Table::new();
        assert_eq!(table.get(Ref::from_slot(7)), None);
        let at = table.insert('a');
        assert_eq!(table.remove(at), 'a');
        assert_eq!(table.get_mut(at), None);
        assert_eq!(table.next_from(0), None);
    }

    #[test]
    #[should_panic(expected = "a reference outlived its item")]
    fn indexing_with_a_dangling_reference_panics() {
        let table: Table<u8> = Table::new();
        let _ = table[Ref::from_slot(0)];
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Bursts, so that chunks fill, empty, and come back.
        #[test]
        fn behaves_like_a_map_by_slot(
            steps in prop::collection::vec((any::<bool>(), 1..1500_usize, any::<u32>()), 1..20)
        ) {
            let mut table = Table::new();
            let mut model = BTreeMap::new();
            let mut next = 0_u64;
            for (grow, amount, pick) in steps {
                for i in 0..amount as u32 {
                    if grow {
                        let at = table.insert(Box::new(next));
                        prop_assert_eq!(model.insert(at.slot(), next), None);
                        next += 1;
                    } else if !model.is_empty() {
                        let from = pick.wrapping_mul(i + 1) % table.slots_end();
                        let found = table.next_from(from);
                        let expected = model.range(from..).next().map(|(&slot, _)| slot);
                        prop_assert_eq!(found.map(Ref::slot), expected);
                        let slot = expected.unwrap_or_else(|| *model.keys().next().expect("some"));
                        prop_assert_eq!(Some(*table.remove(Ref::from_slot(slot))), model.remove(&slot));
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                let walked: Vec<_> = table.refs().map(|at| (at.slot(), *table[at])).collect();
                let expected: Vec<_> = model.iter().map(|(&slot, &item)| (slot, item)).collect();
                prop_assert_eq!(walked, expected);
                let live = table.chunks.iter().filter(|chunk| chunk.slots.is_some());
                prop_assert_eq!(live.clone().count(), table.live_chunks);
                for chunk in live {
                    prop_assert!(chunk.len > 0);
                    let bits: u32 = chunk.occupied.iter().map(|word| word.count_ones()).sum();
                    prop_assert_eq!(bits, chunk.len);
                }
            }
        }
    }
}
