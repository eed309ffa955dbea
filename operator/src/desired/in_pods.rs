//! What of the configuration is in the pod template, because a running pod cannot take it: ports and Secrets of listeners, and
//! whether the pod knows where its node is.
//!
//! A pod that starts reads the document that all pods run, and another one may be on trial beside it. So the template has what
//! the former needs until the latter is promoted; pods are replaced then, and start with it. What only the latter has harms no
//! pod, and is there before its trial. Otherwise pods would be replaced first, with the new port and the Secret of the new
//! document, and start with the old document, which has neither.

use crds::Config;
use crds::config::{Federation, HttpsListener, Listeners, TlsListener};

use crate::decide::plan::RolloutPlan;

/// What of the configuration is in the pod template.
#[derive(Debug, Default)]
pub(super) struct InPods {
    /// Each as the document has it that all pods run; one that only the spec has, as the spec has it.
    pub(super) listeners: Listeners,
    /// Whether a federation leads to the zone or region of the pod's node (RR97), whose labels Kubernetes copies to the pod
    /// from version 1.35 on; before, both variables are empty.
    pub(super) needs_location: bool,
}

impl InPods {
    /// `config` is what the spec asks for.
    pub(super) fn of(config: &Config, rollout: &RolloutPlan) -> InPods {
        let is_promoted = rollout.state.stable == rollout.desired_revision;
        let before = Some(&rollout.stable).filter(|_| !is_promoted);
        let before = before.and_then(|text| Config::from_json(text).ok());
        let needs_location = leads_to_own_place(config);
        match before {
            None => InPods { listeners: config.listeners.clone(), needs_location },
            Some((before, _)) => InPods {
                listeners: with_added(&before.listeners, &config.listeners),
                needs_location: needs_location || leads_to_own_place(&before),
            },
        }
    }
}

fn leads_to_own_place(config: &Config) -> bool {
    config.federations.iter().any(Federation::needs_labels)
}

/// Those that are asked for and not there are added. One may get the port of one that is closed or moves: only when that is done.
fn with_added(before: &Listeners, asked: &Listeners) -> Listeners {
    let Listeners { tls, https, quic } = before;
    let is_taken = |port| {
        let taken = [tls.as_ref().map(|it| it.port), https.as_ref().map(|it| it.port)];
        taken.contains(&Some(port))
    };
    let added_tls = asked.tls.as_ref().filter(|it: &&TlsListener| !is_taken(it.port));
    let added_https = asked.https.as_ref().filter(|it: &&HttpsListener| !is_taken(it.port));
    Listeners {
        tls: tls.as_ref().or(added_tls).cloned(),
        https: https.as_ref().or(added_https).cloned(),
        quic: quic.as_ref().or(asked.quic.as_ref()).cloned(),
    }
}
