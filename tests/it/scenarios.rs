//! Every scenario against the core, against a data plane over UDP and TCP, and against the program as it is released.

use tests::client::{Question, Transport};
use tests::scenario::{Block, Cluster, Core, Plane, Program};

/// Fails with every difference there is, so that one run shows them all.
fn none(differences: Vec<String>) {
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

fn in_the_core(transport: Transport) {
    let mut differences = Vec::new();
    for cluster in Cluster::all().unwrap() {
        let core = Core::new(&cluster.objects).unwrap();
        let mut seed = 0;
        let mut ask = |question: &Question, transport| {
            seed += 1;
            core.ask(&question.packet, transport, seed)
        };
        for mut scenario in cluster.scenarios {
            if transport == Transport::Udp && std::env::var_os("UPDATE_EXPECT").is_some() {
                scenario.update(&core.names(), &mut ask).unwrap();
            }
            let ask = |question: &Question, _: &Block| ask(question, transport);
            differences.extend(scenario.check(transport, &core.names(), ask).unwrap());
        }
    }
    none(differences);
}

fn over_sockets(transport: Transport) {
    let mut differences = Vec::new();
    for cluster in Cluster::all().unwrap() {
        let plane = Plane::start(&cluster.objects).unwrap();
        let ask = |question: &Question, block: &Block| {
            plane.ask(&question.packet, transport, block.expects_silence())
        };
        for scenario in cluster.scenarios {
            differences.extend(scenario.check(transport, plane.names(), ask).unwrap());
        }
    }
    none(differences);
}

/// Row F21: which of several sources of a name answers it.
#[test]
fn f21_overlapping_zones_records_and_stub_domains_have_one_order() {
    let is_of_row = |cluster: &&Cluster| {
        cluster.scenarios.iter().any(|scenario| scenario.name == "who-answers-a-name")
    };
    let clusters = Cluster::all().unwrap();
    let cluster = clusters.iter().find(is_of_row).expect("the scenario");
    let core = Core::new(&cluster.objects).unwrap();
    for (seed, scenario) in (0..).zip(&cluster.scenarios) {
        let ask = |question: &Question, _: &Block| core.ask(&question.packet, Transport::Udp, seed);
        none(scenario.check(Transport::Udp, &core.names(), ask).unwrap());
    }
}

#[test]
fn every_scenario_holds_in_the_core_asked_over_udp() {
    in_the_core(Transport::Udp);
}

#[test]
fn every_scenario_holds_in_the_core_asked_over_tcp() {
    in_the_core(Transport::Tcp);
}

#[test]
fn every_scenario_holds_over_udp_sockets() {
    over_sockets(Transport::Udp);
}

#[test]
fn every_scenario_holds_over_tcp_sockets() {
    over_sockets(Transport::Tcp);
}

/// The program may be that of a release, for another processor too: `make release-emulate` runs this test so.
#[test]
fn every_scenario_holds_in_the_program_over_udp_and_tcp() {
    let mut differences = Vec::new();
    for cluster in Cluster::all().unwrap() {
        for transport in [Transport::Udp, Transport::Tcp] {
            // One for each transport, so that the second does not use what the first learned of its upstreams.
            let program = Program::start(&cluster.objects).unwrap();
            let ask = |question: &Question, block: &Block| {
                program.ask(&question.packet, transport, block.expects_silence())
            };
            for scenario in &cluster.scenarios {
                differences.extend(scenario.check(transport, program.names(), ask).unwrap());
            }
        }
    }
    none(differences);
}
