//! A persistent slab: numbered places whose clone is cheap and shares everything unchanged, so
//! that readers keep one state while the writer makes the next.

use std::sync::Arc;

/// Children of one node; 64 keeps a copied node at 512 octets.
const WIDTH: usize = 64;

#[derive(Debug)]
struct Leaf<T>([Option<Arc<T>>; WIDTH]);

#[derive(Debug)]
struct Branch<T>([Option<Arc<Leaf<T>>>; WIDTH]);

impl<T> Clone for Leaf<T> {
    fn clone(&self) -> Self {
        Leaf(self.0.clone())
    }
}

impl<T> Clone for Branch<T> {
    fn clone(&self) -> Self {
        Branch(self.0.clone())
    }
}

/// Places numbered from 0; a change copies one path of at most two nodes.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    root: Vec<Option<Arc<Branch<T>>>>,
}

impl<T> Clone for Slots<T> {
    fn clone(&self) -> Self {
        Slots { root: self.root.clone() }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { root: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// What lies at this place.
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let slot = slot as usize;
        let branch = self.root.get(slot / (WIDTH * WIDTH))?.as_ref()?;
        let leaf = branch.0[slot / WIDTH % WIDTH].as_ref()?;
        leaf.0[slot % WIDTH].as_deref()
    }

    /// Puts something at this place, or empties it.
    pub(crate) fn set(&mut self, slot: u32, value: Option<Arc<T>>) {
        *self.place(slot) = value;
    }

    /// Write access to what lies at this place; copies it if a reader may still hold it.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T>
    where
        T: Clone,
    {
        self.place(slot).as_mut().map(Arc::make_mut)
    }

    fn place(&mut self, slot: u32) -> &mut Option<Arc<T>> {
        let slot = slot as usize;
        let top = slot / (WIDTH * WIDTH);
        if top >= self.root.len() {
            self.root.resize(top + 1, None);
        }
        let branch =
            self.root[top].get_or_insert_with(|| Arc::new(Branch([const { None }; WIDTH])));
        let branch = Arc::make_mut(branch);
        let leaf = branch.0[slot / WIDTH % WIDTH]
            .get_or_insert_with(|| Arc::new(Leaf([const { None }; WIDTH])));
        &mut Arc::make_mut(leaf).0[slot % WIDTH]
    }
}

/// Hands out places, lowest free number of those returned first, so that the slab stays dense.
#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    next: u32,
    free: std::collections::BTreeSet<u32>,
}

impl FreeSlots {
    /// A place nobody has.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// All places handed out so far are below this.
    pub(crate) fn bound(&self) -> u32 {
        self.next
    }

    /// Gives a place back.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.insert(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_its_state() {
        let mut slots = Slots::default();
        for slot in [0, 63, 64, 4095, 4096, 9000] {
            slots.set(slot, Some(Arc::new(slot)));
        }
        let before = slots.clone();
        *slots.get_mut(64).unwrap() = 7;
        slots.set(4096, None);
        assert_eq!(before.get(64), Some(&64));
        assert_eq!(before.get(4096), Some(&4096));
        assert_eq!(slots.get(64), Some(&7));
        assert_eq!(slots.get(4096), None);
        assert_eq!(slots.get(9000), Some(&9000));
        assert_eq!(slots.get(1_000_000), None);
    }

    #[test]
    fn free_places_are_used_again() {
        let mut free = FreeSlots::default();
        assert_eq!([free.take(), free.take(), free.take()], [0, 1, 2]);
        free.give_back(2);
        free.give_back(0);
        assert_eq!([free.take(), free.take(), free.take()], [0, 2, 3]);
    }
}
