//! The schedule of things to come: a hierarchical timing wheel with links inside of
//! the items, so that an item costs eight bytes and its place can be left at once.
//!
//! A tick is a millisecond. A point in time is read as eleven digits of base 64, one a
//! level. The wheel stands at `cursor`; an item waits on the level of the highest digit
//! in which its due time differs from the cursor, in the bucket of that digit. Hence
//! everything on a level is due before anything on the level above, buckets of a
//! level are due in order, and the next one is found by looking for the lowest bit of
//! the lowest level in use. When the cursor reaches a bucket above level 0, its items
//! move down one by one (the *cascade*), which may be interrupted after any of them.
//!
//! The lists are circular through their bucket, so a link is either a slot or, with
//! the upper bit set, the number of a bucket.
//!
//! Invariants: a bucket's bit is set exactly when its list is not empty; a bucket on
//! level 0 is the cursor's or a later one; one on a level above is a later one, or the
//! cursor's and then it is `cascading`.

use std::marker::PhantomData;

use super::table::{Ref, SLOTS_MAX, Table};
use super::time::MonoMs;

const DIGIT_BITS: u32 = 6;
const BUCKETS_PER_LEVEL: usize = 1 << DIGIT_BITS;
/// As many as a u64 has digits: no due time is too far.
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;

/// An item's neighbours in its bucket. Belongs to the wheel; an item only stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    prev: u32,
    next: u32,
}

impl Links {
    const NONE: u32 = u32::MAX;
    /// Set in a link to a bucket; slots are below it.
    const BUCKET: u32 = SLOTS_MAX;

    const fn to_self(bucket: usize) -> Self {
        let link = Self::BUCKET | bucket as u32;
        Self { prev: link, next: link }
    }
}

impl Default for Links {
    /// In no wheel.
    fn default() -> Self {
        Self { prev: Self::NONE, next: Self::NONE }
    }
}

/// What can wait in a [`Wheel`].
pub trait Scheduled {
    fn links(&self) -> Links;
    fn links_mut(&mut self) -> &mut Links;
    /// When the item is due. To change this for an item in the wheel, remove it,
    /// change, and insert it again.
    fn due_at(&self) -> MonoMs;
}

/// Items of a `Table<T>` by due time; see the module's text.
pub struct Wheel<T> {
    cursor: u64,
    buckets: Box<[Links; LEVELS * BUCKETS_PER_LEVEL]>,
    /// One bit a bucket, one word a level.
    occupied: [u64; LEVELS],
    /// The bucket that is being moved down, while it has items left.
    cascading: Option<usize>,
    len: usize,
    item: PhantomData<fn() -> T>,
}

impl<T: Scheduled> Wheel<T> {
    /// An empty wheel standing at `now`.
    pub fn new(now: MonoMs) -> Self {
        Self {
            cursor: now.0,
            buckets: Box::new(std::array::from_fn(Links::to_self)),
            occupied: [0; LEVELS],
            cascading: None,
            len: 0,
            item: PhantomData,
        }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the item is in the wheel.
    pub fn is_scheduled(item: &T) -> bool {
        item.links() != Links::default()
    }

    /// Schedules an item for its due time. One that is past is due at once, after what
    /// is due already in the same tick.
    pub fn insert(&mut self, table: &mut Table<T>, at: Ref<T>) {
        assert!(!Self::is_scheduled(&table[at]), "an item is in the wheel once");
        self.link(table, at);
        self.len += 1;
    }

    /// Takes an item out of the wheel, wherever it is; nothing happens when it is not
    /// there.
    pub fn remove(&mut self, table: &mut Table<T>, at: Ref<T>) {
        if Self::is_scheduled(&table[at]) {
            self.unlink(table, at);
            self.len -= 1;
        }
    }

    /// Takes out the next item that is due at `now`. Each item returned and each item
    /// moved down costs one of `budget`. `None` with budget left: nothing is due;
    /// `None` without: there may be more, call again.
    ///
    /// Items come by due time; those of the same tick in the order they were inserted,
    /// unless one was inserted in the middle of the cascade that brings the others.
    pub fn pop_due(
        &mut self,
        table: &mut Table<T>,
        now: MonoMs,
        budget: &mut usize,
    ) -> Option<Ref<T>> {
        while *budget > 0 {
            let Some((bucket, start)) = self.next_bucket().filter(|&(_, start)| start <= now.0)
            else {
                // No bucket starts in between, so every item stays on its level.
                self.cursor = self.cursor.max(now.0);
                return None;
            };
            self.cursor = start;
            *budget -= 1;
            let first = Ref::from_slot(self.buckets[bucket].next);
            if bucket < BUCKETS_PER_LEVEL {
                self.unlink(table, first);
                self.len -= 1;
                return Some(first);
            }
            self.cascading = Some(bucket);
            self.unlink(table, first);
            self.link(table, first);
        }
        None
    }

    /// When to call [`Self::pop_due`] next: not later than the first item is due, and
    /// earlier only when items have to move down before. For an item that was past
    /// when inserted it is a time that `pop_due` was called with already.
    pub fn next_at(&self) -> Option<MonoMs> {
        self.next_bucket().map(|(_, start)| MonoMs(start))
    }

    /// The bucket to empty next and the first tick it stands for.
    fn next_bucket(&self) -> Option<(usize, u64)> {
        if let Some(bucket) = self.cascading {
            return Some((bucket, self.cursor));
        }
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let digit = u64::from(self.occupied[level].trailing_zeros());
        let shift = level as u32 * DIGIT_BITS;
        let above = u64::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        let start = (self.cursor & above) | (digit << shift);
        Some((level * BUCKETS_PER_LEVEL + digit as usize, start))
    }

    /// The bucket for a due time, as seen from the cursor.
    fn bucket_for(&self, due: u64) -> usize {
        let due = due.max(self.cursor);
        // The lowest digit is level 0 even where nothing differs.
        let highest_bit = ((due ^ self.cursor) | 1).ilog2();
        let level = highest_bit / DIGIT_BITS;
        let digit = (due >> (level * DIGIT_BITS)) as usize % BUCKETS_PER_LEVEL;
        level as usize * BUCKETS_PER_LEVEL + digit
    }

    /// Appends an item to the bucket of its due time.
    fn link(&mut self, table: &mut Table<T>, at: Ref<T>) {
        let bucket = self.bucket_for(table[at].due_at().0);
        self.occupied[bucket / BUCKETS_PER_LEVEL] |= 1 << (bucket % BUCKETS_PER_LEVEL);
        let next = Links::BUCKET | bucket as u32;
        let prev = self.buckets[bucket].prev;
        *table[at].links_mut() = Links { prev, next };
        self.links_at(table, prev).next = at.slot();
        self.buckets[bucket].prev = at.slot();
    }

    /// Takes an item out of its list. Asks its links only: the due time may have
    /// changed since it was linked.
    fn unlink(&mut self, table: &mut Table<T>, at: Ref<T>) {
        let Links { prev, next } = std::mem::take(table[at].links_mut());
        self.links_at(table, prev).next = next;
        self.links_at(table, next).prev = prev;
        if prev == next && prev & Links::BUCKET != 0 {
            let bucket = (prev & !Links::BUCKET) as usize;
            self.occupied[bucket / BUCKETS_PER_LEVEL] &= !(1 << (bucket % BUCKETS_PER_LEVEL));
            if self.cascading == Some(bucket) {
                self.cascading = None;
            }
        }
    }

    fn links_at<'a>(&'a mut self, table: &'a mut Table<T>, link: u32) -> &'a mut Links {
        if link & Links::BUCKET == 0 {
            table[Ref::from_slot(link)].links_mut()
        } else {
            &mut self.buckets[(link & !Links::BUCKET) as usize]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    struct WheelItem {
        links: Links,
        due_at: MonoMs,
    }

    impl Scheduled for WheelItem {
        fn links(&self) -> Links {
            self.links
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.links
        }
        fn due_at(&self) -> MonoMs {
            self.due_at
        }
    }

    const YEAR_MS: u64 = 365 * 24 * 3600 * 1000;

    fn add(wheel: &mut Wheel<WheelItem>, table: &mut Table<WheelItem>, due: u64) -> Ref<WheelItem> {
        let at = table.insert(WheelItem { links: Links::default(), due_at: MonoMs(due) });
        wheel.insert(table, at);
        at
    }

    fn pop(
        wheel: &mut Wheel<WheelItem>,
        table: &mut Table<WheelItem>,
        now: u64,
    ) -> Option<Ref<WheelItem>> {
        wheel.pop_due(table, MonoMs(now), &mut usize::MAX.clone())
    }

    #[test]
    fn links_take_eight_bytes_and_say_whether_an_item_is_scheduled() {
        assert_eq!(size_of::<Links>(), 8);
        let (mut wheel, mut table) = (Wheel::new(MonoMs(5)), Table::new());
        let at = add(&mut wheel, &mut table, 10);
        assert!(Wheel::is_scheduled(&table[at]));
        wheel.remove(&mut table, at);
        assert!(!Wheel::is_scheduled(&table[at]));
        wheel.remove(&mut table, at);
        assert_eq!((wheel.len(), wheel.next_at()), (0, None));
    }

    #[test]
    fn items_come_by_due_time_and_then_in_insertion_order() {
        let (mut wheel, mut table) = (Wheel::new(MonoMs(1_000_000)), Table::new());
        let dues = [1_000_700, 1_000_001, 1_090_000, 1_000_001, 1_000_700, 1_000_000, 1_090_000];
        let refs = dues.map(|due| add(&mut wheel, &mut table, due));
        assert_eq!(pop(&mut wheel, &mut table, 1_000_000), Some(refs[5]));
        assert_eq!(pop(&mut wheel, &mut table, 1_000_000), None);
        for expected in [1, 3, 0, 4, 2, 6] {
            assert_eq!(pop(&mut wheel, &mut table, 2_000_000), Some(refs[expected]));
        }
        assert_eq!(pop(&mut wheel, &mut table, 2_000_000), None);
        assert!(wheel.is_empty());
    }

    #[test]
    fn an_item_already_past_is_due_at_once() {
        let (mut wheel, mut table) = (Wheel::new(MonoMs(0)), Table::new());
        assert_eq!(pop(&mut wheel, &mut table, 777_777), None);
        let at = add(&mut wheel, &mut table, 5);
        assert_eq!(wheel.next_at(), Some(MonoMs(777_777)));
        assert_eq!(pop(&mut wheel, &mut table, 777_777), Some(at));
    }

    #[test]
    fn never_is_never() {
        let (mut wheel, mut table) = (Wheel::new(MonoMs(1_000)), Table::new());
        let at = add(&mut wheel, &mut table, u64::MAX);
        assert!(wheel.next_at().is_some_and(|at| at.0 > 1_000_000 * YEAR_MS));
        assert_eq!(pop(&mut wheel, &mut table, 1_000_000 * YEAR_MS), None);
        wheel.remove(&mut table, at);
        assert_eq!(wheel.next_at(), None);
    }

    #[test]
    fn a_year_of_nothing_is_skipped_in_eleven_steps() {
        let (mut wheel, mut table) = (Wheel::new(MonoMs(12_345)), Table::new());
        let at = add(&mut wheel, &mut table, YEAR_MS);
        let mut budget = 1 + LEVELS;
        assert_eq!(wheel.pop_due(&mut table, MonoMs(2 * YEAR_MS), &mut budget), Some(at));
    }

    #[test]
    fn half_a_million_items_of_one_tick_come_one_by_one_in_order() {
        let (mut wheel, mut table) = (Wheel::new(MonoMs(0)), Table::new());
        for _ in 0..500_000 {
            add(&mut wheel, &mut table, 300_000);
        }
        let (mut next, mut calls) = (0, 0);
        while !wheel.is_empty() {
            let mut budget = 64;
            calls += 1;
            while let Some(at) = wheel.pop_due(&mut table, MonoMs(300_000), &mut budget) {
                assert_eq!(at.slot(), next);
                next += 1;
            }
        }
        assert_eq!(next, 500_000);
        assert!(calls <= 500_000 * LEVELS / 64);
    }

    #[test]
    fn an_emptied_cascade_is_over() {
        let (mut wheel, mut table) = (Wheel::new(MonoMs(0)), Table::new());
        let refs = [100, 101].map(|due| add(&mut wheel, &mut table, due));
        assert_eq!(wheel.pop_due(&mut table, MonoMs(90), &mut 1), None);
        assert_eq!(wheel.next_at(), Some(MonoMs(64)));
        wheel.remove(&mut table, refs[1]);
        assert_eq!(wheel.next_at(), Some(MonoMs(100)));
        assert_eq!(pop(&mut wheel, &mut table, 100), Some(refs[0]));
    }

    #[derive(Clone, Debug)]
    enum WheelStep {
        Insert { delay: u64 },
        Remove { pick: usize },
        Change { pick: usize, delay: u64 },
        Run { forward: u64, budget: usize },
    }

    /// Delays of every magnitude, many of them alike.
    fn delay() -> impl Strategy<Value = u64> {
        prop_oneof![
            4 => 0..4_u64,
            4 => 0..200_u64,
            3 => 4000..4200_u64,
            2 => 0..3_000_000_u64,
            1 => (0..64_u32).prop_map(|bits| 1 << bits),
            1 => Just(u64::MAX),
        ]
    }

    fn step() -> impl Strategy<Value = WheelStep> {
        prop_oneof![
            4 => delay().prop_map(|delay| WheelStep::Insert { delay }),
            1 => any::<usize>().prop_map(|pick| WheelStep::Remove { pick }),
            1 => (any::<usize>(), delay()).prop_map(|(pick, delay)| WheelStep::Change { pick, delay }),
            4 => (delay(), 0..6_usize).prop_map(|(forward, budget)| WheelStep::Run {
                forward: if forward > 1 << 40 { 1 } else { forward },
                budget,
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn behaves_like_a_sorted_map(
            start in prop_oneof![Just(0_u64), 0..1_000_000_u64, any::<u32>().prop_map(u64::from)],
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let (mut wheel, mut table) = (Wheel::new(MonoMs(start)), Table::new());
            let mut now = start;
            // Due times, with those past at insertion counted as due then.
            let mut model: BTreeMap<Ref<WheelItem>, u64> = BTreeMap::new();
            for step in steps {
                let picked = |pick: usize| model.keys().nth(pick % model.len().max(1)).copied();
                match step {
                    WheelStep::Insert { delay } => {
                        // Now and then in the past.
                        let due = now.saturating_add(delay).saturating_sub(2);
                        model.insert(add(&mut wheel, &mut table, due), due);
                    }
                    WheelStep::Remove { pick } => if let Some(at) = picked(pick) {
                        wheel.remove(&mut table, at);
                        prop_assert!(!Wheel::is_scheduled(&table[at]));
                        table.remove(at);
                        model.remove(&at);
                    }
                    WheelStep::Change { pick, delay } => if let Some(at) = picked(pick) {
                        let due = now.saturating_add(delay);
                        table[at].due_at = MonoMs(due);
                        wheel.remove(&mut table, at);
                        wheel.insert(&mut table, at);
                        model.insert(at, due);
                    }
                    WheelStep::Run { forward, mut budget } => {
                        now = now.saturating_add(forward);
                        let had = budget;
                        let mut popped = 0;
                        while let Some(at) = wheel.pop_due(&mut table, MonoMs(now), &mut budget) {
                            popped += 1;
                            let due = model.remove(&at).expect("only scheduled items are popped");
                            prop_assert!(due <= now);
                            prop_assert!(!Wheel::is_scheduled(&table[at]));
                            table.remove(at);
                        }
                        prop_assert!(popped <= had);
                        if budget > 0 {
                            prop_assert!(model.values().all(|&due| due > now));
                        }
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                let next = wheel.next_at();
                prop_assert_eq!(next.is_some(), !model.is_empty());
                if let (Some(next), Some(&first)) = (next, model.values().min()) {
                    prop_assert!(next.0 <= first.max(now), "{next:?} is later than {first}");
                }
            }
            // Sleeping from one requested time to the next ends, and brings everything in order.
            let (mut last, mut calls) = (0, 0);
            while let Some(next) = wheel.next_at() {
                now = now.max(next.0);
                calls += 1;
                prop_assert!(calls <= 5000, "the wheel does not run empty");
                let mut budget = 1;
                if let Some(at) = wheel.pop_due(&mut table, MonoMs(now), &mut budget) {
                    let due = model.remove(&at).expect("only scheduled items are popped");
                    prop_assert!(due <= now);
                    prop_assert!(due >= last || due < now);
                    last = last.max(due);
                }
            }
            prop_assert!(model.is_empty());
        }
    }
}
