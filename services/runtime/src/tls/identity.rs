//! Who a peer is, as its certificate says.
//!
//! A service of ours carries a name of type URI among the subject's alternative names: `spiffe://<trust domain>/<service>`.
//! The trust domain keeps two installations apart that share an authority.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The trust domain, unless told otherwise.
pub const TRUST_DOMAIN: &str = "groundplane";

/// What the name of a service begins with.
const SCHEME: &str = "spiffe://";

/// A certificate that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no X.509 certificate: {0}")]
pub struct ParseCertificateError(String);

/// A process of ours that calls others. Each but `ctl` is also a command of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Caller {
    /// `groundplane all`: calls a provider; its own services are within it.
    All,
    /// The gateway.
    Gateway,
    /// ipam.
    Ipam,
    /// eip.
    Eip,
    /// bgp.
    Bgp,
    /// health.
    Health,
    /// instances.
    Instances,
    /// `groundplane agent`.
    Agent,
    /// `groundplane ctl`.
    Ctl,
}

impl Caller {
    /// Every one.
    pub const EVERY: [Self; 9] = [
        Self::All,
        Self::Gateway,
        Self::Ipam,
        Self::Eip,
        Self::Bgp,
        Self::Health,
        Self::Instances,
        Self::Agent,
        Self::Ctl,
    ];

    /// Its name, as certificates and logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Gateway => "gateway",
            Self::Ipam => "ipam",
            Self::Eip => "eip",
            Self::Bgp => "bgp",
            Self::Health => "health",
            Self::Instances => "instances",
            Self::Agent => "agent",
            Self::Ctl => "ctl",
        }
    }

    /// The name that its certificate carries.
    pub fn uri(self, trust_domain: &str) -> String {
        format!("{SCHEME}{trust_domain}/{self}")
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of our services")]
pub struct ParseCallerError(String);

impl FromStr for Caller {
    type Err = ParseCallerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::EVERY.into_iter().find(|caller| caller.name() == text);
        found.ok_or_else(|| ParseCallerError(text.to_owned()))
    }
}

/// From when until when a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub begins: Timestamp,
    /// Not after.
    pub expires: Timestamp,
}

impl Validity {
    /// That of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, ParseCertificateError> {
        Self::read(&parse(certificate)?)
    }

    fn read(certificate: &X509Certificate<'_>) -> Result<Self, ParseCertificateError> {
        let at = |seconds| {
            Timestamp::from_second(seconds).map_err(|error| ParseCertificateError(error.to_string()))
        };
        let validity = certificate.validity();
        Ok(Self {
            begins: at(validity.not_before.timestamp())?,
            expires: at(validity.not_after.timestamp())?,
        })
    }
}

/// Who is at the other end of a connection, proven by its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Which of our services it is; `None` for anybody else whose certificate is of an authority that we trust.
    pub caller: Option<Caller>,
    /// Its name as the certificate has it, for people.
    pub name: String,
    /// Its certificate.
    pub validity: Validity,
}

impl Identity {
    /// Whom a certificate, which was checked, names in a trust domain.
    pub fn of(certificate: &CertificateDer<'_>, trust_domain: &str) -> Result<Self, ParseCertificateError> {
        let certificate = parse(certificate)?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|error| ParseCertificateError(error.to_string()))?;
        let uris: Vec<&str> = names
            .iter()
            .flat_map(|names| &names.value.general_names)
            .filter_map(|name| match name {
                GeneralName::URI(uri) => Some(*uri),
                _ => None,
            })
            .collect();
        // One that would be two services is neither.
        let caller = match uris[..] {
            [uri] => named(uri, trust_domain),
            _ => None,
        };
        let name = match (caller, uris.first()) {
            (Some(caller), _) => caller.to_string(),
            (None, Some(uri)) => (*uri).to_owned(),
            (None, None) => certificate.subject().to_string(),
        };
        Ok(Self {
            caller,
            // From a peer: what is long is cut, and what would break a line of the log is replaced.
            name: name
                .chars()
                .take(200)
                .map(|c| if c.is_control() { '?' } else { c })
                .collect(),
            validity: Validity::read(&certificate)?,
        })
    }
}

fn named(uri: &str, trust_domain: &str) -> Option<Caller> {
    let (domain, service) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    if domain != trust_domain {
        return None;
    }
    service.parse().ok()
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, ParseCertificateError> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(error) => Err(ParseCertificateError(error.to_string())),
    }
}
