//! One ClusterDNS as all of its objects see it: the resource that it was read from, and how they are called, labelled and owned.

use crds::ClusterDNS;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;

use super::in_pods::InPods;
use super::ports::{self, Port};
use crate::decide::plan::Plan;
use crate::names;
use crate::observe::observed::Observed;
use crate::settings::Settings;

/// One ClusterDNS as all of its objects see it.
pub(super) struct Instance<'a> {
    pub(super) dns: &'a ClusterDNS,
    pub(super) in_pods: InPods,
    pub(super) observed: &'a Observed,
    pub(super) plan: &'a Plan,
    pub(super) settings: &'a Settings,
    /// `spec.service` with its defaults.
    pub(super) service: crds::v1alpha1::Service,
    /// metadata.name of the ClusterDNS.
    pub(super) name: String,
    /// Name of every child but the Service.
    pub(super) child: String,
}

impl Instance<'_> {
    /// `spec.service.namespace`: every namespaced object is made there.
    pub(super) fn namespace(&self) -> &str {
        &self.service.namespace
    }

    /// Every port of the pods of its template.
    pub(super) fn ports(&self) -> Vec<Port> {
        ports::of_pods(&self.dns.spec, &self.in_pods.listeners)
    }

    /// Metadata of a child with a namespace.
    pub(super) fn metadata(&self) -> ObjectMeta {
        self.called(&self.child, Some(self.namespace()))
    }

    /// Metadata of a child without a namespace.
    pub(super) fn cluster_metadata(&self) -> ObjectMeta {
        self.called(&self.child, None)
    }

    /// Metadata of a child with a name of its own.
    pub(super) fn called(&self, name: &str, namespace: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            labels: Some(names::labels(&self.name)),
            owner_references: self.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    /// Deleting the ClusterDNS deletes its children. Offline there is no uid, so what is printed has no owner.
    fn owner(&self) -> Option<OwnerReference> {
        Some(OwnerReference {
            api_version: ClusterDNS::api_version(&()).into_owned(),
            kind: ClusterDNS::kind(&()).into_owned(),
            name: self.name.clone(),
            uid: self.dns.metadata.uid.clone()?,
            controller: Some(true),
            block_owner_deletion: Some(true),
        })
    }

    /// Our pods, by our own key only: selectors never change.
    pub(super) fn selector(&self) -> LabelSelector {
        LabelSelector { match_labels: Some(names::selector(&self.name)), match_expressions: None }
    }
}
