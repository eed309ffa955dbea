//! Lists that are not needed, beside the watch: for comparison (E25), and for objects that were passed over. Events show
//! meanwhile, and the watch continues if such a list fails.

use super::listed::Ended;
use super::pace::{LIST_AGAIN_AFTER, due_after};
use super::supervise::Failure;
use super::watch::Stream;

impl Stream {
    /// Begins a list beside the watch: a stream of its own, which reads one list.
    pub(super) fn begin_beside(&mut self) {
        let mut stream = self.another();
        stream.is_beside = true;
        // One that looks for what was passed over differs, and that is no defect. It may not have what is passed over from now on.
        self.is_comparing = self.list_at.take().is_none();
        self.sink.borrow_mut().begin_beside(&self.watched);
        self.beside = Some(Box::pin(async move {
            let listed = stream.read_list().await;
            (stream.pages, listed)
        }));
    }

    /// The list beside the watch has ended.
    ///
    /// # Errors
    /// It is not used, and a list is needed.
    pub(super) fn take_beside(&mut self, (pages, listed): Ended) -> Result<(), Failure> {
        self.pages = pages;
        let is_overtaken = self.sink.borrow().is_overtaken(&self.watched);
        let failure = match listed {
            _ if self.is_relist_due() => Failure::Relist,
            Ok(_) if is_overtaken => Failure::Overtaken,
            Ok(listed) => {
                self.beside = None;
                self.complete(listed, true);
                return Ok(());
            }
            Err(failure) => failure,
        };
        let was_comparing = self.is_comparing;
        self.give_up_beside();
        if failure == Failure::Relist {
            return Err(failure);
        }
        let again = due_after(LIST_AGAIN_AFTER.min(self.compare_after));
        self.compare_at = self.compare_at.max(again);
        if !was_comparing {
            self.list_at.get_or_insert(again);
        }
        let resource = self.watched.plural();
        let text = failure.text(resource);
        self.sink.borrow().feed(&self.watched, |feed| feed.failures += 1);
        tracing::warn!(
            resource,
            "{text}; a list for comparison follows later, and the watch continues"
        );
        Ok(())
    }

    /// Ends the list beside the watch, if there is one: nothing of it waits any more.
    pub(super) fn give_up_beside(&mut self) {
        if self.beside.take().is_some() {
            self.is_comparing = false;
            self.sink.borrow_mut().give_up_beside(&self.watched);
        }
    }
}

#[cfg(test)]
mod tests;
