//! `render`: every object that a ClusterDNS would create, as YAML, in the order in which they are applied.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use crds::ClusterDNS;
use crds::manifest::{Found, ManifestError};
use crds::v1alpha1::ManagementState;
use jiff::Timestamp;
use kube::ResourceExt;

use super::check::errors;
use super::output::Finding;
use super::{Severity, assumed, cluster_dns, is_template, named_files, names_our_kind, text_of};
use crate::decide::plan::ServicePlan;
use crate::desired::Desired;
use crate::printable::{plain, plain_value};
use crate::settings::{DataPlane, Settings};
use crate::{args, decide};

/// Prints the objects of every ClusterDNS in these files to `out`, and what is wrong to `problems`.
///
/// # Errors
/// Nothing can be written there any more.
pub fn render(
    args: &args::Render,
    out: &mut dyn Write,
    problems: &mut dyn Write,
) -> std::io::Result<Severity> {
    let settings = Settings {
        dataplane: DataPlane { image: args.dataplane_image.clone(), ..DataPlane::default() },
        own_namespace: Some(args.namespace.clone()),
        ..Settings::default()
    };
    let mut outcome = Severity::Fine;
    let mut count = 0;
    for file in named_files(&args.file) {
        let results = match file {
            Ok(path) => of_file(&path, &settings),
            Err(why) => vec![Err((Severity::Unreadable, why))],
        };
        for result in results {
            match result {
                Ok(text) => {
                    count += 1;
                    out.write_all(text.as_bytes())?;
                }
                Err((worse, message)) => {
                    outcome = outcome.max(worse);
                    writeln!(problems, "{}", plain(&message))?;
                }
            }
        }
    }
    if count == 0 && outcome == Severity::Fine {
        writeln!(
            problems,
            "no ClusterDNS in these files: write apiVersion: clusterdns.dev/v1alpha1 and kind: ClusterDNS"
        )?;
        outcome = Severity::Unreadable;
    }
    Ok(outcome)
}

/// The text to print for each ClusterDNS of a file, or why nothing is.
fn of_file(path: &Path, settings: &Settings) -> Vec<Result<String, (Severity, String)>> {
    let (name, text) = match text_of(path) {
        Ok(text) => text,
        Err(why) => return vec![Err((Severity::Unreadable, why))],
    };
    let shown = plain_value(&name);
    if is_template(path, &text) {
        let why =
            format!("{shown}: a template of Helm is passed over: render it with helm template");
        return match names_our_kind(&text) {
            true => vec![Err((Severity::Fine, why))],
            false => Vec::new(),
        };
    }
    let one = |read: Result<Found, ManifestError>| {
        let errors: Vec<String> = errors(&name, &read).iter().map(Finding::line).collect();
        match read {
            Ok(found) if errors.is_empty() => rendered(&found.resource, settings)
                .map_err(|why| (Severity::Wrong, format!("{shown}: {why}"))),
            Ok(_) | Err(_) => Err((Severity::Wrong, errors.join("\n"))),
        }
    };
    match cluster_dns(&text, &name) {
        Ok(found) => found.into_iter().map(one).collect(),
        Err(why) => vec![Err((Severity::Unreadable, why))],
    }
}

/// The objects of one ClusterDNS as YAML documents, with what they assume in front.
///
/// # Errors
/// What is wrong with it, one a line.
pub fn rendered(dns: &ClusterDNS, settings: &Settings) -> Result<String, String> {
    let config = crds::check_resource(dns).map_err(|violations| violations.to_string())?;
    let observed = assumed::observed(dns);
    // Decided as in the first reconcile. Certificates of private authorities are in the cluster, so only their names
    // are shown.
    let plan = decide::plan(dns, &config, &observed, Timestamp::UNIX_EPOCH)
        .map_err(|refusal| format!("{}: {}: {}", refusal.field, refusal.reason, refusal.message))?;
    let mut text = assumptions(dns, &plan.service);
    for (_, object) in Desired::build(dns, &config, &observed, &plan, settings).objects {
        let yaml = serde_saphyr::to_string(&object).map_err(|error| error.to_string())?;
        let _ = write!(text, "---\n{}\n", yaml.trim_end());
    }
    Ok(text)
}

/// The assumptions come before the objects, so that a reader does not take the objects for those of a real cluster.
fn assumptions(dns: &ClusterDNS, service: &ServicePlan) -> String {
    let mut text = format!(
        "# ClusterDNS {}: the objects that the operator applies in a new cluster with two nodes, without owner references.\n",
        dns.name_any()
    );
    let of_spec = dns.spec.service.clone().unwrap_or_default();
    match service {
        ServicePlan::Own => {}
        ServicePlan::Adopted { .. }
        | ServicePlan::Recreated { .. }
        | ServicePlan::Released { .. } => {
            let (namespace, name) = (&of_spec.namespace, &of_spec.name);
            let _ = writeln!(
                text,
                "# Service {namespace}/{name} exists and is adopted: nothing of it is applied. Its selector is taken to be \
                 k8s-app: kube-dns."
            );
        }
    }
    match dns.spec.management_state {
        ManagementState::Managed => {}
        ManagementState::Unmanaged => {
            text.push_str("# It is Unmanaged: as long as it is, none of this is applied.\n");
        }
    }
    text
}
