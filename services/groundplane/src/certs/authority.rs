//! The authority, and how one takes over from another.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use groundplane_runtime::tls::identity::Validity;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::X509Certificate;

use super::{CA, CERT, Files, KEY, SKEW, Terms, set_validity};

/// The next authority, which is trusted and not used yet.
const NEXT_CERT: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

/// The one before, which is trusted and used no more.
const OLD_CERT: &str = "old.crt";

/// An authority's certificate and key, as PEM.
struct Pair {
    cert: String,
    key: String,
    validity: Validity,
}

impl Pair {
    fn new(terms: Terms) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let begins = terms.now.checked_sub(SKEW)?;
        let expires = terms.now.checked_add(terms.ca_validity)?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = DistinguishedName::new();
        // A name of its own: two of one name could not be told apart by it.
        let mut name = "groundplane ".to_owned();
        for byte in key.public_key_raw().iter().rev().take(8) {
            write!(name, "{byte:02x}")?;
        }
        params.distinguished_name.push(DnType::CommonName, name);
        set_validity(&mut params, begins, expires)?;
        Self::read(params.self_signed(&key)?.pem(), key.serialize_pem())
    }

    fn read(cert: String, key: String) -> anyhow::Result<Self> {
        let validity = with_certificate(&cert, |parsed| {
            if !parsed.is_ca() {
                bail!("its certificate is not that of an authority");
            }
            let pair = KeyPair::from_pem(&key).context("its key cannot be read")?;
            if parsed.public_key().subject_public_key.data != pair.public_key_raw() {
                bail!("its certificate is not of its key");
            }
            validity(parsed)
        })?;
        Ok(Self { cert, key, validity })
    }

    fn from_files(files: &Files, cert: &str, key: &str) -> anyhow::Result<Option<Self>> {
        match (text(files, cert)?, text(files, key)?) {
            (Some(cert), Some(key)) => Self::read(cert, key).map(Some),
            (None, None) => Ok(None),
            _ => bail!(
                "it has one of {cert} and {key}, and not both: put the other one back, or remove it to start anew"
            ),
        }
    }

    /// When it was made.
    fn made(&self) -> Timestamp {
        self.validity.begins + SKEW
    }
}

/// What is to be done about the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Keep,
    /// There is none that could be used.
    Create,
    /// The next one is to be trusted.
    Announce,
    /// The next one takes over.
    Use,
    /// The old one is to be trusted no more.
    Forget,
}

/// Who issues, and who is trusted.
pub(super) struct Authority {
    current: Pair,
    next: Option<Pair>,
    old: Option<String>,
}

impl Authority {
    /// What is stored; `None` if there is none.
    pub(super) fn read(files: &Files) -> anyhow::Result<Option<Self>> {
        let Some(current) = Pair::from_files(files, CERT, KEY)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            current,
            next: Pair::from_files(files, NEXT_CERT, NEXT_KEY)?,
            old: text(files, OLD_CERT)?,
        }))
    }

    /// What is to be done. One step a run: between two, everybody must have heard of the first.
    pub(super) fn step(known: Option<&Self>, terms: Terms) -> Step {
        let Some(known) = known else {
            return Step::Create;
        };
        let Terms { now, overlap, .. } = terms;
        if known.current.validity.expires <= now && known.next.is_none() {
            // Nobody is trusted by it any more, so there is nothing to carry over.
            return Step::Create;
        }
        if let Some(next) = &known.next {
            let heard = now.duration_since(next.made()) >= overlap;
            let used = heard || known.current.validity.expires <= now;
            return if used { Step::Use } else { Step::Keep };
        }
        let left = known.current.validity.expires.duration_since(now);
        // What it issues now must not outlive it, and there are two steps to come before another one issues.
        let enough = terms.validity.saturating_add(overlap).saturating_add(overlap);
        if terms.rotate || left <= enough.max(terms.renew_before) {
            return Step::Announce;
        }
        // It was announced for one overlap, and has been in use for another.
        let settled = now.duration_since(known.current.made()) >= overlap.saturating_add(overlap);
        if known.old.is_some() && settled {
            return Step::Forget;
        }
        Step::Keep
    }

    /// The authority after this step.
    pub(super) fn take(known: Option<Self>, step: Step, terms: Terms) -> anyhow::Result<Self> {
        let Some(known) = known.filter(|_| step != Step::Create) else {
            return Ok(Self {
                current: Pair::new(terms)?,
                next: None,
                old: None,
            });
        };
        let Self { current, next, old } = known;
        Ok(match (step, next) {
            (Step::Announce, _) => Self {
                current,
                next: Some(Pair::new(terms)?),
                old,
            },
            (Step::Use, Some(next)) => Self {
                old: Some(current.cert),
                current: next,
                next: None,
            },
            (Step::Forget, next) => Self {
                current,
                next,
                old: None,
            },
            (_, next) => Self { current, next, old },
        })
    }

    /// As it is stored.
    pub(super) fn files(&self) -> Files {
        let mut files = Files::from([
            (CERT.to_owned(), self.current.cert.clone().into_bytes()),
            (KEY.to_owned(), self.current.key.clone().into_bytes()),
            (CA.to_owned(), self.bundle().into_bytes()),
        ]);
        if let Some(next) = &self.next {
            files.insert(NEXT_CERT.to_owned(), next.cert.clone().into_bytes());
            files.insert(NEXT_KEY.to_owned(), next.key.clone().into_bytes());
        }
        if let Some(old) = &self.old {
            files.insert(OLD_CERT.to_owned(), old.clone().into_bytes());
        }
        files
    }

    /// Everybody who is trusted.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| next.cert.as_str());
        [Some(self.current.cert.as_str()), next, self.old.as_deref()]
            .into_iter()
            .flatten()
            .collect()
    }

    pub(super) fn expires(&self) -> Timestamp {
        self.current.validity.expires
    }

    /// For what is issued now.
    pub(super) fn issuer(&self) -> anyhow::Result<Issuer<'static, KeyPair>> {
        let key = KeyPair::from_pem(&self.current.key)?;
        Ok(Issuer::from_ca_cert_pem(&self.current.cert, key)?)
    }

    /// Did it issue this certificate?
    pub(super) fn issued(&self, leaf: &X509Certificate<'_>) -> anyhow::Result<bool> {
        with_certificate(&self.current.cert, |own| {
            Ok(leaf.issuer() == own.subject() && leaf.verify_signature(Some(own.public_key())).is_ok())
        })
    }
}

/// From when until when a certificate is good.
pub(super) fn validity(certificate: &X509Certificate<'_>) -> anyhow::Result<Validity> {
    let validity = certificate.validity();
    Ok(Validity {
        begins: Timestamp::from_second(validity.not_before.timestamp())?,
        expires: Timestamp::from_second(validity.not_after.timestamp())?,
    })
}

/// Looks into the first certificate of a PEM text.
pub(super) fn with_certificate<T>(
    pem: &str,
    look: impl FnOnce(&X509Certificate<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (_, block) = parse_x509_pem(pem.as_bytes()).context("it is no PEM file")?;
    let certificate = block.parse_x509().context("it holds no certificate")?;
    look(&certificate)
}

/// A file as text; `None` if it is not there, or empty.
pub(super) fn text(files: &Files, name: &str) -> anyhow::Result<Option<String>> {
    let Some(bytes) = files.get(name).filter(|bytes| !bytes.is_empty()) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes).with_context(|| format!("{name} is no text"))?;
    Ok(Some(text.to_owned()))
}
