//! Regions, with the routers that machines speak BGP with, and plans.

use serde::Serialize;

use super::page;
use super::projects::team;
use super::shapes::{PlanBody, RegionBody};
use crate::api::{Ask, Reply};
use crate::cloud::{Access, Cloud, ProjectState};
use crate::error::ApiError;
use crate::regions;

/// Plans that anybody may order.
const PLANS: &[&str] = &["cloud_vps_1", "e5_1620v4", "c3.small.x86"];

/// Whose eyes regions are seen with. The token of an account sees them as its first project does.
fn eyes<'c>(cloud: &'c Cloud, ask: &Ask<'_>) -> Result<&'c ProjectState, ApiError> {
    let mut projects = cloud.projects();
    let found = match ask.access {
        Access::Account => projects.next(),
        Access::Project(id) => projects.find(|project| project.id == id),
    };
    found.ok_or(ApiError::NotFound)
}

pub(super) fn list(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let project = eyes(cloud, ask)?;
    page(ask, u32::MAX, regions::all(), |region| {
        RegionBody::new(project, region)
    })
}

pub(super) fn get(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    let project = eyes(cloud, ask)?;
    let region = regions::named(ask.id).ok_or(ApiError::NotFound)?;
    Reply::ok(&RegionBody::new(project, region))
}

#[derive(Debug, Serialize)]
struct Offer {
    #[serde(flatten)]
    plan: PlanBody<'static>,
    available_regions: Vec<&'static str>,
}

pub(super) fn plans(_: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    page(ask, u32::MAX, PLANS.iter(), |slug| Offer {
        plan: PlanBody::from(*slug),
        available_regions: regions::all().map(|region| region.slug).collect(),
    })
}

pub(super) fn plans_of_team(cloud: &mut Cloud, ask: &Ask<'_>) -> Result<Reply, ApiError> {
    team(ask)?;
    plans(cloud, ask)
}
