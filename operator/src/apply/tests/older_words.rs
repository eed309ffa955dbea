//! An API server that does not know the newer words of `trafficDistribution`, although its version does.

use super::cluster::lock;
use super::story::Story;
use super::*;
use crate::apply::outcome::{PutBack, Restored};

const SPEC: &str =
    "{scaling: {fixed: {replicas: 2}}, service: {trafficDistribution: PreferSameZone}}";
const DISTRIBUTION: &str = "/spec/trafficDistribution";

/// A cluster that has the feature, or has none, and no Service.
async fn without_service(knows_close_only: bool) -> Story {
    let mut story = Story::begun("{scaling: {fixed: {replicas: 2}}}").await;
    story.observed.offers.minor = 34;
    story.becomes(SPEC);
    {
        let mut cluster = lock(&story.cluster);
        cluster.knows_close_only = knows_close_only;
        cluster.delete(Kind::Service);
    }
    story
}

#[tokio::test]
async fn o16_a_service_is_there_also_where_the_word_for_the_zone_is_refused() {
    for (knows_close_only, expected) in [(false, "PreferSameZone"), (true, "PreferClose")] {
        let mut story = without_service(knows_close_only).await;
        let outcome = story.reconciled().await;
        assert!(outcome.is_complete(), "{outcome:?}");
        assert_eq!(lock(&story.cluster).get(Kind::Service, DISTRIBUTION), expected);
        let written = lock(&story.cluster).count(Kind::Service);
        story.reconciled().await;
        assert_eq!(lock(&story.cluster).count(Kind::Service), written, "it is not tried each time");
    }
}

#[tokio::test]
async fn o16_a_service_comes_back_also_where_its_word_for_the_zone_is_refused_now() {
    let mut story = without_service(false).await;
    story.reconciled().await;
    story.reconciled().await;
    {
        let mut cluster = lock(&story.cluster);
        cluster.knows_close_only = true;
        cluster.delete(Kind::Service);
    }
    let PutBack { service, outcome } = story.restored().await;
    assert_eq!((service, outcome.is_complete()), (Restored::Created, true));
    assert_eq!(lock(&story.cluster).get(Kind::Service, DISTRIBUTION), "PreferClose");
}
