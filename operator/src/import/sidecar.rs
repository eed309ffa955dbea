//! The sidecar of kube-dns: its probes.

use crds::config::{MetricNames, ProbeType};
use crds::defaults::PROBE_SECONDS;
use crds::v1alpha1::Probe;

use super::Argument;
use super::draft::Draft;
use super::report::Outcome::{self, Changed, NotNeeded, NotPossible};
use super::values::name;

/// Converts the arguments of its container.
pub(super) fn convert(container: &str, arguments: &[Argument], draft: &mut Draft) {
    for argument in arguments {
        let text = argument.text.trim_start_matches('-');
        let (outcome, message) = match text.strip_prefix("probe=") {
            Some(written) => probe(written, draft),
            None => (NotNeeded, "the pods report their own health and metrics".to_owned()),
        };
        let what = format!("{container} {}", argument.text);
        draft.report.add(&argument.place, outcome, &what, message);
    }
}

/// `LABEL,SERVER,NAME[,SECONDS][,TYPE]`.
fn probe(written: &str, draft: &mut Draft) -> (Outcome, String) {
    let probe = match read(written) {
        Ok(probe) => probe,
        Err(why) => return (NotPossible, why),
    };
    let label = probe.label.clone();
    let change = |spec: &mut crds::ClusterDNSSpec| {
        let metrics = spec.metrics.get_or_insert_default();
        if !metrics.compatibility.contains(&MetricNames::KubeDNS) {
            metrics.compatibility.push(MetricNames::KubeDNS);
        }
        metrics.probes.get_or_insert_default().push(probe.clone());
    };
    match draft.change(change) {
        Ok(()) => (
            Changed,
            format!(
                "spec.metrics.probes: {label}, asked of the pod itself; with KubeDNS in spec.metrics.compatibility port 10054 \
                 shows it"
            ),
        ),
        Err(why) => (NotPossible, why),
    }
}

fn read(written: &str) -> Result<Probe, String> {
    let mut parts = written.split(',');
    let (Some(label), Some(_server), Some(asked)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err("it is not LABEL,SERVER,NAME, so the sidecar refuses it too".to_owned());
    };
    let mut probe = Probe {
        label: label.to_owned(),
        name: name(asked),
        // The sidecar asked for ANY where nothing is written.
        qtype: ProbeType::ANY,
        interval_seconds: PROBE_SECONDS,
    };
    for part in parts {
        match (part.parse(), part) {
            (Ok(seconds), _) => probe.interval_seconds = seconds,
            (Err(_), "A") => probe.qtype = ProbeType::A,
            (Err(_), "AAAA") => probe.qtype = ProbeType::AAAA,
            (Err(_), "SRV") => probe.qtype = ProbeType::SRV,
            (Err(_), "ANY") => probe.qtype = ProbeType::ANY,
            (Err(_), other) => return Err(format!("{other:?} is neither seconds nor a type")),
        }
    }
    Ok(probe)
}
