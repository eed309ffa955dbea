//! Messages over TLS (RFC 7858 §3.3). The thread that has a query encrypts and sends it, so that it wakes no other one; a task
//! reads. `tokio-rustls` makes the handshake only: its streams belong to one task, which each query would have to wake.

use std::io::{self, Read};
use std::pin::pin;
use std::sync::Arc;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection::Connection;
use super::stream::{PREFIX, READ_REST_WITHIN, arrived};
use super::tls_session::TlsSession;

/// Octets that are read at once: replies of the usual size to all queries that one connection has.
const READ: usize = 8192;

/// Reads replies, until the connection breaks, brings a message that no query waits for, or is idle.
pub(super) async fn carry(connection: Arc<Connection>, tls: Arc<TlsSession>, tcp: Arc<TcpStream>) {
    let read = async {
        let (mut octets, mut plain) = (vec![0; READ], Vec::new());
        loop {
            let length = receive(&tcp, &mut octets).await?;
            let is_open = length > 0 && tls.decrypt(&octets[..length], &mut plain)?;
            if !deliver(&connection, &mut plain) || !is_open {
                return Ok::<(), io::Error>(());
            }
        }
    };
    // For any reason of the end, waiting queries are asked again on another connection.
    {
        let mut read = pin!(read);
        tokio::select! {
            biased;
            () = connection.end.cancelled() => {}
            () = connection.unused() => {}
            _ = &mut read => {}
            () = tls.unblock(&tcp) => {
                connection.server_left();
                let _ = timeout(READ_REST_WITHIN, read).await;
            }
        }
    }
    connection.close();
    // The last that holds the socket closes it.
    drop(tcp);
    tls.end();
}

/// Waits for octets; 0 at the end of the stream.
async fn receive(tcp: &TcpStream, octets: &mut [u8]) -> io::Result<usize> {
    loop {
        tcp.readable().await?;
        let mut some = None;
        let read = tcp.try_io(Interest::READABLE, || {
            let length = (&*SockRef::from(tcp)).read(octets)?;
            if length == 0 || length == octets.len() {
                return Ok(length);
            }
            // All that was there: the runtime waits for more, without a system call that finds nothing.
            some = Some(length);
            Err(io::ErrorKind::WouldBlock.into())
        });
        match (some, read) {
            (Some(length), _) | (None, Ok(length)) => return Ok(length),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            (None, Err(error)) => return Err(error),
        }
    }
}

/// Gives all whole messages to their queries; false if no query waits for one of them (FW54).
fn deliver(connection: &Arc<Connection>, plain: &mut Vec<u8>) -> bool {
    let mut at = 0;
    while let Some(message) = message_at(plain, at) {
        if !arrived(connection, message.to_vec()) {
            return false;
        }
        at += PREFIX + message.len();
    }
    plain.drain(..at);
    if plain.is_empty() && plain.capacity() > READ {
        // A long reply is rare, and connections are kept.
        *plain = Vec::new();
    }
    true
}

/// The message behind its length at this place, if all of it has come.
fn message_at(plain: &[u8], at: usize) -> Option<&[u8]> {
    let (length, rest) = plain.get(at..)?.split_first_chunk::<PREFIX>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests;
