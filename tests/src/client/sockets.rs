//! Asking over real sockets: a new socket for every question, so that no reply is taken for another.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How long a reply may take: far more than the 4 s of a forwarded query (FW24) on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The id of the question sent after one that must stay unanswered.
const SENTINEL_ID: [u8; 2] = [0x5e, 0x47];
/// `localhost. A`, which every configuration answers.
const SENTINEL: &[u8] =
    b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x09localhost\x00\x00\x01\x00\x01";

/// Asks over UDP; `None` is silence.
///
/// Silence is not waited for: where it is expected, a second question follows from the same socket, so through the
/// same worker, and its reply must be the first one.
///
/// # Errors
/// The socket fails, or an expected reply does not come.
pub fn ask_udp(server: SocketAddr, packet: &[u8], silence: bool) -> Result<Option<Vec<u8>>> {
    let socket = UdpSocket::bind((any_of_its_family(server), 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(packet)?;
    if silence {
        socket.send(&[&SENTINEL_ID, SENTINEL].concat())?;
    }
    let mut buffer = vec![0; 65_535];
    let length = socket.recv(&mut buffer).context("no reply over UDP")?;
    buffer.truncate(length);
    let is_sentinel = silence && buffer.starts_with(&SENTINEL_ID);
    Ok((!is_sentinel).then_some(buffer))
}

/// The system chooses our address when the socket is connected: loopback where the server is.
fn any_of_its_family(server: SocketAddr) -> IpAddr {
    match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Asks over a TCP connection of its own; `None` when the server closes it without a reply.
///
/// # Errors
/// The connection fails, or neither a reply nor the end of the stream comes.
pub fn ask_tcp(server: SocketAddr, packet: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut stream = connect(server)?;
    send(&mut stream, packet)?;
    receive(&mut stream)
}

/// A TCP connection for several questions.
///
/// # Errors
/// It cannot be made.
pub fn connect(server: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(server).context("cannot connect")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends one message with its length (RFC 1035 §4.2.2).
///
/// # Errors
/// The connection fails.
pub fn send(stream: &mut TcpStream, packet: &[u8]) -> Result<()> {
    let length = u16::try_from(packet.len())?.to_be_bytes();
    Ok(stream.write_all(&[&length, packet].concat())?)
}

/// The next message; `None` when the server has closed the connection.
///
/// # Errors
/// The stream ends in the middle of a message, or nothing comes.
pub fn receive(stream: &mut TcpStream) -> Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    let mut at = 0;
    while at < 2 {
        match stream.read(&mut length[at..]) {
            Ok(0) if at == 0 => return Ok(None),
            Ok(0) => bail!("the stream ends inside a length"),
            Ok(octets) => at += octets,
            // Closed with our octets unread.
            Err(error) if at == 0 && error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error).context("no reply over TCP"),
        }
    }
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).context("the stream ends inside a message")?;
    Ok(Some(message))
}
