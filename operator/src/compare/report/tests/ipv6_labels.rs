//! Labels of IPv6 endpoints (DF14): what is only another text of an address, and what is another answer.

use super::class;

#[test]
fn another_text_of_an_ipv6_address_is_known() {
    for (question, with, against) in [
        (
            "fd00--0.x.s.svc.c.example. AAAA",
            "NOERROR; fd00--0.x.s.svc.c.example. 5 AAAA fd00::",
            "NXDOMAIN; soa",
        ),
        (
            "fd00-0--7.x.s.svc.c.example. AAAA",
            "NXDOMAIN; soa",
            "NOERROR; fd00-0--7.x.s.svc.c.example. 5 AAAA fd00::7",
        ),
        (
            "x.s.svc.c.example. SRV",
            "NOERROR; x.s.svc.c.example. 5 SRV 0 100 80 fd00--7.x.s.svc.c.example.",
            "NOERROR; x.s.svc.c.example. 5 SRV 0 100 80 fd00-0--7.x.s.svc.c.example.",
        ),
        (
            "7.d.f.ip6.arpa. PTR",
            "NOERROR; 7.d.f.ip6.arpa. 5 PTR fd00--7.x.s.svc.c.example.",
            "NOERROR; 7.d.f.ip6.arpa. 5 PTR fd00-0--7.x.s.svc.c.example.",
        ),
    ] {
        assert_eq!(class(question, with, against), (true, "DF14".to_owned()), "{question}");
    }
}

/// Another address, and a name of ours that is missing.
#[test]
fn a_lost_name_of_an_ipv6_address_is_unknown() {
    for (question, against) in [
        (
            "fd00-0--7.x.s.svc.c.example. AAAA",
            "NOERROR; fd00-0--7.x.s.svc.c.example. 5 AAAA fd00::8",
        ),
        ("fd00--7.x.s.svc.c.example. AAAA", "NOERROR; fd00--7.x.s.svc.c.example. 5 AAAA fd00::7"),
    ] {
        let found = class(question, "NXDOMAIN; soa", against);
        assert_eq!(found, (false, "NXDOMAIN in place of NOERROR".to_owned()), "{question}");
    }
}
