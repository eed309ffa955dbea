//! The listening side over real sockets: one Service of our own, and an upstream that answers when it is released.

mod crowd;
mod descriptors;
mod harness;
mod stop;
mod tcp;
mod tls;
mod udp;
