//! A persistent slab: numbered places whose clone is cheap and shares everything unchanged, so
//! that readers keep one state while the writer makes the next.

#![allow(
    clippy::indexing_slicing,
    reason = "digits below the width of a node, places that a search found"
)]

use alloc::sync::Arc;

use crate::steps::step;

/// Children of one node. A change copies one node of each level. Each copied child increments a reference count
/// somewhere else in memory, and decrements it later. With narrow nodes, a change in a cluster of 100,000 Services
/// costs nearly the same as in a small one; readers have the upper levels in their cache anyway.
const WIDTH: usize = 8;
/// Levels of a tree, and the places of one.
const LEVELS: usize = 4;
const TREE: usize = WIDTH.pow(LEVELS as u32);

#[derive(Debug)]
struct Node<C>([Option<Arc<C>>; WIDTH]);

/// Four levels of nodes.
type Tree<T> = Node<Node<Node<Node<T>>>>;

impl<C> Clone for Node<C> {
    fn clone(&self) -> Self {
        Node(self.0.clone())
    }
}

impl<C> Node<C> {
    /// The child of a number, by its last digit.
    fn child(&self, number: usize) -> Option<&C> {
        self.0[number % WIDTH].as_deref()
    }

    fn place(&mut self, number: usize) -> &mut Option<Arc<C>> {
        &mut self.0[number % WIDTH]
    }

    /// Write access to a node, made if there is none.
    fn at(place: &mut Option<Arc<Node<C>>>) -> &mut Node<C> {
        Arc::make_mut(place.get_or_insert_with(|| Arc::new(Node([const { None }; WIDTH]))))
    }
}

/// Places numbered from 0; a change copies one path of nodes.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    trees: Arc<[Option<Arc<Tree<T>>>]>,
}

impl<T> Clone for Slots<T> {
    fn clone(&self) -> Self {
        Slots { trees: Arc::clone(&self.trees) }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { trees: Arc::default() }
    }
}

impl<T> Slots<T> {
    /// The entry at this place.
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        step(LEVELS);
        let slot = slot as usize;
        let tree = self.trees.get(slot / TREE)?.as_deref()?;
        let [hundreds, tens, ones] = digits(slot);
        tree.child(hundreds / WIDTH)?.child(hundreds)?.child(tens)?.child(ones)
    }

    /// The entries at several places, at most `N`, read as [`Buckets::leaves`](crate::trees::buckets::Buckets::leaves) reads.
    pub(crate) fn get_each<const N: usize>(&self, slots: &[u32]) -> [Option<&T>; N] {
        let mut trees = [None; N];
        for (tree, &slot) in trees.iter_mut().zip(slots) {
            *tree = self.trees.get(slot as usize / TREE).and_then(|tree| tree.as_deref());
        }
        let nodes = children(trees, slots, WIDTH * WIDTH * WIDTH);
        let nodes = children(nodes, slots, WIDTH * WIDTH);
        let nodes = children(nodes, slots, WIDTH);
        children(nodes, slots, 1)
    }

    /// Puts something at this place, or empties it.
    pub(crate) fn set(&mut self, slot: u32, value: Option<Arc<T>>) {
        match value {
            Some(value) => *self.place(slot) = Some(value),
            None => self.empty(slot),
        }
    }

    /// Empties a place, and drops the nodes that have nothing left.
    fn empty(&mut self, slot: u32) {
        let slot = slot as usize;
        if self.trees.get(slot / TREE).is_none_or(|tree| tree.is_none()) {
            return;
        }
        let [hundreds, tens, ones] = digits(slot);
        prune(&mut Arc::make_mut(&mut self.trees)[slot / TREE], |tree| {
            prune(tree.place(hundreds / WIDTH), |node| {
                prune(node.place(hundreds), |node| {
                    prune(node.place(tens), |node| *node.place(ones) = None);
                });
            });
        });
    }

    /// Write access to the entry at this place; copies it if a reader may still have it.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T>
    where
        T: Clone,
    {
        self.place(slot).as_mut().map(Arc::make_mut)
    }

    fn place(&mut self, slot: u32) -> &mut Option<Arc<T>> {
        step(LEVELS * WIDTH);
        let slot = slot as usize;
        if slot / TREE >= self.trees.len() {
            let more = (self.trees.len()..=slot / TREE).map(|_| None);
            self.trees = self.trees.iter().cloned().chain(more).collect();
        }
        let tree = Node::at(&mut Arc::make_mut(&mut self.trees)[slot / TREE]);
        let [hundreds, tens, ones] = digits(slot);
        let node = Node::at(tree.place(hundreds / WIDTH));
        Node::at(Node::at(node.place(hundreds)).place(tens)).place(ones)
    }
}

/// The children of several nodes, by the last digits of these numbers without those below `unit`.
#[inline(always)]
fn children<'t, C, const N: usize>(
    nodes: [Option<&'t Node<C>>; N],
    numbers: &[u32],
    unit: usize,
) -> [Option<&'t C>; N] {
    let mut found = [None; N];
    for ((child, node), &number) in found.iter_mut().zip(nodes).zip(numbers) {
        *child = node.and_then(|node| node.child(number as usize / unit));
    }
    found
}

/// Changes a node, if there is one, and drops it if it has no child left.
fn prune<C>(place: &mut Option<Arc<Node<C>>>, change: impl FnOnce(&mut Node<C>)) {
    if let Some(node) = place {
        let node = Arc::make_mut(node);
        change(node);
        if node.0.iter().all(Option::is_none) {
            *place = None;
        }
    }
}

/// A number, and without its last one and two digits.
fn digits(slot: usize) -> [usize; 3] {
    [slot / (WIDTH * WIDTH), slot / WIDTH, slot]
}

/// Hands out places, lowest free number of those returned first, so that the slab stays dense.
#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    next: u32,
    free: alloc::collections::BTreeSet<u32>,
}

impl FreeSlots {
    /// The lowest place that is free.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// All places in use are below this.
    pub(crate) fn bound(&self) -> u32 {
        self.next
    }

    /// Gives a place back. Free places above all that are in use are not remembered.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.insert(slot);
        while let Some(last) = self.next.checked_sub(1)
            && self.free.remove(&last)
        {
            self.next = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_its_state() {
        let mut slots = Slots::default();
        for slot in [0, 7, 8, 63, 64, 511, 512, 4095, 4096, 9000] {
            slots.set(slot, Some(Arc::new(slot)));
        }
        let before = slots.clone();
        *slots.get_mut(64).unwrap() = 7;
        slots.set(4096, None);
        assert_eq!(before.get(64), Some(&64));
        assert_eq!(before.get(4096), Some(&4096));
        assert_eq!(slots.get(64), Some(&7));
        assert_eq!(slots.get(4096), None);
        assert_eq!(slots.get(511), Some(&511));
        assert_eq!(slots.get(9000), Some(&9000));
        assert_eq!(slots.get(1_000_000), None);
    }

    #[test]
    fn several_places_are_read_at_once_as_one_by_one() {
        let mut slots = Slots::default();
        for slot in [0, 7, 64, 511, 4096, 9000] {
            slots.set(slot, Some(Arc::new(slot)));
        }
        let asked = [9000, 0, 1, 64, 4096, 1_000_000, u32::MAX, 7];
        let found = slots.get_each::<8>(&asked);
        assert_eq!(found, asked.map(|slot| slots.get(slot)));
        assert_eq!(slots.get_each::<8>(&asked[..2])[1..3], [Some(&0), None]);
    }

    #[test]
    fn free_places_are_used_again() {
        let mut free = FreeSlots::default();
        assert_eq!([free.take(), free.take(), free.take()], [0, 1, 2]);
        free.give_back(1);
        free.give_back(0);
        assert_eq!([free.take(), free.take(), free.take()], [0, 1, 3]);
    }

    #[test]
    fn l13_places_above_those_in_use_are_not_remembered() {
        let mut free = FreeSlots::default();
        for slot in 0..100 {
            assert_eq!(free.take(), slot);
        }
        for slot in [99, 50, 97, 98] {
            free.give_back(slot);
        }
        assert_eq!((free.bound(), free.free.len()), (97, 1));
    }
}
