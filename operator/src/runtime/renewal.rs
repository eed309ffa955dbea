//! Credentials are replaced while this process runs. kube reads a token file again when a minute has passed by the wall clock, so
//! where that is set back an old token stays, and it reads a kubeconfig only once. Here a request whose credentials are refused, or
//! that has no answer, is reason enough to read all of it again. No request is sent twice.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hyper::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use process::credentials;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Least time between two reads of the credentials; some kinds start a program.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// It is doubled up to this while they can be read and do not help, as in an outage of the API server.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
/// The client that requests go through now.
struct Renewed {
    client: RwLock<Client>,
    doubted: Notify,
}

/// What `open` returns now, and later, where the credentials are in doubt, what it returns then.
///
/// # Errors
/// Those of the first `open`.
pub(super) async fn renewing<O>(
    open: impl Fn() -> O + Send + Sync + 'static,
) -> anyhow::Result<Client>
where
    O: Future<Output = anyhow::Result<Client>> + 'static,
{
    let first = open().await?;
    let (namespace, valid_until) = (first.default_namespace().to_owned(), *first.valid_until());
    let it = Arc::new(Renewed { client: RwLock::new(first), doubted: Notify::new() });
    tokio::spawn(renew(it.clone(), Arc::new(open)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let it = it.clone();
        async move {
            let client = it.client.read().unwrap_or_else(PoisonError::into_inner).clone();
            // Also if who asks stops waiting.
            let mut doubt = Doubt { it, is_raised: true };
            let reply = client.send(request).await;
            doubt.is_raised =
                reply.as_ref().map_or(true, |it| it.status() == StatusCode::UNAUTHORIZED);
            reply
        }
    });
    Ok(Client::new(service, namespace).with_valid_until(valid_until))
}

/// If the credentials cannot be read, nothing changes. Watches that run stay on their connection.
async fn renew<O>(it: Arc<Renewed>, open: Arc<impl Fn() -> O + Send + Sync + 'static>)
where
    O: Future<Output = anyhow::Result<Client>> + 'static,
{
    let mut interval = RENEW_INTERVAL;
    loop {
        // Those that were read last are good.
        if timeout(interval, it.doubted.notified()).await.is_err() {
            interval = RENEW_INTERVAL;
            it.doubted.notified().await;
        }
        let open = open.clone();
        let opened = credentials::opened(move || open()).await;
        let is_read = opened.is_ok();
        match opened {
            Ok(client) => {
                *it.client.write().unwrap_or_else(PoisonError::into_inner) = client;
                tracing::debug!("the credentials of the API server were read again");
            }
            Err(error) => {
                tracing::warn!("the credentials cannot be read again, the old ones stay: {error:#}")
            }
        }
        sleep(interval).await;
        interval = if is_read { (interval * 2).min(LONGEST_INTERVAL) } else { RENEW_INTERVAL };
    }
}

/// Ends with a request.
struct Doubt {
    it: Arc<Renewed>,
    is_raised: bool,
}

impl Drop for Doubt {
    fn drop(&mut self) {
        if self.is_raised {
            self.it.doubted.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::sync::{Mutex, mpsc};

    use tokio::task::yield_now;
    use tokio::time::advance;

    use super::*;
    use crate::fixtures::api::{self, Asked, Reply};
    use crate::runtime::lease::{Elector, Leadership};

    /// An API server and the file with the token for it.
    struct Server {
        valid: Mutex<&'static str>,
        file: Mutex<&'static str>,
        /// How often the file was read, and requests with another token.
        reads: AtomicUsize,
        refused: AtomicUsize,
    }

    impl Server {
        fn with(valid: &'static str, file: &'static str) -> Arc<Server> {
            let (valid, file) = (Mutex::new(valid), Mutex::new(file));
            Arc::new(Server {
                valid,
                file,
                reads: AtomicUsize::new(0),
                refused: AtomicUsize::new(0),
            })
        }

        /// A client with the token that the file has at this moment, for as long as it lives. An empty file cannot be read.
        fn open(self: Arc<Server>) -> anyhow::Result<Client> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let token = *self.file.lock().unwrap();
            anyhow::ensure!(!token.is_empty(), "there is no token");
            Ok(api::client(move |asked| self.answer(token, asked)))
        }

        fn answer(&self, token: &str, asked: &Asked) -> Reply {
            if token != *self.valid.lock().unwrap() {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Reply::status(401, "Unauthorized");
            }
            match asked.path.contains("selfsubjectreviews") {
                true => Reply::not_found(),
                // There is no Lease, and each write of one is taken.
                false => api::empty(asked),
            }
        }

        async fn client(self: &Arc<Server>) -> Client {
            let it = self.clone();
            renewing(move || std::future::ready(it.clone().open())).await.expect("a client")
        }

        fn counts(&self) -> (usize, usize) {
            (self.reads.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
        }
    }

    fn elector(client: Client) -> Elector {
        let leadership = Arc::new(Leadership::new(|| tokio::time::Instant::now().into_std()));
        Elector::new(client, "dns", "operator-0", leadership)
    }

    #[tokio::test(start_paused = true)]
    async fn o8_a_standby_whose_token_is_over_reads_the_new_one_and_leads() {
        let server = Server::with("new", "old");
        let client = server.client().await;
        *server.file.lock().unwrap() = "new";
        let mut elector = elector(client);
        timeout(Duration::from_secs(60), elector.acquire()).await.expect("it leads");
        assert_eq!(server.counts(), (2, 1), "one request with the old token");
    }

    #[tokio::test(start_paused = true)]
    async fn o9_a_leader_whose_token_is_over_reads_the_new_one_and_keeps_the_lease() {
        let server = Server::with("old", "old");
        let mut elector = elector(server.client().await);
        elector.acquire().await;
        (*server.valid.lock().unwrap(), *server.file.lock().unwrap()) = ("new", "new");
        let held = timeout(Duration::from_secs(60), elector.hold()).await;
        assert!(held.is_err(), "{held:?}");
        assert_eq!(server.counts(), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn k10_credentials_that_stay_wrong_are_read_every_few_seconds_or_less_often() {
        // Those that can be read and do not help, less and less often.
        for (file, times) in [("old", 4..=6), ("", 12..=14)] {
            let server = Server::with("new", "old");
            let client = server.client().await;
            *server.file.lock().unwrap() = file;
            for _ in 0..60 {
                assert!(client.apiserver_version().await.is_err());
                sleep(Duration::from_secs(1)).await;
            }
            let (reads, refused) = server.counts();
            assert_eq!(refused, 60);
            assert!(times.contains(&reads), "{file:?}: {reads}");
            *server.file.lock().unwrap() = "new";
            sleep(LONGEST_INTERVAL).await;
            let request = || Request::get("/version").body(Body::empty()).unwrap();
            let status = client.send(request()).await.unwrap().status();
            assert_ne!(status, StatusCode::UNAUTHORIZED, "{file:?}: the last one was in doubt");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn k10_an_answer_is_no_reason_to_read_them_and_silence_is_one() {
        for (code, reads) in [(200, 1), (403, 1), (404, 1), (500, 1), (401, 2), (0, 2)] {
            let count = Arc::new(AtomicUsize::new(0));
            let counted = count.clone();
            let open = move || {
                counted.fetch_add(1, Ordering::Relaxed);
                let reply = move |_: &Asked| match code {
                    0 => Reply::silence(),
                    code => Reply::text("").with_code(code),
                };
                async move { Ok(api::client(reply)) }
            };
            let client = renewing(open).await.unwrap();
            let request = Request::get("/version").body(Body::empty()).unwrap();
            // Who asks gives up.
            let _ = timeout(Duration::from_secs(4), client.send(request)).await;
            sleep(RENEW_INTERVAL).await;
            assert_eq!(count.load(Ordering::Relaxed), reads, "{code}");
        }
    }

    /// A request that is refused.
    async fn refused(client: &Client) {
        let request = Request::get("/version").body(Body::empty()).unwrap();
        assert_eq!(client.send(request).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }

    /// What `open` does at its second call; the clock does not go by itself while it runs.
    async fn reads_after<O>(
        hang: impl Fn() -> O + Send + Sync + 'static,
    ) -> (Client, Arc<AtomicUsize>)
    where
        O: Future<Output = ()> + 'static,
    {
        let count = Arc::new(AtomicUsize::new(0));
        let (counted, hang) = (count.clone(), Arc::new(hang));
        let open = move || {
            let (number, hang) = (counted.fetch_add(1, Ordering::SeqCst), hang.clone());
            async move {
                if number == 1 {
                    hang().await;
                }
                Ok(api::client(|_| Reply::status(401, "Unauthorized")))
            }
        };
        let client = renewing(open).await.unwrap();
        refused(&client).await;
        while count.load(Ordering::SeqCst) < 2 {
            yield_now().await;
        }
        (client, count)
    }

    /// Whether it is read so often within an hour and more. The thread that reads gets turns meanwhile.
    async fn comes_to(count: &AtomicUsize, reads: usize) -> bool {
        for _ in 0..1_000 {
            if count.load(Ordering::SeqCst) >= reads {
                return true;
            }
            advance(Duration::from_secs(5)).await;
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[tokio::test(start_paused = true)]
    async fn k10_a_read_of_the_credentials_that_hangs_is_given_up_and_the_next_one_works() {
        let (client, count) = reads_after(std::future::pending).await;
        refused(&client).await;
        // Until it is given up, and after the interval.
        assert!(comes_to(&count, 3).await);
    }

    #[tokio::test(start_paused = true)]
    async fn k10_while_a_program_for_credentials_hangs_no_other_one_is_started() {
        let (end, ended) = mpsc::channel::<()>();
        let ended = Mutex::new(ended);
        let hang = move || {
            ended.lock().unwrap().recv().unwrap();
            std::future::ready(())
        };
        let (client, count) = reads_after(hang).await;
        for _ in 0..60 {
            refused(&client).await;
            advance(Duration::from_secs(60)).await;
        }
        assert!(!comes_to(&count, 3).await, "in an hour and more");
        end.send(()).unwrap();
        assert!(comes_to(&count, 3).await);
    }
}
