//! The pods: D7, S8, their command line, and what may and may not roll them.

use clap::Parser;
use dataplane::args::Args;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, DeploymentSpec};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use operator::decide::plan::{ServicePlan, Size};
use operator::desired::{Desired, Kind};
use operator::observe::observed::Certificate;
use operator::settings::{DataPlane, Settings};

use super::*;

fn arguments(desired: &Desired) -> Args {
    let written = pod(desired).containers[0].args.clone().unwrap();
    // As kubelet fills them in.
    let values =
        [("$(POD_NAME)", "p"), ("$(POD_UID)", "u"), ("$(POD_ZONE)", "z1"), ("$(POD_REGION)", "r1")];
    let filled = written.iter().map(|flag| {
        values.iter().fold(flag.clone(), |flag, (name, value)| flag.replace(name, value))
    });
    Args::try_parse_from(["clusterdns-dataplane".to_owned()].into_iter().chain(filled))
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn d7_no_rollout_and_no_eviction_takes_the_service_away() {
    for (name, dns, desired) in all() {
        let pod = pod(&desired);
        assert_eq!(pod.priority_class_name.as_deref(), Some("system-cluster-critical"), "{name}");
        let grace = pod.termination_grace_period_seconds.expect("a grace period");
        assert!(grace > i64::from(dns.spec.drain_seconds), "{name}");
        let budget: PodDisruptionBudget = object(&desired, Kind::PodDisruptionBudget);
        let budget = budget.spec.unwrap();
        assert_eq!(budget.max_unavailable, Some(IntOrString::Int(1)), "{name}");
        assert_eq!(budget.unhealthy_pod_eviction_policy.as_deref(), Some("AlwaysAllow"), "{name}");
        if desired.get(Kind::DaemonSet).is_some() {
            let set: DaemonSet = object(&desired, Kind::DaemonSet);
            let set = set.spec.unwrap();
            assert_eq!(set.min_ready_seconds, Some(5), "{name}");
            let rolling = set.update_strategy.unwrap().rolling_update.unwrap();
            assert_eq!(rolling.max_unavailable, Some(IntOrString::Int(0)), "{name}");
            assert_eq!(rolling.max_surge, Some(IntOrString::Int(1)), "{name}");
            continue;
        }
        let deployment: Deployment = object(&desired, Kind::Deployment);
        let deployment = deployment.spec.unwrap();
        assert_eq!(deployment.min_ready_seconds, Some(10), "{name}");
        let rolling = deployment.strategy.unwrap().rolling_update.unwrap();
        assert_eq!(rolling.max_unavailable, Some(IntOrString::Int(0)), "{name}");
        assert!(matches!(rolling.max_surge, Some(IntOrString::Int(1..=4))), "{name}");
        let spread = pod.topology_spread_constraints.expect("spread");
        let keys: Vec<&str> = spread.iter().map(|s| s.topology_key.as_str()).collect();
        assert_eq!(keys, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"], "{name}");
        assert!(spread.iter().all(|s| s.when_unsatisfiable == "ScheduleAnyway"), "{name}");
        let of_one_template = Some(vec!["pod-template-hash".to_owned()]);
        assert!(spread.iter().all(|s| s.match_label_keys == of_one_template), "{name}");
    }
}

#[test]
fn d7_a_surge_is_a_quarter_and_four_pods_at_most() {
    for (replicas, expected) in [(1, 1), (4, 1), (5, 2), (16, 4), (200, 4)] {
        let desired = desired(&dns("{}"), &observed(), |plan| plan.size = Size::Replicas(replicas));
        let deployment: Deployment = object(&desired, Kind::Deployment);
        let rolling = deployment.spec.unwrap().strategy.unwrap().rolling_update.unwrap();
        assert_eq!(rolling.max_surge, Some(IntOrString::Int(expected)), "{replicas}");
    }
}

#[test]
fn s8_pods_are_restricted() {
    for (name, _, desired) in all() {
        let pod = pod(&desired);
        for shared in [pod.host_network, pod.host_pid, pod.host_ipc] {
            assert_ne!(shared, Some(true), "{name}");
        }
        let security = pod.security_context.unwrap();
        assert_eq!(security.run_as_non_root, Some(true), "{name}");
        assert!(security.run_as_user.is_some_and(|user| user > 0), "{name}");
        assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault", "{name}");
        let sysctls = security.sysctls.unwrap_or_default();
        assert!(sysctls.iter().all(|s| s.name == "net.ipv4.ip_unprivileged_port_start"), "{name}");
        for volume in pod.volumes.unwrap() {
            let is_allowed = volume.empty_dir.is_some()
                || volume.config_map.is_some()
                || volume.secret.is_some();
            assert!(is_allowed, "{name}: {}", volume.name);
        }
        let [container] = &pod.containers[..] else { panic!("{name}: one container") };
        let confinement = container.security_context.as_ref().unwrap();
        assert_eq!(confinement.allow_privilege_escalation, Some(false), "{name}");
        assert_eq!(confinement.read_only_root_filesystem, Some(true), "{name}");
        assert_ne!(confinement.privileged, Some(true), "{name}");
        let capabilities = confinement.capabilities.as_ref().unwrap();
        assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]), "{name}");
        assert_eq!(capabilities.add, None, "{name}");
        assert!(container.ports.iter().flatten().all(|port| port.host_port.is_none()), "{name}");
    }
}

#[test]
fn the_data_plane_understands_its_command_line() {
    for (name, dns, desired) in all() {
        let args = arguments(&desired);
        args.check_addresses().unwrap_or_else(|error| panic!("{name}: {error}"));
        let child = format!("clusterdns-{}", dns.metadata.name.unwrap());
        assert_eq!(args.config_map, Some(("kube-system".to_owned(), child)), "{name}");
        assert_eq!(args.drain_period().as_secs(), u64::from(dns.spec.drain_seconds), "{name}");
        assert_eq!((args.pod_name.as_deref(), args.pod_uid.as_deref()), (Some("p"), Some("u")));
        let container = &pod(&desired).containers[0];
        let mounted = |folder: &std::path::Path| {
            container
                .volume_mounts
                .iter()
                .flatten()
                .any(|m| std::path::Path::new(&m.mount_path) == folder)
        };
        assert!(args.state_dir.is_some_and(|folder| mounted(&folder)), "{name}");
        assert!(args.config_dir.is_some_and(|folder| mounted(&folder)), "{name}");
    }
}

#[test]
fn the_data_plane_answers_on_the_ports_of_its_arguments() {
    for port in [53, 1053] {
        let spec = format!("{{service: {{podPort: {port}}}}}");
        let desired = desired(&dns(&spec), &observed(), |_| ());
        let args = arguments(&desired);
        let listeners = args.listeners();
        assert_eq!(
            listeners,
            [format!("0.0.0.0:{port}").parse().unwrap(), format!("[::]:{port}").parse().unwrap()]
        );
        let pod = pod(&desired);
        let numbers = |of: &str| {
            let ports = pod.containers[0].ports.clone().unwrap();
            ports.iter().find(|port| port.name.as_deref() == Some(of)).unwrap().container_port
        };
        assert_eq!((numbers("dns"), numbers("dns-tcp")), (port, port));
        assert!(
            args.http_candidates().iter().all(|http| i32::from(http.port()) == numbers("metrics"))
        );
        // Users move DNS away from port 53 where the container runtime refuses sysctls.
        let sysctls = pod.security_context.unwrap().sysctls;
        let value = sysctls.map(|sysctls| sysctls[0].value.clone());
        assert_eq!(value.as_deref(), (port == 53).then_some("53"));
    }
}

#[test]
fn a_changed_configuration_does_not_change_the_pods() {
    let before = template(&desired(&dns("{}"), &observed(), |_| ()));
    let configured = dns(
        "{podRecords: Verified, ttlSeconds: 9, hosts: [{name: a.example, addresses: [10.0.0.1]}], \
         stubDomains: [{domain: b.example, servers: [{address: 10.0.0.2}]}], limits: {inFlight: 9}, \
         logging: {format: Text, level: Debug}, warmStart: {maxAgeSeconds: 0}}",
    );
    let after = template(&desired(&configured, &observed(), |plan| plan.rollout.needs_pods = true));
    assert_eq!(before, after);
    for rolls in [
        "{resources: {requests: {cpu: 1}}}",
        "{image: 'a:b'}",
        "{listeners: {tls: {certificate: {name: dns-tls}}}}",
    ] {
        assert_ne!(before, template(&desired(&dns(rolls), &observed(), |_| ())), "{rolls}");
    }
}

#[test]
fn rr97_pods_learn_zone_and_region_of_their_node_where_a_federation_needs_them() {
    let pod_with = |federation: &str| {
        let spec = format!("{{federations: [{{name: a, domain: a.example{federation}}}]}}");
        desired(&dns(&spec), &observed(), |_| {})
    };
    let with_location = |desired: &Desired| {
        let pod = pod(desired);
        let variables = pod.containers[0].env.clone().unwrap().into_iter();
        let paths = variables.filter_map(|it| it.value_from?.field_ref).map(|it| it.field_path);
        (paths.filter(|path| path.contains("topology")).collect::<Vec<_>>(), arguments(desired))
    };
    let (paths, args) = with_location(&pod_with(", zone: z"));
    let label = |name: &str| format!("metadata.labels['topology.kubernetes.io/{name}']");
    assert_eq!(paths, [label("zone"), label("region")]);
    assert_eq!((args.zone.as_deref(), args.region.as_deref()), (Some("z1"), Some("r1")));
    let (paths, args) = with_location(&pod_with(", zone: z, region: r"));
    assert_eq!((paths, args.zone), (Vec::new(), None), "written, so no pod is rolled for it");
}

#[test]
fn s14_only_the_key_pair_of_a_secret_that_may_be_mounted_is_mounted() {
    let both =
        "{listeners: {tls: {certificate: {name: dns-tls}}, https: {certificate: {name: other}}}}";
    let secrets = |states: &[(&str, Certificate)]| {
        let mut looked = observed();
        looked.certificates =
            states.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect();
        let pod = pod(&desired(&dns(both), &looked, |_| ()));
        let mounts = pod.containers[0].volume_mounts.clone().unwrap().len();
        let volumes = pod.volumes.unwrap();
        assert_eq!(mounts, volumes.len());
        volumes.into_iter().filter_map(|volume| volume.secret).collect::<Vec<_>>()
    };
    let [secret] =
        &secrets(&[("dns-tls", Certificate::Usable), ("other", Certificate::Missing)])[..]
    else {
        panic!("one Secret")
    };
    assert_eq!(secret.secret_name.as_deref(), Some("dns-tls"));
    let items: Vec<&str> = secret.items.iter().flatten().map(|item| item.key.as_str()).collect();
    assert_eq!(items, ["tls.crt", "tls.key"], "nothing else of it");
    // One that is gone stays mounted: without it every pod would be replaced.
    let both_there = [("dns-tls", Certificate::Usable), ("other", Certificate::Usable)];
    let one_gone = [("dns-tls", Certificate::Gone), ("other", Certificate::Usable)];
    assert_eq!(secrets(&one_gone), secrets(&both_there));
    // A Secret that could not be checked is not mounted.
    for state in [Certificate::OtherType, Certificate::NotMarked, Certificate::NotReadable] {
        assert!(secrets(&[("dns-tls", state)]).is_empty(), "{state:?}");
    }
}

#[test]
fn the_administrator_adds_flags_variables_and_a_pull_policy() {
    let config = crds::check_resource(&dns("{}")).unwrap();
    let settings = Settings {
        dataplane: DataPlane {
            pull_policy: Some("Always".to_owned()),
            args: vec!["--workers=2".to_owned()],
            env: vec![("A".to_owned(), "b".to_owned())],
            ..settings().dataplane
        },
        ..settings()
    };
    let desired = Desired::build(&dns("{}"), &config, &observed(), &plan(&config), &settings);
    assert_eq!(arguments(&desired).worker_count(), 2);
    let container = &pod(&desired).containers[0];
    assert_eq!(container.image_pull_policy.as_deref(), Some("Always"));
    let env: Vec<&str> = container.env.iter().flatten().map(|it| it.name.as_str()).collect();
    assert_eq!(env, ["POD_NAME", "POD_UID", "GLIBC_TUNABLES", "A"]);
    // The flags that the operator refuses to take twice are those that are written.
    for flag in container.args.iter().flatten().filter(|flag| *flag != "--workers=2") {
        let name = flag.split('=').next().unwrap();
        assert!(operator::desired::FLAGS.contains(&name), "{flag}");
    }
    assert!(env[..2].iter().all(|name| operator::desired::VARIABLES.contains(name)));
}

#[test]
fn the_administrators_tunables_of_the_c_library_come_before_ours() {
    let config = crds::check_resource(&dns("{}")).unwrap();
    let env = vec![("GLIBC_TUNABLES".to_owned(), "glibc.malloc.arena_max=1".to_owned())];
    let dataplane = DataPlane { env, ..settings().dataplane };
    let settings = Settings { dataplane, ..settings() };
    let desired = Desired::build(&dns("{}"), &config, &observed(), &plan(&config), &settings);
    let variables = pod(&desired).containers[0].env.clone().unwrap().into_iter();
    let values: Vec<_> = variables.filter(|it| it.name == "GLIBC_TUNABLES").collect();
    assert_eq!(values.len(), 1);
    assert_eq!(values[0].value.as_deref(), Some("glibc.malloc.arena_max=1"));
}

#[test]
fn selectors_never_change_when_the_labels_of_pods_do() {
    let spec = "{placement: {podLabels: {team: a, k8s-app: mine}}, service: {adopt: true}}";
    let desired = desired(&dns(spec), &observed(), |plan| {
        let labels = [("k8s-app", "kube-dns"), ("app.kubernetes.io/name", "coredns")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        plan.service = ServicePlan::Adopted { labels, patch: None };
    });
    let deployment: Deployment = object(&desired, Kind::Deployment);
    let selector = deployment.spec.unwrap().selector;
    let ours = [("clusterdns.dev/instance".to_owned(), "default".to_owned())].into();
    assert_eq!((selector.match_labels, selector.match_expressions), (Some(ours), None));
    let labels = template(&desired).metadata.unwrap().labels.unwrap();
    let carried = ["team", "k8s-app", "app.kubernetes.io/name", "clusterdns.dev/instance"];
    assert_eq!(carried.map(|key| labels[key].as_str()), ["a", "kube-dns", "coredns", "default"]);
}

#[test]
fn replicas_are_the_autoscalers_once_there_is_one() {
    let size = |hold, queries_per_second| Size::Autoscaled {
        min: 3,
        max: 9,
        cpu_millicores: 450,
        queries_per_second,
        hold,
    };
    let replicas = |observed: &Observed, hold| {
        let desired = desired(&dns("{}"), observed, |plan| plan.size = size(hold, None));
        object::<Deployment>(&desired, Kind::Deployment).spec.unwrap().replicas
    };
    assert_eq!(replicas(&observed(), Some(3)), Some(3), "a new one begins with the least");
    let mut running = observed();
    running.deployment = Some(Deployment::default());
    assert_eq!(replicas(&running, Some(5)), None, "a second field manager holds them");
    assert_eq!(replicas(&running, None), None);
    let scaled_to = |count| DeploymentSpec { replicas: Some(count), ..DeploymentSpec::default() };
    running.deployment = Some(Deployment { spec: Some(scaled_to(5)), ..Deployment::default() });
    assert_eq!(replicas(&running, Some(5)), None);
    running.deployment = Some(Deployment { spec: Some(scaled_to(0)), ..Deployment::default() });
    assert_eq!(replicas(&running, Some(5)), Some(5), "an autoscaler never scales up from 0");

    let metrics = |queries| {
        let desired = desired(&dns("{}"), &observed(), |plan| plan.size = size(None, queries));
        let autoscaler: HorizontalPodAutoscaler = object(&desired, Kind::HorizontalPodAutoscaler);
        let spec = autoscaler.spec.unwrap();
        assert_eq!((spec.min_replicas, spec.max_replicas), (Some(3), 9));
        let metrics = spec.metrics.unwrap();
        let cpu = metrics[0].resource.as_ref().expect("the processor comes first");
        assert_eq!(cpu.target.average_value.as_ref().expect("a value").0, "450m");
        metrics.iter().map(|metric| metric.type_.clone()).collect::<Vec<_>>()
    };
    assert_eq!(metrics(None), ["Resource"]);
    assert_eq!(metrics(Some(1000)), ["Resource", "Pods"]);
}

#[test]
fn an_api_server_that_is_away_restarts_no_pod() {
    let pod = pod(&desired(&dns("{}"), &observed(), |_| ()));
    let container = &pod.containers[0];
    let path = |probe: &Option<k8s_openapi::api::core::v1::Probe>| {
        probe.as_ref().unwrap().http_get.as_ref().unwrap().path.clone().unwrap()
    };
    assert_eq!(path(&container.liveness_probe), "/livez");
    // It would only delay readiness: `/livez` answers from the start.
    assert_eq!(container.startup_probe, None);
    assert_eq!(path(&container.readiness_probe), "/readyz");
    assert_eq!(container.readiness_probe.as_ref().unwrap().period_seconds, Some(1));
    // Two minutes, for a snapshot on a bad disk.
    let liveness = container.liveness_probe.as_ref().unwrap();
    let until = |periods: i32| liveness.initial_delay_seconds.unwrap() + periods * 10;
    assert_eq!(liveness.period_seconds, Some(10));
    assert_eq!(liveness.failure_threshold.map(until), Some(120));
    // With ClusterFirst it would ask its own Service for the names of its upstreams.
    assert_eq!(pod.dns_policy.as_deref(), Some("Default"));
    assert_eq!(pod.enable_service_links, Some(false));
}

#[test]
fn o12_a_budget_is_as_the_spec_says() {
    let of = |spec: &str| {
        let written =
            desired(&dns(&format!("{{podDisruptionBudget: {spec}}}")), &observed(), |_| ());
        let budget: PodDisruptionBudget = object(&written, Kind::PodDisruptionBudget);
        let budget = budget.spec.unwrap();
        (budget.max_unavailable, budget.min_available)
    };
    let share = |text: &str| Some(IntOrString::String(text.to_owned()));
    assert_eq!(of("{}"), (Some(IntOrString::Int(1)), None));
    assert_eq!(of("{enabled: true}"), (Some(IntOrString::Int(1)), None));
    assert_eq!(of("{maxUnavailable: 25%}"), (share("25%"), None));
    assert_eq!(of("{minAvailable: 2}"), (None, Some(IntOrString::Int(2))));
}

#[test]
fn o12_pods_are_spread_as_the_spec_says() {
    let of = |spec: &str| {
        let template = template(&desired(&dns(spec), &observed(), |_| ()));
        template.spec.unwrap().topology_spread_constraints
    };
    let rack = "topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]";
    for spread in [true, false] {
        let spec = format!("{{placement: {{topologySpread: {spread}, {rack}}}}}");
        let found = of(&spec).expect("constraints");
        assert_eq!((found.len(), found[0].topology_key.as_str()), (1, "rack"), "{spread}");
        let selector = found[0].label_selector.clone().expect("our pods").match_labels.unwrap();
        assert_eq!(selector["clusterdns.dev/instance"], "default");
    }
    let with_selector = rack.replace("}]", ", labelSelector: {matchLabels: {team: a}}}]");
    let found = of(&format!("{{placement: {{{with_selector}}}}}")).expect("constraints");
    let selector = found[0].label_selector.clone().unwrap().match_labels.unwrap();
    assert_eq!(selector["team"], "a");
    assert_eq!(of("{placement: {topologySpreadConstraints: []}}").map(|all| all.len()), Some(2));
    let per_node = desired(&dns(&format!("{{placement: {{{rack}}}}}")), &observed(), |plan| {
        plan.size = Size::PerNode;
    });
    let set: DaemonSet = object(&per_node, Kind::DaemonSet);
    let spec = set.spec.unwrap().template.spec.unwrap();
    assert_eq!(spec.topology_spread_constraints, None, "a DaemonSet has one pod on each node");
}

#[test]
fn o12_what_prometheus_reads_has_the_labels_and_the_interval_of_the_spec() {
    let spec = "{metrics: {labels: {release: monitoring, app.kubernetes.io/name: x}, intervalSeconds: 15}}";
    let desired = desired(&dns(spec), &observed(), |_| ());
    for kind in [Kind::PodMonitor, Kind::PrometheusRule] {
        let labels = desired.get(kind).unwrap().metadata.labels.clone().unwrap();
        assert_eq!(labels["release"], "monitoring", "{kind:?}");
        assert_eq!(labels["app.kubernetes.io/name"], "clusterdns", "ours stay: {kind:?}");
    }
    let endpoint = &desired.get(Kind::PodMonitor).unwrap().data["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["interval"], "15s");
}

#[test]
fn without_a_wish_for_a_budget_there_is_none() {
    let desired = desired(&dns("{}"), &observed(), |plan| plan.budget = false);
    assert!(desired.get(Kind::PodDisruptionBudget).is_none());
}
