//! Who may vouch for a server.

use std::{io, path::Path};

use ureq::tls::{PemItem, RootCerts, parse_pem};

use super::HubError;

/// The longest list that is read. Mozilla's takes 220 kB.
const LONGEST: u64 = 16 << 20;

/// The certificate authorities that a PEM file lists.
pub(super) fn authorities(path: &Path) -> Result<RootCerts, HubError> {
    let failed = |source| HubError::Certificates { path: path.to_owned(), source };
    let invalid = |why: String| failed(io::Error::new(io::ErrorKind::InvalidData, why));
    let text = kinora_outside::read(path, LONGEST).map_err(failed)?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        // Whatever else is there, such as a key, is nobody's signature.
        if let PemItem::Certificate(certificate) = item.map_err(|error| invalid(error.to_string()))? {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err(invalid("it has no `BEGIN CERTIFICATE`".to_owned()));
    }
    Ok(RootCerts::from(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_read_and_nothing_else_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roots.pem");
        let count = |text: &str| {
            std::fs::write(&path, text).unwrap();
            match authorities(&path) {
                Ok(RootCerts::Specific(found)) => Ok(found.len()),
                Ok(_) => panic!("other authorities"),
                Err(error) => Err(error.to_string()),
            }
        };
        let item = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
        let (one, key) = (item("CERTIFICATE"), item("PRIVATE KEY"));
        assert_eq!(count(&format!("a comment\n{one}{key}{one}")), Ok(2));
        for text in
            ["", "no certificates", &key, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"]
        {
            let error = count(text).unwrap_err();
            assert!(error.contains("roots.pem") && error.contains("SSL_CERT_FILE"), "{text:?}: {error}");
        }
        let absent = authorities(&folder.path().join("absent")).err().unwrap().to_string();
        assert!(absent.contains("absent (SSL_CERT_FILE)"), "{absent}");
    }
}
