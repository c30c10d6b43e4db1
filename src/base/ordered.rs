//! References in the order of a key that lives inside the items: the order of a queue.
//!
//! They lie in chunks of at most 256 references of four bytes, so both ends are at
//! hand and a change in the middle moves little. A chunk's *floor* is a lower bound
//! for the first part of its keys: finding the chunk touches hardly an item. Chunks grow
//! and shrink with what is in them: a hundred thousand queues of one job each are normal.
//!
//! Invariants: keys rise over all chunks; the floor of a chunk is not above any of its
//! keys and not below any key of an earlier chunk; no chunk is empty, except the only
//! one of an empty sequence, kept since queues hover between empty and one.

use std::collections::VecDeque;

use super::table::{Ref, Table};

const CHUNK_MAX: usize = 256;
/// A chunk with fewer references than this is joined with a neighbour ...
const CHUNK_SPARSE: usize = CHUNK_MAX / 4;
/// ... if both together leave space to grow.
const CHUNK_JOINED_MAX: usize = CHUNK_MAX / 4 * 3;

/// A deque gives memory back when it is filled less than one to this ...
const SPARSE: usize = 8;
/// ... unless it is at most this large.
const SMALL_CAPACITY: usize = 16;

/// What can be in [`OrderedRefs`]. The key of an item must not change while it is.
pub trait Ordered {
    /// No two items of one sequence have the same key.
    type Key: Ord;

    fn key(&self) -> Self::Key;
    /// The first part of the key: of two keys the lower never has the higher prefix.
    fn key_prefix(&self) -> u64;
}

/// References by their items' keys; see the module's text.
pub struct OrderedRefs<T> {
    chunks: VecDeque<OrderedChunk<T>>,
    len: usize,
}

struct OrderedChunk<T> {
    floor: u64,
    refs: VecDeque<Ref<T>>,
}

impl<T> OrderedChunk<T> {
    /// An empty chunk at its full size, for a sequence that has filled one already.
    fn with_room(floor: u64) -> Self {
        Self { floor, refs: VecDeque::with_capacity(CHUNK_MAX) }
    }
}

impl<T> Default for OrderedRefs<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OrderedRefs<T> {
    /// An empty sequence; it allocates with the first reference.
    pub const fn new() -> Self {
        Self { chunks: VecDeque::new(), len: 0 }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn first(&self) -> Option<Ref<T>> {
        self.chunks.front()?.refs.front().copied()
    }

    pub fn last(&self) -> Option<Ref<T>> {
        self.chunks.back()?.refs.back().copied()
    }

    /// Takes out the reference with the lowest key. Does not touch its item.
    pub fn pop_first(&mut self) -> Option<Ref<T>> {
        let first = self.chunks.front_mut()?.refs.pop_front()?;
        self.len -= 1;
        self.settle(0);
        Some(first)
    }

    /// All references by key, from either end.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Ref<T>> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.refs.iter().copied())
    }

    /// Sees to the chunk at `index` after it lost a reference.
    fn settle(&mut self, index: usize) {
        let len = self.chunks[index].refs.len();
        if len == 0 && self.chunks.len() > 1 {
            self.chunks.remove(index);
            give_back(&mut self.chunks);
        } else if len < CHUNK_SPARSE {
            give_back(&mut self.chunks[index].refs);
        }
    }

    /// Joins the chunk at `index` with a neighbour when they fit well in one.
    fn join_if_sparse(&mut self, index: usize) {
        let len = |at: usize| self.chunks.get(at).map_or(CHUNK_MAX, |chunk| chunk.refs.len());
        let own = len(index);
        if own >= CHUNK_SPARSE {
            return;
        }
        let low = if own + len(index + 1) <= CHUNK_JOINED_MAX {
            index
        } else if index > 0 && own + len(index - 1) <= CHUNK_JOINED_MAX {
            index - 1
        } else {
            return;
        };
        let mut high = self.chunks.remove(low + 1).expect("the neighbour is there");
        let refs = &mut self.chunks[low].refs;
        refs.reserve_exact(CHUNK_MAX - refs.len());
        refs.append(&mut high.refs);
        give_back(&mut self.chunks);
    }
}

impl<T: Ordered> OrderedRefs<T> {
    /// Adds a reference by its item's key.
    pub fn insert(&mut self, table: &Table<T>, at: Ref<T>) {
        let (key, prefix) = (table[at].key(), table[at].key_prefix());
        match (self.first(), self.last()) {
            (Some(_), Some(last)) if table[last].key() < key => self.push_last(prefix, at),
            (Some(first), Some(_)) if key < table[first].key() => {
                self.push_first(prefix, at, table[first].key_prefix());
            }
            (Some(_), Some(_)) => self.insert_between(table, at),
            _ => self.push_only(prefix, at),
        }
        self.len += 1;
    }

    /// Takes out a reference, wherever it is; false when it is not there.
    pub fn remove(&mut self, table: &Table<T>, at: Ref<T>) -> bool {
        if self.first() == Some(at) {
            self.pop_first();
            return true;
        }
        let Some(index) = self.chunk_for(table, at) else { return false };
        let refs = &mut self.chunks[index].refs;
        // Reading each reference is cheaper than reading a few items.
        let Some(position) = refs.iter().position(|&other| other == at) else { return false };
        refs.remove(position);
        self.len -= 1;
        self.settle(index);
        self.join_if_sparse(index);
        true
    }

    /// The references at and behind a key, from the lowest up.
    pub fn iter_from(
        &self,
        table: &Table<T>,
        prefix: u64,
        key: &T::Key,
    ) -> impl Iterator<Item = Ref<T>> + use<'_, T> {
        let (index, position) = self.place_of(table, prefix, key);
        let refs = self.chunks.range(index..).flat_map(|chunk| &chunk.refs);
        refs.copied().skip(position)
    }

    /// The references below a key, from the highest down.
    pub fn iter_below(
        &self,
        table: &Table<T>,
        prefix: u64,
        key: &T::Key,
    ) -> impl Iterator<Item = Ref<T>> + use<'_, T> {
        let (index, position) = self.place_of(table, prefix, key);
        let own = self.chunks.get(index).map(|chunk| chunk.refs.range(..position));
        let lower = self.chunks.range(..index).flat_map(|chunk| &chunk.refs);
        lower.chain(own.into_iter().flatten()).rev().copied()
    }

    /// The chunk of a key, and how many of its references lie below the key.
    fn place_of(&self, table: &Table<T>, prefix: u64, key: &T::Key) -> (usize, usize) {
        match self.chunks_not_above(table, prefix, key).checked_sub(1) {
            Some(index) => (index, self.position_in(index, table, key)),
            None => (0, 0),
        }
    }

    fn push_only(&mut self, prefix: u64, at: Ref<T>) {
        if self.chunks.is_empty() {
            // Most queues never need a second chunk.
            self.chunks.reserve_exact(1);
            self.chunks.push_back(OrderedChunk { floor: prefix, refs: VecDeque::new() });
        }
        self.chunks[0].floor = prefix;
        self.chunks[0].refs.push_back(at);
    }

    fn push_last(&mut self, prefix: u64, at: Ref<T>) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.refs.len() < CHUNK_MAX => chunk.refs.push_back(at),
            _ => {
                let mut chunk = OrderedChunk::with_room(prefix);
                chunk.refs.push_back(at);
                self.chunks.push_back(chunk);
            }
        }
    }

    fn push_first(&mut self, prefix: u64, at: Ref<T>, first_prefix: u64) {
        match self.chunks.front_mut() {
            Some(chunk) if chunk.refs.len() < CHUNK_MAX => {
                chunk.floor = prefix;
                chunk.refs.push_front(at);
            }
            _ => {
                // What was popped may have left the floor below the new key.
                self.chunks[0].floor = first_prefix;
                let mut chunk = OrderedChunk::with_room(prefix);
                chunk.refs.push_back(at);
                self.chunks.push_front(chunk);
            }
        }
    }

    fn insert_between(&mut self, table: &Table<T>, at: Ref<T>) {
        let mut index = self.chunk_for(table, at).expect("a first reference has a chunk");
        let key = table[at].key();
        let mut position = self.position_in(index, table, &key);
        if self.chunks[index].refs.len() == CHUNK_MAX {
            let next_len = self.chunks.get(index + 1).map(|chunk| chunk.refs.len());
            if next_len == Some(CHUNK_MAX) {
                self.halve(index, table);
                if position > CHUNK_MAX / 2 {
                    (index, position) = (index + 1, position - CHUNK_MAX / 2);
                }
            } else if position == CHUNK_MAX {
                self.push_to_next(index, table, at);
                return;
            } else {
                let refs = &mut self.chunks[index].refs;
                let spilled = refs.pop_back().expect("a full chunk has a last reference");
                self.push_to_next(index, table, spilled);
            }
        }
        self.chunks[index].refs.insert(position, at);
    }

    /// Puts a reference in front of the chunk behind `index`. Jobs of one millisecond
    /// come in no order: were a full chunk always halved, a growing queue would leave
    /// only half-empty ones.
    fn push_to_next(&mut self, index: usize, table: &Table<T>, at: Ref<T>) {
        let prefix = table[at].key_prefix();
        if index + 1 == self.chunks.len() {
            self.chunks.push_back(OrderedChunk::with_room(prefix));
        }
        let next = &mut self.chunks[index + 1];
        next.floor = prefix;
        next.refs.push_front(at);
    }

    /// Splits a full chunk in two.
    fn halve(&mut self, index: usize, table: &Table<T>) {
        let refs = &mut self.chunks[index].refs;
        let mut upper = OrderedChunk::with_room(table[refs[CHUNK_MAX / 2]].key_prefix());
        upper.refs.extend(refs.drain(CHUNK_MAX / 2..));
        self.chunks.insert(index + 1, upper);
    }

    /// How many references of a chunk lie below `key`.
    fn position_in(&self, index: usize, table: &Table<T>, key: &T::Key) -> usize {
        self.chunks[index].refs.partition_point(|&other| table[other].key() < *key)
    }

    /// The last chunk that does not lie above the item's key. Floors decide; only where
    /// the prefixes are equal the key of a chunk's first item is read.
    fn chunk_for(&self, table: &Table<T>, at: Ref<T>) -> Option<usize> {
        let count = self.chunks_not_above(table, table[at].key_prefix(), &table[at].key());
        if self.is_empty() { None } else { Some(count.saturating_sub(1)) }
    }

    fn chunks_not_above(&self, table: &Table<T>, prefix: u64, key: &T::Key) -> usize {
        self.chunks.partition_point(|chunk| {
            chunk.floor < prefix
                || chunk.floor == prefix
                    && chunk.refs.front().is_some_and(|&first| table[first].key() <= *key)
        })
    }
}

fn give_back<E>(deque: &mut VecDeque<E>) {
    if deque.capacity() > SMALL_CAPACITY && deque.len() * SPARSE <= deque.capacity() {
        // Growing by doubles, a chunk ends at its maximum.
        deque.shrink_to((deque.len() * 2).next_power_of_two());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Copy, Debug)]
    struct ListItem(u64, u32);

    impl Ordered for ListItem {
        type Key = (u64, u32);
        fn key(&self) -> (u64, u32) {
            (self.0, self.1)
        }
        fn key_prefix(&self) -> u64 {
            self.0
        }
    }

    fn add(
        order: &mut OrderedRefs<ListItem>,
        table: &mut Table<ListItem>,
        item: ListItem,
    ) -> Ref<ListItem> {
        let at = table.insert(item);
        order.insert(table, at);
        at
    }

    fn check_invariants(order: &OrderedRefs<ListItem>, table: &Table<ListItem>) {
        let mut below = None;
        for chunk in &order.chunks {
            assert!(!chunk.refs.is_empty() || order.chunks.len() == 1);
            assert!(chunk.refs.len() <= CHUNK_MAX);
            assert!(below.is_none_or(|(prefix, _)| prefix <= chunk.floor));
            for &at in &chunk.refs {
                assert!(chunk.floor <= table[at].key_prefix());
                assert!(below < Some(table[at].key()));
                below = Some(table[at].key());
            }
        }
        let len: usize = order.chunks.iter().map(|chunk| chunk.refs.len()).sum();
        assert_eq!(len, order.len());
    }

    #[test]
    fn a_queue_of_four_stays_small() {
        let (mut order, mut table) = (OrderedRefs::new(), Table::new());
        assert_eq!(order.chunks.capacity(), 0);
        for i in 0..4 {
            add(&mut order, &mut table, ListItem(i, 0));
        }
        assert!(size_of_val(&order) <= 40);
        assert_eq!(order.chunks.capacity(), 1);
        assert_eq!(order.chunks[0].refs.capacity(), 4);
    }

    #[test]
    fn a_drained_queue_gives_its_memory_back() {
        let (mut order, mut table) = (OrderedRefs::new(), Table::new());
        for i in 0..100_000 {
            add(&mut order, &mut table, ListItem(i, 0));
        }
        while order.pop_first().is_some() {}
        assert!(order.chunks.capacity() <= SMALL_CAPACITY);
        assert!(order.chunks.len() <= 1);
        assert!(order.chunks[0].refs.capacity() <= SMALL_CAPACITY);
        assert_eq!((order.first(), order.last()), (None, None));
    }

    #[test]
    fn appended_chunks_are_full_and_sparse_ones_join() {
        let (mut order, mut table) = (OrderedRefs::new(), Table::new());
        let refs: Vec<_> =
            (0..25_600).map(|i| add(&mut order, &mut table, ListItem(i, 0))).collect();
        assert_eq!(order.chunks.len(), 100);
        for (i, &at) in refs.iter().enumerate().filter(|(i, _)| i % 8 != 0) {
            assert!(order.remove(&table, at), "{i}");
        }
        check_invariants(&order, &table);
        assert!(order.chunks.len() <= 50);
        assert!(order.iter().eq(refs.iter().copied().step_by(8)));
    }

    #[test]
    fn chunks_fill_although_items_of_one_prefix_come_in_no_order() {
        let (mut order, mut table) = (OrderedRefs::new(), Table::new());
        for i in 0..10_000_u32 {
            add(&mut order, &mut table, ListItem(u64::from(i / 10), i.wrapping_mul(0x9e37_79b9)));
        }
        check_invariants(&order, &table);
        assert!(order.chunks.len() < 50);
        assert!(order.chunks.iter().all(|chunk| chunk.refs.capacity() <= CHUNK_MAX));
    }

    #[test]
    fn both_ends_and_the_middle_take_items_of_one_prefix() {
        let (mut order, mut table) = (OrderedRefs::new(), Table::new());
        let odd: Vec<u32> = (0..5000).map(|i| 2 * i + 1).collect();
        for &i in &odd {
            add(&mut order, &mut table, ListItem(7, i));
        }
        for &i in odd.iter().rev() {
            add(&mut order, &mut table, ListItem(7, i - 1));
            add(&mut order, &mut table, ListItem(6, i));
        }
        check_invariants(&order, &table);
        assert_eq!(order.len(), 15_000);
        let absent = table.insert(ListItem(7, 20_000));
        assert!(!order.remove(&table, absent));
        let mut backwards: Vec<_> = order.iter().rev().collect();
        backwards.reverse();
        assert!(order.iter().eq(backwards));
    }

    #[test]
    fn a_chunk_put_in_front_of_one_with_a_stale_floor_keeps_the_order() {
        let (mut order, mut table) = (OrderedRefs::new(), Table::new());
        for i in 0..CHUNK_MAX as u64 {
            add(&mut order, &mut table, ListItem(10 * i, 0));
        }
        order.pop_first();
        add(&mut order, &mut table, ListItem(15, 0));
        add(&mut order, &mut table, ListItem(5, 0));
        check_invariants(&order, &table);
        let seven = add(&mut order, &mut table, ListItem(7, 0));
        assert_eq!(order.iter().nth(1), Some(seven));
        check_invariants(&order, &table);
    }

    #[derive(Clone, Debug)]
    enum ListStep {
        Insert { items: Vec<(u64, u32)> },
        Append { amount: u64 },
        Remove { from: usize, stride: usize, amount: usize },
        PopFirst { amount: usize },
    }

    fn step() -> impl Strategy<Value = ListStep> {
        prop_oneof![
            prop::collection::vec((0..20_u64, any::<u32>()), 0..300)
                .prop_map(|items| ListStep::Insert { items }),
            (0..400_u64).prop_map(|amount| ListStep::Append { amount }),
            (any::<usize>(), 1..9_usize, 0..400_usize)
                .prop_map(|(from, stride, amount)| ListStep::Remove { from, stride, amount }),
            (0..300_usize).prop_map(|amount| ListStep::PopFirst { amount }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn behaves_like_a_sorted_set(steps in prop::collection::vec(step(), 1..30)) {
            let (mut order, mut table) = (OrderedRefs::new(), Table::new());
            let mut model: BTreeSet<(u64, u32, Ref<ListItem>)> = BTreeSet::new();
            let mut serial = 0;
            for step in steps {
                match step {
                    ListStep::Insert { items } => for (prefix, rest) in items {
                        if model.iter().any(|&(p, r, _)| (p, r) == (prefix, rest)) {
                            continue;
                        }
                        let at = add(&mut order, &mut table, ListItem(prefix, rest));
                        model.insert((prefix, rest, at));
                    }
                    ListStep::Append { amount } => for _ in 0..amount {
                        serial += 1;
                        let at = add(&mut order, &mut table, ListItem(100 + serial / 300, serial as u32));
                        model.insert((100 + serial / 300, serial as u32, at));
                    }
                    ListStep::Remove { from, stride, amount } => {
                        let skip = from % model.len().max(1);
                        let chosen: Vec<_> =
                            model.iter().skip(skip).step_by(stride).take(amount).copied().collect();
                        for entry in chosen {
                            prop_assert!(order.remove(&table, entry.2));
                            prop_assert!(!order.remove(&table, entry.2));
                            model.remove(&entry);
                            table.remove(entry.2);
                        }
                    }
                    ListStep::PopFirst { amount } => for _ in 0..amount {
                        let popped = order.pop_first();
                        prop_assert_eq!(popped, model.pop_first().map(|(_, _, at)| at));
                        popped.map(|at| table.remove(at));
                    }
                }
                check_invariants(&order, &table);
                prop_assert!(order.iter().eq(model.iter().map(|&(_, _, at)| at)));
                prop_assert!(order.iter().rev().eq(model.iter().rev().map(|&(_, _, at)| at)));
                prop_assert_eq!(order.first(), model.first().map(|&(_, _, at)| at));
                prop_assert_eq!(order.last(), model.last().map(|&(_, _, at)| at));
                for (prefix, rest) in [(0, 0), (10, 1 << 31), (19, 7), (101, 150), (u64::MAX, 0)] {
                    let is_below = |item: &&(u64, u32, _)| (item.0, item.1) < (prefix, rest);
                    let (lower, upper): (Vec<_>, Vec<_>) = model.iter().partition(is_below);
                    let from = order.iter_from(&table, prefix, &(prefix, rest));
                    prop_assert!(from.eq(upper.iter().map(|&&(_, _, at)| at)));
                    let below = order.iter_below(&table, prefix, &(prefix, rest));
                    prop_assert!(below.eq(lower.iter().rev().map(|&&(_, _, at)| at)));
                }
            }
        }
    }
}
