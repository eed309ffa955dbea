//! How much memory the reports of pods take, about: what pods share counts once.

use std::collections::HashSet;

use crds::v1alpha1::SkippedObject;

use crate::observe::observed::{ClosedListener, DownServer, EmptyGroup, Reported, UsedCertificate};

/// The sum over several reports.
#[derive(Debug, Default)]
pub(super) struct Size {
    octets: usize,
    /// Lists of skipped objects that were counted.
    lists: HashSet<*const SkippedObject>,
}

impl Size {
    /// Octets of all reports so far, this one among them. `why`: the octets of the text that says why there is none now.
    pub(super) fn with(&mut self, reported: Option<&Reported>, why: usize) -> usize {
        self.octets += reported.map_or(0, own) + why;
        if let Some(reported) = reported
            && self.lists.insert(reported.skipped.as_ptr())
        {
            self.octets += reported.skipped.iter().map(skipped).sum::<usize>();
        }
        self.octets
    }
}

/// What a report does not share with others.
fn own(reported: &Reported) -> usize {
    let Reported {
        process,
        revision,
        max_format: _,
        role,
        rejection,
        has_no_document: _,
        ignored,
        cut_off,
        skipped: _,
        upstreams_down,
        upstreams_failing,
        upstreams_looping,
        upstreams_without_servers,
        certificates,
        closed_listeners,
    } = reported;
    let texts = [process, revision, role].map(|text| text.len()).iter().sum::<usize>();
    let certificate = |certificate: &UsedCertificate| {
        let trouble = certificate.trouble.as_ref().map_or(0, String::len);
        size_of::<UsedCertificate>() + certificate.secret.len() + trouble
    };
    let closed =
        |it: &ClosedListener| size_of::<ClosedListener>() + it.listener.len() + it.why.len();
    size_of::<Reported>()
        + texts
        + ignored.iter().map(|field| size_of::<String>() + field.len()).sum::<usize>()
        + rejection.as_ref().map_or(0, String::len)
        + cut_off.as_ref().map_or(0, |it| it.why.len())
        + [upstreams_down, upstreams_failing, upstreams_looping]
            .into_iter()
            .flatten()
            .map(down)
            .sum::<usize>()
        + upstreams_without_servers.iter().map(empty).sum::<usize>()
        + certificates.iter().map(certificate).sum::<usize>()
        + closed_listeners.iter().map(closed).sum::<usize>()
}

pub(super) fn down(server: &DownServer) -> usize {
    let DownServer { group, server, transport, server_name, group_servers: _, remedy } = server;
    let texts = [group, server, transport, server_name].map(|text| text.len());
    size_of::<DownServer>() + texts.iter().sum::<usize>() + remedy.as_ref().map_or(0, String::len)
}

pub(super) fn empty(group: &EmptyGroup) -> usize {
    size_of::<EmptyGroup>() + group.group.len() + group.why.len()
}

fn skipped(object: &SkippedObject) -> usize {
    let SkippedObject { kind, namespace, name, reason } = object;
    let texts = [kind, namespace, name, reason].map(|text| text.len()).iter().sum::<usize>();
    size_of::<SkippedObject>() + texts
}
