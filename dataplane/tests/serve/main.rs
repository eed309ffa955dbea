//! The listening side over real sockets: one Service of our own, and an upstream that answers when it is released.

#[path = "../shared/missing.rs"]
mod missing;
mod harness;
mod udp;
mod waiters;
mod edits;
mod tcp;
mod crowd;
mod tls;
mod https;
mod changes;
mod misuse;
mod moved;
mod cached;
mod quic;
mod descriptors;
mod foreign;
mod pressure;
mod stop;
