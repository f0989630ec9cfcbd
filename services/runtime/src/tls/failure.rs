//! Why two processes do not trust each other, in words: who has to do what.
//!
//! The end that finds a fault in the other's certificate knows the fault best, and tells it by an alert. So both ends
//! come to the same reason: `SERVER_…` is about the server's certificate, `CLIENT_…` about the client's.

use std::borrow::Cow;
use std::fmt;
use std::io;

use groundplane_core::{ErrorKind, Kinded};
use rustls::{AlertDescription, CertificateError, Error};

use super::ClientSettings;

/// A handshake failed for another reason than a certificate.
const TLS_FAILED: &str = "TLS_FAILED";

/// Which end of a connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// We were called.
    Server,
    /// We called.
    Client,
}

impl Side {
    /// For metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Missing,
    Expired,
    NotYetValid,
    UnknownAuthority,
    WrongName,
    Refused,
}

/// A TLS connection that did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFailure {
    reason: &'static str,
    what: String,
    help: Cow<'static, str>,
    /// Whose certificate is at fault, and how, if that is it.
    fault: Option<(Side, Fault)>,
}

impl TlsFailure {
    /// What `error` of a handshake means; `None` if it has nothing to do with TLS: the peer is away.
    pub fn explain(side: Side, error: &io::Error) -> Option<Self> {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match tls {
            Some(tls) => Some(Self::of(side, tls)),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Some(Self {
                reason: "TLS_CLOSED",
                what: format!(
                    "the {} closed the connection during the TLS handshake",
                    side.other().name()
                ),
                help: "does it speak TLS on this port?".into(),
                fault: None,
            }),
            None => None,
        }
    }

    /// The peer did not agree to HTTP/2.
    pub(crate) fn no_http2() -> Self {
        Self {
            reason: "NOT_HTTP2",
            what: "the server speaks TLS and no HTTP/2".to_owned(),
            help: "does the address name a gRPC server?".into(),
            fault: None,
        }
    }

    /// The same, as a client says it whose files have these settings. Of a server that is not ours it does not know any.
    pub(crate) fn known_by(mut self, settings: &ClientSettings) -> Self {
        if *settings == ClientSettings::OURS {
            return self;
        }
        self.help = match self.fault {
            Some((whose, fault)) => help_abroad(whose, fault, settings),
            None if self.reason == TLS_FAILED => "do both ends speak TLS 1.2 or 1.3?".into(),
            None => self.help,
        };
        self
    }

    fn of(side: Side, error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(fault) => {
                Self::certificate(side.other(), side, certificate_fault(fault), error)
            }
            Error::NoCertificatesPresented => Self::certificate(side.other(), side, Fault::Missing, error),
            Error::AlertReceived(alert) => match alert_fault(*alert) {
                Some(fault) => Self::certificate(side, side, fault, error),
                None => Self {
                    reason: "TLS_REFUSED",
                    what: format!("the {} refused the TLS handshake: {alert:?}", side.other().name()),
                    help: "its log says why".into(),
                    fault: None,
                },
            },
            Error::InvalidMessage(_) => Self {
                reason: "NOT_TLS",
                what: format!("the {} does not speak TLS here", side.other().name()),
                help: "use https:// in the address, and certificates at both ends, or neither".into(),
                fault: None,
            },
            other => Self {
                reason: TLS_FAILED,
                what: format!("the TLS handshake failed: {other}"),
                help: "are both ends groundplane of a similar version?".into(),
                fault: None,
            },
        }
    }

    /// The certificate of `whose` side is at fault, as `side` tells.
    fn certificate(whose: Side, side: Side, fault: Fault, error: &Error) -> Self {
        let owner = if whose == side {
            "our".to_owned()
        } else {
            format!("the {}'s", whose.name())
        };
        let seen = if whose == side {
            format!(", says the {}", side.other().name())
        } else {
            String::new()
        };
        let detail = match error {
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => {
                format!(
                    " (asked for {}, it is for {})",
                    expected.to_str(),
                    presented.join(", ")
                )
            }
            Error::InvalidCertificate(other) if fault == Fault::Refused => format!(" ({other})"),
            _ => String::new(),
        };
        Self {
            reason: reason(whose, fault),
            what: match fault {
                Fault::Missing => format!("{owner} certificate is missing{seen}"),
                // One alert stands for both.
                Fault::Expired if whose == side => {
                    format!("{owner} certificate has expired, or is not valid yet{seen}")
                }
                Fault::Expired => format!("{owner} certificate has expired{seen}"),
                Fault::NotYetValid => format!("{owner} certificate is not valid yet{seen}"),
                Fault::UnknownAuthority => {
                    format!("{owner} certificate is of an authority that is not trusted{seen}")
                }
                Fault::WrongName => format!("{owner} certificate is for another name{seen}{detail}"),
                Fault::Refused => format!("{owner} certificate is not accepted{seen}{detail}"),
            },
            help: help(whose, fault).into(),
            fault: Some((whose, fault)),
        }
    }

    /// For programs: `SERVER_CERTIFICATE_EXPIRED`.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// What would help.
    pub fn help(&self) -> &str {
        &self.help
    }

    /// What happened, without [`TlsFailure::help`].
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.help)
    }
}

impl std::error::Error for TlsFailure {}

impl Kinded for TlsFailure {
    /// Certificates are renewed while processes run, so the next try may succeed.
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }

    fn reason(&self) -> &'static str {
        self.reason
    }
}

fn reason(whose: Side, fault: Fault) -> &'static str {
    match (whose, fault) {
        (Side::Server, Fault::Missing) => "SERVER_CERTIFICATE_MISSING",
        (Side::Server, Fault::Expired) => "SERVER_CERTIFICATE_EXPIRED",
        (Side::Server, Fault::NotYetValid) => "SERVER_CERTIFICATE_NOT_YET_VALID",
        (Side::Server, Fault::UnknownAuthority) => "SERVER_AUTHORITY_UNKNOWN",
        (Side::Server, Fault::WrongName) => "SERVER_NAME_MISMATCH",
        (Side::Server, Fault::Refused) => "SERVER_CERTIFICATE_REFUSED",
        (Side::Client, Fault::Missing) => "CLIENT_CERTIFICATE_MISSING",
        (Side::Client, Fault::Expired) => "CLIENT_CERTIFICATE_EXPIRED",
        (Side::Client, Fault::NotYetValid) => "CLIENT_CERTIFICATE_NOT_YET_VALID",
        (Side::Client, Fault::UnknownAuthority) => "CLIENT_AUTHORITY_UNKNOWN",
        (Side::Client, Fault::WrongName | Fault::Refused) => "CLIENT_CERTIFICATE_REFUSED",
    }
}

fn help(whose: Side, fault: Fault) -> &'static str {
    match (whose, fault) {
        (Side::Client, Fault::Missing) => "give the client one, with --client-cert and --client-key",
        (Side::Server, Fault::Missing) => "give the server one, with --tls-cert and --tls-key",
        (Side::Client, Fault::Expired) => {
            "renew the files of --client-cert and --client-key at the client, no restart is needed"
        }
        (Side::Server, Fault::Expired) => {
            "renew the files of --tls-cert and --tls-key at the server, no restart is needed"
        }
        (_, Fault::NotYetValid) => "compare the clocks of both machines",
        (Side::Client, Fault::UnknownAuthority) => {
            "add the authority of the client's certificate to the server's --tls-client-ca, or have that one issue it"
        }
        (Side::Server, Fault::UnknownAuthority) => {
            "add the authority of the server's certificate to the client's --client-ca, or have that one issue it"
        }
        (Side::Server, Fault::WrongName) => {
            "call the server by a name that its certificate has, or issue one with the name that is called"
        }
        (Side::Client, Fault::WrongName | Fault::Refused) => {
            "issue the client's certificate anew, for client authentication"
        }
        (Side::Server, Fault::Refused) => "issue the server's certificate anew, for server authentication",
    }
}

/// As [`help`], where the client's files are named by `settings` and the server is somebody else's.
fn help_abroad(whose: Side, fault: Fault, settings: &ClientSettings) -> Cow<'static, str> {
    let ClientSettings {
        ca,
        certificate,
        key,
        server_name,
        side: _,
    } = settings;
    match (whose, fault) {
        (Side::Client, Fault::Missing) => format!("give us one, with {certificate} and {key}").into(),
        (Side::Client, Fault::Expired) => {
            format!("renew the files of {certificate} and {key}, no restart is needed").into()
        }
        (Side::Client, Fault::UnknownAuthority) => {
            format!("have an authority that the server trusts issue the certificate of {certificate}").into()
        }
        (Side::Client, Fault::WrongName | Fault::Refused) => {
            format!("issue the certificate of {certificate} anew, for client authentication").into()
        }
        (Side::Server, Fault::UnknownAuthority) => {
            format!("add the authority of the server's certificate to the file of {ca}").into()
        }
        (Side::Server, Fault::WrongName) => {
            format!("write a name that its certificate has into {server_name}, or issue one with the name that is called").into()
        }
        (Side::Server, Fault::Expired) => "renew the server's certificate".into(),
        (Side::Server, Fault::Missing) => "give the server a certificate".into(),
        (_, Fault::NotYetValid) | (Side::Server, Fault::Refused) => help(whose, fault).into(),
    }
}

fn certificate_fault(error: &CertificateError) -> Fault {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Fault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Fault::NotYetValid,
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Fault::UnknownAuthority,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Fault::WrongName
        }
        _ => Fault::Refused,
    }
}

fn alert_fault(alert: AlertDescription) -> Option<Fault> {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => Some(Fault::Missing),
        AlertDescription::CertificateExpired => Some(Fault::Expired),
        AlertDescription::UnknownCA | AlertDescription::DecryptError => Some(Fault::UnknownAuthority),
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => Some(Fault::Refused),
        _ => None,
    }
}
