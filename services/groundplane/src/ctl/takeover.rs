//! `ctl takeover`: what an older controller has left, what becomes of it, and the word that lets it.
//!
//! Both commands end with 0 where they were answered, and with 1 where not; `apply` also with 1 where something was not done.

use anyhow::bail;
use clap::Subcommand;
use groundplane_proto::gateway::v1 as pb;
use groundplane_proto::gateway::v1::gateway_service_client::GatewayServiceClient;
use groundplane_runtime::grpc::{Channel, Policy, call};
use serde::Serialize;

use crate::ctl::Output;
use crate::ctl::table::{Show, lay_out, print};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What was found, and what will be adopted, changed and left; changes nothing, and works while the older controller runs
    Plan,
    /// Do what the plan says, if it is still the same
    Apply {
        /// The id that `takeover plan` has printed
        #[arg(long, value_name = "ID")]
        plan: String,
    },
}

pub(crate) async fn run(channel: Channel, command: Command, output: Output) -> anyhow::Result<()> {
    match command {
        Command::Plan => plan(channel, output).await,
        Command::Apply { plan } => apply(channel, plan, output).await,
    }
}

async fn plan(channel: Channel, output: Output) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let answer = call(Policy::default(), || async {
        client.clone().plan_takeover(pb::PlanTakeoverRequest {}).await
    })
    .await?;
    print(output, &Found::from(answer))
}

async fn apply(channel: Channel, plan_id: String, output: Output) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let request = pb::ApplyTakeoverRequest { plan_id };
    let answer = call(Policy::default(), || async {
        client.clone().apply_takeover(request.clone()).await
    })
    .await?;
    let outcomes = Outcomes::from(answer);
    print(output, &outcomes)?;
    let failed = outcomes.outcomes.iter().filter(|outcome| !outcome.ok).count();
    if failed > 0 {
        bail!("{failed} of {} were not done", outcomes.outcomes.len());
    }
    Ok(())
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    group: String,
    kind: String,
    name: String,
    found: String,
    action: &'static str,
    detail: String,
    needs_apply: bool,
}

impl From<pb::TakeoverItem> for Item {
    fn from(item: pb::TakeoverItem) -> Self {
        let action = match item.action() {
            pb::TakeoverAction::Adopt => "ADOPT",
            pb::TakeoverAction::Change => "CHANGE",
            pb::TakeoverAction::Leave => "LEAVE",
            pb::TakeoverAction::Blocked => "BLOCKED",
            pb::TakeoverAction::Unspecified => "",
        };
        let pb::TakeoverItem {
            group,
            kind,
            name,
            found,
            action: _,
            detail,
            needs_apply,
        } = item;
        Self {
            group,
            kind,
            name,
            found,
            action,
            detail,
            needs_apply,
        }
    }
}

/// What is found, as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    plan_id: String,
    leader: bool,
    /// How much there is yet to do, and can be done.
    left: usize,
    /// How much is in the way, and must be done by a person.
    blocked: usize,
    items: Vec<Item>,
}

impl From<pb::PlanTakeoverResponse> for Found {
    fn from(answer: pb::PlanTakeoverResponse) -> Self {
        let items: Vec<Item> = answer.items.into_iter().map(Item::from).collect();
        let count = |action: &str| items.iter().filter(|item| item.action == action).count();
        Self {
            plan_id: answer.plan_id,
            leader: answer.leader,
            left: count("ADOPT") + count("CHANGE"),
            blocked: count("BLOCKED"),
            items,
        }
    }
}

impl Show for Found {
    fn text(&self) -> String {
        let heads = ["GROUP", "WHAT", "FOUND", "ACTION", "DETAIL"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(self.items.iter().map(|item| {
            vec![
                item.group.clone(),
                format!("{} {}", item.kind, item.name),
                item.found.clone(),
                item.action.to_owned(),
                item.detail.clone(),
            ]
        }));
        let mut text = lay_out(rows);
        let waiting = self.items.iter().any(|item| item.needs_apply);
        let id = &self.plan_id;
        let next = if self.left == 0 && self.blocked > 0 {
            format!("plan {id}: nothing else to do\n")
        } else if self.left == 0 {
            format!("nothing is left to do (plan {id})\n")
        } else if waiting {
            format!(
                "plan {id}: {} to do; some only by: groundplane ctl takeover apply --plan {id}\n",
                self.left
            )
        } else {
            format!(
                "plan {id}: {} to do, which groundplane does by itself as soon as it leads\n",
                self.left
            )
        };
        text.push('\n');
        if self.blocked > 0 {
            let blocked = self.blocked;
            let blocked = format!("{blocked} blocked: see their details for what to do yourself\n");
            text.push_str(&blocked);
        }
        text.push_str(&next);
        text
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    kind: String,
    name: String,
    ok: bool,
    detail: String,
}

/// What was done, as it is printed.
#[derive(Debug, Serialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

impl From<pb::ApplyTakeoverResponse> for Outcomes {
    fn from(answer: pb::ApplyTakeoverResponse) -> Self {
        let outcomes = answer.outcomes.into_iter().map(|outcome| {
            let pb::TakeoverItem { kind, name, .. } = outcome.item.unwrap_or_default();
            Outcome {
                kind,
                name,
                ok: outcome.ok,
                detail: outcome.detail,
            }
        });
        Self {
            outcomes: outcomes.collect(),
        }
    }
}

impl Show for Outcomes {
    fn text(&self) -> String {
        if self.outcomes.is_empty() {
            return "nothing needed your word; groundplane looks at everything again\n".to_owned();
        }
        let mut rows = vec![["WHAT", "DONE", "DETAIL"].map(str::to_owned).to_vec()];
        rows.extend(self.outcomes.iter().map(|outcome| {
            let done = if outcome.ok { "yes" } else { "no" };
            vec![
                format!("{} {}", outcome.kind, outcome.name),
                done.to_owned(),
                outcome.detail.clone(),
            ]
        }));
        lay_out(rows)
    }
}

#[cfg(test)]
mod guides;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(action: pb::TakeoverAction, needs_apply: bool) -> pb::TakeoverItem {
        pb::TakeoverItem {
            group: "reservations".to_owned(),
            kind: "reservation".to_owned(),
            name: "r1".to_owned(),
            found: "198.51.100.1/32".to_owned(),
            action: action.into(),
            detail: "why".to_owned(),
            needs_apply,
        }
    }

    fn plan(items: Vec<pb::TakeoverItem>) -> Found {
        Found::from(pb::PlanTakeoverResponse {
            plan_id: "abc".to_owned(),
            items,
            leader: true,
        })
    }

    #[test]
    fn a_plan_says_what_is_left_and_how_it_is_done() {
        use pb::TakeoverAction::{Adopt, Blocked, Change, Leave};
        let done = plan(vec![item(Leave, false)]);
        assert!(
            done.text()
                .ends_with("LEAVE   why\n\nnothing is left to do (plan abc)\n"),
            "{}",
            done.text()
        );
        let by_itself = plan(vec![item(Change, false), item(Leave, false)]);
        assert!(
            by_itself
                .text()
                .contains("1 to do, which groundplane does by itself")
        );
        let in_the_way = plan(vec![item(Blocked, false), item(Change, false)]).text();
        assert!(
            in_the_way.contains("1 blocked: ")
                && in_the_way.contains("1 to do, which groundplane does by itself")
        );
        let stuck = plan(vec![item(Blocked, false)]).text();
        assert!(
            stuck.contains("1 blocked: ") && !stuck.contains("nothing is left"),
            "{stuck}"
        );
        let by_word = plan(vec![item(Adopt, true)]);
        assert!(by_word.text().contains("takeover apply --plan abc"));
    }
}
