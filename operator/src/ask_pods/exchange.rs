//! One query to one server, over UDP or TCP, until a reply comes that who asks accepts. It does I/O only.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Longest datagram that is read: pods send at most 4,096 octets.
const MAX_DATAGRAM: usize = 4096;

/// What the server replies over UDP. Datagrams that are not accepted are not the reply: it waits for another one.
///
/// # Errors
/// The query cannot be sent, or the system says that nothing receives it.
pub async fn over_udp<T>(
    query: &[u8],
    server: SocketAddr,
    accept: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<T> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut datagram = [0; MAX_DATAGRAM];
    loop {
        let length = socket.recv(&mut datagram).await?;
        if let Some(reply) = accept(&datagram[..length]) {
            return Ok(reply);
        }
    }
}

/// What the server replies over TCP.
///
/// # Errors
/// The server is not reached, or breaks off; or the reply is not accepted, which is [`ErrorKind::InvalidData`].
pub async fn over_tcp<T>(
    query: &[u8],
    server: SocketAddr,
    accept: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<T> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(query.len()).map_err(io::Error::other)?.to_be_bytes();
    stream.write_all(&[&length[..], query].concat()).await?;
    let length = stream.read_u16().await?;
    let mut reply = vec![0; length.into()];
    stream.read_exact(&mut reply).await?;
    let stranger = || io::Error::new(ErrorKind::InvalidData, "a reply to something else");
    accept(&reply).ok_or_else(stranger)
}
