//! Certificates for tests: made on the spot, good or bad.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use super::{Caller, ClientTls, ServerTls, TRUST_DOMAIN};

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// Years between which a certificate is good.
pub(crate) const GOOD: (i32, i32) = (2020, 2120);
pub(crate) const EXPIRED: (i32, i32) = (2010, 2012);
pub(crate) const NOT_YET: (i32, i32) = (2110, 2120);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A leaf with these URIs, for host `localhost`.
    pub(crate) fn leaf_with(&self, uris: &[&str], years: (i32, i32)) -> Leaf {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        for uri in uris {
            params
                .subject_alt_names
                .push(SanType::URI((*uri).try_into().unwrap()));
        }
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        Leaf {
            cert: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// The leaf of a service.
    pub(crate) fn leaf(&self, caller: Caller) -> Leaf {
        self.leaf_with(&[&caller.uri(TRUST_DOMAIN)], GOOD)
    }
}

/// A folder like a mounted Secret: `tls.crt`, `tls.key`, `ca.crt`.
pub(crate) struct Mount {
    dir: tempfile::TempDir,
}

impl Mount {
    pub(crate) fn new(leaf: &Leaf, authorities: &[&Authority]) -> Self {
        let mount = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        mount.put(leaf, authorities);
        mount
    }

    /// Replaces all files at once, as Kubernetes does it: by swapping the link that they are seen through.
    pub(crate) fn put(&self, leaf: &Leaf, authorities: &[&Authority]) {
        let version = tempfile::Builder::new()
            .prefix("..v")
            .tempdir_in(self.dir.path())
            .unwrap()
            .keep();
        let bundle: String = authorities.iter().map(|authority| authority.pem()).collect();
        std::fs::write(version.join("tls.crt"), &leaf.cert).unwrap();
        std::fs::write(version.join("tls.key"), &leaf.key).unwrap();
        std::fs::write(version.join("ca.crt"), bundle).unwrap();
        let (next, data) = (self.dir.path().join("..next"), self.dir.path().join("..data"));
        std::os::unix::fs::symlink(&version, &next).unwrap();
        std::fs::rename(&next, &data).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("..data").join(name)
    }

    pub(crate) fn server(&self) -> ServerTls {
        ServerTls {
            cert: self.file("tls.crt"),
            key: self.file("tls.key"),
            client_ca: Some(self.file("ca.crt")),
        }
    }

    pub(crate) fn client(&self) -> ClientTls {
        ClientTls {
            ca: self.file("ca.crt"),
            identity: Some((self.file("tls.crt"), self.file("tls.key"))),
            server_name: None,
        }
    }
}
