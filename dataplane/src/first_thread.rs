//! The first thread of the process holds the records: it reads the objects and builds what answers come from. The C library
//! asks Linux for large pages (`glibc.malloc.hugetlb=1`) only for the heap of this thread; that of another one stays on pages
//! of 4 KiB, because it grows without asking (glibc, `malloc/arena.c`: `sysmalloc_mmap`, `grow_heap`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Work for a thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// Gives work to the first thread.
#[derive(Debug)]
pub struct FirstThread(Sender<Job>);

/// What the first thread does, one job after the other.
#[derive(Debug)]
pub struct Jobs(Receiver<Job>);

/// Both ends; no job is there yet.
pub fn lend() -> (FirstThread, Jobs) {
    let (sender, receiver) = channel();
    (FirstThread(sender), Jobs(receiver))
}

impl FirstThread {
    /// The job begins when those before it have ended.
    ///
    /// # Errors
    /// The first thread takes no jobs any more.
    pub fn begin(&self, job: Job) -> std::io::Result<()> {
        self.0.send(job).map_err(|_| std::io::Error::other("the first thread has ended"))
    }

    /// Waits for the result of this job; none if it panicked.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = channel();
        self.begin(Box::new(move || {
            // Who asked waits for it.
            let _ = done.send(job());
        }))
        .ok()?;
        result.recv().ok()
    }
}

impl Jobs {
    /// Runs jobs until none can come any more. One that panics, which the log says, ends alone.
    pub fn work(self) {
        while let Ok(job) = self.0.recv() {
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;

    #[test]
    fn jobs_run_in_turn_on_the_thread_that_works_and_one_that_panics_ends_alone() {
        let (first, jobs) = lend();
        let began = Arc::new(Mutex::new(Vec::new()));
        let asks = thread::spawn({
            let began = Arc::clone(&began);
            move || {
                assert_eq!(first.run(|| -> u8 { panic!("a defect") }), None);
                first.begin(Box::new(move || began.lock().unwrap().push(1))).unwrap();
                first.run(|| thread::current().id())
            }
        });
        jobs.work();
        assert_eq!(asks.join().unwrap(), Some(thread::current().id()));
        assert_eq!(*began.lock().unwrap(), [1]);
    }

    #[test]
    fn a_job_for_a_thread_that_has_ended_is_an_error() {
        let (first, jobs) = lend();
        drop(jobs);
        assert!(first.begin(Box::new(|| ())).is_err());
        assert_eq!(first.run(|| 1), None);
    }
}
