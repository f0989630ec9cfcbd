//! What the rules share: the provider, what it said of itself, and the memory of everything that was made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundplane_proto::instances::v1::PowerState;
use groundplane_proto::provider::v1 as wire;
use groundplane_proto::provider::v1::get_endpoint_request::Selector;
use groundplane_runtime::grpc::Channel;
use groundplane_runtime::grpc::status::code_name;
use parking_lot::Mutex;
use tonic::Code;

use super::calls::{Calls, List, Refusal};
use super::rules::{Rule, Stop};
use super::{Options, RunError, TAG};
use crate::Capability;

/// How often a list is begun that cannot be gone on with.
const ROUNDS: usize = 3;
/// How often what was made is looked for at the end, and the pause between: a call whose answer was lost may have its effect late, and
/// the contract knows no other way to learn of that than to look again.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// What was made and is not known to be gone.
#[derive(Default)]
struct Made {
    /// By id: what to call it.
    reservations: BTreeMap<String, String>,
    /// Calls without an answer, by key.
    open: BTreeMap<String, wire::CreateReservationRequest>,
    /// Addresses that were given to machines.
    assigned: BTreeSet<String>,
}

/// Everything that a rule needs.
pub(crate) struct Bench {
    pub(crate) calls: Calls,
    pub(crate) options: Options,
    pub(crate) said: wire::GetCapabilitiesResponse,
    /// Of this run alone.
    pub(crate) run: String,
    /// Held for a look or a note.
    made: Mutex<Made>,
}

/// An address that an endpoint rule may use.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) text: String,
    /// The tag that this reservation alone carries; `None`: somebody else made it.
    pub(crate) tag: Option<String>,
}

impl Bench {
    pub(crate) async fn connect(channel: Channel, options: Options) -> Result<Self, RunError> {
        let calls = Calls::new(channel, options.timeout);
        let said = calls
            .capabilities()
            .await
            .map_err(|refusal| RunError::Unreachable {
                code: code_name(refusal.code),
                message: refusal.message,
            })?;
        let run = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self {
            calls,
            options,
            said,
            run: run[..12].to_owned(),
            made: Mutex::default(),
        })
    }

    /// What is going to be made, for people.
    pub(crate) fn plan(&self) -> Vec<String> {
        let mut plan = Vec::new();
        if self.options.read_only {
            return plan;
        }
        if self.uses(Capability::Addresses) {
            plan.push(format!(
                "reserves up to 4 addresses at a time, tagged `{TAG}` and `run={}`, and deletes them",
                self.run
            ));
        }
        if self.uses(Capability::Endpoint) {
            let address = self
                .options
                .endpoint
                .map_or_else(|| "them".to_owned(), |address| address.to_string());
            plan.push(format!("assigns {address} to machines, and takes that back"));
        }
        if self.uses(Capability::Bgp) && self.options.permanent {
            plan.push("switches BGP on and makes a session of a machine, which stay".to_owned());
        }
        plan
    }

    pub(crate) fn is_asked_for(&self, rule: &Rule) -> bool {
        self.options.rules.is_empty() || self.options.rules.contains(rule.id)
    }

    pub(crate) fn offers(&self, capability: Capability) -> bool {
        let wire = match capability {
            Capability::Machines => wire::Capability::Machines,
            Capability::Addresses => wire::Capability::Addresses,
            Capability::Bgp => wire::Capability::Bgp,
            Capability::Endpoint => wire::Capability::Endpoint,
        };
        self.said.capabilities.contains(&i32::from(wire))
    }

    /// Is it offered, and to be checked?
    pub(crate) fn uses(&self, capability: Capability) -> bool {
        let only = &self.options.capabilities;
        self.offers(capability) && (only.is_empty() || only.contains(&capability))
    }

    /// The lists of what is checked.
    pub(crate) fn lists(&self) -> Vec<List> {
        let mut lists = Vec::new();
        if self.uses(Capability::Machines) {
            lists.push(List::Machines);
        }
        if self.uses(Capability::Addresses) {
            lists.push(List::Reservations);
        }
        if self.uses(Capability::Bgp) && self.said.needs_sessions {
            lists.push(List::Sessions);
        }
        lists
    }

    pub(crate) fn schemes(&self) -> Vec<String> {
        if self.said.provider_id_schemes.is_empty() {
            return vec![self.said.name.clone()];
        }
        self.said.provider_id_schemes.clone()
    }

    pub(crate) fn is_own(&self, provider_id: &str) -> bool {
        provider_id
            .split_once("://")
            .is_some_and(|(scheme, id)| !id.is_empty() && self.schemes().iter().any(|own| own == scheme))
    }

    /// A machine that could be this cloud's, and is not there.
    pub(crate) fn absent_machine(&self) -> String {
        let scheme = self.schemes().into_iter().next().unwrap_or_default();
        format!("{scheme}://{}", uuid::Uuid::new_v4())
    }

    pub(crate) fn new_key() -> String {
        uuid::Uuid::new_v4().simple().to_string()
    }

    pub(crate) fn first_family(&self) -> Result<String, Stop> {
        let known = |family: &&String| ["IPv4", "IPv6"].contains(&family.as_str());
        let first = self.said.address_families.iter().find(known).cloned();
        first.ok_or_else(|| Stop::skip("no family of addresses is offered"))
    }

    /// A request for a reservation, with the tags of this run and rule before its own.
    pub(crate) fn wanted(&self, rule: &str, family: &str, tags: &[&str]) -> wire::CreateReservationRequest {
        let mut all = vec![
            TAG.to_owned(),
            format!("run={}", self.run),
            format!("rule={rule}"),
        ];
        all.extend(tags.iter().map(|&tag| tag.to_owned()));
        wire::CreateReservationRequest {
            idempotency_key: Self::new_key(),
            family: family.to_owned(),
            tags: all,
            description: "groundplane conformance; may be deleted".to_owned(),
            ..wire::CreateReservationRequest::default()
        }
    }

    /// Makes a reservation, and remembers it.
    pub(crate) async fn create(
        &self,
        request: &wire::CreateReservationRequest,
    ) -> Result<wire::Reservation, Refusal> {
        self.create_by(&self.calls, request).await
    }

    /// As [`Bench::create`], over these calls.
    pub(crate) async fn create_by(
        &self,
        calls: &Calls,
        request: &wire::CreateReservationRequest,
    ) -> Result<wire::Reservation, Refusal> {
        let key = request.idempotency_key.clone();
        self.made.lock().open.insert(key.clone(), request.clone());
        let answer = calls.create_reservation(request.clone()).await;
        let mut made = self.made.lock();
        match &answer {
            Ok(row) => {
                made.open.remove(&key);
                made.reservations
                    .insert(row.id.clone(), format!("reservation {} ({})", row.id, row.prefix));
            }
            Err(refusal) if refusal.is_open() || refusal.code == Code::Ok => {}
            Err(_) => {
                made.open.remove(&key);
            }
        }
        answer
    }

    /// Gives a reservation back.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Refusal> {
        match self.calls.delete_reservation(id).await {
            // A rule of its own tells that this should be OK; here it is gone, and that is what matters.
            Err(refusal) if refusal.code != Code::NotFound => return Err(refusal),
            _ => {}
        }
        self.made.lock().reservations.remove(id);
        Ok(())
    }

    /// Remembers that an address is about to be given to a machine.
    pub(crate) fn will_assign(&self, address: &str) {
        self.made.lock().assigned.insert(address.to_owned());
    }

    /// Gives an address to a machine, and remembers it.
    pub(crate) async fn assign(&self, address: &str, machine: &str) -> Result<wire::Assignment, Refusal> {
        self.will_assign(address);
        self.calls.assign(address, machine).await
    }

    /// Moves an address, and remembers it.
    pub(crate) async fn reassign(&self, address: &str, machine: &str) -> Result<wire::Assignment, Refusal> {
        self.will_assign(address);
        self.calls.reassign(address, machine).await
    }

    /// Every reservation, whatever the provider thinks a page is.
    pub(crate) async fn reservations(&self) -> Result<Vec<wire::Reservation>, Refusal> {
        let mut round = 1;
        'anew: loop {
            let (mut all, mut token) = (Vec::new(), String::new());
            loop {
                match self.calls.list_reservations(0, &token).await {
                    Ok(page) => {
                        all.extend(page.reservations);
                        if page.next_page_token.is_empty() || page.next_page_token == token {
                            return Ok(all);
                        }
                        token = page.next_page_token;
                    }
                    Err(refusal) if refusal.code == Code::Aborted && round < ROUNDS => {
                        round += 1;
                        continue 'anew;
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
        }
    }

    /// Those that this run made for a rule.
    pub(crate) async fn of_rule(&self, rule: &str) -> Result<Vec<wire::Reservation>, Refusal> {
        let marks = [format!("run={}", self.run), format!("rule={rule}")];
        let mut all = self.reservations().await?;
        all.retain(|row| marks.iter().all(|mark| row.tags.contains(mark)));
        Ok(all)
    }

    /// Up to `count` machines that are on; at least one.
    pub(crate) async fn machines(&self, count: usize) -> Result<Vec<String>, Stop> {
        let mut found: Vec<String> = self.options.machines.iter().map(ToString::to_string).collect();
        if found.is_empty() && self.offers(Capability::Machines) {
            let page = self.calls.list_machines(0, "").await?;
            let on = |power: i32| power != i32::from(PowerState::Off);
            let rows = page.machines.into_iter().filter(|row| on(row.power));
            found.extend(rows.map(|row| row.provider_id));
        }
        found.truncate(count);
        if found.is_empty() {
            return Err(Stop::skip("there is no machine; name one with --machine"));
        }
        Ok(found)
    }

    pub(crate) async fn two_machines(&self) -> Result<[String; 2], Stop> {
        <[String; 2]>::try_from(self.machines(2).await?)
            .map_err(|_| Stop::skip("there is one machine only; name two with --machine"))
    }

    /// An address for a rule, which nobody holds: a new one, unless one was named.
    pub(crate) async fn address(&self, rule: &str) -> Result<Address, Stop> {
        if let Some(address) = self.options.endpoint {
            let text = address.to_string();
            let found = self.calls.get_endpoint(Selector::Address(text.clone())).await?;
            return match found.assignments.first() {
                None => Ok(Address { text, tag: None }),
                Some(held) => Err(Stop::skip(format!(
                    "{text} is held by {}; name an address that nobody holds",
                    held.provider_id
                ))),
            };
        }
        if !self.uses(Capability::Addresses) {
            let why = "needs an address that nobody holds: name one with --endpoint-address";
            return Err(Stop::skip(why));
        }
        let tag = format!("endpoint={}-{rule}", self.run);
        let made = self
            .create(&self.wanted(rule, &self.first_family()?, &[&tag]))
            .await?;
        let text = made.prefix.split('/').next().unwrap_or_default().to_owned();
        if text.is_empty() {
            return Err(Stop::skip("the provider's new reservations are pending"));
        }
        Ok(Address { text, tag: Some(tag) })
    }

    /// Who holds an address.
    pub(crate) async fn holders(&self, address: &str) -> Result<Vec<wire::Assignment>, Refusal> {
        let found = self
            .calls
            .get_endpoint(Selector::Address(address.to_owned()))
            .await?;
        Ok(found.assignments)
    }

    /// How much is not known to be gone.
    pub(crate) fn made(&self) -> usize {
        let made = self.made.lock();
        made.reservations.len() + made.open.len() + made.assigned.len()
    }

    /// Gives back what the rule before left; what does not work out is tried again at the end.
    pub(crate) async fn tidy(&self) {
        drop(self.give_back().await);
    }

    /// One pass over everything that was made. What it could not do, by name.
    async fn give_back(&self) -> Vec<String> {
        let (assigned, open, reservations) = {
            let made = self.made.lock();
            (
                made.assigned.clone(),
                made.open.clone(),
                made.reservations.clone(),
            )
        };
        let mut left = Vec::new();
        for address in assigned {
            match self.release(&address).await {
                Ok(()) => {
                    self.made.lock().assigned.remove(&address);
                }
                Err(refusal) => left.push(format!("the assignment of {address}: {refusal}")),
            }
        }
        for (key, request) in open {
            // By its key it is found, or made and given back: there is no other way to know.
            match self.create(&request).await {
                Ok(row) if !reservations.contains_key(&row.id) => {
                    if let Err(refusal) = self.delete(&row.id).await {
                        left.push(format!("reservation {}: {refusal}", row.id));
                    }
                }
                Ok(_) => {}
                Err(refusal) => left.push(format!("a reservation with the key {key}: {refusal}")),
            }
        }
        for (id, name) in reservations {
            if let Err(refusal) = self.delete(&id).await {
                left.push(format!("{name}: {refusal}"));
            }
        }
        left
    }

    /// Nobody held it before, so whoever does has it from us.
    async fn release(&self, address: &str) -> Result<(), Refusal> {
        let held = match self.holders(address).await {
            Ok(held) => held,
            Err(refusal) if refusal.code == Code::NotFound => return Ok(()),
            Err(refusal) => return Err(refusal),
        };
        for assignment in held {
            match self.calls.unassign(&assignment.id).await {
                Err(refusal) if refusal.code != Code::NotFound => return Err(refusal),
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives everything back; what is left, by name.
    pub(crate) async fn clean(&self) -> Vec<String> {
        let mut left = Vec::new();
        for look in 1..=LOOKS {
            if look > 1 {
                tokio::time::sleep(PAUSE).await;
            }
            left = self.give_back().await;
            match self.strays().await {
                Ok(strays) if strays.is_empty() && left.is_empty() => return left,
                Ok(strays) => {
                    let name = |row: &wire::Reservation| format!("reservation {} ({})", row.id, row.prefix);
                    let mut made = self.made.lock();
                    for row in &strays {
                        made.reservations.insert(row.id.clone(), name(row));
                    }
                    if left.is_empty() && look == LOOKS {
                        left.extend(strays.iter().map(name));
                    }
                }
                Err(refusal) => left.push(format!("reservations tagged `run={}`: {refusal}", self.run)),
            }
        }
        left
    }

    /// Reservations of this run that are still there.
    async fn strays(&self) -> Result<Vec<wire::Reservation>, Refusal> {
        if !self.uses(Capability::Addresses) || self.options.read_only {
            return Ok(Vec::new());
        }
        let mark = format!("run={}", self.run);
        let mut all = self.reservations().await?;
        all.retain(|row| row.tags.contains(&mark));
        Ok(all)
    }
}
