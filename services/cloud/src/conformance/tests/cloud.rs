//! A cloud in memory that offers everything, behind a provider.

use std::net::IpAddr;

use async_trait::async_trait;
use groundplane_core::{Prefix, ProviderId};
use groundplane_runtime::Context;
use groundplane_runtime::grpc::{Target, channel};
use tokio_util::sync::CancellationToken;

use super::super::{Options, Report, check_over};
use crate::testing::FakeCloud;
use crate::testing::loopback::Loopback;
use crate::{
    Assignment, CloudError, CloudErrorKind, Endpoint, EndpointAssignment, EndpointIps, EndpointSelector,
    MachineSource,
};

/// Moves addresses among the reservations of a [`FakeCloud`].
#[derive(Debug)]
pub(super) struct Mover {
    pub(super) cloud: FakeCloud,
    pub(super) atomic: bool,
}

fn error(kind: CloudErrorKind, message: &str) -> CloudError {
    CloudError::new(kind, "move", message)
}

impl Mover {
    async fn needs(&self, machine: &ProviderId) -> Result<(), CloudError> {
        MachineSource::get(&self.cloud, machine).await.map(drop)
    }

    fn give(
        &self,
        address: IpAddr,
        machine: &ProviderId,
        takes: bool,
    ) -> Result<EndpointAssignment, CloudError> {
        let mut result = Err(error(CloudErrorKind::NotFound, "no such address"));
        self.cloud.change_reservations(|rows| {
            let Some(row) = rows
                .iter_mut()
                .find(|row| row.prefix == Some(Prefix::host(address)))
            else {
                return;
            };
            if !row.assignments.is_empty() && !takes {
                result = Err(error(CloudErrorKind::AlreadyExists, "it is held"));
                return;
            }
            let id = format!("a-{}", uuid::Uuid::new_v4());
            row.assignments = vec![Assignment {
                id: id.clone(),
                machine: machine.id().to_owned(),
            }];
            result = Ok(EndpointAssignment {
                id,
                machine: machine.clone(),
            });
        });
        result
    }
}

#[async_trait]
impl EndpointIps for Mover {
    fn calls_per_move(&self) -> u32 {
        if self.atomic { 1 } else { 2 }
    }

    fn moves_atomically(&self) -> bool {
        self.atomic
    }

    async fn endpoint(&self, selector: &EndpointSelector) -> Result<Endpoint, CloudError> {
        let mut found: Vec<_> = self
            .cloud
            .reservations()
            .into_iter()
            .filter(|row| match selector {
                EndpointSelector::Tag(tag) => row.tags.contains(tag),
                EndpointSelector::Address(address) => row.prefix == Some(Prefix::host(*address)),
            })
            .collect();
        let row = found
            .pop()
            .ok_or_else(|| error(CloudErrorKind::NotFound, "no such reservation"))?;
        if !found.is_empty() {
            return Err(error(CloudErrorKind::Refused, "several"));
        }
        let prefix = row
            .prefix
            .ok_or_else(|| error(CloudErrorKind::Refused, "pending"))?;
        let held = row.assignments.into_iter().map(|held| EndpointAssignment {
            id: held.id,
            machine: format!("fake://{}", held.machine).parse().unwrap(),
        });
        Ok(Endpoint {
            address: prefix.address(),
            assignments: held.collect(),
        })
    }

    async fn assign(&self, address: IpAddr, machine: &ProviderId) -> Result<EndpointAssignment, CloudError> {
        self.needs(machine).await?;
        self.give(address, machine, false)
    }

    async fn unassign(&self, assignment_id: &str) -> Result<(), CloudError> {
        let mut taken = false;
        self.cloud.change_reservations(|rows| {
            for row in rows {
                let before = row.assignments.len();
                row.assignments.retain(|held| held.id != assignment_id);
                taken |= row.assignments.len() != before;
            }
        });
        if taken {
            Ok(())
        } else {
            Err(error(CloudErrorKind::NotFound, "no such assignment"))
        }
    }

    async fn reassign(
        &self,
        address: IpAddr,
        machine: &ProviderId,
    ) -> Result<EndpointAssignment, CloudError> {
        self.needs(machine).await?;
        self.give(address, machine, true)
    }
}

/// A cloud that offers everything and has something of everything.
pub(super) fn furnished() -> FakeCloud {
    let cloud = FakeCloud::new();
    for (name, address) in [("m1", "10.0.0.1"), ("m2", "10.0.0.2"), ("m3", "10.0.0.3")] {
        cloud.add_machine(name, &[address.parse().unwrap()]).unwrap();
    }
    cloud
}

/// The cloud behind a provider.
pub(super) async fn provider(cloud: &FakeCloud, atomic: bool, context: &Context) -> Target {
    let mover = Mover {
        cloud: cloud.clone(),
        atomic,
    };
    Loopback::new(cloud.cloud(), Some(std::sync::Arc::new(mover)), &context.tasks)
        .serve(context)
        .await
        .unwrap()
}

pub(super) async fn look(target: &Target, options: Options) -> Report {
    let (channel, stop) = (channel(target, None).unwrap(), CancellationToken::new());
    check_over(channel, options, stop, &|_| {}).await.unwrap()
}

/// Everything, also what stays.
pub(super) fn everything() -> Options {
    Options {
        permanent: true,
        ..Options::default()
    }
}
