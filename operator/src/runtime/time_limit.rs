//! Single reads from the API server, with a time limit. A watch may be silent for minutes; a silent read would block
//! everything behind it. The answer may depend on a broken webhook or on an aggregated API server of another vendor.

use std::time::Duration;

use anyhow::bail;
use tokio::time::timeout;

/// Time for one answer of the API server.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer.
///
/// # Errors
/// There is no answer in time, or the API server refuses.
pub async fn within<T>(asking: impl Future<Output = kube::Result<T>>) -> anyhow::Result<T> {
    within_time(PATIENCE, asking).await
}

/// The same with this much time.
///
/// # Errors
/// As of [`within`].
pub async fn within_time<T>(
    patience: Duration,
    asking: impl Future<Output = kube::Result<T>>,
) -> anyhow::Result<T> {
    match timeout(patience, asking).await {
        Ok(answer) => Ok(answer?),
        Err(_) => bail!("the API server did not answer within {} s", patience.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_waits_without_end() {
        let silence = std::future::pending::<kube::Result<()>>();
        let why = within_time(Duration::ZERO, silence).await.unwrap_err();
        assert_eq!(why.to_string(), "the API server did not answer within 0 s");
        assert_eq!(within(async { Ok(7) }).await.unwrap(), 7);
    }
}
