//! What went wrong, in a few words.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

use crate::domain::Sign;

/// As much of an answer as anybody reads.
const LONGEST: usize = 200;

/// A probe that missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) sign: Sign,
    pub(super) detail: String,
}

impl Failure {
    /// Something came back.
    pub(super) fn alive(detail: impl Into<String>) -> Self {
        Self {
            sign: Sign::Alive,
            detail: detail.into(),
        }
    }

    /// A connection that could not be made, or broke.
    pub(super) fn of_io(error: &io::Error) -> Self {
        if let Some(tls) = cause::<rustls::Error>(error) {
            return Self::alive(of_tls(tls));
        }
        let (sign, detail) = match error.kind() {
            io::ErrorKind::ConnectionRefused => (Sign::Alive, "connection refused".to_owned()),
            io::ErrorKind::ConnectionReset => (Sign::Alive, "connection reset".to_owned()),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                (Sign::Alive, "connection closed without an answer".to_owned())
            }
            io::ErrorKind::HostUnreachable => (Sign::Silent, "no route to the host".to_owned()),
            io::ErrorKind::NetworkUnreachable => (Sign::Silent, "no route to the network".to_owned()),
            _ => (Sign::Silent, error.to_string()),
        };
        Self { sign, detail }
    }

    /// A request that broke after the connection was made.
    pub(super) fn of_request(error: &(dyn Error + 'static)) -> Self {
        if let Some(tls) = cause::<rustls::Error>(error) {
            return Self::alive(of_tls(tls));
        }
        if let Some(io) = cause::<io::Error>(error) {
            return Self::of_io(io);
        }
        if let Some(http) = cause::<hyper::Error>(error) {
            if http.is_incomplete_message() || http.is_closed() || http.is_canceled() {
                return Self::alive("connection closed without an answer");
            }
            if http.is_parse() {
                return Self::alive("the answer is not HTTP");
            }
        }
        Self::alive(shorten(&error.to_string()))
    }
}

/// The first cause of this type. An `io::Error` hides what it wraps from its sources.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|inner| -> &(dyn Error + 'static) { inner });
        if let Some(inner) = inner
            && let Some(found) = cause(inner)
        {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn of_tls(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "certificate expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "certificate not valid yet".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "certificate is for another name; see `serverName`".to_owned()
            }
            CertificateError::UnknownIssuer => "certificate of an issuer that is not trusted".to_owned(),
            other => format!("certificate not trusted: {}", shorten(&format!("{other:?}"))),
        },
        rustls::Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::DecryptError,
        ) => "our certificate was not accepted".to_owned(),
        rustls::Error::InvalidMessage(_) => "the answer is not TLS".to_owned(),
        other => format!("TLS failed: {}", shorten(&other.to_string())),
    }
}

/// The gist of the body of an answer that is no success. `/readyz` lists every check, and marks with `[-]` those that failed.
pub(super) fn of_body(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
    let gist = if failed.is_empty() {
        text.lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .unwrap_or_default()
            .to_owned()
    } else {
        failed.join(", ")
    };
    if gist.is_empty() {
        return status.to_string();
    }
    format!("{status}: {}", shorten(&gist))
}

/// At most [`LONGEST`] characters, none of which could disturb a terminal or a log.
fn shorten(text: &str) -> String {
    let mut clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = clean.by_ref().take(LONGEST).collect();
    if clean.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_that_failed_are_told() {
        let body = b"[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\nreadyz check failed\n";
        assert_eq!(of_body(500, body), "500: etcd failed: reason withheld");
        assert_eq!(of_body(503, b"\n  busy\nvery\n"), "503: busy");
        assert_eq!(of_body(502, b""), "502");
    }

    #[test]
    fn a_body_is_cut_and_cannot_disturb_a_terminal() {
        let told = of_body(500, &[b'\x1b'; 9000]);
        assert_eq!(told.chars().count(), "500: ".len() + LONGEST + 1);
        assert!(!told.contains('\x1b'));
    }
}
