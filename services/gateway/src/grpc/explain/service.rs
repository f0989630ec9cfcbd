//! Why a Service has, or does not have, its address.

use groundplane_core::names;
use groundplane_proto::gateway::v1::{ExplainObjectResponse, Step};
use groundplane_proto::ipam::v1::{ExplainRequest, Verdict};

use super::{find, step, summary};
use crate::announcers::{self, StatusWriter};
use crate::clients::messages;
use crate::cluster::objects::{Key, ServiceObject};
use crate::domain::service::{self as domain, Plan, Scope, Wish};
use crate::gateway::Gateway;
use crate::grpc::{GatewayError, cache_age};
use crate::queue::Waits;

/// From the object to the address.
pub(super) async fn explain(gateway: &Gateway, key: &Key) -> Result<ExplainObjectResponse, GatewayError> {
    let service = find(&gateway.cluster.services.index, "Service", key)?;
    let scope = Scope::of(&gateway.config);
    let addresses: Vec<String> = domain::addresses(&service)
        .map(|address| address.to_string())
        .collect();
    let mut steps = vec![
        step("exists", true, format!("UID {}", service.uid)),
        managed(&service, &scope),
    ];
    match domain::plan(&service, &scope) {
        Plan::Ignore => {}
        Plan::Release { .. } => steps.push(step("release", false, "its addresses are being given back")),
        Plan::Refuse(refusal) => steps.push(step("request", false, refusal.message)),
        Plan::Hold(wish) => {
            steps.push(step("request", true, wanted(&wish)));
            steps.push(finalizer(&service));
            steps.push(address(gateway, &service, &wish).await);
            steps.push(announcer(gateway, &service));
            steps.push(status(gateway, &service));
        }
    }
    if let Some(waits) = gateway.queues.services.waits(key) {
        let detail = match waits {
            Waits::Turn => "it is its turn".to_owned(),
            Waits::Time(time) => format!("it is looked at again in {} s", time.as_secs()),
            Waits::Reason(reason) => {
                format!("it waits for {reason}, and is looked at again every few minutes")
            }
        };
        steps.push(step("queue", true, detail));
    }
    let summary = summary(&steps, || format!("{key} has {}", addresses.join(", ")));
    Ok(ExplainObjectResponse {
        summary,
        steps,
        addresses,
        cache_age: cache_age(gateway),
    })
}

fn managed(service: &ServiceObject, scope: &Scope) -> Step {
    const TITLE: &str = "managed by groundplane";
    match scope.why_not(service) {
        Some(why) => step(TITLE, false, why),
        None if service.class.is_empty() => step(TITLE, true, "it has no class, and those are ours"),
        None => step(TITLE, true, format!("its class is {}", service.class)),
    }
}

fn wanted(wish: &Wish) -> String {
    let wants: Vec<String> = wish
        .wants
        .iter()
        .map(|want| {
            let what = want
                .address
                .map_or_else(|| format!("any {}", want.family), |address| address.to_string());
            if want.optional {
                format!("{what} (if there is one)")
            } else {
                what
            }
        })
        .collect();
    let pool = wish.pool.as_ref().map(|pool| {
        let slash = if pool.namespace.is_empty() { "" } else { "/" };
        format!(" from pool {}{slash}{}", pool.namespace, pool.name)
    });
    format!("it asks for {}{}", wants.join(" and "), pool.unwrap_or_default())
}

fn finalizer(service: &ServiceObject) -> Step {
    let there = domain::has_finalizer(service);
    let detail = if there {
        "is there".to_owned()
    } else {
        format!("{} is missing", names::SERVICE_FINALIZER)
    };
    step("finalizer", there, detail)
}

/// What it holds, or why it would not get an address, by the word of who gives them.
async fn address(gateway: &Gateway, service: &ServiceObject, wish: &Wish) -> Step {
    const TITLE: &str = "address";
    if !gateway.config.has_pools() {
        return step(
            TITLE,
            domain::is_ours(service),
            "addresses come from the cloud; `ctl addresses` lists them",
        );
    }
    if let Some(detail) = gateway.adoption.standing().refusal() {
        return step(TITLE, false, detail);
    }
    let Some(cluster) = gateway.cluster.identity.get() else {
        return step(TITLE, false, "the cluster's id is not known yet");
    };
    let request = ExplainRequest {
        owner: Some(messages::owner(&cluster, &service.key)),
        network: String::new(),
        requests: messages::requests(wish),
        selector: Some(messages::selector(service, wish)),
    };
    match gateway.services.ipam.explain(request).await {
        Ok(answer) => {
            let verdicts: Vec<String> = answer
                .verdicts
                .iter()
                .filter(|verdict| !verdict.serves)
                .map(refused)
                .collect();
            let holds = !answer.allocations.is_empty();
            let detail = if holds || verdicts.is_empty() {
                answer.summary
            } else {
                format!("{} ({})", answer.summary, verdicts.join("; "))
            };
            step(TITLE, holds, detail)
        }
        Err(error) => step(TITLE, false, format!("ipam does not say: {error}")),
    }
}

fn refused(verdict: &Verdict) -> String {
    let pool = verdict
        .pool
        .as_ref()
        .map(|pool| pool.name.clone())
        .unwrap_or_default();
    format!("{pool}: {}", verdict.message)
}

fn announcer(gateway: &Gateway, service: &ServiceObject) -> Step {
    let announcer = announcers::configured(&gateway.config);
    let held: Vec<_> = domain::addresses(service).collect();
    let (ok, detail) = match announcers::apply(&*announcer, service, &held) {
        Err(contradiction) => (false, contradiction.to_string()),
        Ok(changes) if !changes.is_empty() => (false, "has not been told yet".to_owned()),
        Ok(_) if held.is_empty() => (true, "has nothing to announce".to_owned()),
        Ok(_) => (true, "knows".to_owned()),
    };
    step("announcer", ok, format!("{} {detail}", announcer.name()))
}

fn status(gateway: &Gateway, service: &ServiceObject) -> Step {
    let told = match &service.condition {
        None => "nothing has been said yet".to_owned(),
        Some(condition) => format!("{}: {}", condition.reason, condition.message),
    };
    let ready = service
        .condition
        .as_ref()
        .is_some_and(|condition| &*condition.status == "True");
    let shown = !service.ingress.is_empty();
    let writer = announcers::configured(&gateway.config).status_writer();
    let ok = ready && (shown || writer == StatusWriter::Backend);
    step("status", ok, told)
}
