//! The private networks of machines, which a node is told beside its peers.
//!
//! One list tells those of all machines, so that nodes that join together cost pages and not a call each. What it does not tell, of a
//! machine that came later or because the API left it out, is read from that machine.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use groundplane_core::Prefix;
use http::Method;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::debug;

use super::pages::List;
use super::{Equinix, wire};
use crate::CloudError;
use crate::http::Call;

const INCLUDE: &str = "ip_addresses.parent_block,parent_block";

const LIST: List = List {
    operation: "list the networks of machines",
    route: "/projects/{pid}/devices",
    path: "devices",
    include: Some(INCLUDE),
    may_lack_meta: false,
};

/// How long a list is good. A machine keeps its private address for as long as it lives.
const GOOD: Duration = Duration::from_secs(3600);
/// After a list that failed, machines are read one by one for so long.
const FAILED: Duration = Duration::from_secs(60);

/// A machine's private IPv4 network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    /// The block that its own address is in.
    pub(super) block: Option<String>,
    /// The router next to it.
    pub(super) gateway: Option<IpAddr>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the machine's id; those with a block only.
    networks: HashMap<String, Network>,
    /// When to list again. `None`: nothing was listed yet.
    due: Option<Instant>,
}

/// What is known. The mutex is held across the list: that makes one of those of all who ask at a time.
#[derive(Debug, Default)]
pub(super) struct Networks(Mutex<Known>);

impl Equinix {
    /// The network of a machine.
    ///
    /// # Errors
    /// `NotFound` proves that the machine does not exist.
    pub(super) async fn network_of(&self, device: &str) -> Result<Network, CloudError> {
        if let Some(network) = self.listed_network(device).await {
            return Ok(network);
        }
        let call = Call::new(
            format!("read machine {device}"),
            Method::GET,
            "/devices/{id}",
            format!("/devices/{device}"),
        )
        .query("include", INCLUDE);
        let network = network(&self.http.read(&call).await?);
        if network.block.is_some() {
            let mut known = self.networks.0.lock().await;
            known.networks.insert(device.to_owned(), network.clone());
        }
        Ok(network)
    }

    /// What the list says of it, which is read where it is too old.
    async fn listed_network(&self, device: &str) -> Option<Network> {
        let mut known = self.networks.0.lock().await;
        if known.due.is_none_or(|due| due <= Instant::now()) {
            let listed = self.list_all::<wire::Device>(LIST).await;
            let good = match listed {
                Ok(machines) => {
                    let told = machines
                        .into_iter()
                        .map(|machine| (network(&machine), machine.id))
                        .filter(|(network, _)| network.block.is_some());
                    known.networks = told.map(|(network, id)| (id, network)).collect();
                    GOOD
                }
                Err(error) => {
                    debug!(%error, "networks of machines not listed; each is read by itself");
                    known.networks.clear();
                    FAILED
                }
            };
            known.due = Some(Instant::now() + good);
        }
        known.networks.get(device).cloned()
    }
}

fn network(machine: &wire::Device) -> Network {
    own_private(machine).map_or_else(Network::default, |own| Network {
        block: block(own),
        gateway: own.gateway,
    })
}

/// The first private IPv4 management address.
fn own_private(device: &wire::Device) -> Option<&wire::DeviceAddress> {
    let mut own = device
        .ip_addresses
        .iter()
        .filter(|row| row.management && !row.public);
    own.find(|row| matches!(row.address, Some(IpAddr::V4(_))))
}

/// The block that the address is in.
fn block(own: &wire::DeviceAddress) -> Option<String> {
    let block = &own.parent_block;
    Prefix::new(block.network?, block.cidr?)
        .ok()
        .map(|prefix| prefix.to_string())
}

#[cfg(test)]
mod tests {
    use groundplane_sandbox::Action;
    use pretty_assertions::assert_eq;

    use super::*;
    use crate::equinix::tests::{Bench, rule};

    const ONE: &str = "/devices/{id}";
    const ALL: &str = "/projects/{pid}/devices";

    async fn ask(bench: &Bench, devices: &[groundplane_sandbox::DeviceId]) -> Vec<Network> {
        let asked = devices.iter().map(|device| {
            let device = device.to_string();
            async move { bench.driver.network_of(&device).await.unwrap() }
        });
        futures::future::join_all(asked).await
    }

    fn calls(bench: &Bench) -> [usize; 2] {
        [ALL, ONE].map(|route| bench.project.journal().calls(0, "GET", route).len())
    }

    #[tokio::test]
    async fn one_list_tells_the_networks_of_all_who_ask() {
        let bench = Bench::new().await;
        let devices = bench.project.add_devices(5);
        let networks = ask(&bench, &devices).await;
        assert!(
            networks.iter().all(|network| network.block.is_some()),
            "{networks:?}"
        );
        assert_eq!(calls(&bench), [1, 0]);
        // Who came later is read alone, and once.
        let later = bench.project.add_devices(1);
        assert_eq!(ask(&bench, &later).await, ask(&bench, &later).await);
        assert_eq!(calls(&bench), [1, 1]);
    }

    #[tokio::test]
    async fn where_there_is_no_list_each_machine_is_read() {
        let bench = Bench::new().await;
        let devices = bench.project.add_devices(2);
        bench.project.fault(rule("GET", ALL, Action::status(403)));
        let networks = ask(&bench, &devices).await;
        assert!(
            networks.iter().all(|network| network.block.is_some()),
            "{networks:?}"
        );
        assert_eq!(calls(&bench), [1, 2]);
    }

    #[tokio::test]
    async fn a_machine_that_is_gone_is_not_found() {
        let bench = Bench::new().await;
        let device = bench.project.add_devices(1)[0];
        bench.project.remove_device(device);
        let error = bench.driver.network_of(&device.to_string()).await.unwrap_err();
        assert_eq!(error.kind, crate::CloudErrorKind::NotFound);
    }
}
