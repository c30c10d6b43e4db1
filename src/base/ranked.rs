//! References in the order of a rank and, within it, of a key: the order of a queue.
//!
//! There is one [`OrderedRefs`] a rank, so that whoever comes last of its rank is appended,
//! and the first of all is at hand. Most queues hold jobs of the *common* rank only: they have the
//! one sequence, and nothing of the others but a null pointer.

use super::ordered::{Ordered, OrderedRefs};
use super::table::{Ref, Table};

/// Ranks are 0, the first, up to this less one.
pub const RANKS: usize = 7;

/// What can be in [`RankedRefs`]. Neither the rank nor the key of an item may change while it is.
pub trait Ranked: Ordered {
    /// The rank of most items, which cost no more than without ranks.
    const COMMON: usize;

    /// Below [`RANKS`].
    fn rank(&self) -> usize;
}

/// References by their items' ranks and keys; see the module's text.
pub struct RankedRefs<T> {
    common: OrderedRefs<T>,
    /// Those of other ranks, once there was one.
    others: Option<Box<Others<T>>>,
}

/// The sequences of all ranks; that of the common one stays empty.
struct Others<T> {
    by_rank: [OrderedRefs<T>; RANKS],
    len: usize,
}

impl<T> Default for RankedRefs<T> {
    fn default() -> Self {
        Self { common: OrderedRefs::new(), others: None }
    }
}

impl<T> RankedRefs<T> {
    pub fn len(&self) -> usize {
        self.common.len() + self.others.as_ref().map_or(0, |others| others.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Ranked> RankedRefs<T> {
    /// Adds a reference by its item's rank and key.
    pub fn insert(&mut self, table: &Table<T>, at: Ref<T>) {
        let rank = table[at].rank();
        if rank == T::COMMON {
            self.common.insert(table, at);
        } else {
            let others = self.others.get_or_insert_with(|| {
                Box::new(Others { by_rank: core::array::from_fn(|_| OrderedRefs::new()), len: 0 })
            });
            others.by_rank[rank].insert(table, at);
            others.len += 1;
        }
    }

    /// Takes out a reference, wherever it is; false when it is not there.
    pub fn remove(&mut self, table: &Table<T>, at: Ref<T>) -> bool {
        let rank = table[at].rank();
        if rank == T::COMMON {
            return self.common.remove(table, at);
        }
        let Some(others) = &mut self.others else { return false };
        let was_there = others.by_rank[rank].remove(table, at);
        others.len -= usize::from(was_there);
        was_there
    }

    /// Takes out the first reference. Does not touch its item.
    pub fn pop_first(&mut self) -> Option<Ref<T>> {
        let Some(others) = self.others.as_mut().filter(|others| others.len > 0) else {
            return self.common.pop_first();
        };
        let better = others.by_rank[..T::COMMON].iter().position(|refs| !refs.is_empty());
        if better.is_none() && !self.common.is_empty() {
            return self.common.pop_first();
        }
        let rank = better.or_else(|| others.by_rank.iter().position(|refs| !refs.is_empty()))?;
        others.len -= 1;
        others.by_rank[rank].pop_first()
    }

    /// The rank of the reference that has so many in front of it.
    pub fn rank_at(&self, position: usize) -> Option<usize> {
        let mut end = 0;
        (0..RANKS).find(|rank| {
            end += self.of_rank(*rank).map_or(0, OrderedRefs::len);
            end > position
        })
    }

    /// How many references there are of a rank.
    pub fn len_of(&self, rank: usize) -> usize {
        self.of_rank(rank).map_or(0, OrderedRefs::len)
    }

    /// The first reference of each rank that there is, with the rank, and how many of it there
    /// are.
    pub fn firsts(&self) -> impl Iterator<Item = (usize, Ref<T>, usize)> + '_ {
        (0..RANKS).filter_map(|rank| {
            let refs = self.of_rank(rank)?;
            Some((rank, refs.first()?, refs.len()))
        })
    }

    /// All references in their order, from either end.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Ref<T>> + '_ {
        self.sequences(0..RANKS).flat_map(OrderedRefs::iter)
    }

    /// The references at and behind a rank and a key, in their order.
    pub fn iter_from<'a>(
        &'a self,
        table: &'a Table<T>,
        rank: usize,
        prefix: u64,
        key: &T::Key,
    ) -> impl Iterator<Item = Ref<T>> + use<'a, T> {
        let own = self.of_rank(rank).map(|refs| refs.iter_from(table, prefix, key));
        own.into_iter().flatten().chain(self.sequences(rank + 1..RANKS).flat_map(OrderedRefs::iter))
    }

    /// The references below a rank and a key, from the last of them back.
    pub fn iter_below<'a>(
        &'a self,
        table: &'a Table<T>,
        rank: usize,
        prefix: u64,
        key: &T::Key,
    ) -> impl Iterator<Item = Ref<T>> + use<'a, T> {
        let own = self.of_rank(rank).map(|refs| refs.iter_below(table, prefix, key));
        let better = self.sequences(0..rank).rev().flat_map(|refs| refs.iter().rev());
        own.into_iter().flatten().chain(better)
    }

    fn sequences(
        &self,
        ranks: core::ops::Range<usize>,
    ) -> impl DoubleEndedIterator<Item = &OrderedRefs<T>> + use<'_, T> {
        ranks.filter_map(|rank| self.of_rank(rank))
    }

    fn of_rank(&self, rank: usize) -> Option<&OrderedRefs<T>> {
        if rank == T::COMMON {
            Some(&self.common)
        } else {
            self.others.as_ref().and_then(|others| others.by_rank.get(rank))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Copy, Debug)]
    struct ListItem {
        rank: usize,
        key: (u64, u32),
    }

    impl Ordered for ListItem {
        type Key = (u64, u32);
        fn key(&self) -> (u64, u32) {
            self.key
        }
        fn key_prefix(&self) -> u64 {
            self.key.0
        }
    }

    impl Ranked for ListItem {
        const COMMON: usize = 3;
        fn rank(&self) -> usize {
            self.rank
        }
    }

    #[test]
    fn items_of_the_common_rank_alone_cost_nothing_more() {
        let (mut order, mut table) = (RankedRefs::default(), Table::new());
        for i in 0..1000 {
            let at = table.insert(ListItem { rank: 3, key: (i, 0) });
            order.insert(&table, at);
        }
        assert!(order.others.is_none());
        let one_pointer = size_of::<usize>();
        let order_len = size_of::<OrderedRefs<ListItem>>();
        assert_eq!(size_of::<RankedRefs<ListItem>>(), order_len + one_pointer);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Vec<(usize, u64, u32)>),
        Append { rank: usize, amount: u32 },
        Remove { from: usize, stride: usize, amount: usize },
        PopFirst(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop::collection::vec((0..RANKS, 0..20_u64, any::<u32>()), 0..200)
                .prop_map(Step::Insert),
            (0..RANKS, 0..400_u32).prop_map(|(rank, amount)| Step::Append { rank, amount }),
            (any::<usize>(), 1..9_usize, 0..400_usize)
                .prop_map(|(from, stride, amount)| Step::Remove { from, stride, amount }),
            (0..300_usize).prop_map(Step::PopFirst),
        ]
    }

    type Entry = (usize, (u64, u32), Ref<ListItem>);

    fn check(order: &RankedRefs<ListItem>, table: &Table<ListItem>, model: &BTreeSet<Entry>) {
        let refs: Vec<_> = model.iter().map(|entry| entry.2).collect();
        assert_eq!((order.len(), order.is_empty()), (refs.len(), refs.is_empty()));
        assert!(order.iter().eq(refs.iter().copied()));
        assert!(order.iter().rev().eq(refs.iter().rev().copied()));
        for position in [0, 1, 7, 100, refs.len().saturating_sub(1), refs.len()] {
            let rank = refs.get(position).map(|at| table[*at].rank);
            assert_eq!(order.rank_at(position), rank);
        }
        for rank in 0..RANKS {
            let count = model.iter().filter(|entry| entry.0 == rank).count();
            assert_eq!(order.len_of(rank), count);
            for key in [(0, 0), (10, 1 << 31), (101, 150), (u64::MAX, 0)] {
                let is_below = |entry: &&Entry| (entry.0, entry.1) < (rank, key);
                let (below, above): (Vec<&Entry>, Vec<_>) = model.iter().partition(is_below);
                let from = order.iter_from(table, rank, key.0, &key);
                assert!(from.eq(above.iter().map(|entry| entry.2)));
                let back = order.iter_below(table, rank, key.0, &key);
                assert!(back.eq(below.iter().rev().map(|entry| entry.2)));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn behaves_like_a_set_sorted_by_rank_and_key(steps in prop::collection::vec(step(), 1..30)) {
            let (mut order, mut table) = (RankedRefs::default(), Table::new());
            let mut model: BTreeSet<Entry> = BTreeSet::new();
            let mut serial = 0;
            let add = |order: &mut RankedRefs<_>, table: &mut Table<_>, model: &mut BTreeSet<_>, rank, key| {
                let at = table.insert(ListItem { rank, key });
                order.insert(table, at);
                model.insert((rank, key, at));
            };
            for step in steps {
                match step {
                    Step::Insert(items) => for (rank, prefix, rest) in items {
                        let key = (prefix, rest);
                        if !model.iter().any(|entry| (entry.0, entry.1) == (rank, key)) {
                            add(&mut order, &mut table, &mut model, rank, key);
                        }
                    }
                    Step::Append { rank, amount } => for _ in 0..amount {
                        serial += 1;
                        let key = (100 + u64::from(serial / 300), serial);
                        add(&mut order, &mut table, &mut model, rank, key);
                    }
                    Step::Remove { from, stride, amount } => {
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
                    Step::PopFirst(amount) => for _ in 0..amount {
                        let popped = order.pop_first();
                        prop_assert_eq!(popped, model.pop_first().map(|entry| entry.2));
                        popped.map(|at| table.remove(at));
                    }
                }
                check(&order, &table, &model);
            }
        }
    }
}
