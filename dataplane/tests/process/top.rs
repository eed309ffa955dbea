//! `/top` of a program that runs: off until a person asks, and only a person on loopback.

use serde_json::Value;

use crate::harness::{Folder, Process};

const OBJECTS: &str = "\
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {type: ClusterIP, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1]}
";

fn json(page: (u16, String)) -> Value {
    assert_eq!(page.0, 200, "{}", page.1);
    serde_json::from_str(&page.1).unwrap()
}

fn counts(rows: &Value) -> Vec<(&str, u64)> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| (row["key"].as_str().unwrap(), row["count"].as_u64().unwrap())).collect()
}

#[test]
fn n41_the_heaviest_are_counted_for_those_on_loopback_who_asked_for_it() {
    let folder = Folder::new();
    folder.write("a.yaml", OBJECTS);
    let process = Process::start(&folder.0, &[]);
    let (cart, none) = ("cart.shop.svc.cluster.local", "none.shop.svc.cluster.local");
    process.ask(cart);
    let off = json(process.get("/top"));
    assert_eq!((&off["isOn"], &off["names"]), (&false.into(), &Value::Array(Vec::new())));

    let (status, text) = process.post("/top?seconds=60", "Origin: http://localhost:9153\r\n");
    assert_eq!((status, text.contains("web page")), (403, true), "{text}");
    assert_eq!(process.post("/top?seconds=0", "").0, 400);
    assert_eq!(json(process.get("/top"))["isOn"], false);

    assert_eq!(json(process.post("/top?seconds=600", ""))["isOn"], true);
    process.ask(cart);
    process.ask(cart);
    process.ask(none);
    let on = json(process.get("/top"));
    let dotted = [format!("{cart}."), format!("{none}.")];
    assert_eq!(counts(&on["names"]), [(dotted[0].as_str(), 2), (dotted[1].as_str(), 1)]);
    assert_eq!(counts(&on["denials"]), [(dotted[1].as_str(), 1)]);
    assert_eq!(counts(&on["clients"]), [("127.0.0.1", 3)]);
    assert_eq!((&on["queries"], &on["oneOf"]), (&3.into(), &1.into()));
}
