//! The kubeconfig, and the API server that it names. Files that a flag or `KUBECONFIG` names are read in bounded memory. Proxies are not
//! used: one that a kubeconfig names is refused, and one that only the environment names is passed over, because kube reads
//! `HTTPS_PROXY` and not `NO_PROXY`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kube::Client;
use kube::client::{AuthError, ClientBuilder};
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::BoxError;
use tower::util::MapErrLayer;

use crate::bounded_file::{self, KUBECONFIG_OCTETS};

/// Where kube finds a proxy if the kubeconfig names none.
const VARIABLES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
/// Characters that are shown of what a credential plugin says.
const MAX_SAID: usize = 500;

/// This file; without one, what `KUBECONFIG` names, else `~/.kube/config`.
///
/// # Errors
/// It cannot be read, or is too large.
pub fn read(file: Option<&Path>) -> Result<Kubeconfig, String> {
    if let Some(file) = file {
        return read_one(file);
    }
    let named = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let named: Vec<PathBuf> =
        std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    match named.is_empty() {
        true => Kubeconfig::read().map_err(|error| unreadable(&error)),
        false => merged(&named),
    }
}

/// All of these files, as kubectl reads them: what the first one says counts, and one that does not exist is passed over.
fn merged(files: &[PathBuf]) -> Result<Kubeconfig, String> {
    // A file that cannot be looked at is there: to read it says why.
    let there: Vec<&PathBuf> =
        files.iter().filter(|file| file.try_exists().unwrap_or(true)).collect();
    if there.is_empty() {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(format!("KUBECONFIG names no file that exists: {}", names.join(", ")));
    }
    there.into_iter().try_fold(Kubeconfig::default(), |merged, file| {
        let of_file = |why: String| format!("{}: {why}", file.display());
        let next = read_one(file).map_err(of_file)?;
        merged.merge(next).map_err(|error| of_file(unreadable(&error)))
    })
}

fn read_one(file: &Path) -> Result<Kubeconfig, String> {
    bounded_file::check_size(file, KUBECONFIG_OCTETS).map_err(|error| error.to_string())?;
    Kubeconfig::read_from(file).map_err(|error| unreadable(&error))
}

/// The API server of a kubeconfig, see [`read`], and the user's credentials.
///
/// # Errors
/// The file cannot be used, and which; or it names a proxy.
pub async fn config(file: Option<&Path>, options: &KubeConfigOptions) -> Result<Config, String> {
    let unusable = |why| match file {
        Some(file) => format!("cannot use the kubeconfig {}: {why}", file.display()),
        None => format!("cannot use the kubeconfig: {why}"),
    };
    without_proxy(load(file, options).await.map_err(unusable)?)
}

/// The API server of the kubeconfig, else that of the pod that this process runs in.
///
/// # Errors
/// There is neither, or the kubeconfig names a proxy.
pub async fn inferred() -> Result<Config, String> {
    let mut config = match load(None, &KubeConfigOptions::default()).await {
        Ok(config) => config,
        Err(why) => Config::incluster().map_err(|error| {
            format!("failed to infer config: in-cluster: ({error}), kubeconfig: ({why})")
        })?,
    };
    config.apply_debug_overrides();
    without_proxy(config)
}

/// The API server that a process asked first. Its kubeconfig is read again while it runs, and may name another cluster then, as
/// after `kubectl config use-context`. What the process has read and may write is of the first one.
#[derive(Clone, Debug, Default)]
pub struct FirstServer(Arc<OnceLock<String>>);

impl FirstServer {
    /// Whether this is the first one.
    ///
    /// # Errors
    /// It is another one.
    pub fn check(&self, config: &Config) -> Result<(), String> {
        let server = config.cluster_url.to_string();
        match *self.0.get_or_init(|| server.clone()) == server {
            true => Ok(()),
            false => {
                Err("the kubeconfig names another API server than at the start of this process. \
                 Start it again to use that one"
                    .to_owned())
            }
        }
    }
}

/// The variable that names a proxy, which is not used: for the errors of connections.
pub fn unused_proxy() -> Option<&'static str> {
    VARIABLES.into_iter().find(|name| std::env::var_os(name).is_some_and(|it| !it.is_empty()))
}

/// A client of this API server. No error of it has secrets, see [`reason`].
///
/// # Errors
/// The credentials cannot be used, and why.
pub fn client(config: Config) -> Result<Client, String> {
    let builder = ClientBuilder::try_from(config).map_err(|error| reason(&error))?;
    Ok(builder.with_layer(&MapErrLayer::new(of_request)).build())
}

/// An error of a request, without secrets: a token that expires is renewed inside a request, by the credential plugin.
pub fn of_request(error: BoxError) -> BoxError {
    match of_credentials(&*error) {
        Some(error) => without_secrets(error).into(),
        None => error,
    }
}

/// Why a client cannot be made, without secrets: kube shows the environment, the arguments and the output
/// of a credential plugin, and these have passwords and tokens.
pub fn reason(error: &kube::Error) -> String {
    of_credentials(error).map_or_else(|| error.to_string(), without_secrets)
}

/// The error of the credentials by which this one was caused.
fn of_credentials<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a AuthError> {
    std::iter::successors(Some(error), |&error| error.source())
        .find_map(|error| error.downcast_ref::<AuthError>())
}

fn without_secrets(error: &AuthError) -> String {
    const PLUGIN: &str = "the credential plugin of the kubeconfig";
    match error {
        AuthError::AuthExecRun { cmd: _, out } => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said = said.trim().chars().take(MAX_SAID);
            let visible = |character: char| match character {
                '\n' | '\t' => ' ',
                other if other.is_control() => '\u{fffd}',
                other => other,
            };
            let said: String = said.map(visible).collect();
            // kube gives it our standard error, unless the kubeconfig says that it never asks a person.
            let said = match said.is_empty() {
                true => "what it says, if anything, is on standard error",
                false => &said,
            };
            format!("{PLUGIN} failed ({}): {said}", out.status)
        }
        AuthError::AuthExecStart(error) => format!("{PLUGIN} cannot be started: {error}"),
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
            format!("{PLUGIN} printed no credentials that can be read")
        }
        AuthError::MalformedTokenExpirationDate(_) => {
            format!("{PLUGIN} printed a time of expiry that cannot be read")
        }
        AuthError::InvalidBasicAuth(_)
        | AuthError::InvalidBearerToken(_)
        | AuthError::UnrefreshableTokenResponse
        | AuthError::ExecPluginFailed
        | AuthError::AuthExecSerialize(_)
        | AuthError::AuthExec(_)
        | AuthError::ReadTokenFile(..)
        | AuthError::MissingCommand
        | AuthError::ExecMissingClusterInfo
        | AuthError::NoValidNativeRootCA(_) => error.to_string(),
    }
}

/// Without the excerpt of the file that belongs to a mistake in its YAML: lines of it may be tokens.
fn unreadable(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => {
            format!("failed to parse kubeconfig YAML: {}", error.without_snippet())
        }
        other => other.to_string(),
    }
}

/// Its `proxy_url` is that of the kubeconfig.
async fn load(file: Option<&Path>, options: &KubeConfigOptions) -> Result<Config, String> {
    let kubeconfig = read(file)?;
    let names_proxy = names_proxy(&kubeconfig, options);
    let config = Config::from_custom_kubeconfig(kubeconfig, options).await;
    let of_environment = unused_proxy().filter(|_| !names_proxy);
    let config = config.map_err(|error| match (of_environment, &error) {
        (Some(variable), KubeconfigError::ParseProxyUrl(_)) => {
            format!("{variable} is no URL ({error}): proxies are not used, so take it out")
        }
        (Some(_) | None, _) => unreadable(&error),
    })?;
    if let Some(variable) = of_environment {
        tracing::info!("{variable} is set: proxies are not used, the API server is asked directly");
    }
    Ok(from(names_proxy, config))
}

/// The same without what kube took from the environment.
fn from(names_proxy: bool, mut config: Config) -> Config {
    config.proxy_url = config.proxy_url.filter(|_| names_proxy);
    config
}

/// Whether the cluster that is chosen has a `proxy-url`.
fn names_proxy(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> bool {
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let named = kubeconfig.contexts.iter().find(|it| Some(&it.name) == context);
    let of_context = named.and_then(|it| it.context.as_ref()).map(|it| &it.cluster);
    let cluster = options.cluster.as_ref().or(of_context);
    let chosen = kubeconfig.clusters.iter().find(|it| Some(&it.name) == cluster);
    let proxy = chosen.and_then(|it| it.cluster.as_ref()).and_then(|it| it.proxy_url.as_ref());
    proxy.is_some_and(|proxy| !proxy.is_empty())
}

/// Not with its URL, which may have a password.
fn without_proxy(config: Config) -> Result<Config, String> {
    match config.proxy_url {
        None => Ok(config),
        Some(_) => {
            Err("the kubeconfig has a proxy-url: proxies are not supported, take it out or run \
             `kubectl proxy` and name that"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::config::ExecInteractiveMode;

    use super::*;

    const TWO: &str = r#"{"clusters": [
        {"name": "near", "cluster": {"server": "https://10.0.0.1:6443"}},
        {"name": "far", "cluster": {"server": "https://192.0.2.1", "proxy-url": "http://p:3128"}}],
        "contexts": [{"name": "a", "context": {"cluster": "near"}},
            {"name": "b", "context": {"cluster": "far"}}],
        "users": [], "current-context": "a"}"#;

    #[test]
    fn a_file_of_the_list_that_is_missing_is_passed_over_as_kubectl_does() {
        let folder =
            std::env::temp_dir().join(format!("clusterdns-kubeconfig-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [two, large, missing] = ["two", "large", "missing"].map(|name| folder.join(name));
        std::fs::write(&two, TWO).unwrap();
        std::fs::File::create(&large).unwrap().set_len(KUBECONFIG_OCTETS + 1).unwrap();
        let found = merged(&[missing.clone(), two.clone()]);
        let none = merged(&[missing]).unwrap_err();
        let too_large = merged(&[two, large]).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.unwrap().current_context.as_deref(), Some("a"));
        assert!(none.contains("no file that exists") && none.contains("missing"), "{none}");
        assert!(too_large.contains("large: it has 16777217 octets"), "{too_large}");
    }

    #[tokio::test]
    async fn what_a_credential_plugin_is_given_and_prints_is_not_in_its_error() {
        for (run, says) in [
            (
                "echo $TOKEN; printf 'log in\\033 first\\n' >&2; exit 3",
                "(exit status: 3): log in\u{fffd} first",
            ),
            (
                "echo $TOKEN; exit 4",
                "(exit status: 4): what it says, if anything, is on standard error",
            ),
            ("echo $TOKEN", "printed no credentials"),
        ] {
            let why = client(with_plugin(run).await).err().expect(run);
            assert!(why.contains(says) && !why.contains("hunter2"), "{run}: {why}");
        }
        let mut asks = with_plugin("echo log in first >&2; exit 5").await;
        let plugin = asks.auth_info.exec.as_mut().unwrap();
        plugin.interactive_mode = Some(ExecInteractiveMode::IfAvailable);
        let why = client(asks).err().expect("no credentials");
        assert!(why.ends_with("(exit status: 5): what it says, if anything, is on standard error"));
    }

    /// A token that expires is renewed inside a request.
    #[tokio::test]
    async fn what_a_credential_plugin_prints_is_not_in_the_error_of_a_request() {
        let folder = std::env::temp_dir().join(format!("clusterdns-plugin-{}", std::process::id()));
        // It works for as long as it can create its folder: once.
        let script = format!(
            "mkdir {} || {{ echo $TOKEN; exit 3; }}; echo '{{status: {{token: hunter2, \
             expirationTimestamp: \"2000-01-01T00:00:00Z\"}}}}'",
            folder.display()
        );
        let client = client(with_plugin(&script).await);
        let request = hyper::Request::get("/api").body(kube::client::Body::empty()).unwrap();
        let failed = match client {
            Ok(client) => client.send(request).await.err(),
            Err(why) => panic!("{why}"),
        };
        std::fs::remove_dir_all(&folder).unwrap();
        let why = format!("{0} {0:?}", failed.expect("an error"));
        assert!(why.contains("the kubeconfig failed (exit status: 3)"), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
    }

    /// The credentials are what this script prints.
    async fn with_plugin(script: &str) -> Config {
        let text = TWO.replace("https://10.0.0.1", "http://10.0.0.1");
        let text = text.replace(r#""users": []"#, &format!(r#""users": [{}]"#, user(script)));
        let text = text.replace(r#""cluster": "near""#, r#""cluster": "near", "user": "u""#);
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    /// A user whose credentials are what this script prints.
    fn user(script: &str) -> String {
        let script = script.replace('\\', "\\\\").replace('"', "\\\"");
        format!(
            r#"{{"name": "u", "user": {{"exec": {{"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
                "args": ["-c", "{script}"], "env": [{{"name": "TOKEN", "value": "hunter2"}}],
                "interactiveMode": "Never"}}}}}}"#
        )
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_read_is_not_shown() {
        let error =
            Kubeconfig::from_yaml("users:\n- name: a\n  user: {token: hunter2}\nclusters: 5\n")
                .unwrap_err();
        let why = unreadable(&error);
        assert!(why.contains("line 4") && !why.contains("hunter2"), "{why}");
    }

    /// What becomes of a configuration for which kube found a proxy.
    fn used(context: Option<&str>, cluster: Option<&str>) -> Result<Config, String> {
        let kubeconfig = Kubeconfig::from_yaml(TWO).unwrap();
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            cluster: cluster.map(str::to_owned),
            user: None,
        };
        let mut config = Config::new("https://10.0.0.1:6443".parse().unwrap());
        config.proxy_url = Some("http://p:3128".parse().unwrap());
        without_proxy(from(names_proxy(&kubeconfig, &options), config))
    }

    #[test]
    fn a_proxy_of_the_environment_is_passed_over_and_one_of_the_kubeconfig_refused() {
        for (context, cluster) in [(None, None), (Some("a"), None), (Some("b"), Some("near"))] {
            let config = used(context, cluster).unwrap();
            assert_eq!(config.proxy_url, None, "{context:?} {cluster:?}");
        }
        for (context, cluster) in [(Some("b"), None), (None, Some("far"))] {
            let why = used(context, cluster).unwrap_err();
            assert!(why.contains("proxy-url"), "{why}");
        }
    }
}
