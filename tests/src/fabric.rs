//! The network between machines, agents and whoever calls the API: who is reached at the endpoint's address is decided by the
//! cloud, as the sandbox says it, and a machine's packets can be dropped.
//!
//! ```text
//!   agents' probes ──► machine's own address:port ──┐ (cut?)
//!                                                   ├──► kube-apiserver of that machine
//!   anybody ─────────► endpoint's address:port ─────┘
//!                        └ the holder in the sandbox: changes as it changes, with no delay of its own
//! ```

mod links;

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use groundplane_sandbox::{Assignment, DeviceId, Project};
use tokio::sync::watch;

pub use links::{Links, Passage};

/// A machine, as the network knows it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The machine in the cloud.
    pub device: DeviceId,
    /// Its own address, where its API server is probed.
    pub front: SocketAddr,
    /// Where that API server really listens.
    pub server: SocketAddr,
}

/// The network. Dropping it ends all connections.
#[derive(Debug)]
pub struct Fabric {
    /// Which machines' packets are dropped.
    cut: watch::Sender<Vec<bool>>,
    _links: Links,
}

impl Fabric {
    /// A network of these machines, and of the endpoint's address, which they get from this project.
    ///
    /// # Errors
    /// When one of the addresses cannot be listened on.
    pub fn start(project: &Project, endpoint: SocketAddr, places: &[Place]) -> Result<Self> {
        let cut = watch::Sender::new(vec![false; places.len()]);
        let links = Links::new()?;
        for (number, place) in places.iter().enumerate() {
            let server = place.server;
            let (passage, receiver) = watch::channel(Passage::To(server));
            links.add(place.front, receiver)?;
            let mut cut = cut.subscribe();
            links.spawn(async move {
                while cut.changed().await.is_ok() {
                    let dropped = is_cut(&cut.borrow_and_update(), number);
                    passage.send_replace(if dropped {
                        Passage::Nowhere
                    } else {
                        Passage::To(server)
                    });
                }
            });
        }
        let (passage, receiver) = watch::channel(Passage::Nowhere);
        links.add(endpoint, receiver)?;
        let (project, places) = (project.clone(), places.to_vec());
        links.spawn(follow(project, endpoint.ip(), places, cut.subscribe(), passage));
        Ok(Self { cut, _links: links })
    }

    /// Drops all packets of machine `number` from now on. Connections freeze, and nothing is refused.
    pub fn cut(&self, number: usize) {
        self.set(number, true);
    }

    /// Lets packets of machine `number` through again.
    pub fn join(&self, number: usize) {
        self.set(number, false);
    }

    fn set(&self, number: usize, dropped: bool) {
        self.cut.send_modify(|cut| {
            if let Some(machine) = cut.get_mut(number) {
                *machine = dropped;
            }
        });
    }
}

fn is_cut(cut: &[bool], number: usize) -> bool {
    cut.get(number).copied().unwrap_or_default()
}

/// Leads the endpoint's address to its holder. Of several, to the last: the network has learned of that one most lately.
async fn follow(
    project: Project,
    address: IpAddr,
    places: Vec<Place>,
    mut cut: watch::Receiver<Vec<bool>>,
    passage: watch::Sender<Passage>,
) {
    let ids = |rows: &[Assignment]| rows.iter().map(|row| row.id).collect::<Vec<_>>();
    loop {
        let dropped = cut.borrow_and_update().clone();
        let holders = project.holders(address);
        let reached = holders
            .last()
            .and_then(|holder| places.iter().position(|place| place.device == holder.device))
            .filter(|number| !is_cut(&dropped, *number))
            .and_then(|number| places.get(number));
        let next = reached.map_or(Passage::Nowhere, |place| Passage::To(place.server));
        passage.send_if_modified(|passage| std::mem::replace(passage, next) != next);
        let before = ids(&holders);
        tokio::select! {
            _ = project.until_held(address, |now| ids(now) != before) => {}
            changed = cut.changed() => if changed.is_err() { return; },
        }
    }
}

/// A part of the loopback network which, in all likelihood, nobody else uses: `127.x.y.0/24`.
#[derive(Clone, Copy, Debug)]
pub struct Block(u8, u8);

impl Block {
    /// A block at random.
    pub fn any() -> Self {
        Self(fastrand::u8(1..=250), fastrand::u8(..))
    }

    /// Its address that ends with this number.
    pub fn address(self, last: u8) -> IpAddr {
        IpAddr::from([127, self.0, self.1, last])
    }
}
