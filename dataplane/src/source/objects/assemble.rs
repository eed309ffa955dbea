//! Combines many files: which object wins when two files have it, which ClusterDNS is used, and slices for Services
//! that have none. Pure, and the same for any order of reading.

use std::collections::{BTreeMap, HashMap, HashSet};

use dataplane_core::{Key, Object, Resource, ServiceKind};

use super::documents::{Endpoints, Entry, Manifests, SliceSource, UncheckedConfiguration, Unread};
use super::encoded::Kept;
use super::{Skipped, derive};

/// Warnings about one folder that are kept; each is one log line.
const MAX_WARNINGS: usize = 100;

/// Everything that a folder says, in the form that the writer takes.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The objects that the index should hold.
    pub objects: BTreeMap<(Resource, Key), Kept>,
    /// The ClusterDNS to run, unchecked, and the file it is in.
    pub configuration: Option<(UncheckedConfiguration, String)>,
    /// What is not served and why, by file.
    pub skipped: Vec<Skipped>,
    /// Warnings, such as an object that two files have.
    pub warnings: Vec<String>,
    /// Objects of kinds that DNS does not read, counted.
    pub other_kinds: BTreeMap<String, usize>,
}

/// Puts files together, given by path and in the order of their paths. Of an object that two files
/// hold the later path wins, as with `kubectl apply -f FOLDER`. Of several ClusterDNS the one named `in_use`
/// stays: a file that is added must not take over a cluster's DNS by its name.
pub fn assemble<'a>(
    files: impl Iterator<Item = (&'a str, &'a Manifests)>,
    in_use: Option<&str>,
) -> World {
    let files: Vec<(&str, &Manifests)> = files.collect();
    let mut world = World::default();
    let mut winners: Winners<'_> = BTreeMap::new();
    for &(path, manifests) in &files {
        for entry in &manifests.objects {
            let key = entry.object.id();
            if let Some((_, before)) = winners.insert(key.clone(), (entry, path)) {
                let (resource, key) = (key.0.plural(), key.1);
                world.warn(match before == path {
                    true => format!("{resource} {key} is twice in {path}: the later one is served"),
                    false => format!(
                        "{resource} {key} is in {before} and in {path}: the one in {path} is served"
                    ),
                });
            }
        }
        let unread = manifests.unread.iter().map(Unread::skipped);
        world.skipped.extend(manifests.skipped.iter().cloned().chain(unread).map(|mut skipped| {
            skipped.reason.push_str(&format!(" (in {path})"));
            skipped
        }));
        for (kind, count) in &manifests.other_kinds {
            *world.other_kinds.entry(kind.clone()).or_default() += count;
        }
    }
    let objects = winners.iter().map(|(key, (entry, _))| (key.clone(), entry.object.clone()));
    world.objects = objects.collect();
    world.choose_configuration(&files, in_use);
    world.complete_slices(&files, &winners);
    world
}

/// The entry that is served under each key, and its file.
type Winners<'a> = BTreeMap<(Resource, Key), (&'a Entry, &'a str)>;

impl World {
    fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        }
    }

    /// The one in use, else the first by name; of one name, the later path, as for every object.
    fn choose_configuration(&mut self, files: &[(&str, &Manifests)], in_use: Option<&str>) {
        let mut by_name: BTreeMap<&str, (&UncheckedConfiguration, &str)> = BTreeMap::new();
        for &(path, manifests) in files {
            for found in &manifests.configurations {
                if let Some((_, before)) = by_name.insert(&found.name, (found, path)) {
                    self.warn(format!(
                        "ClusterDNS {:?} is in {before} and in {path}: the one in {path} is used",
                        found.name
                    ));
                }
            }
        }
        let stays = in_use.and_then(|name| by_name.remove_entry(name));
        let (why, chosen) = match stays {
            Some(stays) => ("as it is in use already", Some(stays)),
            None => ("being the first by name", by_name.pop_first()),
        };
        let Some((name, (configuration, path))) = chosen else { return };
        let other = |(name, (_, path)): (&&str, &(&UncheckedConfiguration, &str))| {
            format!("{name:?} in {path}")
        };
        let others: Vec<String> = by_name.iter().map(other).collect();
        if !others.is_empty() {
            self.warn(format!(
                "one process runs one ClusterDNS: {name:?} in {path} is used, {why}, and {} is not; \
                 serve the other from a folder of its own, or delete the one in use",
                others.join(", ")
            ));
        }
        self.configuration = Some((configuration.clone(), path.to_owned()));
    }

    /// Adds slices from Endpoints, else derived from Pods, for Services that have none.
    fn complete_slices(&mut self, files: &[(&str, &Manifests)], winners: &Winners<'_>) {
        let sliced: HashSet<Key> = self.objects.iter().filter_map(service_of).collect();
        let with_endpoints = self.choose_endpoints(files, &sliced);
        let pods = pods_by_namespace(winners);
        for service in winners.values().filter_map(|(entry, _)| selecting(entry)) {
            let key = &service.key;
            if sliced.contains(key) {
                continue;
            }
            let slices = match with_endpoints.get(key) {
                Some(endpoints) => endpoints.slices.clone(),
                None => {
                    let pods = pods.get(&*key.namespace).into_iter().flatten().copied();
                    let slices = derive::slices(service, pods).into_iter();
                    slices.map(|slice| Kept::new(Object::Slice(slice))).collect()
                }
            };
            if slices.is_empty() {
                self.warn_without_endpoints(key);
            }
            slices.into_iter().for_each(|slice| self.add_slice(slice));
        }
        // Services without a selector, and those that are in no file, have Endpoints too.
        let slices = with_endpoints.values().flat_map(|endpoints| &endpoints.slices);
        slices.for_each(|slice| self.add_slice(slice.clone()));
    }

    /// Endpoints of Services without slices, by Service: of several objects the later one, also if it has no addresses.
    fn choose_endpoints<'a>(
        &mut self,
        files: &[(&str, &'a Manifests)],
        sliced: &HashSet<Key>,
    ) -> BTreeMap<&'a Key, &'a Endpoints> {
        let mut by_service: BTreeMap<&Key, (&str, &Endpoints)> = BTreeMap::new();
        for &(path, manifests) in files {
            for endpoints in &manifests.endpoints {
                let service = &endpoints.service;
                if sliced.contains(service) {
                    continue;
                }
                let Some((before, _)) = by_service.insert(service, (path, endpoints)) else {
                    continue;
                };
                self.warn(match before == path {
                    true => format!(
                        "endpoints {service} is twice in {path}: the later one is served"
                    ),
                    false => format!(
                        "endpoints {service} is in {before} and in {path}: the one in {path} is served"
                    ),
                });
            }
        }
        by_service.into_iter().map(|(service, (_, endpoints))| (service, endpoints)).collect()
    }

    fn add_slice(&mut self, slice: Kept) {
        self.objects.insert(slice.id(), slice);
    }

    /// A headless Service without endpoints is NXDOMAIN (RR18), which surprises people who committed
    /// a StatefulSet and expects its names.
    fn warn_without_endpoints(&mut self, service: &Key) {
        let held = self.objects.get(&(Resource::Services, service.clone())).map(Kept::object);
        let is_headless = held.is_some_and(
            |held| matches!(held, Object::Service(held) if held.kind == ServiceKind::Headless),
        );
        if is_headless {
            self.warn(format!(
                "headless Service {service} has no endpoints in the folder, so its names do not \
                 exist: add its Pods with status.podIPs, or an EndpointSlice (workloads such as \
                 StatefulSets hold no addresses)"
            ));
        }
    }
}

/// The Service that an object's slice belongs to.
fn service_of(((resource, _), kept): (&(Resource, Key), &Kept)) -> Option<Key> {
    if *resource != Resource::EndpointSlices {
        return None;
    }
    match kept.object() {
        Object::Slice(slice) => Some(Key::new(slice.key.namespace, slice.service)),
        Object::Service(_) | Object::Namespace(_) | Object::Pod(_) => None,
    }
}

fn selecting(entry: &Entry) -> Option<&derive::Selecting> {
    match &entry.origin {
        SliceSource::Selecting(service) => Some(service),
        SliceSource::Pod(_) | SliceSource::Other => None,
    }
}

/// Pods in the order of their names.
fn pods_by_namespace<'a>(winners: &Winners<'a>) -> HashMap<&'a str, Vec<&'a derive::Pod>> {
    let mut by_namespace: HashMap<&str, Vec<&derive::Pod>> = HashMap::new();
    for (entry, _) in winners.values() {
        if let SliceSource::Pod(pod) = &entry.origin {
            by_namespace.entry(&pod.key.namespace).or_default().push(pod);
        }
    }
    by_namespace
}

#[cfg(test)]
mod tests;
