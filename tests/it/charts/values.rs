//! Values that are rare and right: each has its effect, keeps its type in YAML, or is refused with what to do.

use serde_json::{Value, json};

use super::{digest, helm, objects, run, template};

/// A release of this name in this namespace, with all objects that the values give.
pub(super) fn rendered(release: &str, namespace: &str, more: &[&str]) -> Vec<Value> {
    let helm = helm().expect("asked for before");
    let arguments = ["template", release, "charts/clusterdns", "--namespace", namespace];
    objects(&run(&helm, &[&arguments[..], more].concat()).expect("it renders"))
}

/// Calls `see` with each value of these keys at any depth, and with its path.
fn each_of(value: &Value, place: &str, keys: &[&str], see: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let place = format!("{place}.{key}");
                if keys.contains(&key.as_str()) {
                    see(&place, field);
                }
                each_of(field, &place, keys, see);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| each_of(item, place, keys, see));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn names_that_yaml_could_read_as_numbers_stay_names() {
    if helm().is_none() {
        return;
    }
    let strings = "instances={123,true},services={123},workloadNamespaces={123},certificates.names={123},\
        nameOverride=123,priorityClassName=1,test.image=123,clusterDNS.name=true,\
        clusterDNS.spec.service.name=123,clusterDNS.spec.service.namespace=123";
    let switches = "clusterDNS.create=true,certificates.labelled=false,lostPods.enabled=true,\
        metrics.podMonitor=true,metrics.prometheusRule=true,metrics.dashboards=true";
    let objects = rendered("123", "1e3", &["--set-string", strings, "--set", switches]);
    assert!(objects.len() > 20, "{}", objects.len());
    let keys = [
        "name",
        "namespace",
        "app.kubernetes.io/instance",
        "priorityClassName",
        "serviceAccountName",
        "image",
    ];
    let mut seen = 0;
    for object in &objects {
        let kind = object["kind"].as_str().expect("a kind");
        each_of(object, kind, &keys, &mut |place, value| {
            seen += 1;
            // `name` of a `nameRef` or the like would be an object.
            assert!(value.is_string() || value.is_object(), "{place}: {value}");
        });
        each_of(object, kind, &["resourceNames"], &mut |place, names| {
            let names = names.as_array().expect("a list");
            assert!(names.iter().all(Value::is_string), "{place}: {names:?}");
        });
    }
    assert!(seen > 80, "{seen}");
}

#[test]
fn a_value_that_is_zero_empty_or_absolute_has_its_effect() {
    if helm().is_none() {
        return;
    }
    let of = |set: &str, template: &str| {
        rendered("release", "ns", &["--set", set, "--show-only", &format!("templates/{template}")])
    };
    let budget = of("podDisruptionBudget.minAvailable=0", "poddisruptionbudget.yaml");
    assert_eq!(budget[0]["spec"]["minAvailable"], 0);
    assert_eq!(budget[0]["spec"]["maxUnavailable"], Value::Null);
    let budget = of("podDisruptionBudget.maxUnavailable=0", "poddisruptionbudget.yaml");
    assert_eq!(budget[0]["spec"]["maxUnavailable"], 0);
    // Without both it would hold up every drain.
    let neither = "podDisruptionBudget.minAvailable=null,podDisruptionBudget.maxUnavailable=null";
    let budget = of(neither, "poddisruptionbudget.yaml");
    assert_eq!(budget[0]["spec"]["maxUnavailable"], 1, "{}", budget[0]);

    let spread = |selector: &str| {
        let set = format!(
            "topologySpreadConstraints[0].topologyKey=rack,topologySpreadConstraints[0].maxSkew=1,\
             topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway{selector}"
        );
        let deployment = of(&set, "deployment.yaml");
        deployment[0]["spec"]["template"]["spec"]["topologySpreadConstraints"][0].clone()
    };
    let own = spread("")["labelSelector"]["matchLabels"].clone();
    assert_eq!(own["app.kubernetes.io/name"], "clusterdns-operator");
    let null = spread(",topologySpreadConstraints[0].labelSelector=null");
    assert_eq!(null["labelSelector"]["matchLabels"], own);
    let others = spread(",topologySpreadConstraints[0].labelSelector.matchLabels.app=a");
    assert_eq!(others["labelSelector"]["matchLabels"], json!({"app": "a"}));

    // A default of a map is dropped by null.
    let labels = "metrics.dashboards=true,metrics.dashboardLabels.grafana_dashboard=null";
    let dashboards = of(labels, "dashboards.yaml");
    assert!(!dashboards.is_empty());
    assert_eq!(dashboards[0]["metadata"]["labels"]["grafana_dashboard"], Value::Null);

    let pod = of("test.names={kubernetes.default.svc.cluster.local.}", "tests/resolves.yaml");
    let script = pod[0]["spec"]["containers"][0]["command"][2].as_str().expect("a script");
    assert_eq!(script.trim(), "nslookup kubernetes.default.svc.cluster.local.");
}

#[test]
fn the_pod_of_helm_test_runs_where_the_operator_runs() {
    if helm().is_none() {
        return;
    }
    let set = "imagePullSecrets[0].name=registry,nodeSelector.pool=system,tolerations[0].key=only";
    let objects = rendered("release", "ns", &["--set", set]);
    let operator = objects.iter().find(|object| object["kind"] == "Deployment").expect("one");
    let operator = &operator["spec"]["template"]["spec"];
    let pod = &objects.iter().find(|object| object["kind"] == "Pod").expect("a pod")["spec"];
    for field in ["nodeSelector", "tolerations", "imagePullSecrets"] {
        assert!(!pod[field].is_null(), "{field}");
        assert_eq!(pod[field], operator[field], "{field}");
    }
}

/// An upgrade keeps the values that a person set: the notes must not claim another version than the one that runs.
#[test]
fn the_notes_name_the_version_of_the_programs_and_say_where_the_chart_has_another() {
    let Some(helm) = helm() else { return };
    let own = env!("CARGO_PKG_VERSION");
    let notes = |more: &str| {
        let install = ["install", "release", "charts/clusterdns", "--dry-run=client"];
        run(&helm, &[&install[..], &["--set", more]].concat()).expect("it renders")
    };
    let is_installed =
        |version: &str| format!("\nThe operator of ClusterDNS {version} is installed");
    for more in ["replicas=1", &format!("image.tag=v{own}"), &digest(&format!(",image.tag={own}"))]
    {
        let notes = notes(more);
        assert!(!notes.contains("names another version"), "{notes}");
    }
    assert!(notes("replicas=1").contains(&is_installed(own)));
    let notes = notes(&digest(",image.tag=9.9.9"));
    assert!(notes.contains(&is_installed("9.9.9")), "{notes}");
    assert!(notes.contains(&format!("The chart is that of {own}; `image.tag` names another")));
    assert!(notes.contains("`--set image.tag= --set image.digest=`"), "{notes}");
}

#[test]
fn the_name_that_the_operator_has_by_default_can_be_written() {
    if helm().is_none() {
        return;
    }
    let named = rendered("release", "ns", &["--set", "nameOverride=clusterdns-operator"]);
    assert_eq!(named, rendered("release", "ns", &[]));
}

/// What follows the three numbers is a matter of who copies the image, and both can be made empty in YAML too.
#[test]
fn a_tag_of_a_mirror_and_values_that_are_null_render() {
    let Some(helm) = helm() else { return };
    let own = env!("CARGO_PKG_VERSION");
    let render =
        |more: &[&str]| run(&helm, &[&["template", "release", "charts/clusterdns"], more].concat());
    for suffix in ["-20261127.0815", "-01", "-rc_1"] {
        let with = digest(&format!(",image.tag={own}{suffix}"));
        render(&["--set", &with]).unwrap_or_else(|error| panic!("{suffix}: {error}"));
    }
    let nothing = "image.tag=null,image.digest=null";
    let text = render(&["--set", nothing]).unwrap_or_else(|error| panic!("{error}"));
    assert!(text.contains(&format!("clusterdns:{own}")), "{text}");
}

/// GKE refuses such pods in other namespaces than kube-system where no quota names their class.
#[test]
fn a_quota_names_the_priority_class_of_the_operator_where_that_is_of_the_system() {
    if helm().is_none() {
        return;
    }
    let quotas = |namespace: &str, set: &str| -> Vec<Value> {
        let objects = rendered("release", namespace, &["--set", set]);
        objects.into_iter().filter(|object| object["kind"] == "ResourceQuota").collect()
    };
    for class in ["system-cluster-critical", "system-node-critical"] {
        let quotas = quotas("ns", &format!("priorityClassName={class}"));
        let [quota] = &quotas[..] else { panic!("{quotas:?}") };
        assert_eq!(quota["metadata"]["namespace"], "ns");
        let scope = json!({"scopeName": "PriorityClass", "operator": "In", "values": [class]});
        assert_eq!(quota["spec"]["scopeSelector"]["matchExpressions"], json!([scope]));
    }
    for set in ["priorityClassQuota=false", "priorityClassName=", "priorityClassName=high"] {
        assert_eq!(quotas("ns", set), Vec::<Value>::new(), "{set}");
    }
    // There it would count the pods of all others too.
    assert_eq!(quotas("kube-system", "replicas=2"), Vec::<Value>::new());
}

/// Server-side apply and kustomize refuse a key that is there twice, and the operator a flag.
#[test]
fn what_the_chart_sets_itself_is_refused_with_what_to_do() {
    let Some(helm) = helm() else { return };
    for (set, says) in [
        (
            "extraArgs={--log-level=debug}",
            "the chart writes --log-level itself: set the value logging.level",
        ),
        ("extraArgs={--lost-pods}", "set the value lostPods.enabled"),
        (
            "podLabels.app\\.kubernetes\\.io/component=mine",
            "podLabels: the chart sets the label app.kubernetes.io/component itself",
        ),
        (
            "metrics.labels.app\\.kubernetes\\.io/part-of=mine",
            "metrics.labels: the chart sets the label",
        ),
        (
            "metrics.dashboardLabels.app\\.kubernetes\\.io/name=mine",
            "metrics.dashboardLabels: the chart sets the label",
        ),
        (
            "extraEnv[0].name=CLUSTERDNS_NAMESPACE",
            "extraEnv: CLUSTERDNS_NAMESPACE would be there twice",
        ),
        ("extraEnv[0].name=A,extraEnv[1].name=A", "extraEnv: A would be there twice"),
    ] {
        let refusal = template(&helm, &["--set", set]).expect_err(set);
        assert!(refusal.contains(says), "{set}: {refusal}");
    }
    let pods = "podAnnotations.kubectl\\.kubernetes\\.io/default-container=sidecar";
    let rendered = template(&helm, &["--set", pods]).expect("it renders");
    assert_eq!(rendered.matches("kubectl.kubernetes.io/default-container").count(), 1);
    assert!(rendered.contains("kubectl.kubernetes.io/default-container: sidecar"));
}

#[test]
fn scrapes_are_as_rare_as_the_alerts_allow() {
    let Some(helm) = helm() else { return };
    for (interval, rules) in [
        ("2m", "true"),
        ("1m60s", "true"),
        ("120000ms", "true"),
        ("1h", "false"),
        ("1d2h", "false"),
    ] {
        let set = format!(
            "metrics.podMonitor=true,metrics.prometheusRule={rules},metrics.interval={interval}"
        );
        let rendered = template(&helm, &["--set", &set]).unwrap_or_else(|why| panic!("{why}"));
        assert!(rendered.contains(&format!("interval: {interval}")), "{interval}");
    }
}

#[test]
fn the_notes_say_that_alerts_need_a_prometheus_that_scrapes_the_operator() {
    let Some(helm) = helm() else { return };
    for (set, is_said) in [
        ("metrics.prometheusRule=true", true),
        ("metrics.prometheusRule=true,metrics.podMonitor=true", false),
        ("metrics.prometheusRule=true,metrics.serviceMonitor=true", false),
        ("metrics.prometheusRule=false", false),
    ] {
        let install = ["install", "release", "charts/clusterdns", "--dry-run=client", "--set", set];
        let notes = run(&helm, &install).expect("it renders");
        assert_eq!(notes.contains("ClusterDNSOperatorDown fires"), is_said, "{set}: {notes}");
    }
}

/// Every flag that the Deployment writes is one that `extraArgs` refuses.
#[test]
fn each_flag_of_the_deployment_is_refused_in_extra_args() {
    let Some(helm) = helm() else { return };
    let template_of_it = super::read("charts/clusterdns/templates/deployment.yaml");
    let written = template_of_it.split("--").skip(1).filter_map(|rest| {
        let flag = rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next()?;
        (!flag.is_empty()).then(|| format!("--{flag}"))
    });
    let mut flags: Vec<String> = written.collect();
    flags.sort();
    flags.dedup();
    assert!(flags.len() > 12, "{flags:?}");
    for flag in flags {
        let refusal =
            template(&helm, &["--set", &format!("extraArgs={{{flag}=x}}")]).expect_err(&flag);
        assert!(refusal.contains(&format!("the chart writes {flag} itself")), "{refusal}");
    }
}
