//! The cloud as services see it: slow, wrong as the plan says, and deaf to the dead. What it has received takes effect, whether the
//! caller lives to see it or not.

use std::time::Duration;

use async_trait::async_trait;
use groundplane_cloud::testing::FakeCloud;
use groundplane_cloud::{
    AddressBackend, BgpFabric, BgpProject, Cloud, CloudError, CloudErrorKind, ElasticIps, Former, Machine,
    MachineSource, NeighborQuery, Neighbors, NewReservation, Reservation, Session,
};
use groundplane_core::{ClusterId, Family, Owner, ProviderId};
use std::sync::Arc;
use tokio::time::sleep;

use super::world::World;

/// A call whose effect comes later than anybody waits for it does so after this long.
const LATE: Duration = Duration::from_secs(15);

/// What orders an address.
const CREATE: &str = "create reservation";

/// So long until the limit of calls is reset, where the cloud says that it is used up.
const RESET: Duration = Duration::from_secs(2);

/// No driver waits longer for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloudFault {
    /// It is refused, like this, and nothing is done.
    Before(CloudErrorKind),
    /// It is done, and the answer is lost.
    After,
    /// It is never done, nor answered.
    Hang,
    /// It is done later than anybody waits for it.
    Late,
}

impl CloudFault {
    /// One of them, by chance, that can happen to such a call.
    pub(crate) fn drawn(draw: u64, what: &str) -> Self {
        match draw % 7 {
            0 | 1 => Self::Before(CloudErrorKind::Unavailable),
            2 => Self::Before(CloudErrorKind::RateLimited),
            3 => Self::Before(CloudErrorKind::Timeout),
            4 => Self::Hang,
            // What is done long after anybody waits for it is a create: of other calls no client can make anything better.
            5 if what == CREATE => Self::Late,
            _ => Self::After,
        }
    }

    /// What it is called where it is counted.
    pub(crate) fn name(self, what: &str) -> &'static str {
        match self {
            Self::Before(CloudErrorKind::RateLimited) => "cloud: 429 with reset",
            Self::Before(CloudErrorKind::Timeout) => "cloud: timeout",
            Self::Before(_) => "cloud: 5xx",
            Self::After if what.starts_with("list") => "cloud: half a list",
            Self::After => "cloud: answer lost",
            Self::Hang => "cloud: hang",
            Self::Late => "cloud: done too late",
        }
    }

    /// All of these names.
    pub(crate) const NAMES: [&str; 7] = [
        "cloud: 429 with reset",
        "cloud: timeout",
        "cloud: 5xx",
        "cloud: half a list",
        "cloud: answer lost",
        "cloud: hang",
        "cloud: done too late",
    ];
}

/// A service's way to the cloud.
pub(crate) struct Gate {
    world: World,
    life: usize,
}

/// The cloud, for the services that live this life.
pub(crate) fn cloud(world: &World, life: usize) -> Cloud {
    let gate = || {
        Arc::new(Gate {
            world: world.clone(),
            life,
        })
    };
    Cloud {
        name: "chaos",
        machines: Some(gate()),
        addresses: AddressBackend::Cloud(gate()),
        endpoint: None,
        bgp: Some(gate()),
    }
}

impl Gate {
    async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        object: &str,
        write: bool,
        work: impl FnOnce(FakeCloud) -> futures::future::BoxFuture<'static, Result<T, CloudError>>
        + Send
        + 'static,
    ) -> Result<T, CloudError> {
        let world = &self.world;
        if world.is_dead(self.life) {
            return std::future::pending().await;
        }
        let (fault, latency, nth) = world.cloud_fault(what, object);
        let answer = self.faulty((what, object, write), (fault, latency), work).await;
        world.answered(what, object, nth);
        answer
    }

    async fn faulty<T: Send + 'static>(
        &self,
        (what, object, write): (&'static str, &str, bool),
        (fault, latency): (Option<CloudFault>, Duration),
        work: impl FnOnce(FakeCloud) -> futures::future::BoxFuture<'static, Result<T, CloudError>>
        + Send
        + 'static,
    ) -> Result<T, CloudError> {
        let (world, life) = (&self.world, self.life);
        if let Some(fault) = fault {
            world.note(format_args!("cloud: {what} {object}: {fault:?}"));
        }
        sleep(latency).await;
        if write && world.step(life) {
            return std::future::pending().await;
        }
        let fake = world.cloud.clone();
        match fault {
            Some(CloudFault::Before(kind)) => {
                let mut error = CloudError::new(kind, what, "chaos");
                error.retry_after = (kind == CloudErrorKind::RateLimited).then_some(RESET);
                return Err(error);
            }
            Some(CloudFault::Hang) => {
                sleep(TIMEOUT).await;
                return Err(CloudError::new(CloudErrorKind::Timeout, what, "no answer"));
            }
            Some(CloudFault::Late) => {
                let late = world.clone();
                if let Some((_, name)) = object.rsplit_once('/') {
                    world.state().left.insert(name.to_owned());
                }
                world.tasks.spawn("late", async move {
                    sleep(LATE).await;
                    late.note(format_args!("cloud: {what} takes effect late"));
                    // Nobody waits for it.
                    work(fake).await.ok();
                });
                sleep(TIMEOUT).await;
                return Err(CloudError::new(CloudErrorKind::Timeout, what, "no answer"));
            }
            Some(CloudFault::After) | None => {}
        }
        let answer = work(fake).await;
        if write {
            world.wrote(what, object, answer.is_ok());
            if world.step(life) {
                return std::future::pending().await;
            }
        }
        sleep(latency).await;
        if fault == Some(CloudFault::After) {
            return Err(CloudError::new(
                CloudErrorKind::Timeout,
                what,
                "the answer is lost",
            ));
        }
        answer
    }
}

#[async_trait]
impl MachineSource for Gate {
    fn schemes(&self) -> Vec<String> {
        self.world.cloud.schemes()
    }

    fn accepts(&self, id: &ProviderId) -> bool {
        self.world.cloud.accepts(id)
    }

    fn proves_absence(&self) -> bool {
        true
    }

    async fn list(&self) -> Result<Vec<Machine>, CloudError> {
        let work = |fake: FakeCloud| Box::pin(async move { MachineSource::list(&fake).await }) as _;
        self.call("list machines", "", false, work).await
    }

    async fn get(&self, id: &ProviderId) -> Result<Machine, CloudError> {
        let (wanted, id) = (id.clone(), id.to_string());
        let work =
            move |fake: FakeCloud| Box::pin(async move { MachineSource::get(&fake, &wanted).await }) as _;
        self.call("get machine", &id, false, work).await
    }
}

#[async_trait]
impl ElasticIps for Gate {
    fn tags_of(&self, owner: &Owner) -> Vec<String> {
        self.world.cloud.tags_of(owner)
    }

    fn cluster_tags(&self, cluster: &ClusterId) -> Vec<String> {
        self.world.cloud.cluster_tags(cluster)
    }

    fn supports(&self, family: Family) -> bool {
        self.world.cloud.supports(family)
    }

    async fn list(&self) -> Result<Vec<Reservation>, CloudError> {
        let work = |fake: FakeCloud| Box::pin(async move { ElasticIps::list(&fake).await }) as _;
        self.call("list reservations", "", false, work).await
    }

    async fn create(&self, wanted: &NewReservation) -> Result<Reservation, CloudError> {
        let (wanted, object) = (wanted.clone(), wanted.tags.join(","));
        let work = move |fake: FakeCloud| Box::pin(async move { fake.create(&wanted).await }) as _;
        self.call(CREATE, &object, true, work).await
    }

    async fn delete(&self, id: &str) -> Result<(), CloudError> {
        self.world.judge_release(id);
        let (wanted, id) = (id.to_owned(), id.to_owned());
        let work = move |fake: FakeCloud| Box::pin(async move { fake.delete(&wanted).await }) as _;
        self.call("delete reservation", &id, true, work).await
    }

    fn former(&self, cluster: &ClusterId, tags: &[String]) -> Option<Former> {
        self.world.cloud.former(cluster, tags)
    }

    fn retags(&self) -> bool {
        true
    }

    async fn retag(&self, id: &str, tags: &[String]) -> Result<Reservation, CloudError> {
        let (wanted, tags, id) = (id.to_owned(), tags.to_vec(), id.to_owned());
        let work = move |fake: FakeCloud| Box::pin(async move { fake.retag(&wanted, &tags).await }) as _;
        self.call("retag reservation", &id, true, work).await
    }
}

#[async_trait]
impl BgpFabric for Gate {
    fn needs_sessions(&self) -> bool {
        true
    }

    async fn project(&self) -> Result<Option<BgpProject>, CloudError> {
        let work = |fake: FakeCloud| Box::pin(async move { fake.project().await }) as _;
        self.call("read project", "", false, work).await
    }

    async fn enable(&self) -> Result<BgpProject, CloudError> {
        let work = |fake: FakeCloud| Box::pin(async move { fake.enable().await }) as _;
        self.call("enable BGP", "", true, work).await
    }

    async fn sessions(&self) -> Result<Vec<Session>, CloudError> {
        let work = |fake: FakeCloud| Box::pin(async move { fake.sessions().await }) as _;
        self.call("list sessions", "", false, work).await
    }

    async fn create_session(&self, machine: &ProviderId, family: Family) -> Result<(), CloudError> {
        let (wanted, id) = (machine.clone(), machine.to_string());
        let work =
            move |fake: FakeCloud| Box::pin(async move { fake.create_session(&wanted, family).await }) as _;
        self.call("create session", &id, true, work).await
    }

    async fn neighbors(&self, query: &NeighborQuery) -> Result<Neighbors, CloudError> {
        let (wanted, id) = (query.clone(), query.machine.to_string());
        let work = move |fake: FakeCloud| Box::pin(async move { fake.neighbors(&wanted).await }) as _;
        self.call("read neighbors", &id, false, work).await
    }
}
