//! Projects: what a token opens, and BGP of all of it.

use serde::Deserialize;

use super::shapes::ProjectBody;
use super::{page, project};
use crate::api::{Ask, Reply};
use crate::cloud::{Access, Cloud};
use crate::error::ApiError;

/// The one team of the sandbox.
pub(super) const TEAM: u32 = 101;

/// Refuses every other team.
pub(super) fn team(ask: &Ask<'_>) -> Result<(), ApiError> {
    if ask.id::<u32>()? == TEAM {
        Ok(())
    } else {
        Err(ApiError::NotFound)
    }
}

pub(super) fn list_of_team(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    team(ask)?;
    let visible = cloud
        .projects()
        .filter(|project| ask.access == Access::Account || ask.access == Access::Project(project.id));
    page(ask, u32::MAX, visible, ProjectBody::from)
}

pub(super) fn get(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    Reply::ok(&ProjectBody::from(&*project(cloud, ask)?))
}

/// `PUT /projects/{pid}`: what is absent stays as it is.
#[derive(Debug, Deserialize)]
struct Update {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    bgp: Option<bool>,
}

pub(super) fn update(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let project = project(cloud, ask)?;
    let Update { name, bgp } = ask.json()?;
    if let Some(name) = name {
        if name.trim().is_empty() {
            return Err(ApiError::unprocessable("a project needs a name"));
        }
        project.name = name;
    }
    if let Some(on) = bgp {
        project.switch_bgp(on, ask.now);
    }
    Reply::ok(&ProjectBody::from(&*project))
}
