//! BGP: a project enables it once and for all, a machine gets a session a family.
//!
//! Guesses, where the published API is silent: a second request to enable is refused whatever it says, a
//! session needs BGP to be enabled, and a machine without a session has no neighbours.

use groundplane_core::Family;
use jiff::Timestamp;
use serde::Deserialize;

use super::ProjectState;
use crate::error::ApiError;
use crate::ident::{DeviceId, Kind, SessionId};
use crate::model::{BgpConfig, BgpStatus, DeploymentType, Session};

/// `POST /projects/{pid}/bgp-configs`.
#[derive(Debug, Deserialize)]
pub(crate) struct BgpRequest {
    asn: i64,
    deployment_type: String,
    #[serde(default)]
    md5: Option<String>,
    #[serde(default)]
    use_case: Option<String>,
}

/// `POST /devices/{id}/bgp/sessions`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct SessionRequest {
    #[serde(default)]
    address_family: Option<String>,
    #[serde(default)]
    default_route: bool,
}

/// 10 to 20 letters and digits, of which one is lower case, one upper case and one a digit.
fn is_password(text: &str) -> bool {
    let has = |test: fn(&u8) -> bool| text.as_bytes().iter().any(test);
    (10..=20).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric())
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
}

impl ProjectState {
    /// Enables BGP as a client asks: local at once, global after a review.
    pub(crate) fn enable_bgp(&mut self, request: BgpRequest, now: Timestamp) -> Result<(), ApiError> {
        let (deployment_type, status) = match request.deployment_type.as_str() {
            "local" => (DeploymentType::Local, BgpStatus::Enabled),
            "global" => (DeploymentType::Global, BgpStatus::Requested),
            other => {
                return Err(ApiError::unprocessable(format!(
                    "deployment_type {other} is not valid"
                )));
            }
        };
        let asn = u32::try_from(request.asn)
            .ok()
            .filter(|asn| *asn > 0)
            .ok_or_else(|| ApiError::unprocessable(format!("asn {} is not valid", request.asn)))?;
        let md5 = request.md5.filter(|md5| !md5.is_empty());
        if md5.as_deref().is_some_and(|md5| !is_password(md5)) {
            return Err(ApiError::unprocessable(
                "md5 must be 10 to 20 letters and digits, with a lower case letter, an upper case letter and a digit",
            ));
        }
        if self
            .bgp
            .as_ref()
            .is_some_and(|config| config.status != BgpStatus::Disabled)
        {
            return Err(ApiError::unprocessable(
                "the BGP configuration of a project cannot be changed",
            ));
        }
        self.configure_bgp(asn, deployment_type, md5, request.use_case, status, now);
        Ok(())
    }

    pub(super) fn configure_bgp(
        &mut self,
        asn: u32,
        deployment_type: DeploymentType,
        md5: Option<String>,
        use_case: Option<String>,
        status: BgpStatus,
        now: Timestamp,
    ) {
        self.bgp = Some(BgpConfig {
            id: self.ids.next(Kind::BgpConfig),
            status,
            deployment_type,
            asn,
            md5,
            use_case,
            max_prefix: self.options.max_prefix,
            created_at: now,
        });
    }

    /// Gives a machine a session.
    pub(crate) fn add_session(
        &mut self,
        device: DeviceId,
        request: &SessionRequest,
        now: Timestamp,
    ) -> Result<SessionId, ApiError> {
        let word = request.address_family.as_deref().unwrap_or("ipv4");
        let family = match word {
            "ipv4" => Family::V4,
            "ipv6" => Family::V6,
            other => {
                return Err(ApiError::unprocessable(format!(
                    "address_family {other} is not valid"
                )));
            }
        };
        if self
            .bgp
            .as_ref()
            .is_none_or(|config| config.status != BgpStatus::Enabled)
        {
            return Err(ApiError::unprocessable("BGP is not enabled for this project"));
        }
        let machine = self.devices.get(device).ok_or(ApiError::NotFound)?;
        let mut sessions = machine.sessions.iter().filter_map(|id| self.sessions.get(*id));
        if sessions.any(|session| session.family == family) {
            return Err(ApiError::unprocessable(format!(
                "device already has session for {word}"
            )));
        }
        let id = SessionId::from(self.ids.next(Kind::Session));
        let session = Session {
            id,
            device,
            family,
            default_route: request.default_route,
            status: "unknown".to_owned(),
            created_at: now,
            reads_until_up: self.options.session_reads_until_up,
        };
        self.sessions.insert(id, session);
        if let Some(machine) = self.devices.get_mut(device) {
            machine.sessions.push(id);
        }
        if self.options.session_reads_until_up == Some(0) {
            self.raise_session(id);
        }
        Ok(id)
    }

    /// Takes a session away.
    pub(crate) fn remove_session(&mut self, id: SessionId) -> Result<(), ApiError> {
        let session = self.sessions.remove(id).ok_or(ApiError::NotFound)?;
        if let Some(machine) = self.devices.get_mut(session.device) {
            machine.sessions.retain(|other| *other != id);
        }
        Ok(())
    }

    /// Somebody saw the session: one step nearer to `up`.
    pub(crate) fn session_was_read(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        match session.reads_until_up {
            Some(left) if left > 1 => session.reads_until_up = Some(left - 1),
            Some(1) => self.raise_session(id),
            _ => {}
        }
    }

    /// Every session is up.
    pub(crate) fn raise_all_sessions(&mut self) {
        let all: Vec<SessionId> = self.sessions.values().map(|session| session.id).collect();
        for id in all {
            self.raise_session(id);
        }
    }

    /// The session is up with each switch.
    pub(crate) fn raise_session(&mut self, id: SessionId) {
        let switches = self
            .sessions
            .get(id)
            .and_then(|session| Some((session.family, self.devices.get(session.device)?)))
            .map_or(0, |(family, device)| {
                device.peers.iter().filter(|p| Family::of(**p) == family).count()
            });
        if let Some(session) = self.sessions.get_mut(id) {
            session.status = vec!["up"; switches.max(1)].join(",");
            session.reads_until_up = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_three_kinds_of_characters() {
        assert!(is_password("Abcdef12345"));
        for bad in [
            "Abcdef123",
            "abcdef12345",
            "ABCDEF12345",
            "Abcdefghijk",
            "Abcdef-12345",
            "Abcdef12345Abcdef1234",
        ] {
            assert!(!is_password(bad), "{bad}");
        }
    }
}
