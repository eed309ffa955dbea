//! Answers packets of connections that this process does not have. Such packets come after a restart, or when kube-proxy moves a
//! flow to another pod. A stateless reset (RFC 9000 §10.3) ends such a connection for its client at once; without it the client
//! would wait until the idle time is over. Clients believe a reset only if it has the token that came with the id of the
//! connection, so all processes with one certificate make tokens with the same key.

use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::{CryptoError, HmacKey};
use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use tokio_rustls::rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use tokio_rustls::rustls::crypto::tls13::{Hkdf, OkmBlock};

/// What the key is for: another purpose would have another one.
const PURPOSE: &[u8] = b"clusterdns quic stateless reset";
/// Octets of a connection id. Nothing in it says which process made it.
const ID_OCTETS: usize = 8;
/// Octets of what the token is cut from.
const SIGNATURE_OCTETS: usize = 32;
/// Between two resets. After a restart each client needs one; a reset is smaller than the packet that it answers.
const RESET_EVERY: Duration = Duration::from_millis(1);

/// What all connections of a listener share; `secret` is what all pods know and no one else.
pub(super) fn endpoint_config(secret: Option<&[u8]>) -> EndpointConfig {
    // Without a secret other processes cannot be spoken for.
    let Some(key) = secret.and_then(ResetKey::of) else { return EndpointConfig::default() };
    let mut config = EndpointConfig::new(Arc::new(key));
    // The usual ids are recognised by the process that made them, and packets with others are dropped.
    config.cid_generator(|| Box::new(Ids)).min_reset_interval(RESET_EVERY);
    config
}

/// Makes the tokens.
struct ResetKey {
    hkdf: &'static dyn Hkdf,
    key: OkmBlock,
}

impl ResetKey {
    fn of(secret: &[u8]) -> Option<ResetKey> {
        let hkdf = TLS13_AES_128_GCM_SHA256.tls13()?.hkdf_provider;
        let key = hkdf.extract_from_secret(None, secret).expand_block(&[PURPOSE]);
        Some(ResetKey { hkdf, key })
    }
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        let tag = self.hkdf.hmac_sign(&self.key, data);
        signature.copy_from_slice(tag.as_ref());
    }

    fn signature_len(&self) -> usize {
        SIGNATURE_OCTETS
    }

    fn verify(&self, _: &[u8], _: &[u8]) -> Result<(), CryptoError> {
        // Only clients check tokens, and they compare octets.
        Err(CryptoError)
    }
}

/// Draws connection ids.
struct Ids;

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut octets = [0; ID_OCTETS];
        getrandom::fill(&mut octets).expect("this system gives random numbers");
        ConnectionId::new(&octets)
    }

    fn cid_len(&self) -> usize {
        ID_OCTETS
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(secret: &[u8], id: &[u8]) -> [u8; SIGNATURE_OCTETS] {
        let mut token = [0; SIGNATURE_OCTETS];
        ResetKey::of(secret).expect("HKDF").sign(id, &mut token);
        token
    }

    #[test]
    fn processes_with_one_secret_make_the_same_token_of_an_id() {
        assert_eq!(token(b"secret", &[7; 8]), token(b"secret", &[7; 8]));
        assert_ne!(token(b"secret", &[7; 8]), token(b"secret", &[8; 8]));
        assert_ne!(token(b"secret", &[7; 8]), token(b"another", &[7; 8]));
    }

    #[test]
    fn no_two_connections_have_one_id() {
        assert_ne!(Ids.generate_cid(), Ids.generate_cid());
        assert_eq!(Ids.generate_cid().len(), Ids.cid_len());
    }
}
