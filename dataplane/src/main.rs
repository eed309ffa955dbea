//! `clusterdns-dataplane`: signals wait, room for descriptors, no pages that are too large -> a thread for all but the records -> args -> telemetry -> HTTP port -> source -> first sync -> bind -> serve -> drain.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use crds::Config;
use dataplane::args::{Args, Source};
use dataplane::drain::{self, Signals};
use dataplane::first_thread::{self, FirstThread};
use dataplane::forward::{Forwarder, ResolvConf};
use dataplane::http_port::{self, Looks, Pages, Running, Samples, Views};
use dataplane::listeners::Listeners;
use dataplane::metrics::{Metrics, Sources};
use dataplane::readiness::Health;
use dataplane::serve::{self, Listen, Serving};
use dataplane::source::api::Api;
use dataplane::source::files::{Files, Watch};
use dataplane::source::writer::Setup;
use dataplane::state::State;
use dataplane::status::Status;
use dataplane::taps::Reader;
use dataplane::telemetry::{self, Fixed, LogFormat, LogLevel};
use dataplane::{background, identity, kube_dns, names, settings};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// How long the process waits at its end for the readers of the query log and of dnstap, both together.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// kubelet waits for all of the end, and does not kill it.
const _: () = assert!(
    drain::LONGEST_END.as_secs() + FLUSH_WITHIN.as_secs() + telemetry::FLUSH_WITHIN.as_secs()
        < crds::defaults::GRACE_AFTER_DRAIN_SECONDS as u64
);

/// How the process ends when its flags are wrong, as clap ends it.
const MISTAKE: u8 = 2;

/// Stack of the thread that starts all others, as large as that of a first thread.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    // First, and before there is any thread. Where the system refuses this, one of the first moments may be lost.
    let _ = dataplane_udp::hold_back_ends();
    let prepared = Prepared {
        room: dataplane_udp::make_room_for_descriptors(),
        too_large: dataplane_udp::refuse_too_large_pages(),
    };
    let (first, jobs) = first_thread::lend();
    let all_else =
        std::thread::Builder::new().name(telemetry::LAST_THREAD.into()).stack_size(STACK);
    match all_else.spawn(move || whole_run(&prepared, &first)) {
        Ok(all_else) => {
            jobs.work();
            // Where it has panicked, the log says so.
            all_else.join().map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            fatal_without_flags(&anyhow::Error::new(error).context("cannot start a thread"));
            telemetry::flush();
            ExitCode::FAILURE
        }
    }
}

/// What was settled before there was any thread, for the log.
struct Prepared {
    /// For how many descriptors there is room.
    room: io::Result<u64>,
    /// The octets of a large page, if none is taken because they are too many.
    too_large: io::Result<Option<u64>>,
}

impl Prepared {
    fn log(&self) {
        match &self.room {
            Ok(descriptors) => tracing::debug!(descriptors, "room is made"),
            Err(error) => {
                tracing::warn!(%error, "the table of descriptors grows while queries wait");
            }
        }
        match &self.too_large {
            Ok(None) => {}
            Ok(Some(octets)) => {
                tracing::debug!(octets, "large pages are too large, so none is taken")
            }
            Err(error) => tracing::warn!(%error, "large pages are too large and cannot be refused"),
        }
    }
}

/// From the flags to the exit code.
fn whole_run(prepared: &Prepared, first: &FirstThread) -> u8 {
    let code = match process::log::flags::<Args>(None) {
        Ok(args) => {
            let level = args.log_level.unwrap_or(LogLevel::Info);
            telemetry::start(args.log_format, level, args.fixed_logging());
            prepared.log();
            match run(&args, first) {
                Ok(()) => 0,
                Err(error) => {
                    telemetry::fatal(&error);
                    1
                }
            }
        }
        Err(mistake) => {
            fatal_without_flags(&anyhow::Error::msg(mistake));
            MISTAKE
        }
    };
    telemetry::flush();
    code
}

/// Says why the process ends before its flags say how to log.
fn fatal_without_flags(error: &anyhow::Error) {
    telemetry::start(Some(LogFormat::Json), LogLevel::Error, Fixed::default());
    telemetry::fatal(error);
}

fn run(args: &Args, first: &FirstThread) -> anyhow::Result<()> {
    args.check_addresses()?;
    let listen = Listen { addresses: args.listeners(), shares_ports: args.share_ports };
    let workers = args.worker_count();
    let runtime = runtime(workers)?;
    let ended = run_on(&runtime, args, (&listen, workers), first);
    // A read of a file that hangs, as on a mount without its server, keeps no process.
    runtime.shutdown_background();
    ended
}

/// From the first signal that can be caught to the end of the drain.
fn run_on(
    runtime: &Runtime,
    args: &Args,
    (listen, workers): (&Listen, usize),
    first: &FirstThread,
) -> anyhow::Result<()> {
    let signals = Signals::catch(runtime)?;
    // For the handler one thread that takes them is enough. If this fails, so did holding them back.
    let _ = dataplane_udp::let_ends_come();
    let starting = signals.while_starting(runtime);

    // Fail early if an address cannot be bound: reading objects may take long; the sockets themselves
    // are opened when there is something to answer with.
    serve::check(listen)?;
    let http = process::http::bind(&args.http_candidates())?;
    let http_address = http.local_addr().context("cannot read the address of HTTP")?;
    let (health, status) = (Arc::new(Health::default()), Arc::new(Status::default()));
    let running = Arc::new(OnceLock::new());
    let views = Views {
        health: health.clone(),
        status: status.clone(),
        running: running.clone(),
        pages: Pages::default(),
    };
    http_port::start(http, views.clone())?;
    tracing::debug!(%http_address, "probes are answered");

    let setup = Setup {
        counters: serve::worker_counters(listen.addresses.len(), workers),
        identity: identity::of_this_process(args.pod_name.as_deref()),
        resolv_conf: ResolvConf::of_this_machine(),
        location: args.location(),
        status: status.clone(),
    };
    let source = Opened::open(args.source()?, setup, first)?;
    let (state, configs) = source.views();
    let config = configs.borrow().clone();
    let taps = state.taps.clone();
    let reader = args.dnstap_socket.clone().map(Reader::Unix);
    taps.start(&state.identity, reader).context("cannot start a thread for the query log")?;
    taps.apply(&config.logging);
    taps.follow(&configs, runtime.handle());

    let forwarder = Forwarder::new();
    let limits = settings::limits(&config, dataplane_udp::most_descriptors());
    let handle = runtime.handle().clone();
    let serving =
        Serving::start(listen, workers, state.clone(), forwarder.clone(), limits, handle)?;

    let counted = Sources {
        state: state.clone(),
        serving: serving.counters().clone(),
        forwarder: forwarder.clone(),
        status: status.clone(),
        health: health.clone(),
        configs: configs.clone(),
    };
    let dns_port = listen.addresses.first().map_or(0, SocketAddr::port);
    let looks = Looks::new(args.pod_uid.clone(), dns_port, http_address.port());
    // It is set here only, and once.
    let _ = running.set(Running {
        metrics: Metrics::new(counted),
        state: state.clone(),
        serving: serving.counters().clone(),
        forwarder,
        is_cache_exposed: args.expose_cache,
        configs: configs.clone(),
        samples: Samples::default(),
        looks,
    });
    // On the addresses of the HTTP port.
    let own = serving.local_addrs().first().copied().unwrap_or(http_address);
    let ports = kube_dns::Ports::USUAL;
    kube_dns::start(
        views,
        configs.clone(),
        kube_dns::Places { own, http: http_address.ip() },
        ports,
    )?;
    health.serving();
    let mut signals = starting.served(runtime)?;
    tracing::info!(addresses = ?serving.local_addrs(), %http_address, workers, "answering");
    if let (true, Opened::Files(files)) = (args.print_names, &source) {
        let addresses = serving.local_addrs();
        print(names::page(&state, &config, files.objects(), addresses, Some(http_address)))?;
    }
    let following = source.follow(first)?;

    let period = args.drain_period();
    let listeners = Listeners::new(args.certificates_dir.clone());
    let signal = runtime.block_on(async {
        tokio::select! {
            signal = signals.next() => signal,
            never = listeners.follow(&serving, configs) => match never {},
        }
    });
    following.write_last_snapshot();
    runtime.block_on(drain::drain(serving, &health, signals, signal, period));
    taps.finish(FLUSH_WITHIN);
    drop(following);
    Ok(())
}

/// Starts the source. Returns when enough was read to answer.
enum Opened {
    Files(Box<Files>),
    Api(Api),
}

/// The running source; it ends when this is dropped.
enum Following {
    Files(#[expect(dead_code, reason = "only ever dropped")] Watch),
    Api(Api),
}

impl Following {
    /// E40; a folder of manifests needs no snapshot.
    fn write_last_snapshot(&self) {
        match self {
            Following::Files(_) => {}
            Following::Api(api) => api.write_last_snapshot(),
        }
    }
}

impl Opened {
    /// The records are built on the first thread.
    fn open(source: Source, setup: Setup, first: &FirstThread) -> anyhow::Result<Opened> {
        Ok(match source {
            Source::Manifests(folder) => {
                let files = first.run(move || Files::open(&folder, setup));
                let files = files.context("the thread that reads the folder ended")?;
                Opened::Files(Box::new(files?))
            }
            Source::Api(options) => {
                Opened::Api(Api::open_on(*options, setup, |work| first.begin(work))?)
            }
        })
    }

    fn views(&self) -> (Arc<State>, watch::Receiver<Arc<Config>>) {
        match self {
            Opened::Files(files) => (files.state(), files.configs()),
            Opened::Api(api) => (api.state(), api.configs()),
        }
    }

    fn follow(self, first: &FirstThread) -> anyhow::Result<Following> {
        Ok(match self {
            Opened::Files(files) => Following::Files(
                files
                    .watch_on(|work| first.begin(work))
                    .context("cannot start the thread that follows the folder")?,
            ),
            Opened::Api(api) => Following::Api(api),
        })
    }
}

/// For what is asked elsewhere, and for signals; UDP, TCP and HTTP have threads of their own.
fn runtime(workers: usize) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).on_thread_start(background::give_way);
    builder.enable_all().build().context("cannot start the runtime")
}

/// To standard output, where a closed pipe is no reason to end, and one without a reader no reason to wait.
fn print(text: String) -> anyhow::Result<()> {
    let write = move || {
        let mut out = std::io::stdout();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    let started = std::thread::Builder::new().name("names".into()).spawn(write);
    started.map(drop).context("cannot start a thread for the table of names")
}
