//! The cloud's own limit of prefixes, which nobody configured.

use anyhow::Result;
use groundplane_sandbox::ProjectOptions;
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::{CloudApi, WorldOptions, eventually};
use k8s_openapi::api::core::v1::Node;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{condition, refusal};

/// E52: where a machine may announce two prefixes by the cloud's word, the third Service is refused and told why, and what others have stays;
/// it comes when the cloud allows one more, without a restart.
#[tokio::test]
async fn the_clouds_own_limit_of_prefixes_holds() -> Result<()> {
    let project = ProjectOptions {
        asn: Some(65_000),
        max_prefix: 2,
        ..CloudApi::Equinix.project_of_reservations()
    };
    let world = WorldOptions::equinix(project).start("limit").await?;
    let (corner, project) = (&world.corner, world.project()?);
    world.add_machine("n").await?;
    let peers = |node: &Node| {
        let annotations = node.metadata.annotations.as_ref()?;
        annotations
            .contains_key("metal.equinix.com/bgp-peers-0-peer-ip")
            .then_some(())
    };
    corner.node_until("n", "knows its peers", peers).await?;
    let mut shown = Vec::new();
    for name in ["a", "b"] {
        corner.add_service(name).await?;
        shown.push(corner.addresses_of(name, 1).await?);
    }
    corner.add_service("c").await?;
    let told = |service: &_| refusal(service).zip(condition(service).map(|condition| condition.message));
    let (reason, message) = corner.service_until("c", "is refused", told).await?;
    assert_eq!(reason, "PrefixLimit");
    assert!(message.contains("have the cloud raise the limit"), "{message}");
    assert_eq!(project.reservations().len(), 2);
    for (name, before) in ["a", "b"].into_iter().zip(&shown) {
        assert_eq!(corner.addresses_of(name, 1).await?, *before);
    }

    project.set_max_prefix(3);
    let looks = std::sync::atomic::AtomicUsize::new(0);
    eventually("the third comes", async || {
        // Whatever changes has it looked at again: else it takes half a minute.
        let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let changed = json!({ "metadata": { "labels": { "look": look.to_string() } } });
        let service = corner.edit_service("c", &changed).await?;
        anyhow::ensure!(!ingress_of(&service).is_empty(), "it has none");
        Ok(())
    })
    .await
}
