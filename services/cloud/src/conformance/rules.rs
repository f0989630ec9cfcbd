//! The rules, in the order of `docs/provider.md`.

mod addresses;
mod bgp;
mod endpoint;
mod general;
mod machines;

use std::fmt;

use futures::future::BoxFuture;
use tonic::Code;

use super::Verdict;
use super::bench::Bench;
use super::calls::Refusal;
use crate::Capability;
use groundplane_runtime::grpc::status::code_name;

/// Why a check ends before its end.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    Fail(String),
    Skip(String),
}

impl Stop {
    pub(crate) fn fail(why: impl Into<String>) -> Self {
        Self::Fail(why.into())
    }

    pub(crate) fn skip(why: impl Into<String>) -> Self {
        Self::Skip(why.into())
    }
}

/// A call that should have worked and did not breaks the rule that needed it.
impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Fail(refusal.to_string())
    }
}

pub(crate) type Check = Result<(), Stop>;

/// Holds `condition`, or else the rule is broken.
fn must(condition: bool, why: impl FnOnce() -> String) -> Check {
    if condition { Ok(()) } else { Err(Stop::Fail(why())) }
}

/// The call must fail, with one of `codes`.
fn must_refuse<T: fmt::Debug>(method: &str, answer: Result<T, Refusal>, codes: &[Code]) -> Check {
    let wanted = || {
        let names: Vec<_> = codes.iter().map(|code| code_name(*code)).collect();
        names.join(" or ")
    };
    match answer {
        Err(refusal) if codes.contains(&refusal.code) => Ok(()),
        Err(refusal) => Err(Stop::Fail(format!("{refusal}; it should be {}", wanted()))),
        Ok(answer) => Err(Stop::Fail(format!(
            "{method} answered OK ({answer:?}); it should be {}",
            wanted()
        ))),
    }
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Everything,
    Only(Capability),
}

/// A rule.
pub struct Rule {
    /// Its id: `P22`.
    pub id: &'static str,
    /// What it says, in short.
    pub title: &'static str,
    about: About,
    /// Does it make reservations? Where an address was named, those of the endpoint need not.
    makes: bool,
    check: for<'a> fn(&'a Bench) -> BoxFuture<'a, Check>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("id", &self.id)
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

impl Rule {
    /// Looks at it.
    pub(crate) async fn look(&self, bench: &Bench) -> Verdict {
        if let About::Only(capability) = self.about
            && !bench.uses(capability)
        {
            return Verdict::Skipped(if bench.offers(capability) {
                format!("`{capability}` was not asked for")
            } else {
                format!("the provider does not offer `{capability}`")
            });
        }
        if self.makes && bench.options.read_only {
            return Verdict::Skipped("it changes something, and nothing may be made".to_owned());
        }
        match (self.check)(bench).await {
            Ok(()) => Verdict::Pass,
            Err(Stop::Fail(why)) => Verdict::Fail(why),
            Err(Stop::Skip(why)) => Verdict::Skipped(why),
        }
    }
}

macro_rules! rule {
    ($id:literal, $about:expr, $makes:literal, $check:path, $title:literal) => {
        Rule {
            id: $id,
            title: $title,
            about: $about,
            makes: $makes,
            check: |bench| Box::pin($check(bench)),
        }
    };
}

const ANY: About = About::Everything;
const MACHINES: About = About::Only(Capability::Machines);
const ADDRESSES: About = About::Only(Capability::Addresses);
const BGP: About = About::Only(Capability::Bgp);
const ENDPOINT: About = About::Only(Capability::Endpoint);

static RULES: &[Rule] = &[
    rule!(
        "P1",
        ANY,
        false,
        general::capabilities,
        "GetCapabilities answers, twice the same, in order"
    ),
    rule!(
        "P2",
        ANY,
        false,
        general::unknown_fields,
        "unknown fields of a request are ignored"
    ),
    rule!(
        "P3",
        ANY,
        false,
        general::pages,
        "pages of one item make the same list as long pages"
    ),
    rule!(
        "P4",
        ANY,
        false,
        general::bad_token,
        "a page token that was never given is INVALID_ARGUMENT"
    ),
    rule!(
        "P5",
        ANY,
        false,
        general::at_once,
        "eight reads at the same time are answered as one"
    ),
    rule!(
        "P10",
        MACHINES,
        false,
        machines::once,
        "every machine is listed once, with an id of its cloud"
    ),
    rule!(
        "P11",
        MACHINES,
        false,
        machines::same,
        "GetMachine says what the list says"
    ),
    rule!(
        "P12",
        MACHINES,
        false,
        machines::absent,
        "a machine that does not exist is NOT_FOUND"
    ),
    rule!(
        "P13",
        MACHINES,
        false,
        machines::whole,
        "machines have a name, a power state, and valid addresses"
    ),
    rule!(
        "P20",
        ADDRESSES,
        true,
        addresses::new,
        "a new reservation is one address, and listed at once"
    ),
    rule!(
        "P21",
        ADDRESSES,
        true,
        addresses::tags,
        "tags come back byte for byte, in their order"
    ),
    rule!(
        "P22",
        ADDRESSES,
        true,
        addresses::again,
        "the same key again: the same reservation"
    ),
    rule!(
        "P23",
        ADDRESSES,
        true,
        addresses::at_once,
        "the same key eight times at once: one reservation"
    ),
    rule!(
        "P24",
        ADDRESSES,
        true,
        addresses::reused,
        "the same key with other tags is refused"
    ),
    rule!(
        "P25",
        ADDRESSES,
        true,
        addresses::same_tags,
        "another key with the same tags: another reservation"
    ),
    rule!(
        "P26",
        ADDRESSES,
        true,
        addresses::deadline,
        "after a deadline of 1 ms the key gives one reservation"
    ),
    rule!(
        "P27",
        ADDRESSES,
        true,
        addresses::cancelled,
        "after a cancelled call the key gives one reservation"
    ),
    rule!(
        "P28",
        ADDRESSES,
        true,
        addresses::deleted,
        "what was deleted is not listed any more"
    ),
    rule!(
        "P29",
        ADDRESSES,
        true,
        addresses::gone,
        "deleting what is gone, or never was, is OK"
    ),
    rule!(
        "P30",
        ADDRESSES,
        true,
        addresses::family,
        "a family that is not offered is refused"
    ),
    rule!(
        "P31",
        ADDRESSES,
        true,
        addresses::other_tags,
        "ReplaceTags changes the tags alone, or is UNIMPLEMENTED"
    ),
    rule!(
        "P32",
        ADDRESSES,
        true,
        addresses::tags_of_nothing,
        "ReplaceTags of no reservation is NOT_FOUND"
    ),
    rule!(
        "P40",
        BGP,
        false,
        bgp::project,
        "EnableProject where BGP is on changes nothing"
    ),
    rule!(
        "P41",
        BGP,
        false,
        bgp::sessions,
        "every session is listed once, of a machine and a family"
    ),
    rule!(
        "P42",
        BGP,
        false,
        bgp::again,
        "CreateSession for a session that is there: the same one"
    ),
    rule!(
        "P43",
        BGP,
        true,
        bgp::no_machine,
        "CreateSession for no machine is NOT_FOUND"
    ),
    rule!(
        "P44",
        BGP,
        false,
        bgp::neighbors,
        "neighbors have AS numbers and addresses, each once"
    ),
    rule!(
        "P45",
        BGP,
        false,
        bgp::no_neighbors,
        "neighbors of no machine are NOT_FOUND"
    ),
    rule!(
        "P50",
        ENDPOINT,
        true,
        endpoint::found,
        "GetEndpoint finds a free address by address and tag"
    ),
    rule!(
        "P51",
        ENDPOINT,
        false,
        endpoint::missing,
        "a tag or address that nothing has is NOT_FOUND"
    ),
    rule!(
        "P52",
        ENDPOINT,
        true,
        endpoint::ambiguous,
        "a tag that two carry is FAILED_PRECONDITION"
    ),
    rule!(
        "P53",
        ENDPOINT,
        true,
        endpoint::assigned,
        "after Assign, that machine holds it alone"
    ),
    rule!(
        "P54",
        ENDPOINT,
        true,
        endpoint::again,
        "Assign to the holder: the same assignment"
    ),
    rule!(
        "P55",
        ENDPOINT,
        true,
        endpoint::held,
        "Assign to another machine is ALREADY_EXISTS"
    ),
    rule!(
        "P56",
        ENDPOINT,
        true,
        endpoint::race,
        "Assign to two machines at once: one succeeds"
    ),
    rule!(
        "P57",
        ENDPOINT,
        true,
        endpoint::unassigned,
        "Unassign frees it; the second is NOT_FOUND"
    ),
    rule!(
        "P58",
        ENDPOINT,
        true,
        endpoint::stale,
        "an assignment's id is not used again"
    ),
    rule!(
        "P59",
        ENDPOINT,
        true,
        endpoint::nowhere,
        "Assign to no machine, or of no address, is NOT_FOUND"
    ),
    rule!(
        "P60",
        ENDPOINT,
        true,
        endpoint::moved,
        "Reassign moves in one step, or is UNIMPLEMENTED"
    ),
    rule!(
        "P61",
        ENDPOINT,
        true,
        endpoint::deadline,
        "after a deadline of 1 ms Assign ends with one holder"
    ),
];

/// All of them.
pub fn all() -> &'static [Rule] {
    RULES
}
