//! What of a spec keeps pods off a node.

/// What of `spec.placement` keeps our pods off a node: the first that does, in the order in which nodes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    /// It does not have the labels of `nodeSelector`, or `kubernetes.io/os: linux`.
    NodeSelector,
    /// No required term of `affinity.nodeAffinity` matches it.
    NodeAffinity,
    /// It has a taint with the effect `NoExecute` or `NoSchedule` that `tolerations` do not tolerate. Only where each node has a pod.
    Tolerations,
}

impl Misfit {
    /// The field of the spec.
    pub fn field(self) -> &'static str {
        match self {
            Misfit::NodeSelector => "spec.placement.nodeSelector",
            Misfit::NodeAffinity => "spec.placement.affinity.nodeAffinity",
            Misfit::Tolerations => "spec.placement.tolerations",
        }
    }
}
