//! The list of fields without effect: each row is found in a spec that uses it, and in no other.

use std::collections::BTreeSet;

use crds::config::Transport;
use crds::without_effect::{self, FIELDS, TRANSPORTS_NOT_ASKED};
use crds::{Config, check};

fn config(spec: &str) -> Config {
    let spec = serde_saphyr::from_str(spec).expect(spec);
    check(&spec).unwrap_or_else(|violations| panic!("{violations}"))
}

/// A path with the indices of its lists left out.
fn in_schema(path: &str) -> String {
    let mut parts = path.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "[" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn o18_each_field_without_effect_is_found_in_a_spec_that_uses_it() {
    for row in FIELDS {
        let found = without_effect::of(&config(row.example));
        let own: BTreeSet<String> = found
            .iter()
            .filter(|it| it.instead == row.instead)
            .map(|it| in_schema(&it.field))
            .collect();
        let listed: BTreeSet<String> = row.paths.iter().map(|path| (*path).to_owned()).collect();
        assert!(
            !own.is_empty() && own.is_subset(&listed),
            "{own:?} of {listed:?}: {}",
            row.example
        );
        assert!(!row.instead.is_empty() && !row.instead.ends_with('.'), "{}", row.instead);
    }
}

#[test]
fn o18_a_spec_of_defaults_uses_no_field_without_effect() {
    assert_eq!(without_effect::of(&config("{}")), []);
    assert_eq!(without_effect::of(&config("{cache: {}, logging: {}, access: {}}")), []);
}

#[test]
fn o18_fields_are_named_with_their_place_in_lists() {
    let spec = "{stubDomains: [{domain: a.example, servers: [{address: 10.0.0.1}]}, {domain: b.example, servers: \
                [{address: 10.0.0.1}, {address: 10.0.0.2, transport: QUIC, tls: {serverName: a.example}}]}]}";
    let fields: Vec<String> =
        without_effect::of(&config(spec)).into_iter().map(|it| it.field).collect();
    let is_asked = !TRANSPORTS_NOT_ASKED.contains(&Transport::Quic);
    let server = "spec.stubDomains[1].servers[1]";
    let expected = [format!("{server}.transport"), format!("{server}.tls")];
    assert_eq!(fields, if is_asked { &[][..] } else { &expected[..] });
}

#[test]
fn a_group_is_never_asked_when_no_transport_of_its_servers_is() {
    let spec = |first: &str| {
        format!(
            "{{stubDomains: [{{domain: a.example, servers: [{first}, \
             {{address: 10.0.0.2, transport: QUIC, tls: {{serverName: a.example}}}}]}}]}}"
        )
    };
    let tls = config(&spec("{address: 10.0.0.1, transport: TLS, tls: {serverName: a.example}}"));
    let are_not_asked =
        [Transport::Tls, Transport::Quic].iter().all(|it| TRANSPORTS_NOT_ASKED.contains(it));
    let expected = are_not_asked.then(|| "spec.stubDomains[0]".to_owned());
    assert_eq!(without_effect::groups_never_asked(&tls), Vec::from_iter(expected));
    let udp = config(&spec("{address: 10.0.0.1}"));
    assert_eq!(without_effect::groups_never_asked(&udp), Vec::<String>::new());
    assert_eq!(without_effect::groups_never_asked(&Config::default()), Vec::<String>::new());
}
