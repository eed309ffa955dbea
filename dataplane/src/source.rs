//! Where objects come from. Each source is a module of its own and the only place that knows its
//! world (the file system, the Kubernetes API); all of them hand the core's
//! objects to one writer, which owns the index and publishes.

pub mod api;
pub mod assemble;
pub mod certificate;
pub mod configuration;
pub mod convert;
pub mod delay;
pub mod derive;
pub mod documents;
pub mod feed;
pub mod files;
pub mod report;
pub mod slim;
mod unserved;
pub mod writer;

use crds::Config;
use dataplane_core::{Change, DataSource, Index, Object, Resource};

use crate::settings;

/// An object, or a part of one, that is not served, and why (E15).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Skipped {
    /// Kind of the object.
    pub kind: &'static str,
    /// Its namespace; empty for a Namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is wrong, and what to write instead where that is known.
    pub reason: String,
}

/// The objects of one YAML text, slices that it lacks derived, and what is skipped.
///
/// # Errors
/// When the text is not YAML.
pub fn objects_from_yaml(text: &str) -> Result<(Vec<Object>, Vec<Skipped>), documents::ParseError> {
    let manifests = documents::parse(text, documents::Syntax::Yaml)?;
    let world = assemble::assemble(std::iter::once(("text", &manifests)), None);
    let objects = world.objects.into_values().map(|object| Object::clone(&object)).collect();
    Ok((objects, world.skipped))
}

/// A live index of these objects, as tests drive it in process.
///
/// # Errors
/// When the configuration cannot be used.
pub fn index_of(objects: Vec<Object>, config: &Config) -> Result<Index, String> {
    let mut index = Index::new(settings::of(config)?);
    for resource in Resource::ALL {
        index.begin_list(resource);
    }
    for object in objects {
        index.apply(Change::Apply(object));
    }
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    Ok(index)
}
