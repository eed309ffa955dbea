//! Each reconcile of a ClusterDNS fails, so a change of it may have no effect. Pure.

/// The reason of `Degraded`, and of the Event.
pub const REASON: &str = "ReconcileFailed";

/// The text of the Event. It does not say why: each text is an Event, and the reason may change with each reconcile.
pub const EVENT: &str = "each reconcile of this ClusterDNS fails, so a change of it may have no effect, and pods continue as they are: the \
                         condition Degraded says why";

/// It meets an error each time.
pub fn of_error(why: &str) -> String {
    format!(
        "each reconcile of this ClusterDNS fails, so a change of it may have no effect, and pods continue as they are: {why}. The \
         operator tries again; see whether the API server is well, and the way to it"
    )
}

/// It panics each time.
pub fn of_defect(why: &str) -> String {
    format!(
        "a defect of the operator ({}) ends each reconcile of this ClusterDNS, so a change of it may have no effect, and pods \
         continue as they are: {why}. Undo the last change of this ClusterDNS, or use another version of the operator, and report \
         the defect with the log of the operator",
        env!("CARGO_PKG_VERSION")
    )
}
