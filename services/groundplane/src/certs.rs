//! `groundplane certs`: an authority, and a certificate a service, in a folder or in Secrets.
//!
//! Run again, it changes only what needs it: what is missing, runs out, is for other names, or is of an authority that has
//! been replaced. Processes read their files again while they run, so nothing is restarted.
//!
//! An authority is replaced in three runs, each at least `--overlap` after the one before, so that nobody ever meets a
//! certificate of an authority that it has not heard of: the next one is *announced* (everybody trusts both), then *used*
//! (every leaf is issued anew), then the old one is *forgotten*.
//!
//! ```text
//! store (folder, Secrets) ──read──► plan (pure: what to keep, announce, use, forget, issue) ──► issue ──write──► store
//! ```

mod authority;
mod folder;
mod leaf;
mod secrets;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use groundplane_core::{Clock as _, SystemClock};
use groundplane_runtime::config::HumanDuration;
use groundplane_runtime::tls::{Caller, TRUST_DOMAIN};
use jiff::{SignedDuration, Timestamp};
use rcgen::CertificateParams;

use self::authority::{Authority, Step};
use self::folder::Folder;
use self::leaf::Wanted;
use self::secrets::ClusterSecrets;

/// Files of a certificate, its key, and whom its holder trusts: as in a Secret of type `kubernetes.io/tls`.
const CERT: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA: &str = "ca.crt";

/// The authority's own place among the services.
const AUTHORITY: &str = "ca";

/// Files by their names. Some are keys: never printed.
type Files = BTreeMap<String, Vec<u8>>;

/// Make, or renew, the certificates that services trust each other by.
#[derive(Debug, clap::Args)]
pub(crate) struct CertsArgs {
    /// Into this folder: `ca`, and a folder a service with tls.crt, tls.key and ca.crt
    #[arg(
        long,
        env = "GROUNDPLANE_CERTS_DIR",
        value_name = "FOLDER",
        conflicts_with = "prefix"
    )]
    dir: Option<PathBuf>,
    /// Into Secrets PREFIX-SERVICE-tls of the cluster, and PREFIX-ca-tls for the authority
    #[arg(long, env = "GROUNDPLANE_CERTS_PREFIX", value_name = "PREFIX")]
    prefix: Option<String>,
    /// The namespace of the Secrets; the pod's own unless given
    #[arg(
        long,
        env = "GROUNDPLANE_CERTS_NAMESPACE",
        value_name = "NAMESPACE",
        requires = "prefix"
    )]
    namespace: Option<String>,
    /// The kubeconfig of the cluster; without it, $KUBECONFIG, else the pod's own account
    #[arg(long, env = "GROUNDPLANE_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The services that get one
    #[arg(
        long = "service",
        env = "GROUNDPLANE_CERTS_SERVICES",
        value_delimiter = ',',
        value_name = "SERVICE",
        default_value = "ipam,eip,bgp,health,instances,gateway,agent,ctl"
    )]
    services: Vec<Caller>,
    /// Names and addresses that servers are called by; `{service}` stands for the service
    #[arg(
        long = "host",
        env = "GROUNDPLANE_CERTS_HOSTS",
        value_delimiter = ',',
        value_name = "HOST",
        default_value = "localhost,127.0.0.1,::1,{service}"
    )]
    hosts: Vec<String>,
    /// Trust domain of the names `spiffe://DOMAIN/SERVICE`
    #[arg(long, env = "GROUNDPLANE_TRUST_DOMAIN", value_name = "DOMAIN", default_value = TRUST_DOMAIN)]
    trust_domain: String,
    /// How long a service's certificate is good
    #[arg(
        long,
        env = "GROUNDPLANE_CERTS_VALIDITY",
        value_name = "TIME",
        default_value = "2160h"
    )]
    validity: HumanDuration,
    /// How long the authority is good
    #[arg(
        long,
        env = "GROUNDPLANE_CERTS_CA_VALIDITY",
        value_name = "TIME",
        default_value = "87600h"
    )]
    ca_validity: HumanDuration,
    /// Renew what is good for no longer than this
    #[arg(
        long,
        env = "GROUNDPLANE_CERTS_RENEW_BEFORE",
        value_name = "TIME",
        default_value = "720h"
    )]
    renew_before: HumanDuration,
    /// Replace the authority, although it is good
    #[arg(long)]
    rotate_ca: bool,
    /// How long everybody has to hear of the next authority before it is used, and of its use before the old one is forgotten
    #[arg(
        long,
        env = "GROUNDPLANE_CERTS_OVERLAP",
        value_name = "TIME",
        default_value = "24h"
    )]
    overlap: HumanDuration,
}

/// How long certificates are good, and when they are replaced.
#[derive(Clone, Copy, Debug)]
struct Terms {
    now: Timestamp,
    validity: SignedDuration,
    ca_validity: SignedDuration,
    renew_before: SignedDuration,
    overlap: SignedDuration,
    rotate: bool,
}

/// Certificates are good from a little before they are made: clocks differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Where certificates are kept.
enum Store {
    Folder(Folder),
    Secrets(Box<ClusterSecrets>),
}

impl Store {
    async fn read(&mut self, name: &str) -> anyhow::Result<Files> {
        match self {
            Self::Folder(folder) => folder.read(name),
            Self::Secrets(secrets) => secrets.read(name).await,
        }
    }

    async fn write(&mut self, name: &str, files: Files) -> anyhow::Result<()> {
        match self {
            Self::Folder(folder) => folder.write(name, &files),
            Self::Secrets(secrets) => secrets.write(name, files).await,
        }
    }
}

/// Makes and renews; says what it did.
pub(crate) async fn run(args: CertsArgs) -> anyhow::Result<()> {
    let terms = terms(&args)?;
    let CertsArgs {
        dir,
        prefix,
        namespace,
        kubeconfig,
        services,
        hosts,
        trust_domain,
        ..
    } = args;
    let mut store = match (dir, prefix) {
        (Some(dir), _) => Store::Folder(Folder::new(dir)),
        (None, Some(prefix)) => Store::Secrets(Box::new(
            ClusterSecrets::connect(kubeconfig.as_deref(), namespace.as_deref(), prefix).await?,
        )),
        (None, None) => bail!("say where the certificates go: --dir FOLDER or --prefix PREFIX"),
    };
    let authority = authority(&mut store, terms).await?;
    for service in services {
        let wanted = Wanted::new(service, &hosts, &trust_domain);
        leaf(&mut store, &authority, &wanted, terms)
            .await
            .with_context(|| format!("the certificate of {service}"))?;
    }
    Ok(())
}

fn terms(args: &CertsArgs) -> anyhow::Result<Terms> {
    let signed = |duration: HumanDuration| Ok::<_, anyhow::Error>(SignedDuration::try_from(duration.0)?);
    let terms = Terms {
        now: SystemClock.now(),
        validity: signed(args.validity)?,
        ca_validity: signed(args.ca_validity)?,
        renew_before: signed(args.renew_before)?,
        overlap: signed(args.overlap)?,
        rotate: args.rotate_ca,
    };
    if terms.renew_before >= terms.validity {
        bail!("--renew-before must be shorter than --validity, or each run would renew everything");
    }
    if terms.ca_validity <= terms.validity.saturating_add(terms.renew_before) {
        bail!(
            "--ca-validity must be longer than --validity and --renew-before together: no certificate outlives its authority"
        );
    }
    Ok(terms)
}

/// The authority as it is to be from now on; stored before anything is issued by it.
async fn authority(store: &mut Store, terms: Terms) -> anyhow::Result<Authority> {
    let before = store.read(AUTHORITY).await?;
    let known = Authority::read(&before).context("the authority that there is cannot be used")?;
    let step = Authority::step(known.as_ref(), terms);
    let authority = Authority::take(known, step, terms)?;
    if step != Step::Keep {
        store.write(AUTHORITY, authority.files()).await?;
    }
    let until = authority.expires();
    match step {
        Step::Create => say(&format!("authority: made, good until {until}")),
        Step::Keep => say(&format!("authority: good until {until}")),
        Step::Announce => {
            say("authority: the next one is announced; run this again after --overlap to use it")
        }
        Step::Use => say(&format!(
            "authority: replaced, good until {until}; the old one is trusted for another --overlap"
        )),
        Step::Forget => say("authority: the old one is forgotten"),
    }?;
    Ok(authority)
}

async fn leaf(store: &mut Store, authority: &Authority, wanted: &Wanted, terms: Terms) -> anyhow::Result<()> {
    let service = wanted.service();
    let before = store.read(service.name()).await?;
    let mut files = before.clone();
    let why = leaf::why_not(&before, wanted, authority, terms);
    if why.is_some() {
        let (cert, key) = leaf::issue(wanted, authority, terms)?;
        files.insert(CERT.to_owned(), cert.into_bytes());
        files.insert(KEY.to_owned(), key.into_bytes());
    }
    files.insert(CA.to_owned(), authority.bundle().into_bytes());
    if files == before {
        return say(&format!("{service}: good"));
    }
    store.write(service.name(), files).await?;
    match why {
        Some(why) => say(&format!("{service}: issued, since {why}")),
        None => say(&format!("{service}: told whom to trust")),
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Sets from when until when a certificate is good.
fn set_validity(params: &mut CertificateParams, begins: Timestamp, expires: Timestamp) -> anyhow::Result<()> {
    // rcgen takes times of another library, of which it shows no more than this.
    let since = |at: Timestamp| u64::try_from(at.as_second()).map(Duration::from_secs);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since(begins)?;
    params.not_after = epoch + since(expires)?;
    Ok(())
}

#[cfg(test)]
mod tests;
