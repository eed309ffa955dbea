//! What the kernel says of the memory of a socket.

use std::mem;
use std::os::fd::{AsFd, AsRawFd};

/// Datagrams the kernel dropped because the queue of this socket was full, or which were damaged. The kernel counts in 32
/// bits; 0 where it does not report them.
///
/// Asked for when the number is read, so that no datagram has to carry it (as with SO_RXQ_OVFL, which
/// moreover reports only with the next datagram that gets through).
pub fn datagrams_dropped(socket: &impl AsFd) -> u64 {
    word(socket, libc::SK_MEMINFO_DROPS).into()
}

/// Octets of memory that the kernel holds for what this stream has sent, or is to send, and its peer has not confirmed; with
/// its own overhead.
pub fn octets_to_send(stream: &impl AsFd) -> usize {
    word(stream, libc::SK_MEMINFO_WMEM_QUEUED) as usize
}

/// Octets of datagrams that have not left this socket, and for how many the kernel has room, both with its own overhead; 0
/// where it does not report them.
pub(super) fn held_of_room(socket: &impl AsFd) -> (usize, usize) {
    let words = words(socket);
    let word = |place: libc::c_int| words[place as usize] as usize;
    (word(libc::SK_MEMINFO_WMEM_ALLOC), word(libc::SK_MEMINFO_SNDBUF))
}

/// One of the numbers of `SO_MEMINFO`; 0 where the kernel does not report it.
fn word(socket: &impl AsFd, place: libc::c_int) -> u32 {
    words(socket)[place as usize]
}

fn words(socket: &impl AsFd) -> [u32; 16] {
    let mut words = [0u32; 16];
    let mut octets = mem::size_of_val(&words) as libc::socklen_t;
    // SAFETY: the pointers are to `words` and its length in octets; the kernel writes at most that.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            (&raw mut words).cast(),
            &raw mut octets,
        )
    };
    if status == 0 { words } else { [0; 16] }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_a_stream_has_to_send_is_what_its_peer_has_not_confirmed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let client = client.expect("a socket");
        client.set_recv_buffer_size(1).expect("a small one");
        client.connect(&listener.local_addr().expect("bound").into()).expect("connected");
        let (mut stream, _) = listener.accept().expect("accepted");
        assert_eq!(octets_to_send(&stream), 0);
        stream.write_all(&[0; 16 << 10]).expect("the kernel takes it");
        assert!(octets_to_send(&stream) > 8 << 10, "its client reads nothing");
        TcpStream::from(client).read_exact(&mut [0; 16 << 10]).expect("all of it");
    }
}
