//! `clusterdns-operator`: args -> telemetry -> client -> lease -> controller.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use operator::args::{Args, Command, LogFormat, Run};
use operator::controller::crd::Definition;
use operator::lost_pods::{self, Lookout, PolicyStanding};
use operator::report::events::Events;
use operator::runtime::critical_tasks::CriticalTasks;
use operator::runtime::decode::lenient;
use operator::runtime::lease::{Elector, Leadership, clock};
use operator::runtime::metrics::Metrics;
use operator::runtime::patience::patient;
use operator::runtime::restored::{Resets, confirming};
use operator::runtime::write::{WRITE_TIMEOUT, Writes};
use operator::runtime::{client, http, shutdown, telemetry};
use operator::{compare, controller, import, offline};

/// How the process ends when its flags are wrong, as clap ends it.
const MISTAKE: u8 = 2;
/// What is said of a task that should not have ended; kubelet starts the process again.
const DEFECT: &str = "a defect of the operator, so this process ends";

fn main() -> ExitCode {
    let args = match process::log::flags::<Args>(Some("run")) {
        Ok(args) => args,
        Err(mistake) => {
            telemetry::start(true, tracing::Level::ERROR);
            tracing::error!("{mistake}");
            telemetry::flush();
            return ExitCode::from(MISTAKE);
        }
    };
    match args.command {
        Command::Run(args) => {
            telemetry::start(args.log_format == LogFormat::Json, args.log_level.tracing());
            let code = match start(&args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    tracing::error!("{error:#}");
                    ExitCode::FAILURE
                }
            };
            telemetry::flush();
            code
        }
        Command::Render(args) => offline::run_render(&args),
        Command::Check(args) => offline::run_check(&args),
        Command::Import(args) => import::run(&args),
        Command::Compare(args) => compare::run(&args),
    }
}

/// Two threads: the lease is renewed while other work is computed.
fn start(args: &Run) -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime =
        runtime.worker_threads(2).enable_all().build().context("cannot start the runtime")?;
    let outcome = runtime.block_on(run(args));
    // Requests that are still in progress are not needed any more.
    runtime.shutdown_background();
    outcome
}

async fn run(args: &Run) -> anyhow::Result<()> {
    let stop = shutdown::asked_to_stop()?;
    let metrics = Arc::new(Metrics::default());
    let resets = Resets::new(metrics.clone());
    let client = patient(client::client(&args.cluster).await?);
    let client = lenient(confirming(client, resets.clone()));
    let definition = Arc::new(Definition::default());
    http::start(args.http, metrics.clone(), definition.clone())?;

    let name = client::own_name(args.pod_name.as_deref());
    let leadership = Arc::new(Leadership::new(clock::now));
    let mut elector = Elector::new(client.clone(), &args.namespace, &name, leadership.clone());
    let writes = Writes::new(leadership, metrics.clone());
    let (lost_pods, critical) = (Arc::new(PolicyStanding::default()), CriticalTasks::default());
    if args.lost_pods {
        // Also before this process leads: the leader may be on the node that dies.
        let lookout = lost_pods::follow(Lookout {
            client: client.clone(),
            lists: Arc::default(),
            settings: args.settings(),
            writes: writes.clone(),
            metrics: metrics.clone(),
            standing: lost_pods.clone(),
            node: args.node_name.clone().filter(|name| !name.is_empty()),
        });
        tokio::spawn(critical.clone().run("the lookout for lost pods".to_owned(), lookout));
    }
    tokio::select! {
        () = elector.acquire() => metrics.leads(true),
        why = critical.ended() => {
            // Nothing was written yet, but the lease may have been taken by an attempt whose answer did not come.
            elector.release().await;
            anyhow::bail!("{DEFECT}: {why}");
        }
        () = stop.clone() => {
            elector.release().await;
            return Ok(());
        }
    }

    let events = Events::new(client.clone(), &name, writes.clone());
    let mut has_finished = true;
    let ended = tokio::select! {
        biased;
        lost = elector.hold() => anyhow::bail!("{lost}: another may lead, so this process ends"),
        ended = controller::run(client, args.settings(), writes, events, metrics, definition, lost_pods, resets, stop.clone()) => ended,
        why = critical.ended() => Err(anyhow::anyhow!("{why}")),
        () = shutdown::time_to_finish(stop) => {
            tracing::warn!("some reconciles did not finish in time");
            has_finished = false;
            Ok(())
        }
    };
    // Another may lead: at once, or where reconciles were broken off, when no write of theirs can arrive any more.
    match has_finished && ended.is_ok() {
        true => elector.release().await,
        false => elector.release_after_writes(WRITE_TIMEOUT).await,
    }
    ended.context(DEFECT)
}
