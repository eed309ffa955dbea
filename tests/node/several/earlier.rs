//! The packaged chart and the programs of an earlier commit become those of this one, and go back (row D10). They are there
//! where `make cluster FROM=COMMIT` has built them.

use std::path::Path;

use tests::helm::Tools;
use tests::node::{EARLIER_TAG, Earlier, OURS_NAME, OURS_TAG};

use super::clients::Clients;
use super::moving::{rolled_out, until_image};
use super::table::Table;
use crate::installed::{SYSTEM, release, release_of};
use crate::site::{Site, package};

pub(super) async fn d10_an_earlier_commit_is_upgraded_to_and_back(site: &Site, table: &mut Table) {
    let Some(earlier) = Earlier::given() else {
        site.say("not run, without make cluster FROM=COMMIT: upgrades from an earlier commit");
        return;
    };
    let chart = package(&site.tools, &earlier.chart(), "earlier");
    let tag = format!("image.tag={EARLIER_TAG}");

    let what = "helm upgrade to an earlier commit, 1,000 q/s";
    let saw = Clients::fast_during(site, table, what, async || {
        release_of(site, "upgrade", &chart, &[&tag]);
        until_all_are(site, EARLIER_TAG).await;
    })
    .await;
    saw.lost_nothing_of_ours(what);
    // What an earlier release has before its upgrade.
    apply_crds(site, &earlier.chart());

    let what = "CRDs applied, and helm upgrade to this commit, 1,000 q/s";
    let saw = Clients::fast_during(site, table, what, async || {
        apply_crds(site, &Tools::chart());
        release(site, "upgrade", &[]);
        until_all_are(site, OURS_TAG).await;
    })
    .await;
    saw.lost_nothing_of_ours(what);

    let what = "helm rollback to the earlier commit, 1,000 q/s";
    let saw = Clients::fast_during(site, table, what, async || {
        site.tools.helm(&["rollback", "clusterdns", "--namespace", SYSTEM, "--wait"]).ok();
        until_all_are(site, EARLIER_TAG).await;
    })
    .await;
    saw.lost_nothing_of_ours(what);

    release(site, "upgrade", &[]);
    until_all_are(site, OURS_TAG).await;
}

/// As docs/upgrading.md says, because helm does not.
fn apply_crds(site: &Site, chart: &Path) {
    let crds = chart.join("crds").display().to_string();
    site.kubectl(&format!("apply --server-side --force-conflicts --filename {crds}"));
}

/// Operators and data planes run this image, and the configuration is served.
async fn until_all_are(site: &Site, tag: &str) {
    rolled_out(site).await;
    until_image(site, tag).await;
    let operators = site.get(&format!("deployment clusterdns-operator --namespace {SYSTEM}"));
    let image = &operators["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, &format!("{OURS_NAME}:{tag}"));
    site.until_condition("Ready", "True", "Serving").await;
}
