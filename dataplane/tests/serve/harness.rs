//! A server on loopback, clients that speak just enough DNS, and the scripted upstream.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crds::Config;
use crds::config::{
    Group, GroupOptions, Server, StubDomain, Transport, Upstreams as UpstreamsConfig,
};
use dataplane::forward::{Forwarder, Upstreams};
use dataplane::serve::{self, Limits, Listen, Serving};
use dataplane::settings;
use dataplane::state::{Published, State};
use dataplane_core::{
    Change, DataSource, Identity, Index, Key, Namespace, Object, Records, Resource, Service,
    ServiceKind,
};
use tokio::runtime::Runtime;

/// Far beyond what loopback needs: only a broken implementation waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The one name of ours: a ClusterIP Service, 10.96.10.1.
pub(crate) const OURS: &str = "cart.shop.svc.cluster.local";

/// A name that only the upstream knows.
pub(crate) const THEIRS: &str = "www.example.org";

/// A name of a stub domain, whose server answers at once.
pub(crate) const STUB: &str = "wiki.corp.example";

const A: u16 = 1;

/// The zone of loop probes, as a label.
const LOOP_ZONE: &[u8] = b"clusterdns-loop";

/// The servers, state and folders of one test.
pub(crate) struct House {
    pub(crate) serving: Serving,
    pub(crate) state: Arc<State>,
    pub(crate) forwarder: Arc<Forwarder>,
    pub(crate) upstream: Upstream,
    _stub: Upstream,
    pub(crate) runtime: Runtime,
}

impl House {
    /// Serves on these addresses with one worker each.
    pub(crate) fn on(listen: &[&str], limits: Limits) -> House {
        House::with(listen, limits, |_| {})
    }

    /// The same with another configuration.
    pub(crate) fn with(listen: &[&str], limits: Limits, change: impl FnOnce(&mut Config)) -> House {
        let listen: Vec<SocketAddr> = listen.iter().map(|text| text.parse().unwrap()).collect();
        let (upstream, stub) = (Upstream::start(), Upstream::start());
        stub.release();
        let mut config = config(upstream.address, stub.address);
        change(&mut config);
        let state = Arc::new(state(&config, listen.len()));
        let runtime = Runtime::new().unwrap();
        let (forwarder, handle) = (Forwarder::new(), runtime.handle().clone());
        let serving = Serving::start(
            &Listen::at(listen),
            1,
            state.clone(),
            forwarder.clone(),
            limits,
            handle,
        )
        .unwrap();
        House { serving, state, forwarder, upstream, _stub: stub, runtime }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.serving.local_addrs()[0]
    }

    /// Waits until something that happens in another thread has happened.
    pub(crate) fn until(&self, what: &str, happened: impl Fn(&House) -> bool) {
        let start = Instant::now();
        while !happened(self) {
            assert!(start.elapsed() < PATIENCE, "still not: {what}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A configuration with one default upstream, and another for `corp.example`.
pub(crate) fn config(upstream: SocketAddr, stub: SocketAddr) -> Config {
    let group = |address: SocketAddr| {
        let (ip, port) = (address.ip(), address.port());
        let server = Server { ip, port, transport: Transport::Udp, tls: None };
        Group { servers: vec![server], options: GroupOptions::default() }
    };
    Config {
        upstreams: UpstreamsConfig::Servers(group(upstream)),
        stub_domains: vec![StubDomain { domain: "corp.example".into(), group: group(stub) }],
        ..Config::default()
    }
}

/// The records of these objects.
pub(crate) fn records(config: &Config, objects: &[Object]) -> Arc<Records> {
    let mut index = Index::new(settings::of(config).unwrap());
    for resource in Resource::ALL {
        index.begin_list(resource);
        for object in objects.iter().filter(|object| object.resource() == resource) {
            index.apply(Change::Apply(object.clone()));
        }
        index.end_list(resource, 0, DataSource::Live);
    }
    index.publish(1_700_000_000);
    index.records()
}

fn state(config: &Config, addresses: usize) -> State {
    State {
        published: ArcSwap::from_pointee(Published {
            records: records(config, &objects()),
            upstreams: Arc::new(Upstreams::of(config, Path::new(""))),
        }),
        counters: serve::worker_counters(addresses, 1),
        identity: Identity::default(),
        taps: Arc::default(),
        inspections: Arc::default(),
    }
}

/// A ClusterIP Service of the namespace `shop`.
pub(crate) fn service(name: &str, address: [u8; 4]) -> Object {
    Object::Service(Service {
        key: Key::new("shop", name),
        uid: address[3].into(),
        version: 1,
        labels: Vec::new(),
        kind: ServiceKind::ClusterIp(vec![Ipv4Addr::from(address).into()]),
        ports: Vec::new(),
    })
}

pub(crate) fn objects() -> [Object; 2] {
    [
        Object::Namespace(Namespace {
            name: "shop".into(),
            uid: 1,
            version: 1,
            labels: Vec::new(),
        }),
        service("cart", [10, 96, 10, 1]),
    ]
}

/// A query for the addresses of a name.
pub(crate) fn query(id: u16, name: &str) -> Vec<u8> {
    let mut query = id.to_be_bytes().to_vec();
    // RD; one question.
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(A.to_be_bytes());
    query.extend(1u16.to_be_bytes());
    query
}

/// What these tests look at in a reply: id, Rcode, and the last four octets, which are the address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) id: u16,
    pub(crate) rcode: u8,
    pub(crate) address: Option<Ipv4Addr>,
}

impl Reply {
    pub(crate) fn parse(message: &[u8]) -> Reply {
        assert!(message.len() >= 12 && message[2] & 0x80 != 0, "no reply: {message:?}");
        let answers = u16::from_be_bytes([message[6], message[7]]);
        let last: Option<[u8; 4]> = message.last_chunk().copied();
        Reply {
            id: u16::from_be_bytes([message[0], message[1]]),
            rcode: message[3] & 0x0f,
            address: last.filter(|_| answers == 1).map(Ipv4Addr::from),
        }
    }

    /// NOERROR with this address.
    pub(crate) fn with(id: u16, address: [u8; 4]) -> Reply {
        Reply { id, rcode: 0, address: Some(address.into()) }
    }

    /// The answer to [`OURS`].
    pub(crate) fn ours(id: u16) -> Reply {
        Reply::with(id, [10, 96, 10, 1])
    }

    /// The answer to [`THEIRS`].
    pub(crate) fn theirs(id: u16) -> Reply {
        Reply::with(id, [192, 0, 2, 7])
    }
}

pub(crate) fn udp() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The next datagram and who sent it.
pub(crate) fn receive(socket: &UdpSocket) -> (Reply, SocketAddr) {
    let mut buffer = [0; 4096];
    let (octets, from) = socket.recv_from(&mut buffer).expect("a reply");
    (Reply::parse(&buffer[..octets]), from)
}

/// A TCP connection of another client of this machine, as 127.0.0.2 is.
pub(crate) fn connect_from(address: &str, server: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let own = SocketAddr::new(address.parse().unwrap(), 0);
    socket.bind(&own.into()).expect("an address of this machine");
    socket.connect(&server.into()).expect("connect");
    socket.into()
}

pub(crate) struct Tcp(pub(crate) TcpStream);

impl Tcp {
    pub(crate) fn connect(address: SocketAddr) -> Tcp {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Tcp(stream)
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        let prefix = u16::try_from(message.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&prefix[..], message].concat()).expect("send");
    }

    pub(crate) fn receive(&mut self) -> Reply {
        Reply::parse(&self.message())
    }

    /// The next message as it came.
    pub(crate) fn message(&mut self) -> Vec<u8> {
        let mut prefix = [0; 2];
        self.0.read_exact(&mut prefix).expect("a reply");
        let mut message = vec![0; u16::from_be_bytes(prefix).into()];
        self.0.read_exact(&mut message).expect("the rest of a reply");
        message
    }

    pub(crate) fn ask(&mut self, id: u16, name: &str) -> Reply {
        self.send(&query(id, name));
        self.receive()
    }

    /// Whether the server closes the connection without another octet.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0; 1]) {
            Ok(octets) => octets == 0,
            // Waiting that long is not being closed; a reset is.
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Keeps what it is asked until it is released, then answers everything with 192.0.2.7.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    released: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Upstream {
    fn start() -> Upstream {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let upstream = Upstream {
            address: socket.local_addr().unwrap(),
            released: Arc::default(),
            asked: Arc::default(),
            over: Arc::default(),
        };
        let released = Arc::clone(&upstream.released);
        let (asked, over) = (Arc::clone(&upstream.asked), Arc::clone(&upstream.over));
        thread::spawn(move || {
            let mut kept = Vec::new();
            while !over.load(Ordering::Acquire) {
                let mut buffer = [0; 512];
                if let Ok((octets, from)) = socket.recv_from(&mut buffer) {
                    let query = buffer[..octets].to_vec();
                    // A loop probe comes at any time (FW50): no client asked for it.
                    let is_probe = query.windows(LOOP_ZONE.len()).any(|part| part == LOOP_ZONE);
                    kept.push((query, from));
                    asked.fetch_or(!is_probe, Ordering::Release);
                }
                if released.load(Ordering::Acquire) {
                    for (query, from) in kept.drain(..) {
                        let _ = socket.send_to(&answer(&query), from);
                    }
                }
            }
        });
        upstream
    }

    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
    }

    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

fn answer(query: &[u8]) -> Vec<u8> {
    let name = query[12..].iter().position(|&octet| octet == 0).unwrap();
    let mut reply = query[..12 + name + 5].to_vec();
    // QR, RD, RA; one question, one answer.
    reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
    reply
}
