//! Connections by slot and generation.
//!
//! A slot is used again as soon as its connection is gone; the generation distinguishes the
//! two apart. Whoever still holds the old handle (an event of the same turn, a reply
//! on its way) finds nothing, never the next connection in that slot.

use slab::Slab;

pub struct Slots<T> {
    entries: Slab<Entry<T>>,
    next_generation: u32,
}

struct Entry<T> {
    generation: u32,
    value: T,
}

impl<T> Slots<T> {
    pub const fn new() -> Self {
        Self { entries: Slab::new(), next_generation: 0 }
    }

    /// Keeps what `make` builds out of the slot and generation it will have.
    pub fn insert_with<E>(&mut self, make: impl FnOnce(u32, u32) -> Result<T, E>) -> Result<(), E> {
        let vacant = self.entries.vacant_entry();
        let slot = u32::try_from(vacant.key()).expect("file descriptors are 31 bits");
        let generation = self.next_generation;
        vacant.insert(Entry { generation, value: make(slot, generation)? });
        self.next_generation = generation.wrapping_add(1);
        Ok(())
    }

    pub fn find(&self, slot: u32, generation: u32) -> Option<&T> {
        let entry = self.entries.get(slot as usize)?;
        (entry.generation == generation).then_some(&entry.value)
    }

    pub fn find_mut(&mut self, slot: u32, generation: u32) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot as usize)?;
        (entry.generation == generation).then_some(&mut entry.value)
    }

    pub fn remove(&mut self, slot: u32, generation: u32) -> Option<T> {
        self.find(slot, generation)?;
        Some(self.entries.remove(slot as usize).value)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The connections in slot order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| &entry.value)
    }

    /// As [`Slots::iter`], to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, entry)| &mut entry.value)
    }

    /// All slots in use are below this.
    pub fn slots_end(&self) -> usize {
        self.entries.capacity()
    }

    /// Whoever has that slot now.
    pub fn at_slot(&self, slot: usize) -> Option<&T> {
        self.entries.get(slot).map(|entry| &entry.value)
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_handle_never_finds_the_next_connection_of_its_slot() {
        let mut slots = Slots::new();
        let mut handles = Vec::new();
        for name in ["first", "second"] {
            let made: Result<(), ()> = slots.insert_with(|slot, generation| {
                handles.push((slot, generation));
                Ok(name)
            });
            made.expect("nothing fails");
            if name == "first" {
                let (slot, generation) = handles[0];
                assert_eq!(slots.remove(slot, generation), Some("first"));
            }
        }
        let [(slot, old), (same, new)] = handles[..] else { panic!("two were made") };
        assert_eq!(slot, same);
        assert_eq!((slots.find(slot, old), slots.find(slot, new)), (None, Some(&"second")));
        assert_eq!(slots.remove(slot, old), None);
    }

    #[test]
    fn what_could_not_be_made_takes_no_slot() {
        let mut slots: Slots<()> = Slots::new();
        assert_eq!(slots.insert_with(|_, _| Err("refused")), Err("refused"));
        assert!(slots.is_empty());
    }
}
