//! What holds for each driver that speaks HTTP, against the sandbox cloud: the same cases for all of them, as far as their APIs are alike.

use std::collections::BTreeMap;

use groundplane_core::{Family, ProviderId};
use groundplane_sandbox::{
    Action, Choice, DeviceId, DeviceOptions, DeviceState, FaultRule, Project, ReservationOptions,
};
use pretty_assertions::assert_eq;

use super::endpoint_ips_contract;
use crate::{
    BgpFabric, CloudErrorKind, ElasticIps, EndpointIps, EndpointSelector, Machine, MachineAddressKind,
    MachineSource, NewReservation, Placement, PowerState,
};

/// A driver, and the project that it was given.
pub(crate) struct Case<'a, Driver> {
    pub(crate) driver: &'a Driver,
    pub(crate) project: &'a Project,
    /// The provider id of a machine.
    pub(crate) machine: &'a dyn Fn(DeviceId) -> ProviderId,
    /// The route of the list of machines, and what is in the query of its second page only.
    pub(crate) list: (&'static str, &'static str),
}

/// A reservation without a wish for a place.
pub(crate) fn wanted(family: Family, tags: Vec<String>) -> NewReservation {
    NewReservation {
        family,
        tags,
        placement: Placement::default(),
    }
}

impl<Driver: MachineSource + ElasticIps + EndpointIps + BgpFabric> Case<'_, Driver> {
    fn fault(&self, action: Action) -> FaultRule {
        FaultRule::on("GET", self.list.0, action).object(self.list.1)
    }

    async fn shown(&self, device: DeviceId) -> Machine {
        let id = (self.machine)(device);
        MachineSource::get(self.driver, &id).await.unwrap()
    }

    /// Pages have ten machines.
    pub(crate) async fn a_list_that_does_not_add_up_is_read_on_and_then_refused(&self) {
        self.project.add_devices(25);
        let missing = || self.fault(Action::MissingItems { count: 2 });
        self.project.fault(missing().first(1));
        assert_eq!(MachineSource::list(self.driver).await.unwrap().len(), 25);
        self.project.clear_faults();
        self.project.fault(missing());
        let error = MachineSource::list(self.driver).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
    }

    /// Pages have ten machines.
    pub(crate) async fn a_page_that_breaks_off_is_asked_for_again(&self) {
        self.project.add_devices(25);
        for action in [
            Action::HalfBody,
            Action::MalformedJson,
            Action::DropAfter,
            Action::status(502),
        ] {
            self.project.clear_faults();
            self.project.fault(self.fault(action).first(2));
            let mark = self.project.journal().mark();
            assert_eq!(MachineSource::list(self.driver).await.unwrap().len(), 25);
            let calls = self.project.journal().since(mark);
            assert_eq!(calls.iter().filter(|call| call.fault.is_some()).count(), 2);
        }
    }

    /// The driver was told of a project that is not there.
    pub(crate) async fn a_project_that_is_not_there_is_no_empty_list(&self) {
        let driver = self.driver;
        for error in [
            MachineSource::list(driver).await.unwrap_err(),
            ElasticIps::list(driver).await.unwrap_err(),
            driver.sessions().await.unwrap_err(),
            BgpFabric::project(driver).await.unwrap_err(),
            driver.enable().await.unwrap_err(),
            driver.create(&wanted(Family::V4, vec![])).await.unwrap_err(),
        ] {
            assert!(!error.is(CloudErrorKind::NotFound), "{error}");
        }
    }

    pub(crate) async fn only_an_inactive_machine_is_off(&self) {
        let device = self.project.add_devices(1)[0];
        for (state, power) in [
            (DeviceState::Active, PowerState::On),
            (DeviceState::Inactive, PowerState::Off),
            (DeviceState::Failed, PowerState::On),
            (DeviceState::Deprovisioning, PowerState::On),
        ] {
            self.project.set_state(device, state);
            assert_eq!(self.shown(device).await.power, power, "{state:?}");
        }
    }

    /// With this zone, region and type.
    pub(crate) async fn a_machine_shows_its_own_addresses_and_no_elastic_ones(&self, placed: [&str; 3]) {
        let private = DeviceOptions {
            public_ipv4: Choice::Absent,
            ..DeviceOptions::named("private")
        };
        for options in [DeviceOptions::named("both"), private] {
            let device = self.project.add_device(options);
            let elastic = self.project.add_reservation(ReservationOptions::default());
            self.project.assign(device, elastic.address.unwrap());
            let machine = self.shown(device).await;
            let own = self.project.addresses(device);
            let own: BTreeMap<_, _> = own
                .into_iter()
                .filter(|row| row.management)
                .map(|row| (row.address.to_string(), row.public))
                .collect();
            assert!(own.keys().any(|address| address.contains(':')));
            assert!(own.keys().any(|address| address.contains('.')));
            let [name, shown @ ..] = &machine.addresses[..] else {
                panic!("{machine:?}");
            };
            assert_eq!(
                (name.kind, &name.address),
                (MachineAddressKind::Hostname, &machine.hostname)
            );
            assert_eq!(shown.len(), own.len(), "{machine:?}");
            for row in shown {
                let kind = if own[&row.address] {
                    MachineAddressKind::ExternalIp
                } else {
                    MachineAddressKind::InternalIp
                };
                assert_eq!(row.kind, kind, "{row:?}");
            }
            assert_eq!([&machine.zone, &machine.region, &machine.instance_type], placed);
        }
    }

    /// The endpoint is what has this tag, with `tags`; nothing has `other`.
    pub(crate) async fn endpoints_keep_their_contract(
        &self,
        tags: &[&str],
        tag: &str,
        other: &str,
        absent: &ProviderId,
    ) {
        let tags = tags.iter().map(|tag| (*tag).to_owned());
        let made = self.project.add_reservation(ReservationOptions::tagged(tags));
        let machines = self.project.add_devices(2);
        let [one, two] = [machines[0], machines[1]].map(self.machine);
        let by_tag = |tag: &str| EndpointSelector::Tag(tag.to_owned());
        let address = EndpointSelector::Address(made.address.unwrap());
        let nowhere = EndpointSelector::Address("192.0.2.77".parse().unwrap());
        for (selector, missing) in [(by_tag(tag), by_tag(other)), (address, nowhere)] {
            endpoint_ips_contract(self.driver, &selector, &missing, [&one, &two], absent).await;
        }
    }
}
