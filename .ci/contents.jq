# All that is in the image of one architecture, as CycloneDX, from the documents of both programs. `.ci/release contents`
# gives: version, architecture, digest (sha256:...), library (the words of the C library), the versions of libgcc and rust, and
# files (the output of sha256sum).
($digest | split(":")[1]) as $hex
| ($library | capture("\\((?<package>[^)]*)\\) [a-z]* release version (?<version>[0-9.]+)$")) as $libc
| [$files | split("\n")[] | select(. != "") | split("  ") | {
    type: "file", "bom-ref": "file:/\(.[1])", name: "/\(.[1])", hashes: [{alg: "SHA-256", content: .[0]}]
  }] as $files
| ({
    type: "library", "bom-ref": "pkg:generic/glibc@\($libc.version)", name: "glibc", version: $libc.version,
    description: "The C library that the programs are linked with, statically: \($library)",
    scope: "required", licenses: [{expression: "LGPL-2.1-or-later"}],
    cpe: "cpe:2.3:a:gnu:glibc:\($libc.version):*:*:*:*:*:*:*", purl: "pkg:generic/glibc@\($libc.version)",
    properties: [{name: "clusterdns:package", value: $libc.package}]
  }) as $glibc
| ({
    type: "library", "bom-ref": "pkg:generic/libgcc@\($libgcc)", name: "libgcc", version: $libgcc,
    description: "The runtime library of GCC, linked in statically", scope: "required",
    licenses: [{expression: "GPL-3.0-or-later WITH GCC-exception-3.1"}], purl: "pkg:generic/libgcc@\($libgcc)"
  }) as $gcc
| ({
    type: "library", "bom-ref": "pkg:generic/rust@\($rust)", name: "rust", version: $rust,
    description: "The standard library of Rust, with the crates that are built into it", scope: "required",
    licenses: [{expression: "MIT OR Apache-2.0"}],
    cpe: "cpe:2.3:a:rust-lang:rust:\($rust):*:*:*:*:*:*:*", purl: "pkg:generic/rust@\($rust)"
  }) as $std
| [$glibc, $gcc, $std] as $linked
| [.[].metadata.component] as $programs
| {
    bomFormat: .[0].bomFormat, specVersion: .[0].specVersion, version: 1,
    metadata: (.[0].metadata | {timestamp, tools} + {
      component: {
        type: "container", "bom-ref": "image", name: "clusterdns", version: $version,
        hashes: [{alg: "SHA-256", content: $hex}],
        purl: "pkg:oci/clusterdns@sha256%3A\($hex)?arch=\($architecture)&tag=\($version)"
      }
    }),
    components: ($programs + ([.[].components[]] | unique_by(."bom-ref") | map(select(."bom-ref" as $ref | $programs | all(."bom-ref" != $ref)))) + $linked + $files),
    dependencies: (
      [{ref: "image", dependsOn: ([$programs[]."bom-ref"] + [$files[]."bom-ref"])}]
      + ([.[].dependencies[]] | group_by(.ref) | map({ref: .[0].ref, dependsOn: ([.[].dependsOn // [] | .[]] | unique)})
        | map(if .ref as $ref | $programs | any(."bom-ref" == $ref) then .dependsOn += [$linked[]."bom-ref"] else . end))
      + [$linked[] | {ref: ."bom-ref", dependsOn: []}]
    )
  }
