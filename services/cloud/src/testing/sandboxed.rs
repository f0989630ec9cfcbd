//! Built-in drivers on the sandbox cloud, for the tests that meet them through a provider.

use std::path::Path;

use groundplane_runtime::config::SecretFile;
use groundplane_sandbox::Project;

use crate::config::{EquinixBgp, EquinixConfig};
use crate::{CloudConfig, DriverName, EndpointSelector};

/// The section `equinix` for a project, with BGP. Its token is kept in `folder`, with a line's end as people write one.
pub(crate) fn equinix_section(project: &Project, folder: &Path) -> EquinixConfig {
    let token = folder.join("token");
    std::fs::write(&token, format!("{}\n", project.token())).unwrap();
    EquinixConfig {
        base_url: project.base_url().to_owned(),
        api_token_file: Some(SecretFile::new(token)),
        project_id: project.id().to_string(),
        metro: "sv".to_owned(),
        bgp: EquinixBgp {
            enabled: true,
            ..EquinixBgp::default()
        },
        ..EquinixConfig::default()
    }
}

/// The driver `equinix` on a project, and an endpoint that is tagged `api`.
pub(crate) fn equinix(project: &Project, folder: &Path) -> CloudConfig {
    CloudConfig {
        driver: DriverName::Equinix,
        equinix: equinix_section(project, folder),
        endpoint: Some(EndpointSelector::Tag("api".to_owned())),
        ..CloudConfig::default()
    }
}
