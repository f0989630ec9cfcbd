//! Each rule can fail: a provider that breaks one rule fails that rule, and no other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use groundplane_proto::instances::v1::Machine;
use groundplane_proto::provider::v1 as wire;
use groundplane_proto::provider::v1::get_endpoint_request::Selector;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::channel;
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use prost::Message;
use tonic::{Code, Status};

use super::super::{Report, Verdict, rules};
use super::cloud::{everything, furnished, look, provider};
use crate::testing::loopback::{Passing, serve, tap};

type Answer = Result<Bytes, Status>;

/// What passed so far.
#[derive(Default)]
struct Seen {
    /// Ids and addresses of reservations, to the rule that they were made for.
    of_rule: BTreeMap<String, String>,
    /// Assignments, oldest first: their id and address.
    assigned: Vec<(String, String)>,
    /// How often something was asked for.
    asked: BTreeMap<String, usize>,
    running: usize,
}

#[derive(Clone)]
struct Breaker {
    rule: &'static str,
    seen: Arc<Mutex<Seen>>,
}

fn read<M: Message + Default>(bytes: &Bytes) -> M {
    M::decode(bytes.clone()).unwrap()
}

fn write(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// The provider's answer, changed.
fn changed<M: Message + Default>(answer: Answer, change: impl FnOnce(&mut M)) -> Answer {
    let mut message: M = read(&answer?);
    change(&mut message);
    Ok(write(&message))
}

/// Another answer instead of this code.
fn instead(answer: Answer, code: Code, other: Answer) -> Answer {
    match answer {
        Err(status) if status.code() == code => other,
        answer => answer,
    }
}

fn marks(tags: &[String]) -> String {
    let mark = tags.iter().find_map(|tag| tag.strip_prefix("rule="));
    mark.unwrap_or_default().to_owned()
}

impl Breaker {
    fn count(&self, what: &str) -> usize {
        let mut seen = self.seen.lock();
        let count = seen.asked.entry(what.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Does this id or address belong to a reservation of the rule?
    fn is_of_rule(&self, what: &str) -> bool {
        self.seen
            .lock()
            .of_rule
            .get(what)
            .is_some_and(|rule| rule == self.rule)
    }

    async fn handle(self, call: Passing) -> Answer {
        let answer = match call.method.as_str() {
            "GetCapabilities" => self.capabilities(&call).await,
            "ListMachines" => self.list_machines(&call).await,
            "GetMachine" => self.get_machine(&call).await,
            "CreateReservation" => self.create(&call).await,
            "ListReservations" if self.rule == "P21" => changed(call.pass().await, |list| {
                let list: &mut wire::ListReservationsResponse = list;
                for row in &mut list.reservations {
                    row.tags.sort();
                }
            }),
            "DeleteReservation" => self.delete(&call).await,
            "ReplaceTags" => self.replace_tags(&call).await,
            "Assign" => self.assign(&call).await,
            "Unassign" => self.unassign(&call).await,
            "Reassign" if self.rule == "P60" => changed(call.pass().await, |answer| {
                let answer: &mut wire::ReassignResponse = answer;
                answer.assignment.as_mut().unwrap().id.push('x');
            }),
            "GetEndpoint" => self.get_endpoint(&call).await,
            _ => self.bgp(&call).await,
        };
        if self.rule == "P2" && call.request.windows(6).any(|window| window == b"future") {
            return Err(Status::invalid_argument("unknown field 18001"));
        }
        answer
    }

    async fn capabilities(&self, call: &Passing) -> Answer {
        changed(call.pass().await, |said| {
            let said: &mut wire::GetCapabilitiesResponse = said;
            if self.rule == "P1" {
                "Acme Cloud".clone_into(&mut said.name);
            }
        })
    }

    async fn list_machines(&self, call: &Passing) -> Answer {
        let mut asked: wire::ListMachinesRequest = read(&call.request);
        match self.rule {
            "P3" if asked.page_size == 1 => {
                asked.page_size = 2;
                call.with(write(&asked)).await
            }
            "P4" if asked.page_token.starts_with("no such") => {
                Ok(write(&wire::ListMachinesResponse::default()))
            }
            "P5" => {
                let running = {
                    let mut seen = self.seen.lock();
                    seen.running += 1;
                    seen.running
                };
                let answer = call.pass().await;
                self.seen.lock().running -= 1;
                if running > 1 {
                    return Err(Status::unavailable("one at a time"));
                }
                answer
            }
            "P10" if asked.page_size == 0 => changed(call.pass().await, |list| {
                let list: &mut wire::ListMachinesResponse = list;
                list.machines.extend(list.machines.last().cloned());
            }),
            "P13" => changed(call.pass().await, |list| {
                let list: &mut wire::ListMachinesResponse = list;
                list.machines.iter_mut().for_each(powerless);
            }),
            _ => call.pass().await,
        }
    }

    async fn get_machine(&self, call: &Passing) -> Answer {
        let change = |answer: &mut wire::GetMachineResponse| {
            let machine = answer.machine.as_mut().unwrap();
            match self.rule {
                "P11" => machine.hostname.push('x'),
                "P13" => powerless(machine),
                _ => {}
            }
        };
        let answer = changed(call.pass().await, change);
        match self.rule {
            "P12" => instead(answer, Code::NotFound, Ok(Bytes::new())),
            _ => answer,
        }
    }

    async fn create(&self, call: &Passing) -> Answer {
        let mut asked: wire::CreateReservationRequest = read(&call.request);
        let rule = marks(&asked.tags);
        let is_it = rule == self.rule;
        match self.rule {
            "P22" | "P23" | "P24" if is_it => asked.idempotency_key = uuid::Uuid::new_v4().to_string(),
            "P25" if is_it => "one for all".clone_into(&mut asked.idempotency_key),
            // Whether the call that was cut short came this far nobody knows: so each makes a second one.
            "P26" | "P27" if is_it => {
                let mut second = asked.clone();
                second.idempotency_key = uuid::Uuid::new_v4().to_string();
                call.with(write(&second)).await?;
            }
            "P30" if asked.family == "IPv5" => "IPv4".clone_into(&mut asked.family),
            _ => {}
        }
        let mut answer: wire::CreateReservationResponse = read(&call.with(write(&asked)).await?);
        let made = answer.reservation.as_mut().unwrap();
        {
            let address = made.prefix.split('/').next().unwrap().to_owned();
            let mut seen = self.seen.lock();
            seen.of_rule.insert(made.id.clone(), rule.clone());
            seen.of_rule.insert(address, rule);
        }
        match self.rule {
            "P20" if is_it => "198.18.99.99/32".clone_into(&mut made.prefix),
            "P21" if is_it => made.tags.sort(),
            _ => {}
        }
        Ok(write(&answer))
    }

    async fn delete(&self, call: &Passing) -> Answer {
        let id = read::<wire::DeleteReservationRequest>(&call.request).id;
        let time = self.count(&id);
        match self.rule {
            "P28" if self.is_of_rule(&id) && time == 1 => Ok(Bytes::new()),
            "P29" if time > 1 => Err(Status::not_found("it is gone")),
            _ => call.pass().await,
        }
    }

    async fn replace_tags(&self, call: &Passing) -> Answer {
        let answer = call.pass().await;
        match self.rule {
            "P31" => changed(answer, |changed| {
                let changed: &mut wire::ReplaceTagsResponse = changed;
                changed.reservation.as_mut().unwrap().tags.sort();
            }),
            "P32" => instead(answer, Code::NotFound, Ok(Bytes::new())),
            _ => answer,
        }
    }

    async fn assign(&self, call: &Passing) -> Answer {
        let wire::AssignRequest { address, provider_id } = read(&call.request);
        let is_it = self.is_of_rule(&address);
        let time = self.count(&address);
        let answer = call.pass().await;
        if let Ok(bytes) = &answer {
            let made: wire::AssignResponse = read(bytes);
            let id = made.assignment.unwrap().id;
            self.seen.lock().assigned.push((id, address));
        }
        match self.rule {
            "P54" if is_it && time > 1 => Err(Status::already_exists("it is held")),
            "P55" if is_it => instead(
                answer,
                Code::AlreadyExists,
                Err(Status::failed_precondition("it is held")),
            ),
            "P56" if is_it => {
                let made = wire::Assignment {
                    id: "another".to_owned(),
                    provider_id,
                    address: String::new(),
                };
                let made = wire::AssignResponse {
                    assignment: Some(made),
                };
                instead(answer, Code::AlreadyExists, Ok(write(&made)))
            }
            "P59" => instead(answer, Code::NotFound, Err(Status::invalid_argument("what?"))),
            "P61" if is_it => Err(Status::aborted("try again")),
            _ => answer,
        }
    }

    async fn unassign(&self, call: &Passing) -> Answer {
        let id = read::<wire::UnassignRequest>(&call.request).assignment_id;
        let answer = call.pass().await;
        let address = {
            let seen = self.seen.lock();
            let row = seen.assigned.iter().find(|(known, _)| *known == id);
            row.map(|(_, address)| address.clone()).unwrap_or_default()
        };
        if !self.is_of_rule(&address) {
            return answer;
        }
        match (self.rule, answer) {
            ("P57", Err(status)) if status.code() == Code::NotFound => Ok(Bytes::new()),
            ("P58", Err(status)) if status.code() == Code::NotFound => {
                let newest = {
                    let seen = self.seen.lock();
                    let mut rows = seen.assigned.iter().rev();
                    rows.find(|(_, of)| *of == address).unwrap().0.clone()
                };
                let request = wire::UnassignRequest {
                    assignment_id: newest,
                };
                call.with(write(&request)).await
            }
            (_, answer) => answer,
        }
    }

    async fn get_endpoint(&self, call: &Passing) -> Answer {
        let selector = read::<wire::GetEndpointRequest>(&call.request).selector.unwrap();
        let is_it = match &selector {
            Selector::Tag(tag) => tag.ends_with(self.rule),
            Selector::Address(address) => self.is_of_rule(address),
        };
        let by_tag = matches!(selector, Selector::Tag(_));
        let answer = call.pass().await;
        match self.rule {
            "P50" if is_it && by_tag => Err(Status::not_found("tags are not looked at")),
            "P51" => instead(answer, Code::NotFound, Ok(Bytes::new())),
            "P52" if is_it => {
                let any = wire::GetEndpointResponse {
                    address: "198.18.0.1".to_owned(),
                    assignments: Vec::new(),
                };
                Ok(write(&any))
            }
            "P53" if is_it => changed(answer, |found| {
                let found: &mut wire::GetEndpointResponse = found;
                found.assignments.clear();
            }),
            _ => answer,
        }
    }

    async fn bgp(&self, call: &Passing) -> Answer {
        let answer = call.pass().await;
        match (self.rule, call.method.as_str()) {
            ("P40", "EnableProject") => changed(answer, |enabled| {
                let enabled: &mut wire::EnableProjectResponse = enabled;
                enabled.project.as_mut().unwrap().local_asn += 1;
            }),
            ("P41", "ListSessions") => {
                let asked: wire::ListSessionsRequest = read(&call.request);
                changed(answer, |list| {
                    let list: &mut wire::ListSessionsResponse = list;
                    if asked.page_size == 0
                        && let Some(mut odd) = list.sessions.last().cloned()
                    {
                        odd.id.push('x');
                        "ipv4".clone_into(&mut odd.family);
                        list.sessions.push(odd);
                    }
                })
            }
            ("P42", "CreateSession") if answer.is_ok() && self.count("sessions made") > 1 => {
                Err(Status::already_exists("there is one already"))
            }
            ("P43", "CreateSession") => {
                instead(answer, Code::NotFound, Err(Status::invalid_argument("who?")))
            }
            ("P44", "ListNeighbors") => changed(answer, |list| {
                let list: &mut wire::ListNeighborsResponse = list;
                list.neighbors.iter_mut().for_each(|row| row.peer_asn = 0);
            }),
            ("P45", "ListNeighbors") => instead(answer, Code::NotFound, Ok(Bytes::new())),
            _ => answer,
        }
    }
}

fn powerless(machine: &mut Machine) {
    machine.power = 0;
}

/// A run against a provider that breaks `rule`.
async fn break_rule(rule: &'static str, atomic: bool) -> (Report, usize) {
    let (cloud, context) = (furnished(), Context::new());
    let behind = channel(&provider(&cloud, atomic, &context).await, None).unwrap();
    let breaker = Breaker {
        rule,
        seen: Arc::default(),
    };
    let routes = tap(&behind, move |call| Box::pin(breaker.clone().handle(call)));
    let target = serve(routes, &context).await.unwrap();
    let report = look(&target, everything()).await;
    (report, cloud.reservations().len())
}

fn failed(report: &Report) -> Vec<(&'static str, &str)> {
    report
        .outcomes
        .iter()
        .filter(|outcome| matches!(outcome.verdict, Verdict::Fail(_)))
        .map(|outcome| (outcome.id, outcome.verdict.why()))
        .collect()
}

#[tokio::test]
async fn each_rule_fails_where_it_is_broken_and_no_other_does() {
    for rule in rules() {
        let (report, left) = break_rule(rule.id, true).await;
        let broken = failed(&report);
        assert_eq!(
            broken.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            [rule.id],
            "{broken:?}"
        );
        assert!(!broken[0].1.is_empty(), "{} says how", rule.id);
        assert_eq!(left, 0, "{}: {:?}", rule.id, report.left);
        assert!(report.is_broken());
    }
}

#[tokio::test]
async fn a_provider_before_another_that_changes_nothing_passes() {
    let (report, left) = break_rule("none", false).await;
    assert_eq!((failed(&report), left), (vec![], 0));
    assert_eq!(report.left, Vec::<String>::new());
}
