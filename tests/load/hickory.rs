//! hickory-server with the records of the fixture in memory, as a server to compare with: a catalog of two zones, on one
//! thread.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use hickory_proto::rr::{Name, RecordSet, RecordType, RrKey};
use hickory_proto::serialize::txt::Parser;
use hickory_server::Server;
use hickory_server::net::runtime::TokioRuntimeProvider;
use hickory_server::store::in_memory::InMemoryZoneHandler;
use hickory_server::zone_handler::{AxfrPolicy, Catalog, ZoneHandler, ZoneType};
use tests::load::fixture::{REVERSE_ZONE, ZONE};

const TCP_IDLE: Duration = Duration::from_secs(30);
const TCP_RESPONSE_BUFFER: usize = 64;

/// Serves forever.
///
/// # Errors
/// A zone file cannot be read, or the address is taken.
pub(crate) async fn serve(dns: SocketAddr, zone: &Path, reverse: &Path) -> anyhow::Result<()> {
    let mut catalog = Catalog::new();
    for (origin, file) in [(ZONE, zone), (REVERSE_ZONE, reverse)] {
        let origin = Name::from_ascii(format!("{origin}."))?;
        let handler: Arc<dyn ZoneHandler> = Arc::new(read(&origin, file)?);
        catalog.upsert(origin.into(), vec![handler]);
    }
    let mut server = Server::new(catalog);
    server.register_socket(tokio::net::UdpSocket::bind(dns).await?);
    let listener = tokio::net::TcpListener::bind(dns).await?;
    server.register_listener(listener, TCP_IDLE, TCP_RESPONSE_BUFFER);
    server.block_until_done().await.context("hickory-server ended")
}

fn read(origin: &Name, file: &Path) -> anyhow::Result<InMemoryZoneHandler<TokioRuntimeProvider>> {
    let text = std::fs::read_to_string(file)?;
    let parser = Parser::new(text, Some(file.to_owned()), Some(origin.clone()));
    let (_, records): (_, BTreeMap<RrKey, RecordSet>) = parser.parse()?;
    let soa = RrKey::new(origin.into(), RecordType::SOA);
    anyhow::ensure!(records.contains_key(&soa), "{origin} has no SOA record");
    InMemoryZoneHandler::new(origin.clone(), records, ZoneType::Primary, AxfrPolicy::Deny)
        .map_err(|error| anyhow!(error))
}
