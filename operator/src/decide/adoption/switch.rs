//! When the selector of an adopted Service is changed, what is remembered of that, and who changed it back.
//!
//! The memory is in rollout.json: it must outlive a leader. A client that resets a Service may replace it with
//! every annotation on it, so the memory cannot be on the Service.

use std::time::Duration;

use crds::ClusterDNS;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Service;

use super::{Standing, is_annotated, may_switch, standing};
use crate::decide::config_map;
use crate::decide::plan::{SelectorPatch, Switch};
use crate::names::FIELD_MANAGER;
use crate::observe::observed::Observed;

/// After the first reset; doubled after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(60);
/// Longest wait between two switches of the selector.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
/// Time without a reset after which the next one counts as the first.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(4 * 3_600);

/// The patch that is due now.
pub(super) fn patch(
    dns: &ClusterDNS,
    observed: &Observed,
    service: &Service,
    now: Timestamp,
) -> Option<SelectorPatch> {
    let is_switched = standing(dns, Some(service)) == Standing::Switched;
    if is_switched && is_annotated(service, dns) {
        return None;
    }
    let waits = until(&noticed(dns, observed, service, now), now).is_some_and(|until| now < until);
    // The key is there and the annotation is not: to add the annotation changes nothing for clients.
    let is_due = !waits && (is_switched || may_switch(dns, observed, service));
    is_due.then(|| super::patch(service, true))
}

/// The state to remember after this decision: part of rollout.json.
pub fn remember(dns: &ClusterDNS, observed: &Observed, now: Timestamp) -> Switch {
    let before = config_map::state(observed).switch;
    let adopt = dns.spec.service.clone().unwrap_or_default().adopt;
    let Some(service) = observed.service.as_ref().filter(|_| adopt) else {
        return Switch::default();
    };
    match standing(dns, Some(service)) {
        Standing::Own => Switch::default(),
        Standing::Switched if is_annotated(service, dns) => {
            let kept = Switch { is_made: true, patched_version: String::new(), ..before };
            let last = kept.reset_at.parse::<Timestamp>().ok();
            match last {
                // A sum would panic where the text has a time of the year 9999.
                Some(last) if now.duration_since(last) < signed(FORGOTTEN_AFTER) => kept,
                Some(_) | None => Switch { is_made: true, ..Switch::default() },
            }
        }
        Standing::Switched | Standing::Foreign => {
            let mut noticed = noticed(dns, observed, service, now);
            if let Some(patch) = patch(dns, observed, service, now) {
                noticed.is_made = true;
                noticed.patched_version = patch.resource_version;
            }
            noticed
        }
    }
}

/// Our key is not in the selector, or the annotation is not there: were both there before?
fn noticed(dns: &ClusterDNS, observed: &Observed, service: &Service, now: Timestamp) -> Switch {
    let before = config_map::state(observed).switch;
    let patched = Some(&before.patched_version).filter(|version| !version.is_empty());
    if patched.is_some() && patched == observed.conflict.as_ref() {
        return Switch { is_made: false, patched_version: String::new(), ..before };
    }
    let was_never_applied =
        patched.is_some() && patched == service.metadata.resource_version.as_ref();
    // If the memory is lost, the annotation shows it too.
    let is_first_sight = before.resets == 0 && is_annotated(service, dns);
    if (before.is_made && !was_never_applied) || is_first_sight {
        return Switch {
            is_made: false,
            patched_version: String::new(),
            resets: before.resets.saturating_add(1),
            reset_at: now.to_string(),
        };
    }
    before
}

/// No patch before this time; `None`: no wait. A time that is too far from now, which a wrong clock wrote, is ignored.
fn until(switch: &Switch, now: Timestamp) -> Option<Timestamp> {
    let last: Timestamp = switch.reset_at.parse().ok()?;
    if last > now + signed(LONGEST_WAIT) {
        return None;
    }
    let doublings = switch.resets.checked_sub(1)?.min(16);
    let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    Some(last + signed(wait))
}

/// Another client removed our key from the selector: its field manager, if known, and when the key is added again.
pub fn reset_by(
    dns: &ClusterDNS,
    observed: &Observed,
    now: Timestamp,
) -> Option<(String, Option<Timestamp>)> {
    let service = observed.service.as_ref()?;
    if !dns.spec.service.clone().unwrap_or_default().adopt
        || standing(dns, Some(service)) != Standing::Foreign
    {
        return None;
    }
    let noticed = noticed(dns, observed, service, now);
    if noticed.resets == 0 {
        return None;
    }
    Some((manager_of_selector(service), until(&noticed, now)))
}

/// Who wrote the selector last.
fn manager_of_selector(service: &Service) -> String {
    let entries = service.metadata.managed_fields.iter().flatten();
    let owners = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields.pointer("/f:spec/f:selector").is_some())
            && entry.manager.as_deref() != Some(FIELD_MANAGER)
    });
    let last = owners.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    last.and_then(|entry| entry.manager.clone()).unwrap_or_else(|| "unknown".to_owned())
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::from_secs(duration.as_secs().try_into().unwrap_or(i64::MAX))
}
