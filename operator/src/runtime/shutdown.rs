//! When the process is asked to stop, and how long it may take.

use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use futures::future::Shared;
use tokio::signal::unix::{SignalKind, signal};

/// Time for running work to finish after SIGTERM; Kubernetes gives 30 s.
const FINISH: Duration = Duration::from_secs(20);

/// Ready once SIGTERM or SIGINT has come.
pub type Stop = Shared<futures::future::BoxFuture<'static, ()>>;

/// Catches the signals that ask to stop. Work that has not finished some time later is abandoned; all of it can be
/// repeated. As the first process of a container, this one loses a signal of the milliseconds before this, and is killed at the
/// end of its grace period: to hold it back takes unsafe code, which this package does not have, and its lease expires sooner.
///
/// # Errors
/// When signals cannot be caught.
pub fn asked_to_stop() -> anyhow::Result<Stop> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch SIGINT")?;
    let asked = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to stop");
    };
    let asked = asked.boxed().shared();
    Ok(asked)
}

/// Ready when the time to finish is over.
pub async fn time_to_finish(stop: Stop) {
    stop.await;
    tokio::time::sleep(FINISH).await;
}
