//! Messages over a stream of octets, each behind its length (RFC 1035 §4.2.2): TCP.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::connection::{Connection, MAX_QUERIES, Message};
use super::outlet::Query;
use crate::forward::now;

/// Octets of the length before each message.
pub(super) const PREFIX: usize = 2;
/// Octets that are read at once: several replies of the usual size.
const READ: usize = 4096;
/// Where a write fails: the runtime may not have heard yet of replies that came before.
pub(super) const READ_REST_WITHIN: Duration = Duration::from_millis(100);

/// Carries queries out and replies in, until the connection breaks, brings a message that no query waits for, or is
/// idle.
pub(super) async fn carry(
    connection: Arc<Connection>,
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    mut queries: mpsc::Receiver<Query>,
) {
    let (reader, mut writer) = tokio::io::split(io);
    let mut reader = BufReader::with_capacity(READ, reader);
    let write = async {
        let mut taken = Vec::with_capacity(MAX_QUERIES);
        let mut octets = Vec::new();
        while queries.recv_many(&mut taken, MAX_QUERIES).await > 0 {
            // Together: one system call.
            octets.clear();
            for query in taken.drain(..) {
                octets.extend((query.octets.len() as u16).to_be_bytes());
                octets.extend(query.octets);
            }
            writer.write_all(&octets).await?;
            writer.flush().await?;
        }
        Ok::<(), io::Error>(())
    };
    let mut read = pin!(async {
        loop {
            let mut prefix = [0; PREFIX];
            reader.read_exact(&mut prefix).await?;
            let mut octets = vec![0; u16::from_be_bytes(prefix).into()];
            reader.read_exact(&mut octets).await?;
            if !arrived(&connection, octets) {
                return Ok::<(), io::Error>(());
            }
        }
    });
    // For any reason of the end, waiting queries are asked again on another connection.
    tokio::select! {
        biased;
        () = connection.end.cancelled() => {}
        () = connection.unused() => {}
        _ = &mut read => {}
        _ = write => {
            connection.server_left();
            let _ = timeout(READ_REST_WITHIN, read).await;
        }
    }
    connection.close();
}

/// False if no query waits for the id of this message (FW54).
pub(super) fn arrived(connection: &Arc<Connection>, octets: Vec<u8>) -> bool {
    let Some(id) = octets.first_chunk().map(|id| u16::from_be_bytes(*id)) else { return false };
    let is_expected = connection.answered(id, Ok(Message { octets, age_s: 0 }), now());
    if !is_expected {
        // We end it: that says nothing about how many queries its server answers.
        connection.retire();
    }
    is_expected
}
