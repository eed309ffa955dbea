//! How the object of an event of a list or a watch is kept, as far as there is room.

use kube::Resource;
use kube::runtime::watcher::Event;
use serde::Serialize;

use super::budget::{BudgetVerdict, Share};
use super::octets::octets;

/// How the object of this event is kept; it is made a stub if need be.
pub(super) fn admitted<K: Resource + Serialize>(
    event: &mut Event<K>,
    share: &mut Share,
    stub: Option<fn(&mut K)>,
    is_needed: impl Fn(&K) -> bool,
) -> BudgetVerdict {
    match event {
        Event::Init => {
            share.list();
            BudgetVerdict::Whole
        }
        Event::InitDone => {
            share.listed();
            BudgetVerdict::Whole
        }
        Event::Delete(object) => {
            share.remove(object.meta());
            BudgetVerdict::Whole
        }
        Event::Apply(object) | Event::InitApply(object) => {
            let whole = octets(object);
            match share.admit(object.meta(), whole, is_needed(object)) {
                true => BudgetVerdict::Whole,
                false => {
                    let stub = stub.map(|stub| {
                        stub(object);
                        octets(object)
                    });
                    share.admit_stub(object.meta(), whole, stub)
                }
            }
        }
    }
}
