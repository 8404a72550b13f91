//! Signatures of Standard Webhooks: HMAC with SHA-256 over id, time and body.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const PREFIX: &str = "whsec_";
/// The permitted lengths of a secret, from the specification.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret that is shared with an endpoint. The notation is `whsec_` and base64. The debug form does not
/// show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// The reason why a text is not a secret. The error does not show the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The notation is wrong.
    #[error("the secret of a webhook is not base64, with or without whsec_ before it")]
    Base64,
    /// The secret is too short or too long.
    #[error("the secret of a webhook has {bytes} bytes, but must have 24 to 64")]
    Length {
        /// The decoded length, in bytes.
        bytes: usize,
    },
}

impl Secret {
    /// Parses a secret: `whsec_` and base64, or base64 alone.
    ///
    /// # Errors
    /// The text is not base64, or does not have 24 to 64 bytes.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        let bytes = BASE64_STANDARD.decode(text.strip_prefix(PREFIX).unwrap_or(text));
        let bytes = bytes.map_err(|_| SecretError::Base64)?;
        if BYTES.contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(SecretError::Length { bytes: bytes.len() })
        }
    }

    /// The signature of a message: `v1,` and base64.
    pub fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        for part in [id.as_bytes(), b".", seconds.to_string().as_bytes(), b".", body] {
            mac.update(part);
        }
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published vectors of Standard Webhooks and of Svix.
    #[test]
    fn signatures_are_those_of_the_published_vectors() {
        let table = [
            (
                "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
                ("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553),
                r#"{"email":"test@example.com","username":"test_user"}"#,
                "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
            ),
            (
                "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330),
                r#"{"test": 2432232314}"#,
                "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            ),
        ];
        for (secret, (id, seconds), body, expected) in table {
            assert_eq!(Secret::parse(secret).unwrap().sign(id, seconds, body.as_bytes()), expected);
        }
    }

    #[test]
    fn a_secret_is_checked_and_stays_out_of_the_debug_form() {
        let secret = Secret::parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(Secret::parse("whsec_AAAA"), Err(SecretError::Length { bytes: 3 }));
        assert_eq!(Secret::parse("whsec_?"), Err(SecretError::Base64));
    }
}
