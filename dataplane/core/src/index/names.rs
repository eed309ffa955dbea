//! Where the endpoint names of a slice are in its text. A name keeps its place while others come and go: rows point
//! to places, and every row whose place moves costs three trees.

#![allow(
    clippy::indexing_slicing,
    reason = "places that the index gave itself, in lists that it filled"
)]

use alloc::vec::Vec;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::push_label;
use crate::steps::step;

/// The names of one slice in wire form, each once.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The earlier text of the slice, then the new names.
    pub(super) text: Vec<u8>,
    /// The place of each name, in the order in which they were given.
    pub(super) places: Vec<usize>,
}

impl Names {
    /// Adds these names behind `old`, the present text of the slice. When less than half of that text is still in
    /// use, all names get new places. So unused text does not grow, and this cost is rare.
    pub(super) fn laid_out(names: &[&str], old: &[u8]) -> Names {
        let laid_out = Names::behind(names, old);
        match laid_out.in_use(old.len()) * 2 < old.len() {
            true => Names::behind(names, &[]),
            false => laid_out,
        }
    }

    fn behind(names: &[&str], old: &[u8]) -> Names {
        let mut text = old.to_vec();
        let mut places = Vec::with_capacity(names.len());
        let mut known = Known::default();
        // The name that comes next if the names have not changed.
        let mut expected = 0;
        let mut label = Vec::new();
        for name in names {
            step(1);
            label.clear();
            push_label(&mut label, name);
            let is_expected = !label.is_empty()
                && old.get(expected..).is_some_and(|rest| rest.starts_with(&label));
            let place = match is_expected {
                true => expected,
                false => known.place(&mut text, old.len(), &label),
            };
            if place < old.len() {
                expected = place + label.len();
            }
            places.push(place);
        }
        Names { text, places }
    }

    /// Octets of the old text that names use.
    fn in_use(&self, old: usize) -> usize {
        let mut places: Vec<usize> =
            self.places.iter().copied().filter(|place| *place < old).collect();
        places.sort_unstable();
        places.dedup();
        places.iter().map(|place| 1 + usize::from(self.text[*place])).sum()
    }
}

/// The places of a text by the label there. Read from the text when it is asked for the first time.
#[derive(Debug, Default)]
struct Known {
    places: HashTable<usize>,
    hasher: RandomState,
    is_read: bool,
}

impl Known {
    /// The place of this label; the end of the text if it is new. The first `old` octets are the earlier text.
    fn place(&mut self, text: &mut Vec<u8>, old: usize, label: &[u8]) -> usize {
        if !core::mem::replace(&mut self.is_read, true) {
            let mut at = 0;
            while at < old {
                step(1);
                self.keep(text, at);
                at += label_at(text, at).len();
            }
        }
        let hash = hash(&self.hasher, label);
        match self.places.find(hash, |place| label_at(text, *place) == label) {
            Some(place) => *place,
            None => {
                let place = text.len();
                text.extend_from_slice(label);
                self.keep(text, place);
                place
            }
        }
    }

    /// Keeps a place, unless an earlier one has the same label.
    fn keep(&mut self, text: &[u8], place: usize) {
        let (label, hasher) = (label_at(text, place), &self.hasher);
        let hash_of = |label: &[u8]| hash(hasher, label);
        if self.places.find(hash_of(label), |other| label_at(text, *other) == label).is_none() {
            self.places
                .insert_unique(hash_of(label), place, |other| hash_of(label_at(text, *other)));
        }
    }
}

fn hash(hasher: &RandomState, label: &[u8]) -> u64 {
    core::hash::BuildHasher::hash_one(hasher, label)
}

/// The label at this place, with the octet that says its length.
fn label_at(text: &[u8], place: usize) -> &[u8] {
    &text[place..=place + usize::from(text[place])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(names: &[&str]) -> Vec<u8> {
        Names::laid_out(names, &[]).text
    }

    #[test]
    fn l12_names_keep_their_places_while_others_come_go_and_move() {
        let old = text(&["one", "two", "three", "four"]);
        let rows: [(&[&str], &[usize]); 5] = [
            (&["one", "two", "three", "four"], &[0, 4, 8, 14]),
            (&["new", "two", "three", "four"], &[19, 4, 8, 14]),
            (&["two", "three", "four"], &[4, 8, 14]),
            (&["four", "one", "two", "three"], &[14, 0, 4, 8]),
            (&["one", "one", "new", "new", "three"], &[0, 0, 19, 19, 8]),
        ];
        for (names, places) in rows {
            let laid_out = Names::laid_out(names, &old);
            assert_eq!(laid_out.places, places, "{names:?}");
            assert!(laid_out.text.starts_with(&old), "{names:?}");
        }
    }

    #[test]
    fn l13_a_text_of_which_less_than_half_is_used_is_written_again() {
        let old = text(&["one", "two", "three", "four"]);
        for names in [&["three"][..], &["new", "other", "one"], &[]] {
            assert_eq!(Names::laid_out(names, &old).text, text(names));
        }
    }

    #[test]
    fn a_name_that_many_share_is_written_once() {
        assert_eq!(text(&["web", "web", "web", "db"]), b"\x03web\x02db");
    }
}
