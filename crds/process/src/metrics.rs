//! `/metrics` as both programs write it: as text, or as messages with native histograms for a scraper that asks for them; and
//! the usual metrics of a process.

mod format;
mod messages;
mod page;
mod process;

pub use format::Form;
pub use page::{Page, Part, Section};
pub use process::{Process, Started};

/// The commit that this program was built from, where the build says it.
pub const REVISION: &str = match option_env!("CLUSTERDNS_REVISION") {
    Some(revision) => revision,
    None => "",
};
