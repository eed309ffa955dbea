//! Where an entry is cannot be guessed: who chooses names that meet in one place makes each look there slow.

use super::*;

#[test]
fn two_caches_have_other_places_for_one_key() {
    let of = |cache: &Cache| cache.hash(ROUTE, &key("a.example"));
    assert_ne!(of(&Cache::default()), of(&Cache::default()));
}
