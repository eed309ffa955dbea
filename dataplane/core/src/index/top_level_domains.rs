//! Which Namespaces are called like a top-level domain (S1). A Service `google` in a Namespace `com` answers for `google.com`
//! in Pods that ask with a search list, because they try `google.com.svc` and the cluster domain first. The names are right as
//! they are, so all that can be done here is to say that they are there.

/// The top-level domains that are delegated, and `onion`, as DNS labels: of the Public Suffix List of November 2026 (by the
/// crate psl 2.1.247), in order. The chart has the same file.
const LIST: &str = include_str!("top_level_domains.txt");

/// Whether a label in lower case is a top-level domain.
pub(super) fn is_top_level_domain(label: &str) -> bool {
    let mut rest = LIST;
    while let Some((before, middle, behind)) = split(rest) {
        match middle.cmp(label) {
            core::cmp::Ordering::Equal => return true,
            core::cmp::Ordering::Less => rest = behind,
            core::cmp::Ordering::Greater => rest = before,
        }
    }
    false
}

/// The line in the middle of a text, with what is before and behind it; nothing of an empty text.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (first, second) = text.split_at_checked(text.len() / 2)?;
    let begin = first.rfind('\n').map_or(0, |end| end + 1);
    let end = first.len() + second.find('\n')?;
    Some((text.get(..begin)?, text.get(begin..end)?, text.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::index::is_label;

    #[test]
    fn s1_every_top_level_domain_of_the_list_is_found_and_nothing_else() {
        let all: Vec<&str> = LIST.lines().collect();
        assert!(all.len() > 1_400, "{}", all.len());
        assert!(all.is_sorted_by(|one, next| one < next));
        for label in &all {
            assert!(is_label(label) && is_top_level_domain(label), "{label}");
        }
        for label in ["com", "dev", "arpa", "xn--p1ai", "onion"] {
            assert!(is_top_level_domain(label), "{label}");
        }
        for label in ["", "a", "comm", "default", "kube-system", "zzz", "com\naaa"] {
            assert!(!is_top_level_domain(label), "{label}");
        }
    }
}
