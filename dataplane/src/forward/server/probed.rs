//! What probes and replies show about a server: whether it is up, over what it answers, and in which form (FW25, FW27, FW28,
//! FW50).

use std::net::SocketAddr;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::datagrams::Shown;
use super::{Found, Heard, OptHeard, Server, ServerState, looping};
use crate::forward::plan::Transport;

impl ServerState {
    /// When the server must be asked in both forms next; none while it is.
    fn form_probe_at(&self) -> Option<Instant> {
        let due = [self.edns.probe_at(), self.datagrams.probe_at()].into_iter().flatten().min();
        due.filter(|_| !self.is_form_probing)
    }
}

impl Server {
    /// It answered a probe without OPT that it had refused with OPT (FW25).
    pub(in crate::forward) fn refused_edns(&self, now: Instant) {
        self.state().edns.refused(now);
    }

    /// The same of a query of a client: the next probe, which comes soon, says whether it does so with other names too.
    pub(in crate::forward) fn doubt_edns(&self, now: Instant) {
        let mut state = self.state();
        // Another one has shown it meanwhile.
        if !state.edns.is_used(now) {
            return;
        }
        state.edns.doubted();
        state.health.ask_for_probe();
        let is_due = state.health.probe_at(false, now).is_some_and(|at| at <= now);
        drop(state);
        if is_due {
            self.common.woken.notify_one();
        }
    }

    /// Takes what came of a query of a client, or of a probe like one, over this transport.
    pub(super) fn hear(
        &self,
        mut state: MutexGuard<'_, ServerState>,
        heard: Heard,
        over: Transport,
        now: Instant,
    ) {
        let before = state.health.is_down();
        let udp_before = state.datagrams.is_silent();
        state.health.heard(heard);
        match (over, heard) {
            (Transport::Udp, Heard::Nothing) => state.datagrams.was_silent(),
            (Transport::Udp, Heard::Good | Heard::Error) => state.datagrams.replied(),
            (Transport::Connection, Heard::Nothing) => {}
            (Transport::Connection, Heard::Good | Heard::Error) => {
                state.datagrams.replied_over_tcp(now);
                state.answers_tcp = true;
            }
        }
        let is_down = state.health.is_down();
        let udp_is_silent = state.datagrams.is_silent();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let wakes = is_due(state.health.probe_at(false, now)) || is_due(state.form_probe_at());
        drop(state);
        if wakes {
            self.common.woken.notify_one();
        }
        self.stands(before, is_down);
        self.udp_stands(udp_before, udp_is_silent);
    }

    /// When it must be probed next; `is_alone` where no server of its group is up (FW27).
    pub(in crate::forward) fn probe_at(&self, is_alone: bool, now: Instant) -> Option<Instant> {
        self.state().health.probe_at(is_alone, now)
    }

    /// A probe begins; whether it has an OPT record.
    pub(in crate::forward) fn probe(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.health.probe_started(now);
        state.edns.next_probe(now)
    }

    /// The probe could not be sent, which says nothing about the server.
    pub(in crate::forward) fn probe_unsent(&self, now: Instant) {
        self.state().health.probe_unsent(now);
    }

    /// What came of a probe of this form, and what the reply says of its OPT record.
    pub(in crate::forward) fn probed(
        &self,
        with_edns: bool,
        heard: Heard,
        opt: OptHeard,
        now: Instant,
    ) {
        let mut state = self.state();
        let (before, udp_before) = (state.health.is_down(), state.datagrams.is_silent());
        state.health.probe_ended(heard, now);
        match heard {
            Heard::Good | Heard::Error => {
                match opt {
                    OptHeard::Answered => state.edns.probe_answered(with_edns, now),
                    OptHeard::Refused => state.edns.probe_refused(now),
                    OptHeard::Unclear => state.edns.probe_said_nothing(),
                }
                state.datagrams.replied();
                state.window.replied(now);
                state.give_places();
            }
            Heard::Nothing => {
                self.count_failed_probe();
                self.silent_probes.fetch_add(1, Ordering::Relaxed);
                // Only of one that is down the next probe has the other form.
                if state.health.is_down() {
                    state.edns.probe_was_silent(with_edns, now);
                }
                // The next one may be due.
                self.common.woken.notify_one();
            }
        }
        let (is_down, udp_is_silent) = (state.health.is_down(), state.datagrams.is_silent());
        drop(state);
        self.stands(before, is_down);
        self.udp_stands(udp_before, udp_is_silent);
    }

    /// A probe got no reply over UDP, and this over TCP: the server is up.
    pub(in crate::forward) fn probed_over_tcp(&self, heard: Heard, now: Instant) {
        let mut state = self.state();
        let before = state.health.is_down();
        state.health.probe_ended(heard, now);
        state.edns.probe_said_nothing();
        state.datagrams.probe_replied_over_tcp(now);
        state.answers_tcp = true;
        state.window.replied(now);
        state.give_places();
        let is_down = state.health.is_down();
        drop(state);
        self.common.woken.notify_one();
        self.stands(before, is_down);
    }

    /// When it must be asked in both forms next, with an OPT record and without: its UDP is silent, or it was silent about that
    /// record (FW25, FW27).
    pub(in crate::forward) fn form_probe_at(&self) -> Option<Instant> {
        self.state().form_probe_at()
    }

    /// Such a probe begins.
    pub(in crate::forward) fn form_probe(&self) {
        self.state().is_form_probing = true;
    }

    #[cfg(test)]
    pub(in crate::forward) fn is_form_probing(&self) -> bool {
        self.state().is_form_probing
    }

    /// Which of the two forms got a reply. `None`: it could not be sent, or only wrong datagrams came.
    pub(in crate::forward) fn forms_probed(
        &self,
        with: Option<bool>,
        without: Option<bool>,
        now: Instant,
    ) {
        let mut state = self.state();
        state.is_form_probing = false;
        state.edns.forms_probed(with, without, now);
        let shown = match (with, without) {
            (Some(true), _) => Shown::Works,
            (_, Some(true)) if !state.edns.is_used(now) => Shown::Works,
            (Some(false), Some(true)) => Shown::Undecided,
            (Some(false), Some(false)) => Shown::Silence,
            (None, _) | (_, None) => Shown::Nothing,
        };
        let before = state.datagrams.is_silent();
        if self.transport() == Transport::Udp {
            state.datagrams.probed(shown, now);
        }
        let is_silent = state.datagrams.is_silent();
        drop(state);
        // The next one may be due.
        self.common.woken.notify_one();
        self.udp_stands(before, is_silent);
    }

    /// What came of a probe for a group in which it is failing. A reply is one as to a client's query.
    pub(in crate::forward) fn failing_probed(
        &self,
        with_edns: bool,
        heard: Heard,
        over: Transport,
        now: Instant,
    ) {
        if heard == Heard::Nothing {
            self.count_failed_probe();
            return;
        }
        let mut state = self.state();
        state.window.replied(now);
        state.give_places();
        if heard == Heard::Good && with_edns && over == self.transport() {
            state.edns.answered();
        }
        self.hear(state, heard, over, now);
    }

    /// See [`Loops::probe_at`].
    pub(in crate::forward) fn loop_probe_at(&self, replicas: u64, now: Instant) -> Option<Instant> {
        self.state().loops.probe_at(replicas, now)
    }

    /// A loop probe begins, with the number of our replicas in its name; whether it has an OPT record.
    pub(in crate::forward) fn loop_probe(&self, replicas: u64, now: Instant) -> bool {
        let mut state = self.state();
        state.loops.probe_started(replicas);
        state.edns.is_used(now)
    }

    /// What a loop probe found; see [`Loops::probe_ended`].
    pub(in crate::forward) fn loop_probed(&self, found: Found, now: Instant) {
        let mut state = self.state();
        let before = state.loops.looping_since().is_some();
        state.loops.probe_ended(found, now);
        let is_looping = state.loops.looping_since().is_some();
        drop(state);
        if before != is_looping {
            self.common.woken.notify_one();
        }
        let address = self.address();
        match (before, is_looping) {
            (false, true) => tracing::warn!("{}", looping(address)),
            (true, false) => tracing::info!("upstream {address} no longer leads back to us"),
            (false, false) | (true, true) => {}
        }
    }

    fn stands(&self, before: bool, is_down: bool) {
        if before == is_down {
            return;
        }
        let address = self.address();
        match is_down {
            true => tracing::warn!("upstream {address} is down: it does not answer"),
            false => tracing::info!("upstream {address} answers again"),
        }
        // Groups must check again whether one of their servers is up.
        self.common.woken.notify_one();
    }

    fn udp_stands(&self, before: bool, is_silent: bool) {
        let address = self.address();
        match (before, is_silent) {
            (false, true) => tracing::warn!("{}", silent_udp(address)),
            (true, false) => tracing::info!("upstream {address} answers over UDP again"),
            (false, false) | (true, true) => {}
        }
    }
}

/// The warning about a server whose UDP is silent (FW27).
pub(in crate::forward) fn silent_udp(address: SocketAddr) -> String {
    format!(
        "upstream {address} answers over TCP and not over UDP, so it is asked over TCP first: let UDP through to it, \
         or write transport: TCP"
    )
}
