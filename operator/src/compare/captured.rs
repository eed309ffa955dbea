//! Questions that clients asked, from a file: our query log, a log of CoreDNS, a capture (pcap, pcapng) or a dnstap file.
//! What a file is follows from its first octets. One that is broken ends with what was read before that. Pure.

mod cursor;
mod dnstap;
mod found;
mod lines;
mod pcap;
mod pcapng;

pub(super) use found::Captured;

/// Reads a capture; its first octets say whether it is pcap, pcapng, dnstap or lines of text.
pub(super) fn read(octets: &[u8]) -> Captured {
    let mut captured = Captured::default();
    let ended = match octets.first_chunk::<4>() {
        Some(magic) if pcap::Form::of(*magic).is_some() => pcap::read(octets, &mut captured),
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => pcapng::read(octets, &mut captured),
        // Frame Streams begin with a control frame: an empty length.
        Some([0, 0, 0, 0]) => dnstap::read(octets, &mut captured),
        Some(_) | None => {
            lines::read(octets, &mut captured);
            Ok(())
        }
    };
    captured.broken = ended.err();
    captured
}

#[cfg(test)]
mod tests;
