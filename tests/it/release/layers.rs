//! The layers of a release's image are compressed by zstd, and every document still names what is below it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::contents::{has, installed};
use super::{Tree, ran};

const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

/// The SHA-256 in hexadecimal, as layouts name their blobs.
pub(super) fn digest(octets: &[u8]) -> String {
    Sha256::digest(octets).iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Puts a blob into the layout, and returns what a document says of it.
fn blob(layout: &Path, media_type: &str, octets: &[u8]) -> Value {
    let name = digest(octets);
    fs::write(layout.join("blobs/sha256").join(&name), octets).expect("can be written");
    json!({"mediaType": media_type, "digest": format!("sha256:{name}"), "size": octets.len()})
}

fn gzipped(text: &str) -> Vec<u8> {
    let script = format!("printf '%s' '{text}' | gzip --no-name --stdout");
    Command::new("sh").args(["-c", &script]).output().expect("gzip").stdout
}

/// The blob that a document names, which has the digest and the size that the document says.
fn read(layout: &Path, named: &Value) -> Vec<u8> {
    let name = named["digest"].as_str().expect("a digest").replace("sha256:", "");
    let octets = fs::read(layout.join("blobs/sha256").join(&name)).expect("a blob");
    assert_eq!((digest(&octets), &named["size"]), (name, &octets.len().into()), "{named}");
    octets
}

fn document(layout: &Path, named: &Value) -> Value {
    serde_json::from_slice(&read(layout, named)).expect("JSON")
}

#[test]
fn p4_layers_are_compressed_by_zstd_and_every_document_names_what_is_there() {
    if !has(&installed("jq"), "install jq") || !has(&installed("zstd"), "install zstd") {
        return;
    }
    let tree = Tree::new();
    let layout = tree.path().join("target/release-1.2.3/image");
    fs::create_dir_all(layout.join("blobs/sha256")).expect("can be made");
    let gzip = "application/vnd.oci.image.layer.v1.tar+gzip";
    // Both architectures share a layer, which must not be lost with the first one.
    let manifests = ["amd64", "arm64"].map(|name| {
        let layers = [name, "shared"].map(|text| blob(&layout, gzip, &gzipped(text)));
        let config = blob(&layout, "application/vnd.oci.image.config.v1+json", name.as_bytes());
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string();
        let mut named =
            blob(&layout, "application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
        named["platform"] = json!({"os": "linux", "architecture": name});
        named
    });
    let index = json!({"schemaVersion": 2, "manifests": manifests}).to_string();
    let mut index = blob(&layout, "application/vnd.oci.image.index.v1+json", index.as_bytes());
    index["annotations"] = json!({"org.opencontainers.image.ref.name": "1.2.3"});
    let top = json!({"schemaVersion": 2, "manifests": [index]}).to_string();
    fs::write(layout.join("index.json"), top).expect("can be written");

    // The second time there is nothing to do.
    for _ in 0..2 {
        let (passed, text) = ran(&mut tree.step("layers", "1.2.3"));
        assert!(passed, "{text}");
    }

    let top = fs::read_to_string(layout.join("index.json")).expect("a document");
    let top: Value = serde_json::from_str(&top).expect("JSON");
    let [index] = top["manifests"].as_array().expect("a list").as_slice() else { panic!("{top}") };
    assert_eq!(index["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
    let said = fs::read_to_string(layout.join("../image-digest.txt")).expect("a digest");
    assert_eq!(said.trim(), index["digest"]);
    let mut blobs = vec![index["digest"].clone()];
    for (manifest, name) in document(&layout, index)["manifests"]
        .as_array()
        .expect("a list")
        .iter()
        .zip(["amd64", "arm64"])
    {
        assert_eq!(manifest["platform"]["architecture"], name);
        blobs.push(manifest["digest"].clone());
        let manifest = document(&layout, manifest);
        assert_eq!(read(&layout, &manifest["config"]), name.as_bytes());
        blobs.push(manifest["config"]["digest"].clone());
        let layers = manifest["layers"].as_array().expect("a list");
        for (layer, text) in layers.iter().zip([name, "shared"]) {
            assert_eq!(layer["mediaType"], ZSTD);
            let file = layout.join("layer.zst");
            fs::write(&file, read(&layout, layer)).expect("can be written");
            let plain = Command::new("zstd").args(["-d", "-c", "-q"]).arg(&file).output();
            assert_eq!(plain.expect("zstd").stdout, text.as_bytes());
            blobs.push(layer["digest"].clone());
        }
        assert_eq!(layers.len(), 2);
    }
    blobs.sort_by_key(ToString::to_string);
    blobs.dedup();
    let there = fs::read_dir(layout.join("blobs/sha256")).expect("a folder").count();
    assert_eq!(there, blobs.len(), "nothing is left over");
}
