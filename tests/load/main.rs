//! DNS servers side by side, over sockets: ours, its peers, and an echo that shows what the kernel costs. Figures are
//! printed and written; nothing fails because of one. `docs/benchmarks.md` says how to read them.
//!
//! The program is also some of the servers (`echo`, `hickory`, `forward-to`), so that each has a process of its own.

#![allow(clippy::print_stdout)]

#[cfg(target_os = "linux")]
mod arguments;
#[cfg(target_os = "linux")]
mod sets;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
mod page;
#[cfg(target_os = "linux")]
mod hickory;
#[cfg(target_os = "linux")]
mod caches;
#[cfg(target_os = "linux")]
mod encrypted;
#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
mod pressure;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(target_os = "linux")]
mod workers;

#[cfg(target_os = "linux")]
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

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("The servers are compared on Linux only: processor times come from /proc.");
}
