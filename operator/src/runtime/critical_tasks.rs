//! Tasks that must run for as long as the process does, such as watches. Where one ends or panics, nothing else shows it: its
//! cache only stays as it is. So its end is kept here, and the process ends with it: kubelet starts it again, and the standby
//! leads meanwhile.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio::sync::watch;

/// Says which task ended first. Clones say the same.
#[derive(Clone, Debug, Default)]
pub struct CriticalTasks {
    ended: watch::Sender<Option<String>>,
}

impl CriticalTasks {
    /// The task, whose end is kept here under this name. One that is aborted is not.
    pub async fn run(self, name: String, task: impl Future<Output = ()>) {
        let why = match AssertUnwindSafe(task).catch_unwind().await {
            Ok(()) => "has ended".to_owned(),
            Err(panic) => format!("has panicked: {}", text(panic.as_ref())),
        };
        self.ended.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert_with(|| format!("{name} {why}"));
            is_first
        });
    }

    /// Returns when one of the tasks has ended, and says which and how.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // There is a sender for as long as this value lives.
            None => std::future::pending().await,
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it gave no reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_task_that_ends_or_panics_is_said_and_one_that_is_aborted_is_not() {
        let critical = CriticalTasks::default();
        let forever =
            tokio::spawn(critical.clone().run("the first".to_owned(), std::future::pending()));
        forever.abort();
        assert!(forever.await.unwrap_err().is_cancelled());
        assert!(critical.ended().now_or_never().is_none(), "it was aborted");
        let panics = async { panic!("a defect at {}", 7) };
        tokio::spawn(critical.clone().run("the second".to_owned(), panics)).await.unwrap();
        tokio::spawn(critical.clone().run("the third".to_owned(), async {})).await.unwrap();
        assert_eq!(critical.ended().await, "the second has panicked: a defect at 7");
        assert_eq!(critical.clone().ended().await, "the second has panicked: a defect at 7");
    }

    #[tokio::test]
    async fn a_task_that_ends_without_a_panic_is_said_too() {
        let critical = CriticalTasks::default();
        critical.clone().run("the watch of pods".to_owned(), async {}).await;
        assert_eq!(critical.ended().await, "the watch of pods has ended");
    }
}
