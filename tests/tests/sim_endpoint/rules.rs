//! What must never be, judged at each move that an agent asks for, and at each change of who holds the endpoint.
//!
//! A move is judged by what its agent has seen itself, as the table of `services/health/src/domain/monitor.rs` says:
//!
//! - its target was ready in the last interval;
//! - where a machine that is to stay holds the endpoint: that one has missed as often as makes a failure, and has not answered since, and
//!   has had time for as many probes since it holds it; and a majority of the candidates is heard, or the failure has lasted for `doubt`;
//!   and where the endpoint answers, a majority is heard;
//! - it is not begun any more once the agent has seen that machine ready again.

use std::time::Duration;

use groundplane_cloud::EndpointAssignment;
use groundplane_proto::eip::v1::MoveEndpointRequest;
use tokio::time::Instant;

use super::world::{Life, Node, State, World, number};

impl World {
    /// An agent asks for a move.
    pub(crate) fn judge(&self, life: usize, request: &MoveEndpointRequest) {
        let now = Instant::now();
        let history = self.fake.history();
        let (to, decided_on) = (&request.to, &request.assignment_id);
        self.note(format_args!(
            "agent {life} asks for a move to {to}, decided on `{decided_on}`"
        ));
        let target = to.parse().ok();
        let Some((target, to)) = target.and_then(|id| Some((number(&id)?, id))) else {
            return self.broken(format_args!("agent {life} moves it to {to}, which is no machine"));
        };
        let held = history.last().map_or(&[][..], |last| &last.assignments[..]);
        // Since when it is held so: of several changes the first that had this assignment.
        let since = history
            .iter()
            .find(|change| change.assignments.iter().any(|one| one.id == *decided_on));
        let holder = match held {
            [one] if one.id == *decided_on => number(&one.machine).filter(|holder| *holder != target),
            _ => None,
        };
        let wrong = {
            let mut state = self.state();
            state.wanted.insert(to);
            state.decided_on.insert(decided_on.clone());
            let seen = &state.lives[life];
            let mut wrong = self.target_is_wrong(seen, target, now);
            if let Some(holder) = holder {
                let held_for = since.map(|change| now - change.at);
                wrong = wrong.or_else(|| self.holder_is_left(seen, holder, held_for, now));
            }
            wrong
        };
        self.count("moves asked for");
        if let Some(wrong) = wrong {
            self.broken(format_args!("agent {life}: {wrong}"));
        }
    }

    fn target_is_wrong(&self, seen: &Life, target: usize, now: Instant) -> Option<String> {
        let sight = seen.sights.get(&Some(target));
        if !sight.is_some_and(|sight| sight.was_ready(&self.settings, now)) {
            return Some(format!(
                "moves it to {target}, which was not ready in the last interval: {sight:?}"
            ));
        }
        let known = seen.knows.iter().find(|node| node.machine == target);
        let Some(node) = known else {
            return Some(format!("moves it to {target}, which is no candidate"));
        };
        node.deleting
            .then(|| format!("moves it to {target}, which is being deleted"))
    }

    /// Is it taken from one who should keep it?
    fn holder_is_left(
        &self,
        seen: &Life,
        holder: usize,
        held_for: Option<Duration>,
        now: Instant,
    ) -> Option<String> {
        let node = seen.knows.iter().find(|node| node.machine == holder);
        // Who is no candidate any more is on its way out.
        let is_going = node.map_or_else(
            || seen.ever.contains(&holder),
            |node| node.cordoned || node.deleting,
        );
        if is_going {
            return None;
        }
        let probes = self.settings.period * (self.settings.misses - 1);
        if held_for.is_some_and(|held| held < probes) {
            return Some(format!("leaves {holder}, which holds it for {held_for:?} only"));
        }
        let endpoint = seen.sights.get(&None);
        let sight = if node.is_some() {
            seen.sights.get(&Some(holder))
        } else {
            endpoint
        };
        let Some(dead_for) = sight.and_then(|sight| sight.dead_for(now)) else {
            return Some(format!(
                "leaves {holder}, which is not dead as it sees it: {sight:?}"
            ));
        };
        let heard = |node: &&Node| {
            let sight = seen.sights.get(&Some(node.machine));
            sight.is_some_and(|sight| sight.is_heard(&self.settings, now))
        };
        let most = seen.knows.iter().filter(heard).count() * 2 > seen.knows.len();
        let answers = node.is_some() && endpoint.is_some_and(|sight| sight.answers(now));
        if !most && answers {
            return Some(format!(
                "leaves {holder}, though the endpoint answers, and no majority is heard"
            ));
        }
        (!most && dead_for < self.settings.doubt)
            .then(|| format!("leaves {holder} after {dead_for:?}, with no majority heard"))
    }

    /// An agent takes it away: still from one that should not keep it, as far as it has been told?
    pub(crate) fn judge_taking(&self, life: usize) {
        let now = Instant::now();
        let holder = match &self.fake.assignments()[..] {
            [one] => number(&one.machine),
            _ => None,
        };
        let wrong = holder.is_some_and(|holder| {
            let state = self.state();
            let seen = &state.lives[life];
            let stays = |node: &Node| node.machine == holder && !node.cordoned && !node.deleting;
            let sight = seen.sights.get(&Some(holder));
            seen.knows.iter().any(stays) && sight.is_some_and(|sight| sight.answers(now))
        });
        if wrong {
            self.broken(format_args!(
                "agent {life} takes it from {holder:?}, which it has seen ready again"
            ));
        }
    }

    /// Was it ever held by two, but for what people did, or by somebody for whom nobody asked?
    pub(crate) fn judge_history(&self, atomic: bool) {
        let history = self.fake.history();
        let mut wrong = Vec::new();
        {
            let state = self.state();
            let mut before: Vec<EndpointAssignment> = Vec::new();
            for change in history {
                let ours = change
                    .assignments
                    .iter()
                    .filter(|one| !state.by_hand.contains(&one.id));
                if ours.count() > 1
                    || (change.assignments.len() > 1 && !state.has_by_hand(&change.assignments))
                {
                    wrong.push(format!("several hold it: {change:?}"));
                }
                let gone = before.iter().filter(|one| !change.assignments.contains(one));
                for one in gone.filter(|one| !atomic && !state.decided_on.contains(&one.id)) {
                    wrong.push(format!("{one:?} was taken away, on which nobody had decided"));
                }
                for one in &change.assignments {
                    if !state.wanted.contains(&one.machine)
                        && !state.by_hand.contains(&one.id)
                        && !state.has_held(one)
                    {
                        wrong.push(format!("nobody wanted it there: {one:?}"));
                    }
                }
                before = change.assignments;
            }
        }
        for wrong in wrong {
            self.broken(wrong);
        }
    }
}

impl State {
    fn has_by_hand(&self, assignments: &[EndpointAssignment]) -> bool {
        assignments.iter().any(|one| self.by_hand.contains(&one.id))
    }

    /// Did a person give it to that machine before? Then a move that is refused may give it back.
    fn has_held(&self, one: &EndpointAssignment) -> bool {
        self.given.contains(&one.machine)
    }
}
