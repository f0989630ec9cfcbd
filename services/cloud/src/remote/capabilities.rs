//! What the provider says of itself: asked before anything else, and again after an answer was lost, since another program may listen
//! there by then.
//!
//! Invariant: `last` is the last good answer, which the synchronous questions of the traits are answered from; `asked` is when it came, and
//! `None` while it is in doubt. A short lock, never held across an await; `turn` lets one ask at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::{Family, ProviderId};
use groundplane_proto::provider::v1::capability_service_client::CapabilityServiceClient;
use groundplane_proto::provider::v1::{Capability as Wire, GetCapabilitiesRequest, GetCapabilitiesResponse};
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::info;

use super::Remote;
use super::call::Operation;
use super::convert::family;
use crate::config::Capability;
use crate::{CloudError, CloudErrorKind};

/// How long an answer holds where nothing was lost.
const HOLDS: Duration = Duration::from_secs(60);

/// What the provider said.
#[allow(clippy::struct_excessive_bools, reason = "the fields of the contract")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) name: String,
    pub(super) offered: BTreeSet<Capability>,
    /// First the one that it gives out.
    pub(super) schemes: Vec<String>,
    pub(super) proves_absence: bool,
    pub(super) families: BTreeSet<Family>,
    pub(super) needs_sessions: bool,
    pub(super) moves_atomically: bool,
    pub(super) calls_per_move: u32,
    pub(super) replaces_tags: bool,
}

impl Said {
    pub(super) fn accepts(&self, id: &ProviderId) -> bool {
        id.scheme()
            .is_some_and(|scheme| self.schemes.iter().any(|own| own == scheme))
    }

    /// The machine as the provider writes it: behind any of its schemes the same id is the same machine.
    pub(super) fn canonical(&self, id: &ProviderId) -> Option<ProviderId> {
        let first = self.schemes.first().filter(|_| self.accepts(id))?;
        format!("{first}://{}", id.id()).parse().ok()
    }
}

#[derive(Default)]
struct State {
    last: Option<Arc<Said>>,
    asked: Option<Instant>,
}

/// What is known of the provider.
#[derive(Default)]
pub(super) struct Capabilities {
    state: RwLock<State>,
    turn: Mutex<()>,
}

impl Capabilities {
    /// The last good answer, however old.
    pub(super) fn last(&self) -> Option<Arc<Said>> {
        self.state.read().last.clone()
    }

    /// Something was lost: ask again before the next call.
    pub(super) fn doubt(&self) {
        self.state.write().asked = None;
    }

    fn holds(&self) -> Option<Arc<Said>> {
        let state = self.state.read();
        state
            .last
            .clone()
            .filter(|_| state.asked.is_some_and(|asked| asked.elapsed() < HOLDS))
    }
}

impl Remote {
    /// What the provider says of itself, where that includes `needed`.
    ///
    /// # Errors
    /// `Refused` where it does not; those of the call where it cannot be asked.
    pub(super) async fn offers(
        &self,
        needed: Capability,
        operation: &Operation,
    ) -> Result<Arc<Said>, CloudError> {
        let said = self.said().await?;
        if said.offered.contains(&needed) {
            return Ok(said);
        }
        let offered: Vec<_> = said
            .offered
            .iter()
            .map(|capability| format!("`{}`", capability.as_str()))
            .collect();
        Err(operation.error(
            CloudErrorKind::Refused,
            format!(
                "the provider `{}` at {} does not offer `{needed}` (it offers {}); take `{needed}` out of remote.capabilities, \
                 or upgrade the provider",
                said.name,
                self.inner.target,
                offered.join(", "),
                needed = needed.as_str(),
            ),
        ))
    }

    async fn said(&self) -> Result<Arc<Said>, CloudError> {
        let known = &self.inner.capabilities;
        if let Some(said) = known.holds() {
            return Ok(said);
        }
        let _turn = known.turn.lock().await;
        if let Some(said) = known.holds() {
            return Ok(said);
        }
        let operation = Operation::read("ask the provider for its capabilities", "GetCapabilities");
        let begun = Instant::now();
        let answer = self
            .call(
                &operation,
                GetCapabilitiesRequest {},
                |channel, request| async move {
                    CapabilityServiceClient::new(channel)
                        .get_capabilities(request)
                        .await
                },
            )
            .await?;
        let said = Arc::new(read(answer).map_err(|wrong| operation.nonsense(wrong))?);
        let mut state = known.state.write();
        if state.last.as_ref() != Some(&said) {
            info!(provider = said.name, address = self.inner.target, offers = ?said.offered, "the provider answered");
        }
        state.last = Some(Arc::clone(&said));
        state.asked = Some(begun);
        Ok(said)
    }
}

/// Reads an answer; what is wrong with it, where something is.
fn read(answer: GetCapabilitiesResponse) -> Result<Said, String> {
    if !is_scheme(&answer.name) {
        return Err(format!("`{}` is not fit for its name", answer.name));
    }
    let offered: BTreeSet<_> = answer
        .capabilities
        .iter()
        .filter_map(|&number| match Wire::try_from(number) {
            Ok(Wire::Machines) => Some(Capability::Machines),
            Ok(Wire::Addresses) => Some(Capability::Addresses),
            Ok(Wire::Bgp) => Some(Capability::Bgp),
            Ok(Wire::Endpoint) => Some(Capability::Endpoint),
            Ok(Wire::Unspecified | Wire::LoadBalancers | Wire::Routes) | Err(_) => None,
        })
        .collect();
    let mut schemes = answer.provider_id_schemes;
    if let Some(wrong) = schemes.iter().find(|scheme| !is_scheme(scheme)) {
        return Err(format!("`{wrong}` is not a scheme of provider ids"));
    }
    if schemes.is_empty() {
        schemes.push(answer.name.clone());
    }
    let families: BTreeSet<_> = answer
        .address_families
        .iter()
        .filter_map(|text| family(text))
        .collect();
    if families.is_empty() && offered.contains(&Capability::Addresses) {
        return Err(
            "it offers addresses, and names neither `IPv4` nor `IPv6` in address_families".to_owned(),
        );
    }
    Ok(Said {
        name: answer.name,
        offered,
        schemes,
        proves_absence: answer.proves_absence,
        families,
        needs_sessions: answer.needs_sessions,
        moves_atomically: answer.moves_atomically,
        calls_per_move: answer.calls_per_move.max(1),
        replaces_tags: answer.replaces_tags,
    })
}

/// A lower case letter, then lower case letters, digits, `.`, `+`, `-`.
fn is_scheme(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".+-".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(rest)
}
