//! Parts of an option of dnsmasq beyond those that are read, and values where none is read: none is lost in silence.

use super::losses::imported;

/// The lines of the report about each option.
fn of(option: &str) -> (serde_json::Value, Vec<String>) {
    let (spec, report) = imported("--dnsmasq", &format!("cache-size=1\n{option}\n"));
    (spec, report.lines().filter(|line| line.starts_with("2 ")).map(str::to_owned).collect())
}

#[test]
fn more_parts_than_an_option_has_are_said() {
    for option in [
        "srv-host=_x._tcp.a.example,b.example,1,2,3,4",
        "srv-host=_x._tcp.a.example,b.example,1,2,3,",
        "rev-server=10.0.0.0/8,10.0.0.1,10.0.0.2",
        "server=10.0.0.1,10.0.0.2",
        "server=/a.example/10.0.0.1#53#54",
        "address=/a.example/10.0.0.1,b.example",
        "cache-size=100,5",
        "max-ttl=60,70",
        "edns-packet-max=1232,4096",
        "dns-forward-max=10,20",
        "use-stale-cache=60,70",
    ] {
        let (spec, lines) = of(option);
        let is_said = lines.len() == 1 && lines[0].starts_with("2 notPossible: ");
        assert!(is_said, "{option}\n{lines:#?}");
        assert!(spec["records"].is_null() && spec["stubDomains"].is_null(), "{option}: {spec}");
    }
}

#[test]
fn a_number_in_the_middle_of_names_and_addresses_is_a_name_as_in_dnsmasq() {
    let (spec, lines) = of("host-record=a.example,60,10.0.0.1,300");
    assert_eq!(spec["hosts"][0]["ttlSeconds"], 300);
    assert_eq!(spec["hosts"][1]["name"], "60", "{lines:#?}");
    let (_, lines) = of("cname=a.example,b.example,10,20");
    assert!(lines[0].contains("a.example, b.example"), "{lines:#?}");
}

#[test]
fn values_of_options_that_may_have_none_are_kept_or_said() {
    let (spec, lines) = of("use-stale-cache=120");
    assert_eq!(spec["cache"]["staleSeconds"], 120, "{lines:#?}");
    let (spec, _) = of("use-stale-cache=0");
    assert_eq!(spec["cache"]["staleSeconds"], 604_800);
    let (_, lines) = of("use-stale-cache");
    assert!(lines[0].starts_with("2 changed: "), "{lines:#?}");
    let (_, lines) = of("log-queries=extra");
    assert!(lines[0].contains("without what extra adds"), "{lines:#?}");
}

#[test]
fn every_part_of_a_record_is_in_it() {
    let (spec, _) = of("txt-record=a.example,one,two,,three");
    assert_eq!(spec["records"][0]["strings"], serde_json::json!(["one", "two", "", "three"]));
    let (spec, _) = of("host-record=a.example,b.example,10.0.0.1,fd00::1,10.0.0.2");
    assert_eq!(spec["hosts"].as_array().map(Vec::len), Some(2));
    assert_eq!(spec["hosts"][1]["addresses"].as_array().map(Vec::len), Some(3));
    let (spec, _) = of("srv-host=_x._tcp.a.example,b.example,1,2,3");
    let service = &spec["records"][0]["services"][0];
    let read = ["port", "priority", "weight"].map(|field| service[field].as_u64());
    assert_eq!(read, [Some(1), Some(2), Some(3)]);
}
