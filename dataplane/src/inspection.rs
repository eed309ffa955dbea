//! Questions to the thread that owns the index, which alone knows the uids and versions of objects: asked by HTTP when a
//! person wants an explanation, answered between two events. A source that is busy or gone answers late or not at all,
//! and the explanation says so.

use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, OnceLock, PoisonError};

use dataplane_core::{Identified, Source};
use tokio::sync::oneshot;

/// Questions that wait for an answer.
pub const MAX_WAITING: usize = 4;

/// Objects in the order in which they were asked for; `None` is one that has gone.
pub type Answer = Vec<Option<Identified>>;

#[derive(Debug)]
struct Question {
    sources: Vec<Source>,
    answer: oneshot::Sender<Answer>,
}

#[derive(Debug, Default)]
pub struct Inspections {
    waiting: Mutex<Vec<Question>>,
    /// Wakes a source that sleeps for longer than a person waits.
    wake: OnceLock<SyncSender<()>>,
}

impl Inspections {
    /// Asks; `None` when too many others wait.
    pub fn ask(&self, sources: Vec<Source>) -> Option<oneshot::Receiver<Answer>> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that has left needs no answer.
        waiting.retain(|question| !question.answer.is_closed());
        if waiting.len() >= MAX_WAITING {
            return None;
        }
        waiting.push(Question { sources, answer });
        drop(waiting);
        if let Some(wake) = self.wake.get() {
            // Full: it is about to look anyway.
            let _ = wake.try_send(());
        }
        Some(answered)
    }

    /// Answers all that wait; called by the thread that owns the index.
    pub(crate) fn answer(&self, identify: impl Fn(&[Source]) -> Answer) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for Question { sources, answer } in waiting {
            // A client that has left loses nothing.
            let _ = answer.send(identify(&sources));
        }
    }

    /// How the source is woken; the first one counts, and there is one source.
    pub(crate) fn wakes(&self, wake: SyncSender<()>) {
        let _ = self.wake.set(wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str) -> Vec<Source> {
        vec![Source::Namespace { name: name.into() }]
    }

    #[test]
    fn few_questions_wait_and_those_whose_asker_left_do_not_count() {
        let inspections = Inspections::default();
        let mut waiting: Vec<_> =
            (0..MAX_WAITING).map(|_| inspections.ask(namespace("a")).unwrap()).collect();
        assert!(inspections.ask(namespace("b")).is_none(), "too many");
        waiting.pop();
        let mut last = inspections.ask(namespace("b")).unwrap();
        inspections.answer(|sources| vec![None; sources.len()]);
        assert_eq!(last.try_recv().unwrap(), [None]);
        assert!(waiting.iter_mut().all(|waiting| waiting.try_recv().is_ok()));
    }
}
