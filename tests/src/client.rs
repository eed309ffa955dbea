//! The DNS client of the tests: questions as people write them become messages, replies become
//! text as `dig` would print them.
//!
//! Questions are built octet by octet, because many of them must be wrong; replies are read by
//! hickory-proto, which so checks everything we write.

mod question;
mod sockets;
mod reply;
mod record;

pub use question::Question;
pub use reply::{Names, Section, Text, read};
pub use sockets::{ask_tcp, ask_udp, connect, receive, send};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}
