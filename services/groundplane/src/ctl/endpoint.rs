//! `ctl endpoint`: who holds the API endpoint, who could, and what was done.

use groundplane_proto::gateway::v1 as pb;
use groundplane_proto::gateway::v1::gateway_service_client::GatewayServiceClient;
use groundplane_runtime::grpc::{Channel, Policy, call};
use prost_types::Duration;
use serde::Serialize;

use crate::ctl::Output;
use crate::ctl::duration::stamp;
use crate::ctl::table::{Show, lay_out, print};

/// Prints the endpoint's state. That something is wrong with it is an answer, not a failure to answer.
pub(super) async fn run(channel: Channel, output: Output) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let answer = call(Policy::default(), || async {
        client
            .clone()
            .get_endpoint_status(pb::GetEndpointStatusRequest {})
            .await
    })
    .await?;
    print(output, &Endpoint::from(answer))
}

fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(|duration| {
        #[allow(clippy::cast_precision_loss, reason = "seconds of a probe or a move are few")]
        let whole = duration.seconds as f64;
        whole + f64::from(duration.nanos) / 1e9
    })
}

fn told(seconds: Option<f64>) -> String {
    seconds
        .map(|seconds| format!("{seconds:.3}s"))
        .unwrap_or_default()
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    ready: bool,
    detail: String,
    took_seconds: Option<f64>,
    age_seconds: Option<f64>,
}

impl From<pb::EndpointProbe> for Probe {
    fn from(probe: pb::EndpointProbe) -> Self {
        Self {
            ready: probe.ready,
            detail: probe.detail,
            took_seconds: seconds(probe.took),
            age_seconds: seconds(probe.age),
        }
    }
}

fn cells(probe: Option<&Probe>) -> [String; 3] {
    let Some(probe) = probe else {
        return ["not probed".to_owned(), String::new(), String::new()];
    };
    let state = match (probe.ready, probe.detail.as_str()) {
        (true, _) => "ready",
        (false, "") => "not ready",
        (false, detail) => detail,
    };
    [
        state.to_owned(),
        told(probe.took_seconds),
        told(probe.age_seconds),
    ]
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    node: String,
    provider_id: String,
    address: String,
    cordoned: bool,
    deleting: bool,
    /// The cloud did not give it the endpoint a while ago.
    refused: bool,
    rank: u32,
    probe: Option<Probe>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Move {
    at: String,
    from: String,
    to: String,
    reason: String,
    outcome: String,
    detection_seconds: Option<f64>,
    /// Of the move itself, from the verdict on.
    #[serde(rename = "moveSeconds")]
    seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    address: String,
    holder: String,
    read_at: String,
    probe: Option<Probe>,
    verdict: String,
    problem: String,
    candidates_from: String,
    answered_by: String,
    candidates: Vec<Candidate>,
    moves: Vec<Move>,
}

impl From<pb::GetEndpointStatusResponse> for Endpoint {
    fn from(answer: pb::GetEndpointStatusResponse) -> Self {
        let candidates = answer.candidates.into_iter();
        let moves = answer.moves.into_iter();
        Self {
            address: answer.address,
            holder: answer.holder,
            read_at: stamp(answer.read_at.as_ref()),
            probe: answer.probe.map(Probe::from),
            verdict: answer.verdict,
            problem: answer.problem,
            candidates_from: answer.candidates_from,
            answered_by: answer.answered_by,
            candidates: candidates
                .map(|one| Candidate {
                    node: one.node,
                    provider_id: one.provider_id,
                    address: one.address,
                    cordoned: one.cordoned,
                    deleting: one.deleting,
                    refused: one.refused,
                    rank: one.rank,
                    probe: one.probe.map(Probe::from),
                })
                .collect(),
            moves: moves
                .map(|one| Move {
                    at: stamp(one.at.as_ref()),
                    from: one.from,
                    to: one.to,
                    reason: one.reason,
                    outcome: one.outcome,
                    detection_seconds: seconds(one.detection),
                    seconds: seconds(one.r#move),
                })
                .collect(),
        }
    }
}

impl Show for Endpoint {
    fn text(&self) -> String {
        let mut text = format!("{}\n{}", lay_out(self.head()), lay_out(self.candidate_rows()));
        if !self.moves.is_empty() {
            text = format!("{text}\n{}", lay_out(self.move_rows()));
        }
        text
    }
}

fn or(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise } else { text }.to_owned()
}

fn heads(names: &[&str]) -> Vec<Vec<String>> {
    vec![names.iter().map(|name| (*name).to_owned()).collect()]
}

impl Endpoint {
    /// What is true of the endpoint itself, a name and a value a row.
    fn head(&self) -> Vec<Vec<String>> {
        let [state, took, age] = cells(self.probe.as_ref());
        let read = or(&self.read_at, "never");
        let mut rows: Vec<(&str, String)> = vec![
            ("endpoint", or(&self.address, "not known yet")),
            ("holder", format!("{} (read {read})", or(&self.holder, "nobody"))),
            ("probe", format!("{state} {took} {age}").trim().to_owned()),
            ("verdict", or(&self.verdict, "stays")),
            ("candidates from", or(&self.candidates_from, "nowhere yet")),
            ("answered by", or(&self.answered_by, "a gateway")),
        ];
        if !self.problem.is_empty() {
            rows.push(("PROBLEM", self.problem.clone()));
        }
        rows.into_iter()
            .map(|(name, value)| vec![name.to_owned(), value])
            .collect()
    }

    fn candidate_rows(&self) -> Vec<Vec<String>> {
        let mut rows = heads(&["CANDIDATE", "RANK", "ADDRESS", "PROBE", "TOOK", "AGE", "STATE"]);
        rows.extend(self.candidates.iter().map(|one| {
            let [state, took, age] = cells(one.probe.as_ref());
            let (node, address) = (one.node.clone(), one.address.clone());
            let is = self.state(one).to_owned();
            vec![node, one.rank.to_string(), address, state, took, age, is]
        }));
        rows
    }

    fn state(&self, one: &Candidate) -> &'static str {
        if one.deleting {
            "deleting"
        } else if one.cordoned {
            "cordoned"
        } else if one.node == self.holder {
            "holder"
        } else if one.refused {
            "refused by the cloud"
        } else {
            ""
        }
    }

    fn move_rows(&self) -> Vec<Vec<String>> {
        let mut rows = heads(&["MOVED AT", "FROM", "TO", "OUTCOME", "DETECTION", "MOVE", "WHY"]);
        rows.extend(self.moves.iter().map(|one| {
            vec![
                one.at.clone(),
                or(&one.from, "nobody"),
                one.to.clone(),
                one.outcome.clone(),
                told(one.detection_seconds),
                told(one.seconds),
                one.reason.clone(),
            ]
        }));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_and_done_is_shown_with_what_is_wrong() {
        let answer = pb::GetEndpointStatusResponse {
            address: "192.0.2.9:6443".to_owned(),
            holder: "a".to_owned(),
            candidates: vec![
                pb::EndpointCandidate {
                    node: "a".to_owned(),
                    address: "10.0.0.1:6443".to_owned(),
                    rank: 1,
                    probe: Some(pb::EndpointProbe {
                        detail: "timed out".to_owned(),
                        ..pb::EndpointProbe::default()
                    }),
                    ..pb::EndpointCandidate::default()
                },
                pb::EndpointCandidate {
                    node: "b".to_owned(),
                    refused: true,
                    ..pb::EndpointCandidate::default()
                },
            ],
            moves: vec![pb::EndpointMove {
                to: "a".to_owned(),
                outcome: "moved".to_owned(),
                detection: Some(Duration {
                    seconds: 2,
                    nanos: 250_000_000,
                }),
                ..pb::EndpointMove::default()
            }],
            problem: "several machines hold it".to_owned(),
            ..pb::GetEndpointStatusResponse::default()
        };
        let text = Endpoint::from(answer).text();
        for part in [
            "192.0.2.9:6443",
            "timed out",
            "holder",
            "refused by the cloud",
            "2.250s",
            "PROBLEM",
            "several machines",
            "nobody",
        ] {
            assert!(text.contains(part), "`{part}` is not in\n{text}");
        }
    }
}
