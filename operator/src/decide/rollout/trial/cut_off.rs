//! A pod that cannot read its configuration cannot try another one, which is no fault of that one.

use k8s_openapi::api::core::v1::Pod;

use crate::decide::plan::{Held, HeldBy};
use crate::observe::observed::{Observed, Reported};
use crate::observe::pods;

/// Time after which a watch that fails counts: one that ends is begun again within seconds.
const AFTER_S: u64 = 10;

/// Why this pod cannot take what it should try.
pub(super) fn cut_off(reported: &Reported) -> Option<Held> {
    let cut_off = reported.cut_off.as_ref().filter(|it| it.seconds >= AFTER_S)?;
    Some(HeldBy::CutOff.because(format!("it cannot read its configuration: {}", cut_off.why)))
}

/// True if nothing is known to keep this pod from what it should try.
pub(super) fn reads(pod: &Pod, observed: &Observed) -> bool {
    pods::reported(observed, pod).and_then(cut_off).is_none()
}

/// The pods that read what they should try; all of them where none does, so that the status says why nothing is tried.
pub(super) fn readers<'p>(all: Vec<&'p Pod>, observed: &Observed) -> Vec<&'p Pod> {
    let readers: Vec<&Pod> = all.iter().copied().filter(|pod| reads(pod, observed)).collect();
    if readers.is_empty() { all } else { readers }
}
