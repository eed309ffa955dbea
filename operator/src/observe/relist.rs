//! When a watch that failed must list again instead of repeating its request (K5, K22, K23). An API server whose etcd
//! was restored from a backup refuses the version forever, one for which a page is too large refuses that page, and an
//! event that cannot be read is the first of each watch from the version before it. Pure.

use std::time::Duration;

use kube::core::Status;
use kube::runtime::watcher::Error;
use process::pages::{Missed, Pages};
use process::version::{self, MAX_STARTS, Verdict};

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Continue to watch from the version that was reached.
    GoOn,
    /// List again.
    ListAgain,
}

/// The memory of one watch.
#[derive(Debug, Default)]
pub(super) struct Persistence {
    failures_at_version: u32,
}

impl Persistence {
    /// The watch gave an event, or a list is complete: failures before it do not count.
    pub(super) fn went_well(&mut self) {
        self.failures_at_version = 0;
    }

    /// What to do after this error of a watch.
    pub(super) fn after(&mut self, error: &Error) -> Next {
        match error {
            Error::InitialListFailed(_) | Error::NoResourceVersion => Next::ListAgain,
            Error::WatchStartFailed(kube::Error::Api(status)) => self.after_refusal(status),
            // A list passes over an object that cannot be read.
            Error::WatchFailed(error) if is_unreadable(error) => self.count(),
            // No connection: it says nothing about the version.
            Error::WatchStartFailed(_) | Error::WatchFailed(_) => Next::GoOn,
            Error::WatchError(status) => self.after_refusal(status),
        }
    }

    fn after_refusal(&mut self, status: &Status) -> Next {
        match version::verdict(status.code, &status.message) {
            Verdict::Lost => Next::ListAgain,
            Verdict::SaysNothing => Next::GoOn,
            Verdict::MayBeLost => self.count(),
        }
    }

    fn count(&mut self) -> Next {
        self.failures_at_version += 1;
        if self.failures_at_version < MAX_STARTS {
            return Next::GoOn;
        }
        self.failures_at_version = 0;
        Next::ListAgain
    }
}

/// What a page that was not read to its end says about its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    TooLarge,
    /// The API server may be busy, or the connection broke.
    MayBeTooLarge,
    /// The list took longer than etcd keeps its version, 5 minutes: fewer requests.
    TooSmall,
    SaysNothing,
}

fn size(error: &kube::Error) -> Size {
    match error {
        kube::Error::Api(status) => match status.code {
            413 => Size::TooLarge,
            500..=599 => Size::MayBeTooLarge,
            410 => Size::TooSmall,
            _ => Size::SaysNothing,
        },
        // The list broke off, or the body was not a list.
        kube::Error::HyperError(_) | kube::Error::SerdeError(_) | kube::Error::ReadEvents(_) => {
            Size::MayBeTooLarge
        }
        _ => Size::SaysNothing,
    }
}

/// A page was not read to its end, `after` this time: the next one may have another size.
pub(super) fn resize(pages: &mut Pages, error: &kube::Error, after: Duration) {
    match size(error) {
        Size::TooLarge => pages.shrink(),
        Size::MayBeTooLarge => pages.failed(after),
        Size::TooSmall => pages.grow(),
        Size::SaysNothing => {}
    }
}

/// Why a page did not come, if the same page may come later: its version is kept, and so is our permission.
pub(super) fn missed(error: &kube::Error) -> Option<Missed> {
    match (size(error), error) {
        (Size::TooLarge | Size::MayBeTooLarge, _) => Some(Missed::Failed),
        (Size::TooSmall, _) => None,
        (Size::SaysNothing, kube::Error::Api(status)) => {
            (status.code == 429).then_some(Missed::Busy)
        }
        (Size::SaysNothing, kube::Error::Service(_)) => Some(Missed::Failed),
        (Size::SaysNothing, _) => None,
    }
}

/// A line that is no event.
fn is_unreadable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::SerdeError(_))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    fn status(code: u16) -> Box<Status> {
        let message = match code {
            504 => "Too large resource version: 9, current: 7",
            _ => "refused",
        };
        Box::new(Status { code, ..Status::failure(message, "Refused") })
    }

    fn start(code: u16) -> Error {
        Error::WatchStartFailed(kube::Error::Api(status(code)))
    }

    #[test]
    fn k22_a_version_that_the_api_server_refuses_is_given_up() {
        for code in [400, 410, 422, 504] {
            assert_eq!(Persistence::default().after(&start(code)), Next::ListAgain, "{code}");
        }
        for code in [401, 403, 429, 500] {
            assert_eq!(Persistence::default().after(&start(code)), Next::GoOn, "{code}");
        }
        for code in [429, 502, 503] {
            let mut persistence = Persistence::default();
            let mut all = (0..20).map(|_| persistence.after(&start(code)));
            assert!(
                all.all(|next| next == Next::GoOn),
                "{code}: it says nothing about the version"
            );
        }
        let mut persistence = Persistence::default();
        let next: Vec<Next> = (0..5).map(|_| persistence.after(&start(500))).collect();
        assert_eq!(next.iter().position(|next| *next == Next::ListAgain), Some(4));
    }

    #[test]
    fn k23_a_list_that_fails_is_not_asked_for_again_in_the_same_size() {
        let resized = |error: &kube::Error, seconds, times| {
            let mut pages = Pages::new(50, 100);
            (0..times).for_each(|_| resize(&mut pages, error, Duration::from_secs(seconds)));
            pages.limit()
        };
        let refused = |code| kube::Error::Api(status(code));
        let broke = kube::Error::ReadEvents(ErrorKind::ConnectionReset.into());
        assert_eq!(resized(&refused(413), 1, 1), 25, "the API server says that it is too large");
        for may_be in [refused(500), refused(503), refused(504), broke] {
            let sizes = [(1, 1), (1, 2), (31, 1)].map(|(seconds, n)| resized(&may_be, seconds, n));
            assert_eq!(sizes, [50, 25, 25], "twice, or once when no time is left: {may_be}");
        }
        for code in [401, 403, 429] {
            assert_eq!(resized(&refused(code), 31, 2), 50, "{code}");
        }
        assert_eq!(resized(&refused(410), 1, 1), 100);
        let failed = Error::InitialListFailed(refused(410));
        assert_eq!(Persistence::default().after(&failed), Next::ListAgain);
    }

    #[test]
    fn k23_a_watch_that_breaks_off_continues_at_its_version_and_lists_nothing() {
        let broke = || Error::WatchFailed(kube::Error::LinesCodecMaxLineLengthExceeded);
        assert_eq!(Persistence::default().after(&broke()), Next::GoOn);
        let gone = Error::WatchError(status(410));
        assert_eq!(Persistence::default().after(&gone), Next::ListAgain, "its version is too old");
    }

    #[test]
    fn k23_an_event_that_cannot_be_read_is_not_asked_for_forever() {
        let garbage = || serde_json::from_str::<u8>("garbage").unwrap_err();
        let unreadable = || Error::WatchFailed(kube::Error::SerdeError(garbage()));
        let read = |kind: ErrorKind| Error::WatchFailed(kube::Error::ReadEvents(kind.into()));
        let mut persistence = Persistence::default();
        let mut next = |error: Error| persistence.after(&error);
        for _ in 0..2 {
            let five: Vec<Next> = (0..5).map(|_| next(unreadable())).collect();
            assert_eq!(five.iter().position(|next| *next == Next::ListAgain), Some(4), "{five:?}");
        }
        let mut broke = (0..50).map(|_| next(read(ErrorKind::ConnectionReset)));
        assert!(broke.all(|next| next == Next::GoOn), "it broke off");
        for _ in 0..5 {
            let four: Vec<Next> = (0..4).map(|_| persistence.after(&unreadable())).collect();
            assert_eq!(four, [Next::GoOn; 4]);
            persistence.went_well();
        }
    }
}
