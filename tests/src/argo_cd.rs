//! What Argo CD makes of a ClusterDNS: the health check of docs/gitops.md, run by the interpreter that Argo CD has.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::control_plane::path_of;
use crate::control_plane::programs::not_run;
use crate::scratch::Scratch;

/// The line of that page after which the check begins.
const KEY: &str = "resource.customizations.health.clusterdns.dev_ClusterDNS: |";

/// The health of each object as the API server returns it, in Argo CD's words: `Healthy`, `Progressing`, `Degraded`.
/// None, after saying so, where the interpreter has not been built.
pub fn healths(objects: &[Value]) -> Option<Vec<String>> {
    let interpreter = path_of("glua");
    if !interpreter.exists() {
        not_run("glua; `make tools` builds it");
        return None;
    }
    let mut script = format!("local function health(obj)\n{}end\n", check());
    for object in objects {
        let object = literal(object);
        writeln!(script, "print(health({object}).status)").expect("text can be written to");
    }
    let folder = Scratch::new("argo-cd").expect("a scratch directory");
    let path = folder.path().join("health.lua");
    std::fs::write(&path, script).expect("the script can be written");
    let ran = Command::new(interpreter).arg(path).output().expect("the interpreter runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(String::from_utf8_lossy(&ran.stdout).lines().map(str::to_owned).collect())
}

/// The check as people copy it.
fn check() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/gitops.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    let behind = page.lines().skip_while(|line| *line != KEY).skip(1);
    let check: String =
        behind.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
    assert!(!check.is_empty(), "the page has no line {KEY:?}");
    check
}

/// A value in Lua's own spelling; like Argo CD, nothing where there is null.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("[{}] = {}", quoted(name), literal(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Every octet that is more than a letter or a space by its number, which is short and always right.
fn quoted(text: &str) -> String {
    let octets = text.bytes().map(|octet| match octet {
        b' ' | b'a'..=b'z' | b'A'..=b'Z' => char::from(octet).to_string(),
        _ => format!("\\{octet:03}"),
    });
    format!("\"{}\"", octets.collect::<String>())
}
