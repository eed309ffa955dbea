//! Where objects come from. Each source is a module of its own and the only place that knows its
//! world (the file system, the Kubernetes API); all of them hand the core's
//! objects to one writer, which owns the index and publishes.

pub mod api;
pub mod files;
pub mod objects;
pub mod configuration;
pub mod certificate;
pub mod writer;

use crds::Config;
use dataplane_core::{Change, DataSource, Index, Object, Resource};

pub use objects::objects_from_yaml;

use crate::settings;

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
