//! A client that asks a Service the same question all the time, and records the questions that it lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use tokio::task::JoinHandle;

use crate::kubelet::{ask, endpoints};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(40);

/// Asks until it is dropped.
pub struct Asking {
    heard: Arc<Mutex<Heard>>,
    asking: JoinHandle<()>,
}

#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Questions with the right reply.
    pub answered: usize,
    /// Questions without one: who was asked, and why not.
    pub lost: Vec<String>,
}

impl Asking {
    /// Asks for a name whose reply must contain a text. Whom it asks is what kube-proxy would choose from at that time,
    /// one after the other.
    pub fn start(
        client: &Client,
        (namespace, service): (&'static str, &'static str),
        question: &'static str,
        expected: &'static str,
    ) -> Asking {
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let (client, of_task) = (client.clone(), heard.clone());
        let asking = tokio::spawn(async move {
            for turn in 0_usize.. {
                tokio::time::sleep(PAUSE).await;
                // A busy API server must not count as a lost question.
                let Ok(all) = endpoints(&client, namespace, service).await else { continue };
                let asked = match all.is_empty() {
                    true => Err("the Service has no endpoint".to_owned()),
                    false => {
                        let server = all[turn % all.len()];
                        let asked = tokio::task::spawn_blocking(move || ask(server, question));
                        match asked.await.expect("asking does not panic") {
                            Ok(reply) if reply.to_string().contains(expected) => Ok(()),
                            Ok(reply) => Err(format!("{server}: {reply}")),
                            Err(error) => Err(format!("{server}: {error:#}")),
                        }
                    }
                };
                let mut heard = of_task.lock().expect("no panic");
                match asked {
                    Ok(()) => heard.answered += 1,
                    Err(why) => heard.lost.push(why),
                }
            }
        });
        Asking { heard, asking }
    }

    /// The results so far.
    pub fn heard(&self) -> Heard {
        self.heard.lock().expect("no panic").clone()
    }

    /// Every question so far got its reply, and some were asked.
    ///
    /// # Panics
    /// With what was lost.
    #[track_caller]
    pub fn lost_nothing(&self) {
        let Heard { answered, lost } = self.heard();
        assert!(lost.is_empty(), "{answered} answered, {} lost: {lost:#?}", lost.len());
        assert!(answered > 0, "nothing was asked");
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.asking.abort();
    }
}
