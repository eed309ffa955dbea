//! Threads that give way on the processor to those that answer clients over UDP and TCP.

/// Their nice value: beside one thread that needs all of a processor, each of them still gets a quarter of it, so lookups
/// continue.
const NICE: i32 = 5;

/// Called by a thread when it starts to run lookups, handshakes, snapshots, pages or a log: threads that answer clients do not wait for
/// its turn (L3). Where the system refuses this they wait longer, and all works.
pub fn give_way() {
    if let Err(error) = dataplane_udp::give_way(NICE) {
        tracing::debug!(%error, "this thread has the usual priority");
    }
}
