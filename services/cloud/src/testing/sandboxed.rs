//! Built-in drivers on the sandbox cloud, for the tests that meet them through a provider.

use std::path::Path;

use groundplane_runtime::config::SecretFile;
use groundplane_sandbox::Project;

use crate::config::{EquinixBgp, EquinixConfig};
use crate::{CloudConfig, DriverName, EndpointSelector};

/// The driver `equinix` on a project, with BGP, and an endpoint that is tagged `api`. Its token is kept in `folder`.
pub(crate) fn equinix(project: &Project, folder: &Path) -> CloudConfig {
    let token = folder.join("token");
    std::fs::write(&token, project.token()).unwrap();
    CloudConfig {
        driver: DriverName::Equinix,
        equinix: EquinixConfig {
            base_url: project.base_url().to_owned(),
            api_token_file: Some(SecretFile::new(token)),
            project_id: project.id().to_string(),
            metro: "sv".to_owned(),
            bgp: EquinixBgp {
                enabled: true,
                ..EquinixBgp::default()
            },
            ..EquinixConfig::default()
        },
        endpoint: Some(EndpointSelector::Tag("api".to_owned())),
        ..CloudConfig::default()
    }
}
