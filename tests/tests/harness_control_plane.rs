//! The control plane that failovers are proved on: what a machine that is cut off, hung, killed or sick looks like from outside.

use std::time::Duration;

use anyhow::{Result, ensure};
use groundplane_tests::kube_api::SERVER_NAME;
use groundplane_tests::world::endpoint::EndpointOptions;
use groundplane_tests::{User, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use pretty_assertions::assert_eq;

/// One request on a new connection, as a probe does it.
async fn probe(address: std::net::SocketAddr, authority: &[u8]) -> Result<u16, reqwest::Error> {
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(2))
        .tls_certs_only(reqwest::Certificate::from_pem_bundle(authority)?)
        .resolve(SERVER_NAME, address)
        .build()?;
    let url = format!("https://{SERVER_NAME}:{}/readyz", address.port());
    Ok(http.get(url).send().await?.status().as_u16())
}

#[tokio::test]
async fn machines_fail_in_every_way_and_the_endpoint_follows_its_holder() -> Result<()> {
    groundplane_tests::tls::install();
    let mut world = EndpointOptions::default().start_without_agents("harness").await?;
    let authority = std::fs::read(world.plane.authority())?;
    let endpoint = world.endpoint();
    assert!(
        probe(endpoint, &authority).await.unwrap_err().is_timeout(),
        "nobody holds it"
    );
    world.hold(0);
    world.answers().await?;

    // All see the same cluster.
    for number in 0..3 {
        let api = Api::<Node>::all(world.plane.connection(number)?.client(User::Admin)?);
        assert_eq!(api.list(&kube::api::ListParams::default()).await?.items.len(), 3);
    }

    world.fabric.cut(0);
    assert!(
        probe(endpoint, &authority).await.unwrap_err().is_timeout(),
        "it is cut off"
    );
    world.hold(1);
    world.answers().await?;
    world.plane.pause(1).await?;
    assert!(
        probe(endpoint, &authority).await.unwrap_err().is_timeout(),
        "it hangs"
    );
    world.fabric.join(0);
    world.hold(0);
    world.answers().await?;
    world.plane.stop_api(1).await?;
    world.hold(1);
    assert!(
        probe(endpoint, &authority).await.unwrap_err().is_connect(),
        "it refuses"
    );
    world.hold(2);
    world.answers().await?;
    world.plane.sicken(2)?;
    eventually("it is sick", async || {
        let status = probe(endpoint, &authority).await?;
        ensure!(status == 500, "it says {status}");
        Ok(())
    })
    .await?;
    world.hold(0);
    world.answers().await?;
    drop(world);

    // The next one finds all of it mended.
    let world = EndpointOptions::default().start_without_agents("harness").await?;
    for number in 0..3 {
        world.hold(number);
        world.answers().await?;
    }
    Ok(())
}
