//! Whether the Secrets that listeners name may be mounted: their names, type and labels. Their content is never asked for:
//! only metadata is listed, one Secret at a time, and the type is a selector.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::names::CERTIFICATE;
use crate::observed::Certificate;
use crate::read::within;

/// The type of Secrets with a certificate and its key.
const TLS: &str = "kubernetes.io/tls";
/// What the API server says to who may not.
const FORBIDDEN: u16 = 403;

/// What each of these Secrets is; `named` are those that the administrator allows without the label.
///
/// # Errors
/// When the API server does not answer.
pub async fn read(
    client: &Client,
    namespace: &str,
    wanted: BTreeSet<&str>,
    named: &[String],
) -> anyhow::Result<BTreeMap<String, Certificate>> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut found = BTreeMap::new();
    for name in wanted {
        let is_named = named.iter().any(|one| one == name);
        found.insert(name.to_owned(), look(&secrets, name, is_named).await?);
    }
    Ok(found)
}

async fn look(secrets: &Api<Secret>, name: &str, is_named: bool) -> anyhow::Result<Certificate> {
    let of_type = labels(secrets, &format!("metadata.name={name},type={TLS}")).await?;
    let of_any = match &of_type {
        Listed::None => labels(secrets, &format!("metadata.name={name}")).await?,
        Listed::One(_) | Listed::Forbidden => Listed::None,
    };
    Ok(judge(&of_type, &of_any, is_named))
}

/// What a list of one name gave.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Listed {
    None,
    One(BTreeMap<String, String>),
    Forbidden,
}

async fn labels(secrets: &Api<Secret>, fields: &str) -> anyhow::Result<Listed> {
    let params = ListParams::default().fields(fields).limit(1);
    match within(secrets.list_metadata(&params)).await {
        Ok(list) => Ok(list
            .items
            .into_iter()
            .next()
            .map_or(Listed::None, |secret| Listed::One(secret.labels().clone()))),
        Err(error) if is_forbidden(&error) => Ok(Listed::Forbidden),
        Err(error) => Err(error).context("cannot look at the certificates of listeners"),
    }
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<kube::Error>();
    matches!(error, Some(kube::Error::Api(status)) if status.code == FORBIDDEN)
}

fn judge(of_type: &Listed, of_any: &Listed, is_named: bool) -> Certificate {
    match (of_type, of_any) {
        (Listed::Forbidden, _) | (_, Listed::Forbidden) => Certificate::NotReadable,
        (Listed::One(labels), _) => {
            let is_marked = labels.get(CERTIFICATE).is_some_and(|value| value == "true");
            if is_marked || is_named { Certificate::Usable } else { Certificate::NotMarked }
        }
        (Listed::None, Listed::One(_)) => Certificate::OtherType,
        (Listed::None, Listed::None) => Certificate::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s14_a_certificate_is_of_its_type_and_marked_or_named() {
        let labelled =
            |value: &str| Listed::One([(CERTIFICATE.to_owned(), value.to_owned())].into());
        let plain = Listed::One(BTreeMap::new());
        for (of_type, of_any, is_named, expected) in [
            (labelled("true"), Listed::None, false, Certificate::Usable),
            (labelled("false"), Listed::None, false, Certificate::NotMarked),
            (plain.clone(), Listed::None, false, Certificate::NotMarked),
            (plain.clone(), Listed::None, true, Certificate::Usable),
            (Listed::None, labelled("true"), true, Certificate::OtherType),
            (Listed::None, Listed::None, true, Certificate::Missing),
            (Listed::Forbidden, Listed::None, true, Certificate::NotReadable),
            (Listed::None, Listed::Forbidden, false, Certificate::NotReadable),
        ] {
            assert_eq!(judge(&of_type, &of_any, is_named), expected, "{of_type:?} {of_any:?}");
        }
    }
}
