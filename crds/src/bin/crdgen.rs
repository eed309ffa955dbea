//! Prints the CustomResourceDefinition, as committed in `clusterdns.yaml`.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(crds::v1alpha1::crd_yaml().as_bytes())
}
