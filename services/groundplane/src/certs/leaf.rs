//! The certificate of one service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context as _;
use groundplane_runtime::tls::Caller;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use super::authority::{Authority, text, validity, with_certificate};
use super::{CERT, Files, KEY, SKEW, Terms, set_validity};

/// What a service's certificate says.
pub(super) struct Wanted {
    service: Caller,
    hosts: Vec<String>,
    uri: String,
}

impl Wanted {
    /// `hosts` may have `{service}` in them.
    pub(super) fn new(service: Caller, hosts: &[String], trust_domain: &str) -> Self {
        let named = |host: &String| host.replace("{service}", service.name());
        Self {
            service,
            hosts: hosts.iter().map(named).filter(|host| !host.is_empty()).collect(),
            uri: service.uri(trust_domain),
        }
    }

    pub(super) fn service(&self) -> Caller {
        self.service
    }

    /// The names, in one form that can be compared.
    fn names(&self) -> BTreeSet<String> {
        let host = |host: &String| match host.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => host.clone(),
        };
        self.hosts.iter().map(host).chain([self.uri.clone()]).collect()
    }
}

/// Why what is stored cannot stay; `None` if it can.
pub(super) fn why_not(files: &Files, wanted: &Wanted, authority: &Authority, terms: Terms) -> Option<String> {
    let (cert, key) = match (text(files, CERT), text(files, KEY)) {
        (Ok(Some(cert)), Ok(Some(key))) => (cert, key),
        (Ok(None), Ok(None)) => return Some("there was none".to_owned()),
        _ => return Some("it was not whole".to_owned()),
    };
    let looked = with_certificate(&cert, |leaf| {
        let pair = KeyPair::from_pem(&key).context("its key cannot be read")?;
        if leaf.public_key().subject_public_key.data != pair.public_key_raw() {
            return Ok(Some("its certificate was not of its key".to_owned()));
        }
        if !authority.issued(leaf)? {
            return Ok(Some("the authority is another one".to_owned()));
        }
        if names(leaf)? != wanted.names() {
            return Ok(Some("it was for other names".to_owned()));
        }
        let expires = validity(leaf)?.expires;
        let soon = expires.duration_since(terms.now) <= terms.renew_before;
        Ok(soon.then(|| format!("it was good until {expires} only")))
    });
    looked.unwrap_or_else(|error| Some(format!("it could not be read ({error:#})")))
}

/// The names that a certificate has.
fn names(leaf: &X509Certificate<'_>) -> anyhow::Result<BTreeSet<String>> {
    let Some(names) = leaf.subject_alternative_name()? else {
        return Ok(BTreeSet::new());
    };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(text) | GeneralName::URI(text) => (*text).to_owned(),
        GeneralName::IPAddress(bytes) => {
            address(bytes).map_or_else(String::new, |address| address.to_string())
        }
        other => other.to_string(),
    };
    Ok(names.value.general_names.iter().map(name).collect())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// A new key, and the certificate for it, as PEM.
pub(super) fn issue(
    wanted: &Wanted,
    authority: &Authority,
    terms: Terms,
) -> anyhow::Result<(String, String)> {
    let mut params = CertificateParams::new(wanted.hosts.clone())?;
    params
        .subject_alt_names
        .push(SanType::URI(wanted.uri.as_str().try_into()?));
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, wanted.service.name());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    let begins = terms.now.checked_sub(SKEW)?;
    let expires = terms.now.checked_add(terms.validity)?.min(authority.expires());
    set_validity(&mut params, begins, expires)?;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority.issuer()?)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
