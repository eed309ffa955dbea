//! S1: a Service in a Namespace that is called like a top-level domain answers for names of the internet.

use tests::objects::wait_for;

use super::Site;

/// What the API server says about a new Namespace: whether it would be there, and the text. None is made.
fn created(site: &Site, name: &str) -> (bool, String) {
    let ran = site.tools.kubectl(&["create", "namespace", name, "--dry-run=server"]);
    (ran.success, ran.stdout + &ran.stderr)
}

/// Tries until a policy that was just written has its effect: the API server reads it a little later.
async fn says(site: &Site, name: &str, is_there: bool, text: &str) {
    wait_for(&format!("{name}: {is_there}, {text}"), async || {
        let (was_there, said) = created(site, name);
        (was_there == is_there && said.contains(text)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn s1_a_namespace_called_like_a_top_level_domain_is_refused_or_warned_about() {
    let Some(site) = Site::start().await else { return };
    let quietly = |name: &str| (true, format!("namespace/{name} created (server dry run)\n"));
    site.helm("install", &[]);
    assert_eq!(created(&site, "com"), quietly("com"), "by default");

    let also = "namespaceNames.also={corp}";
    site.helm("upgrade", &["--set", "namespaceNames.topLevelDomains=Warn", "--set", also]);
    let text = "a Service NAME in a Namespace dev would answer for NAME.dev in Pods";
    says(&site, "dev", true, text).await;

    site.helm("upgrade", &["--set", "namespaceNames.topLevelDomains=Deny", "--set", also]);
    for name in ["com", "corp", "xn--p1ai", "zw"] {
        says(&site, name, false, &format!("would answer for NAME.{name} in Pods")).await;
    }
    assert_eq!(created(&site, "orders"), quietly("orders"), "without a warning");
}
