//! Credentials of the API server that are read again while a process runs. Some kinds start a program, which may hang.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// A read of the credentials that takes longer is given up, and a program that takes longer is named in the log.
const OPEN_WITHIN: Duration = Duration::from_secs(30);
/// Between two lines of the log that name it.
const SAY_EVERY: Duration = Duration::from_secs(600);

/// Reads them, off the threads of this runtime: others renew a lease or read events there. A program that hangs cannot be given up:
/// this waits until it ends, so that no other one is started, and the log says so.
///
/// # Errors
/// They cannot be read, or not in time.
pub async fn opened<T, O>(open: impl FnOnce() -> O + Send + 'static) -> anyhow::Result<T>
where
    T: Send + 'static,
    O: Future<Output = anyhow::Result<T>>,
{
    let runtime = Handle::current();
    let mut opening =
        spawn_blocking(move || runtime.block_on(async { timeout(OPEN_WITHIN, open()).await }));
    let mut patience = 2 * OPEN_WITHIN;
    let ended = loop {
        match timeout(patience, &mut opening).await {
            Ok(ended) => break ended,
            Err(_) => tracing::warn!(
                "the program that gives the credentials of the API server has not ended in time, the old ones stay: no other one is \
                 started while it runs"
            ),
        }
        patience = SAY_EVERY;
    };
    match ended {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => anyhow::bail!("this took longer than {} s", OPEN_WITHIN.as_secs()),
        Err(error) => anyhow::bail!("reading them ended: {error}"),
    }
}
