//! One HTTP GET, for the pages of our programs: `/readyz`, `/metrics`, `/config`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// Generous: on a busy machine programs are slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// Status and body.
///
/// # Errors
/// It is not answered, or not with HTTP.
pub fn get(server: SocketAddr, path: &str) -> Result<(u16, String)> {
    ask(server, path, "HTTP/1.1")
}

/// The same from a program that would answer a request of HTTP/1.1 in chunks.
///
/// # Errors
/// It is not answered, or not with HTTP.
pub fn get_whole(server: SocketAddr, path: &str) -> Result<(u16, String)> {
    ask(server, path, "HTTP/1.0")
}

fn ask(server: SocketAddr, path: &str, version: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // The end of the reply is the end of the connection.
    write!(stream, "GET {path} {version}\r\nHost: {server}\r\nConnection: close\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").context("no head")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}

/// The value of a series on a page of metrics.
pub fn metric(page: &str, series: &str) -> Option<f64> {
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok())
}
