//! The listening side over real sockets: one Service of our own, and an upstream that answers when it is released.

mod crowd;
mod descriptors;
mod foreign;
mod harness;
mod https;
mod quic;
mod stop;
mod tcp;
mod tls;
mod udp;
