//! What the answer of an API server to a watch says about the version at which the watch begins (K5, K22). An API server whose etcd
//! was restored from a backup, or was compacted, refuses that version forever: everything must be listed again. Pure.

/// Answers in a row that may be about one version, after which it counts as lost.
pub const MAX_STARTS: u32 = 5;

/// What a status says about the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The API server does not have it, and a watch that cannot start there will not start there later.
    Lost,
    /// Nothing: no permission, too many requests, or no server, also behind a balancer.
    SaysNothing,
    /// It may be the reason: after [`MAX_STARTS`] of these it is.
    MayBeLost,
}

/// Of the code and the message of a Status object, or of an error event.
pub fn verdict(code: u16, message: &str) -> Verdict {
    match code {
        // HTTP 410, or the forms that some servers use instead.
        400 | 410 | 422 => Verdict::Lost,
        504 if message.to_ascii_lowercase().contains("too large resource version") => Verdict::Lost,
        401 | 403 | 429 | 502..=504 => Verdict::SaysNothing,
        _ => Verdict::MayBeLost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k22_only_some_answers_say_that_the_version_is_lost() {
        for code in [400, 410, 422] {
            assert_eq!(verdict(code, "refused"), Verdict::Lost, "{code}");
        }
        assert_eq!(verdict(504, "Too large resource version: 9, current: 7"), Verdict::Lost);
        for code in [401, 403, 429, 502, 503, 504] {
            assert_eq!(verdict(code, "timeout"), Verdict::SaysNothing, "{code}");
        }
        for code in [404, 500] {
            assert_eq!(verdict(code, "boom"), Verdict::MayBeLost, "{code}");
        }
    }
}
