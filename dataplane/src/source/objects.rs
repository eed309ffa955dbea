//! The one reading of Kubernetes objects, whichever source they come from: text to slim objects
//! (`documents`, `slim`), and those to what the core is fed with (`convert`). `encoded`, `assemble` and `derive`
//! complete a folder of manifests, where no cluster makes slices.

pub mod encoded;
pub mod slim;
pub mod convert;
pub mod documents;
pub mod derive;
pub mod assemble;

use dataplane_core::Object;

use crate::status::Skipped;

/// The objects of one YAML text, with derived slices where it has none, and what is skipped.
///
/// # Errors
/// When the text is not YAML.
pub fn objects_from_yaml(text: &str) -> Result<(Vec<Object>, Vec<Skipped>), documents::ParseError> {
    let manifests = documents::parse(text, documents::Syntax::Yaml)?;
    let world = assemble::assemble(std::iter::once(("text", &manifests)), None);
    let objects = world.objects.values().map(encoded::Kept::object).collect();
    Ok((objects, world.skipped))
}
