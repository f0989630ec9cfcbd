//! The API endpoint outlives its holder: real agents and API servers, one each on three machines, and the sandbox cloud, which
//! remembers every holder that there ever was. The same on every cloud; what differs is how an address goes from one machine to another:
//! taken, then given, or in one step.
//!
//! They take turns, since they break the API servers that they share.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_proto::gateway::v1::GetEndpointStatusResponse;
use groundplane_sandbox::{Action, FaultRule};
use groundplane_tests::groundplane::Launch;
use groundplane_tests::world::endpoint::{EndpointOptions, EndpointWorld, PATIENT};
use groundplane_tests::{CloudApi, User, eventually, throughout};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::clouds::on_each_cloud;

on_each_cloud! {
    a_holder_that_is_cut_off_is_relieved,
    a_holder_whose_api_server_fails_is_relieved,
    nothing_moves_while_all_are_down,
    a_holder_that_is_to_go_is_left_before_it_fails,
    an_endpoint_without_a_holder_finds_one_and_others_may_go,
    a_flapping_machine_does_not_get_it_back,
    the_leader_dies_with_the_holder,
    a_cloud_that_fails_between_removal_and_assignment_is_asked_again,
    a_cloud_that_hangs_between_removal_and_assignment_is_gone_around,
    agents_killed_at_each_step_leave_one_assignment,
    an_agent_that_starts_during_the_outage_remembers,
    agents_are_ready_while_the_cloud_is_away,
    a_move_is_told_on_the_node_that_got_it,
    a_holder_that_works_stays_where_the_others_are_refused,
    a_holder_is_judged_by_its_own_address,
    agents_give_way_to_an_older_controller,
}

/// A call: method and route.
type Step = (&'static str, &'static str);

/// How Equinix Metal takes the endpoint from a machine, and how it gives it to one.
const TAKE: Step = ("DELETE", "/ips/{id}");
const GIVE: Step = ("POST", "/devices/{id}/ips");
/// How Cherry Servers does both at once.
const MOVE: Step = ("PUT", "/ips/{id}");

fn options(cloud: CloudApi) -> EndpointOptions {
    EndpointOptions::on(cloud).health(PATIENT)
}

/// The call that gives the endpoint to a machine.
fn give(cloud: CloudApi) -> Step {
    match cloud {
        CloudApi::Equinix => GIVE,
        CloudApi::Cherry => MOVE,
    }
}

fn fault((method, route): Step, action: Action) -> FaultRule {
    FaultRule::on(method, route, action)
}

/// What happened to the endpoint, in order: `+0` is given to machine 0, `-0` taken from it.
fn story(world: &EndpointWorld) -> Vec<String> {
    let name = |device| (0..3).find(|number| world.device(*number) == device);
    let changes = world.history().into_iter().map(|change| {
        let sign = if change.given { '+' } else { '-' };
        name(change.device).map_or_else(|| format!("{sign}?"), |number| format!("{sign}{number}"))
    });
    changes.collect()
}

/// That the endpoint went from machine to machine along this way, and nowhere else.
fn went(world: &EndpointWorld, way: &[usize]) -> Result<()> {
    let mut expected = Vec::new();
    for (step, machine) in way.iter().enumerate() {
        if let Some(before) = step.checked_sub(1).and_then(|step| way.get(step)) {
            expected.push(format!("-{before}"));
        }
        expected.push(format!("+{machine}"));
    }
    assert_eq!(story(world), expected);
    if world.cloud() == CloudApi::Cherry {
        // In one step, or not at all: it is never taken away before it is given.
        let writes = world.project().journal().writes(0).into_iter();
        for entry in writes.filter(|entry| entry.route.contains("/ips")) {
            let to = entry.body.as_ref().map(|body| &body["targeted_to"]);
            ensure!(
                entry.method == MOVE.0 && entry.route == MOVE.1 && to.is_some_and(|to| to != "0"),
                "{entry:?}"
            );
        }
    }
    world.one_at_a_time()
}

/// Waits until every agent sees every machine ready, and `holder` as the one that holds the endpoint.
async fn settled(world: &EndpointWorld, holder: usize) -> Result<()> {
    let node = world.node_name(holder);
    for number in 0..3 {
        world.settled(number).await?;
        world
            .says(number, "who holds it", |status| status.holder == node)
            .await?;
    }
    Ok(())
}

/// E69, E90: the machine that holds the endpoint drops off the network, its agent with it. The address is taken from it, then given to
/// another one, once; and stays there when the machine is back.
async fn a_holder_that_is_cut_off_is_relieved(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("cut").await?;
    world.answers().await?;
    world.die(0).await?;
    let next = world.leaves(&[0]).await?;
    world.answers().await?;
    world.revive(0)?;
    settled(&world, next).await?;
    went(&world, &[0, next])
}

/// E69, E90: an API server that is killed, one that hangs, and one that says that it is not ready are all left.
async fn a_holder_whose_api_server_fails_is_relieved(cloud: CloudApi) -> Result<()> {
    let mut world = options(cloud).start("api-fails").await?;
    world.plane.stop_api(0).await?;
    let second = world.leaves(&[0]).await?;
    world.plane.start_api(0).await?;
    settled(&world, second).await?;

    world.plane.pause(second).await?;
    let third = world.leaves(&[second]).await?;
    world.plane.resume(second)?;
    settled(&world, third).await?;

    world.plane.sicken(third)?;
    let fourth = world.leaves(&[third]).await?;
    world.plane.cure(third)?;
    settled(&world, fourth).await?;
    went(&world, &[0, second, third, fourth])
}

/// E70, E90: while nobody could take it, the endpoint stays where it is; as soon as somebody can, it goes there.
async fn nothing_moves_while_all_are_down(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("all-down").await?;
    for number in 0..3 {
        world.fabric.cut(number);
    }
    for agent in 0..3 {
        for of in 0..3 {
            world.sees(agent, of, false).await?;
        }
    }
    throughout(Duration::from_secs(2), "it stays where it is", async || {
        ensure!(story(&world) == ["+0"], "{:?}", story(&world));
        Ok(())
    })
    .await?;
    world.fabric.join(2);
    assert_eq!(world.leaves(&[0]).await?, 2);
    went(&world, &[0, 2])
}

/// E71, E90: a holder that is cordoned, and one whose node is deleted, is left while it still works.
async fn a_holder_that_is_to_go_is_left_before_it_fails(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("leaving").await?;
    world.cordon(1, 0, true).await?;
    let second = world.leaves(&[0]).await?;
    world.cordon(1, 0, false).await?;
    settled(&world, second).await?;
    let other = (second + 1) % 3;
    world.delete_node(other, second).await?;
    let third = world.leaves(&[second]).await?;
    world.answers().await?;
    went(&world, &[0, second, third])
}

/// E67, E68, E90: an endpoint that nobody holds goes to a machine that is ready. Deleting one that does not hold it changes nothing; it is
/// no candidate any more when the holder dies.
async fn an_endpoint_without_a_holder_finds_one_and_others_may_go(cloud: CloudApi) -> Result<()> {
    let mut world = options(cloud).start_without_agents("unheld").await?;
    for number in 0..3 {
        world.start_agent(number)?;
    }
    let first = world.leaves(&[]).await?;
    settled(&world, first).await?;
    let (gone, left) = ((first + 1) % 3, (first + 2) % 3);
    world.delete_node(left, gone).await?;
    world.project().remove_device(world.device(gone));
    for agent in [first, left] {
        world
            .says(agent, "two candidates", |status| status.candidates.len() == 2)
            .await?;
    }
    assert_eq!(story(&world), [format!("+{first}")]);
    world.die(first).await?;
    assert_eq!(world.leaves(&[first]).await?, left);
    went(&world, &[first, left])
}

/// E78: somebody assigned the address to a second machine by hand. The agents say so and do nothing, even when both are down; once
/// one assignment is left, they go on. At Cherry Servers an address leads to one machine at most.
#[tokio::test]
async fn two_assignments_are_left_to_a_person() -> Result<()> {
    // Read every second, since a person changes it behind the agents' backs, and no probe tells of it.
    let watchful = options(CloudApi::Equinix).endpoint("  refresh: 1s\n");
    let world = watchful.start("beside").await?;
    let beside = world.project().assign_beside(world.device(1), world.address());
    world
        .says(2, "that there are two", |status| !status.problem.is_empty())
        .await?;
    let mark = world.project().journal().mark();
    world.die(0).await?;
    world.die(1).await?;
    for of in 0..2 {
        world.sees(2, of, false).await?;
    }
    throughout(Duration::from_secs(2), "nothing is done", async || {
        let writes = world.project().journal().writes(mark);
        ensure!(writes.is_empty(), "{writes:?}");
        Ok(())
    })
    .await?;
    let first = world.project().holders(world.address());
    let first = first.iter().find(|held| held.id != beside);
    world
        .project()
        .unassign(first.context("the one of the start")?.id);
    assert_eq!(world.leaves(&[0, 1]).await?, 2);
    assert_eq!(story(&world), ["+0", "+1", "-0", "-1", "+2"]);
    Ok(())
}

/// E69, E90: a machine that comes and goes gets the endpoint no more: it stays with the one that is well.
async fn a_flapping_machine_does_not_get_it_back(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("flapping").await?;
    world.fabric.cut(0);
    let next = world.leaves(&[0]).await?;
    let watcher = 3 - next;
    for _ in 0..2 {
        world.sees(watcher, 0, false).await?;
        world.fabric.join(0);
        world.sees(watcher, 0, true).await?;
        world.fabric.cut(0);
    }
    world.fabric.join(0);
    settled(&world, next).await?;
    went(&world, &[0, next])
}

/// E82, E90: the machine that dies holds the endpoint, and the leader of all other controllers runs on it. Its lease is still its own when
/// the endpoint has moved: no agent waits for it.
async fn the_leader_dies_with_the_holder(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("leader").await?;
    let connection = world.plane.connection(0)?;
    let sockets = tempfile::tempdir()?;
    let leader = Launch::new("all")?;
    let config = format!(
        "cluster: leader\n{}ipam:\n  store: {{kind: redb, path: \"{}\"}}\ngateway:\n  kubeconfig: \"{}\"\n  namespace: default\n  \
         nodePrefix: none-\n  lease: {{duration: 10m, retry: 1s}}\n",
        world.driver(),
        leader.folder().join("ipam.redb").display(),
        connection.kubeconfig(User::Admin).display(),
    );
    let leader = leader
        .config(config)
        .arg("--listen")
        .arg(format!("unix:{}", sockets.path().join("gateway").display()))
        .start()?;
    leader.ready().await?;
    // Another API server: that of machine 0 dies with it.
    let leases = Api::<Lease>::namespaced(world.plane.connection(1)?.client(User::Admin)?, "default");
    let holder = async || {
        let all = leases.list(&ListParams::default()).await?.items;
        let found = all.into_iter().find_map(|lease| lease.spec?.holder_identity);
        found.filter(|holder| !holder.is_empty()).context("nobody leads")
    };
    let before = eventually("somebody leads", holder).await?;
    leader.child()?.pause().await?;
    world.die(0).await?;
    let next = world.leaves(&[0]).await?;
    world.answers().await?;
    assert_eq!(holder().await?, before, "the lease is still the dead leader's");
    went(&world, &[0, next])
}

/// E69, E90: the cloud fails with 500 on the way, first when the address is taken from the dead machine, then when nobody has it (at
/// Cherry Servers, in the one step that there is). It is tried again until it works.
async fn a_cloud_that_fails_between_removal_and_assignment_is_asked_again(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("cloud-fails").await?;
    let project = world.project();
    if cloud == CloudApi::Equinix {
        project.fault(fault(TAKE, Action::status(500)).first(2));
    }
    project.fault(fault(give(cloud), Action::status(500)).first(4));
    world.die(0).await?;
    let next = world.leaves(&[0]).await?;
    settled_but(&world, 0, next).await?;
    went(&world, &[0, next])
}

/// E69, E90: the cloud hangs when it should give the address to the next machine. Another agent finds that nobody holds it, or
/// that the dead machine still does, and finishes.
async fn a_cloud_that_hangs_between_removal_and_assignment_is_gone_around(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("cloud-hangs").await?;
    world.project().fault(fault(give(cloud), Action::Hang).first(1));
    world.die(0).await?;
    let next = world.leaves(&[0]).await?;
    settled_but(&world, 0, next).await?;
    went(&world, &[0, next])
}

/// Waits until the agents of all machines but one agree who holds the endpoint.
async fn settled_but(world: &EndpointWorld, dead: usize, holder: usize) -> Result<()> {
    let node = world.node_name(holder);
    for number in (0..3).filter(|number| *number != dead) {
        world
            .says(number, "who holds it", |status| status.holder == node)
            .await?;
    }
    Ok(())
}

/// E69, E90: every agent is killed with -9 at each step of a move: before the address is taken, when nobody has it (where there
/// is such an instant), and when it was given and nobody was told. After a start, each time, one machine holds it, and a second one never did.
async fn agents_killed_at_each_step_leave_one_assignment(cloud: CloudApi) -> Result<()> {
    let mut world = options(cloud).start("killed").await?;
    let mut way = vec![0];
    let steps = match cloud {
        CloudApi::Equinix => vec![
            (TAKE, Action::Hang),
            (GIVE, Action::Hang),
            (GIVE, Action::HangAfter),
        ],
        CloudApi::Cherry => vec![(MOVE, Action::Hang), (MOVE, Action::HangAfter)],
    };
    for (step, hang) in steps {
        let holder = way[way.len() - 1];
        let mark = world.project().journal().mark();
        world.project().fault(fault(step, hang));
        world.fabric.cut(holder);
        let (method, route) = step;
        let asked = world.project().journal().clone();
        let entry = asked.wait_for(mark, |entry| {
            entry.method == method && entry.route == route && entry.fault.is_some()
        });
        tokio::time::timeout(Duration::from_secs(60), entry)
            .await
            .context("no agent asked for it")?;
        world.kill_agents().await?;
        world.project().clear_faults();
        world.restart_agents().await?;
        let next = world.leaves(&[holder]).await?;
        way.push(next);
        world.fabric.join(holder);
        settled(&world, next).await?;
    }
    went(&world, &way)
}

/// E69, E90: the holder dies, and so did every agent; the one that starts during the outage finds its own API server hung. It knows the
/// candidates from its file.
async fn an_agent_that_starts_during_the_outage_remembers(cloud: CloudApi) -> Result<()> {
    let mut world = options(cloud).start("remembers").await?;
    world.kill_agents().await?;
    world.fabric.cut(0);
    world.plane.pause(1).await?;
    world.agent(1)?.restart().await?;
    assert_eq!(world.leaves(&[0]).await?, 2);
    let said = world
        .says(1, "who holds it", |status| !status.holder.is_empty())
        .await?;
    assert_eq!(said.candidates_from, "file");
    went(&world, &[0, 2])
}

/// The cloud is away when agents start: they are ready all the same, since replacing them would not help, and a rollout waits for each;
/// what they cannot do is told. Once the cloud is there, they act.
async fn agents_are_ready_while_the_cloud_is_away(cloud: CloudApi) -> Result<()> {
    let mut world = options(cloud).start_without_agents("cloud-away").await?;
    world.hold(0);
    let away = FaultRule::new(Action::status(503));
    world.project().fault(away);
    for number in 0..3 {
        world.start_agent(number)?;
    }
    for number in 0..3 {
        let agent = world.agent(number)?;
        agent.ready().await?;
        let url = format!("http://{}/metrics", agent.address("admin").await?);
        let http = reqwest::Client::builder().no_proxy().build()?;
        eventually("it tells that it could move nothing", async || {
            let told = http.get(&url).send().await?.text().await?;
            ensure!(
                told.contains("\ngroundplane_agent_endpoint_degraded 1\n"),
                "{told}"
            );
            Ok(())
        })
        .await?;
        world
            .says(number, "that it cannot read it", |status| {
                !status.problem.is_empty()
            })
            .await?;
    }
    world.project().clear_faults();
    settled(&world, 0).await?;
    world.die(0).await?;
    let next = world.leaves(&[0]).await?;
    went(&world, &[0, next])
}

/// E90: a floating IP of Cherry Servers goes to machines of its region only. One of another region that would be the first choice is asked
/// for, refused, and passed over; the address stays with its dead holder meanwhile, and goes to the machine that may have it.
#[tokio::test]
async fn a_machine_of_another_region_is_passed_over() -> Result<()> {
    let world = options(CloudApi::Cherry)
        .elsewhere(1, "eu_west_1")
        .start("elsewhere")
        .await?;
    // So that machine 1 comes before it.
    world.cordon(0, 2, true).await?;
    let name = world.node_name(2);
    for number in 0..3 {
        let cordoned = |status: &GetEndpointStatusResponse| {
            let mut all = status.candidates.iter();
            all.any(|one| one.node == name && one.cordoned)
        };
        world.says(number, "machine 2 is cordoned", cordoned).await?;
    }
    world.die(0).await?;
    assert_eq!(world.leaves(&[0]).await?, 2);
    let mut outcomes = Vec::new();
    for number in 1..3 {
        let moves = world.status(number).await?.moves;
        outcomes.extend(moves.into_iter().map(|one| one.outcome));
    }
    let told = |outcome: &String| outcome.contains("within its region only");
    ensure!(outcomes.iter().any(told), "{outcomes:?}");
    went(&world, &[0, 2])
}

/// A moved endpoint is told on the node that got it, under its UID, so that `kubectl describe` finds it; kubelet's way is the name.
async fn a_move_is_told_on_the_node_that_got_it(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("told").await?;
    world.die(0).await?;
    let next = world.leaves(&[0]).await?;
    let node = world.nodes(next)?.get(&world.node_name(next)).await?;
    let uid = node.metadata.uid.context("it has no uid")?;
    let client = world.plane.connection(next)?.client(User::Admin)?;
    let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(client, "default");
    let mine = ListParams::default().fields(&format!("involvedObject.uid={uid},reason=EndpointMoved"));
    eventually("the move is told", async || {
        let told = events.list(&mine).await?.items;
        ensure!(told.len() == 1, "{told:?}");
        Ok(())
    })
    .await
}

/// What tells a call that gives the endpoint to machine `number`.
fn given_to(world: &EndpointWorld, number: usize) -> Result<String> {
    let id = world.cloud().provider_id(world.project(), world.device(number))?;
    let id = id.rsplit('/').next().unwrap_or_default();
    Ok(match world.cloud() {
        CloudApi::Equinix => id.to_owned(),
        CloudApi::Cherry => format!("\"{id}\""),
    })
}

/// E69, E71, E90: the cloud gives the endpoint to none of the other machines, and the holder is cordoned. Each try takes it from one that
/// works (at Equinix Metal), so it is made once for each of them, and not again; unless the holder is dead: then there is nothing to lose.
async fn a_holder_that_works_stays_where_the_others_are_refused(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).health("  dwell: 1s\n").start("refused").await?;
    for number in 1..3 {
        let refused = fault(give(cloud), Action::status(422)).object(given_to(&world, number)?);
        world.project().fault(refused);
    }
    world.cordon(1, 0, true).await?;
    for number in 0..3 {
        let both = |status: &GetEndpointStatusResponse| {
            status.candidates.iter().filter(|one| one.refused).count() == 2
        };
        world.says(number, "that both were refused", both).await?;
    }
    assert_eq!(world.holders(), [0]);
    let tried = story(&world);
    // Each of three agents, each of two machines, taken and given back; and most learn it of each other.
    ensure!(tried.len() <= 1 + 3 * 2 * 2, "{tried:?}");
    let mark = world.project().journal().mark();
    throughout(Duration::from_secs(4), "nothing is tried again", async || {
        let writes = world.project().journal().writes(mark);
        ensure!(writes.is_empty(), "{writes:?}");
        Ok(())
    })
    .await?;
    assert_eq!(story(&world), tried);
    world.answers().await?;
    world.project().clear_faults();
    world.die(0).await?;
    let next = world.leaves(&[0]).await?;
    settled_but(&world, 0, next).await?;
    world.one_at_a_time()
}

/// E73, E90: machines carry the endpoint's address themselves, so that it says nothing of its holder: agents do not probe it, and leave a
/// holder whose own API server fails.
async fn a_holder_is_judged_by_its_own_address(cloud: CloudApi) -> Result<()> {
    let options = options(cloud).endpoint("  healthCheckUseHostIp: true\n");
    let mut world = options.start_without_agents("host-ip").await?;
    world.hold(0);
    for number in 0..3 {
        world.start_agent(number)?;
    }
    let seen = |status: &GetEndpointStatusResponse, ready: usize| {
        let probes = status.candidates.iter().filter_map(|one| one.probe.as_ref());
        !status.holder.is_empty() && probes.filter(|probe| probe.ready).count() == ready
    };
    for number in 0..3 {
        let status = world
            .says(number, "three machines are ready", |status| seen(status, 3))
            .await?;
        assert_eq!(status.probe, None, "the endpoint is probed");
    }
    world.plane.stop_api(0).await?;
    let next = world.leaves(&[0]).await?;
    world.plane.start_api(0).await?;
    for number in 0..3 {
        let node = world.node_name(next);
        let status = world
            .says(number, "who holds it", |status| {
                status.holder == node && seen(status, 3)
            })
            .await?;
        assert_eq!(status.probe, None, "the endpoint is probed");
    }
    went(&world, &[0, next])
}

/// What the manifests of the cloud's older controller run.
fn older(cloud: CloudApi) -> &'static str {
    match cloud {
        CloudApi::Equinix => "packet-cloud-controller-manager",
        CloudApi::Cherry => "cloud-provider-cherry",
    }
}

/// E90: agents that are switched on beside the older controller, which moves the endpoint too, see its pods and move nothing; once it has
/// stopped, they do.
async fn agents_give_way_to_an_older_controller(cloud: CloudApi) -> Result<()> {
    let world = options(cloud).start("beside-older").await?;
    let deployments =
        Api::<Deployment>::namespaced(world.plane.connection(1)?.client(User::Admin)?, "kube-system");
    let name = older(cloud);
    let result = beside(&world, &deployments, name).await;
    // The next world is not to find it, whatever happened in this one.
    let left = deployments.delete(name, &DeleteParams::default()).await;
    let next = result?;
    ensure!(left.is_err(), "it should have been deleted by now");
    settled_but(&world, 0, next).await?;
    went(&world, &[0, next])
}

async fn beside(world: &EndpointWorld, deployments: &Api<Deployment>, name: &str) -> Result<usize> {
    let labels = json!({ "app": name });
    let deployment = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": name, "image": "example.com/older" }] },
            },
        },
    }))?;
    deployments.create(&PostParams::default(), &deployment).await?;
    let status = json!({ "status": { "replicas": 1, "readyReplicas": 1 } });
    deployments
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    for number in 0..3 {
        world
            .says(number, "who runs beside it", |status| {
                status.problem.contains(name)
            })
            .await?;
    }
    world.die(0).await?;
    for agent in 1..3 {
        world
            .says(agent, "where it should go", |status| {
                status.verdict.contains("move to")
            })
            .await?;
    }
    throughout(Duration::from_secs(3), "nothing is moved", async || {
        ensure!(story(world) == ["+0"], "{:?}", story(world));
        Ok(())
    })
    .await?;
    deployments.delete(name, &DeleteParams::default()).await?;
    world.leaves(&[0]).await
}
