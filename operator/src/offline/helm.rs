//! Templates of Helm charts: they become manifests only when Helm renders them, so nothing reads them as manifests.

use std::path::Path;

/// Is this the text of a template of a chart? Such a file is below `templates/` beside a `Chart.yaml`, and has actions of
/// Helm in it; one without is a manifest as any other.
pub(crate) fn is_template(path: &Path, text: &str) -> bool {
    text.contains("{{")
        && path.ancestors().skip(1).any(|folder| {
            let is_of_chart = || folder.with_file_name("Chart.yaml").is_file();
            folder.file_name().is_some_and(|name| name == "templates") && is_of_chart()
        })
}
