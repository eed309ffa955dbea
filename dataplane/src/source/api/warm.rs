//! The start from data on this machine: the mounted copy of the ConfigMap, then the snapshot.

use super::configuration::Configuration;
use super::ingest::Ingest;
use crate::source::configuration;

impl Configuration {
    /// The snapshot is in use before the first request is sent. A newer configuration
    /// takes over when it is read.
    pub(super) fn start_with_what_is_kept(&mut self, ingest: &mut Ingest) {
        if !self.is_configured() {
            self.take_mounted(ingest);
        }
        self.warm_start(ingest);
    }

    /// E41, E46: answers from the snapshot until lists are live, under the configuration in it where
    /// none is known; and begins to write the next one. The mounted copy comes before the snapshot.
    pub(super) fn warm_start(&mut self, ingest: &mut Ingest) {
        let Some((folder, stored)) = self.state_dir.take() else { return };
        if let (false, Some(stored)) = (self.is_configured(), &stored) {
            match stored.configuration() {
                Ok(config) => {
                    let origin = format!("the snapshot in {}", folder.display());
                    let checked = configuration::stored(config, origin);
                    self.instead(ingest, |this, ingest| this.adopt(ingest, checked));
                }
                Err(error) => {
                    tracing::warn!("the configuration in the snapshot cannot run: {error}")
                }
            }
        }
        if !self.is_configured() {
            // Without a configuration there are neither answers nor snapshots; this is tried again when there is one.
            self.state_dir = Some((folder, stored));
            return;
        }
        if let Some(stored) = stored {
            ingest.writer.load(&folder, stored);
        }
        match ingest.writer.keep_snapshots(&folder) {
            Ok(()) => self.keep_stable(ingest),
            Err(error) => tracing::error!("no snapshots are written: {error:#}"),
        }
    }
}
