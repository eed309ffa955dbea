//! The steps in which the TCP side ends. A connection of QUIC is no flow of TCP, which stays with its pod: kube-proxy moves its
//! datagrams to another pod as soon as this one counts as not serving. So it is closed earlier, while its client still hears it.

/// In their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    /// Connections of QUIC that are open close as they fall idle.
    Leaving,
    /// All connections do.
    Draining,
    /// The same, and no new ones.
    Stopping,
    /// Every connection is closed at once.
    Over,
}

impl Phase {
    /// Goes to this step, if it is a later one; whether it is.
    pub(super) fn advance(&mut self, to: Phase) -> bool {
        let is_later = *self < to;
        *self = to.max(*self);
        is_later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e45_no_step_of_the_end_is_taken_back() {
        let mut phase = Phase::Serving;
        let steps = [Phase::Leaving, Phase::Leaving, Phase::Draining, Phase::Leaving];
        assert_eq!(steps.map(|step| phase.advance(step)), [true, false, true, false]);
        assert_eq!(phase, Phase::Draining);
    }
}
