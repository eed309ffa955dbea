//! S12: who writes a ClusterDNS decides what names mean, so no other right includes that one.

use kube::Client;
use tests::objects::wait_for;

use super::Site;
use super::rights::Right;

async fn may(client: &Client, user: &str, verb: &str, group: &str, resource: &str) -> bool {
    Right { verb, group, resource, namespace: "", name: "" }.is_held(client, user).await
}

const READS: [&str; 3] = ["get", "list", "watch"];
const WRITES: [&str; 4] = ["create", "update", "patch", "delete"];

#[tokio::test]
async fn s12_only_holders_of_the_role_may_write_a_clusterdns() {
    let Some(site) = Site::start().await else { return };
    site.helm("install", &[]);
    let client = site.plane.client().await;
    // In the whole cluster, which is the most that such a role can give.
    for role in ["view", "edit", "admin", "clusterdns:view", "clusterdns:admin"] {
        let (binding, user) = (format!("people-{role}"), format!("--user={role}"));
        site.kubectl(&[
            "create",
            "clusterrolebinding",
            &binding,
            &format!("--clusterrole={role}"),
            &user,
        ]);
    }
    wait_for("the bindings", async || {
        let usual = may(&client, "edit", "create", "apps", "deployments").await
            && may(&client, "admin", "create", "apps", "deployments").await
            && may(&client, "view", "list", "apps", "deployments").await;
        (usual && may(&client, "clusterdns:view", "list", "clusterdns.dev", "clusterdnses").await)
            .then_some(())
    })
    .await;
    for verb in READS.into_iter().chain(WRITES) {
        for user in ["view", "edit", "admin", "stranger", "clusterdns:view", "clusterdns:admin"] {
            let wanted = match user {
                "clusterdns:admin" => true,
                "clusterdns:view" => READS.contains(&verb),
                _ => false,
            };
            let allowed = may(&client, user, verb, "clusterdns.dev", "clusterdnses").await;
            assert_eq!(allowed, wanted, "{user} {verb}");
        }
    }

    site.helm("upgrade", &["--set", "people.aggregateToView=true"]);
    wait_for("everybody who may view reads", async || {
        may(&client, "edit", "list", "clusterdns.dev", "clusterdnses").await.then_some(())
    })
    .await;
    for verb in WRITES {
        assert!(!may(&client, "admin", verb, "clusterdns.dev", "clusterdnses").await, "{verb}");
    }
}
