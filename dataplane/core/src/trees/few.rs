//! A short immutable list, stored in place: the length that nearly every Service has costs no second
//! access to memory; a longer list is on the heap.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;

/// At most `N` items in place, or any number elsewhere; read as a slice.
#[derive(Clone)]
pub(crate) enum Few<T, const N: usize> {
    /// Number of places of the array that are in use, from the first on.
    Here(u8, [T; N]),
    Elsewhere(Arc<[T]>),
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// The items; `blank` fills the places that are not read.
    pub(crate) fn new(items: &[T], blank: T) -> Self {
        if items.len() > N.min(u8::MAX as usize) {
            return Few::Elsewhere(items.into());
        }
        let mut here = [blank; N];
        here[..items.len()].copy_from_slice(items);
        Few::Here(items.len() as u8, here)
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Few::Here(count, items) => &items[..usize::from(*count)],
            Few::Elsewhere(items) => items,
        }
    }
}

impl<T: PartialEq, const N: usize> PartialEq for Few<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for Few<T, N> {}

impl<T: fmt::Debug, const N: usize> fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_the_same_wherever_it_lies() {
        for count in 0..6_u8 {
            let items: Vec<u8> = (1..=count).collect();
            let few = Few::<u8, 3>::new(&items, 0);
            assert_eq!(*few, *items);
            assert_eq!(matches!(few, Few::Elsewhere(_)), count > 3);
            assert_eq!(few, Few::new(&items, 9));
        }
    }
}
