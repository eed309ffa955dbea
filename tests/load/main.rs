//! DNS servers side by side, over sockets: ours, its peers, and an echo that shows what the kernel costs. Figures are
//! printed and written; nothing fails because of one. `docs/benchmarks.md` says how to read them.
//!
//! The program is also some of the servers (`echo`, `hickory`, `forward-to`), so that each has a process of its own.

#![allow(clippy::print_stdout)]

mod arguments;
mod sets;
mod measure;
mod page;
mod hickory;
mod caches;
mod encrypted;
mod crowd;
mod pressure;
mod watch;
mod workers;

fn main() -> anyhow::Result<()> {
    use arguments::{Arguments, Role};
    use clap::Parser;
    let arguments = Arguments::parse();
    match arguments.role {
        None => sets::run(&arguments.wanted),
        Some(Role::Echo { dns, workers }) => Ok(tests::load::echo::plain(dns, workers)?),
        Some(Role::EchoPktinfo { port }) => Ok(tests::load::echo::with_pktinfo(port)?),
        Some(Role::FillCache { mib, octets, names }) => caches::fill(mib, octets, names),
        Some(Role::ForwardTo { dns, upstream, over, authority }) => {
            encrypted::serve(dns, upstream, over, &authority)
        }
        Some(Role::Hickory { dns, zone, reverse }) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(hickory::serve(dns, &zone, &reverse))
        }
    }
}
