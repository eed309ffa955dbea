//! Where the names of federations lead from here: zone and region are those of the configuration, else of the pod.

use crds::Config;
use crds::config as written;
use dataplane_core::{Federation, Name};

/// Where this process runs, as far as it was given that (RR97), and for which ClusterDNS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The zone of its node.
    pub zone: Option<String>,
    /// The region of its node.
    pub region: Option<String>,
    /// `NAMESPACE/NAME` of the ConfigMap that it and its replicas read.
    pub config_map: Option<String>,
}

/// A federation as the core reads it.
///
/// # Errors
/// Its name or domain cannot be one (an unchecked document).
pub(super) fn of(from: &written::Federation, location: &Location) -> Result<Federation, String> {
    let read = |field: &str, text: &str| {
        Name::from_text(text).map_err(|error| format!("federations.{field}: {text:?}: {error}"))
    };
    let name = read("name", &from.name)?;
    read("domain", &from.domain)?;
    // Values of labels that no name can hold: then it is as if they were not there.
    let domain = place(from, location)
        .and_then(|place| Name::from_text(&format!("{place}.{}", from.domain)).ok());
    Ok(Federation { name, domain })
}

/// `<zone>.<region>`, if both are known.
fn place(from: &written::Federation, location: &Location) -> Option<String> {
    let written::Federation { zone, region, .. } = from;
    let zone = zone.as_ref().or(location.zone.as_ref())?;
    let region = region.as_ref().or(location.region.as_ref())?;
    Some(format!("{zone}.{region}"))
}

/// A warning for each federation whose names are SERVFAIL where the Service has no local endpoints (RR97).
pub fn without_place(config: &Config, location: &Location) -> Vec<String> {
    let unplaced =
        config.federations.iter().filter(|it| of(it, location).is_ok_and(|it| it.domain.is_none()));
    let say = |it: &written::Federation| {
        format!(
            "federation {}: the zone or the region of this cluster is not known, so names of Services without local endpoints are \
             SERVFAIL: write spec.federations[].zone and region",
            it.name
        )
    };
    unplaced.map(say).take(crds::bounds::FEDERATIONS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(zone: &str, region: &str) -> Location {
        let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Location { zone: known(zone), region: known(region), config_map: None }
    }

    #[test]
    fn rr97_zone_and_region_are_those_of_the_configuration_else_of_the_pod() {
        let json = r#"{"format":1,"federations":[{"name":"west","domain":"west.example.com"},
            {"name":"east","domain":"east.example.com","zone":"w1-b"}]}"#;
        let config = Config::from_json(json).unwrap().0;
        for (location, west, east, warnings) in [
            (location("", ""), None, None, 2),
            (location("", "w1"), None, Some("w1-b.w1.east.example.com."), 1),
            (
                location("Z-9", "r9"),
                Some("z-9.r9.west.example.com."),
                Some("w1-b.r9.east.example.com."),
                0,
            ),
            // A label of a node may have a value that no domain name can have.
            (location("a..b", "r9"), None, Some("w1-b.r9.east.example.com."), 1),
        ] {
            let settings = crate::settings::at(&config, &location).unwrap();
            let domains = settings.federations.iter().map(|it| it.domain.as_ref());
            let domains: Vec<_> = domains.map(|domain| domain.map(Name::to_string)).collect();
            let expected = [west, east].map(|domain| domain.map(str::to_owned));
            assert_eq!(domains, expected, "{location:?}");
            assert_eq!(without_place(&config, &location).len(), warnings, "{location:?}");
        }
    }
}
