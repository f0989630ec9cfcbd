//! A disk that fills up under ipam's store, on a real file system.
//!
//! A small file system to fill would take root. What runs everywhere is the kernel's own limit on the size of files: behind
//! it, writing and growing a file fail on whatever file system there is, a write across it is cut short, and reading goes
//! on. It is set and lifted from outside while the process runs, so that the process sees what it sees of a full disk.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, ensure};
use futures::future::join_all;
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::core::v1::{AddressRequest, Family, Owner};
use groundplane_proto::ipam::v1::ipam_service_client::IpamServiceClient;
use groundplane_proto::ipam::v1::lookup_request::By;
use groundplane_proto::ipam::v1::{
    AdoptRequest, AllocateRequest, ListAllocationsRequest, LookupRequest, ReleaseRequest,
};
use groundplane_runtime::grpc::{Channel, Target, channel};
use groundplane_tests::eventually;
use groundplane_tests::groundplane::{Launch, Process, program};
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

type Client = IpamServiceClient<Channel>;

/// A start that fails has failed by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// Calls at once.
const CALLERS: usize = 64;
/// Allocations after which a file that may not grow is surely full.
const PLENTY: usize = 30_000;
/// No room for more than this: fewer pages than any commit writes, and more than the log of the process.
const NARROW: u64 = 16 * 1024;

/// While this file is in its folder, the process is started without room for more than a log.
const FULL: &str = "full";

/// Who was told which address: the truth that the store must agree with.
type Told = BTreeMap<String, String>;

/// A full disk: writes are refused with the reason, reads go on, and once there is room again the same process writes. What
/// was acknowledged is there after a crash, and nothing else.
#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() -> Result<()> {
    let mut ipam = start().await?;
    let pid = ipam.child()?.pid();
    let client = connect(&ipam).await?;
    let (mut told, mut refused) = (Told::new(), BTreeSet::new());
    allocate(&client, CALLERS, &mut told, &mut refused).await?;
    assert_eq!((told.len(), refused.len()), (CALLERS, 0), "there is room");

    // No file may grow: the store fills what it has, and is refused more.
    let store = ipam.folder().join("ipam.redb");
    limit(&ipam, Some(std::fs::metadata(&store)?.len()))?;
    while refused.is_empty() {
        ensure!(
            told.len() < PLENTY,
            "the store has room for {} in a full file",
            told.len()
        );
        allocate(&client, CALLERS, &mut told, &mut refused).await?;
    }
    agrees(&client, &told, &refused).await?;

    // No room at all: nothing can be given or taken back, and everything can be read.
    limit(&ipam, Some(NARROW))?;
    let known = told.len();
    allocate(&client, CALLERS, &mut told, &mut refused).await?;
    assert_eq!(
        told.len(),
        known,
        "something was acknowledged that cannot be written"
    );
    let (name, prefix) = told.first_key_value().context("somebody holds something")?;
    let release = ReleaseRequest {
        owner: Some(owner(name)),
        ..ReleaseRequest::default()
    };
    let taken = client.clone().release(release).await;
    let error = taken.err().with_context(|| format!("{prefix} was taken back"))?;
    is_full(&format!("{:?}: {}", error.code(), error.message()))?;
    agrees(&client, &told, &refused).await?;

    // Room again: the same process writes again, whoever was refused included.
    limit(&ipam, None)?;
    let name = refused.pop_first().context("somebody was refused")?;
    let prefix = eventually("writes work again", async || {
        one(&client, &name).await.map_err(Error::msg)
    })
    .await?;
    told.insert(name, prefix);
    allocate(&client, CALLERS, &mut told, &mut refused).await?;
    agrees(&client, &told, &refused).await?;
    ipam.ready().await?;
    assert_eq!(ipam.child()?.pid(), pid, "it was started again");

    ipam.kill9().await?;
    ipam.restart().await?;
    ipam.ready().await?;
    agrees(&connect(&ipam).await?, &told, &refused).await
}

/// A first start on a full disk says which file has no room and what to do, and leaves no half of a store; with room, the same command
/// serves. A start on a full disk with a store that is there serves what is known, and gives again once there is room.
#[tokio::test]
async fn a_start_on_a_full_disk_names_the_way_out_and_loses_nothing() -> Result<()> {
    let launch = launch()?;
    let full = launch.folder().join(FULL);
    std::fs::write(&full, "")?;
    let mut ipam = launch.start()?;
    let store = ipam.folder().join("ipam.redb");
    does_not_start(&ipam, &store).await?;
    ensure!(
        !store.exists(),
        "half a store is left, and would be taken for a damaged one"
    );
    let left = std::fs::read_dir(ipam.folder())?.filter_map(Result::ok);
    let halves: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().contains("redb"))
        .collect();
    assert_eq!(halves.len(), 0, "{halves:?}");

    std::fs::remove_file(&full)?;
    ipam.restart().await?;
    ipam.ready().await?;
    let (mut told, mut refused) = (Told::new(), BTreeSet::new());
    allocate(&connect(&ipam).await?, CALLERS, &mut told, &mut refused).await?;
    assert_eq!((told.len(), refused.len()), (CALLERS, 0), "there is room");

    // A store that is there is read, also one that was not closed; nothing is given until there is room.
    ipam.kill9().await?;
    std::fs::write(&full, "")?;
    ipam.restart().await?;
    ipam.ready().await?;
    let client = connect(&ipam).await?;
    let known = told.len();
    allocate(&client, CALLERS, &mut told, &mut refused).await?;
    assert_eq!(told.len(), known, "something was given that cannot be written");
    agrees(&client, &told, &refused).await?;

    limit(&ipam, None)?;
    let name = refused.pop_first().context("somebody was refused")?;
    let prefix = eventually("writes work", async || {
        one(&client, &name).await.map_err(Error::msg)
    })
    .await?;
    told.insert(name, prefix);
    agrees(&client, &told, &refused).await
}

/// It ends by itself, and its last words name the store's file and what helps.
async fn does_not_start(ipam: &Process, store: &Path) -> Result<()> {
    let status = ipam.wait(PATIENCE).await?;
    let log = std::fs::read_to_string(ipam.child()?.log())?;
    ensure!(status.code() == Some(1), "it ended with {status}: {log}");
    for words in [
        &*store.display().to_string(),
        "too large",
        "make room on its disk",
    ] {
        ensure!(log.contains(words), "`{words}` is not in: {log}");
    }
    ensure!(!log.contains("damaged"), "a full disk is no damage: {log}");
    Ok(())
}

/// ipam alone, ready, with a store in its folder.
async fn start() -> Result<Process> {
    let ipam = launch()?.start()?;
    ipam.ready().await?;
    Ok(ipam)
}

/// ipam alone. What exceeds the limit is an error to it and does not end it, as with a disk.
fn launch() -> Result<Launch> {
    let launch = Launch::new("ipam")?.args(["--listen", "127.0.0.1:0"]);
    let script = launch.folder().join("unlimited");
    let text = format!(
        "#!/bin/sh\ntrap '' XFSZ\n[ -e {FULL} ] && ulimit -S -f 32\nexec '{}' \"$@\"\n",
        program()?.display()
    );
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700))?;
    let yaml = format!(
        "cluster: full\npools: [{{name: all, addresses: [\"10.0.0.0/8\"]}}]\nipam: {{store: {{kind: redb, path: \"{}\"}}}}\n",
        launch.folder().join("ipam.redb").display()
    );
    Ok(launch.program(script).config(yaml))
}

/// A client, for whose cluster ipam allocates.
async fn connect(ipam: &Process) -> Result<Client> {
    let target: Target = format!("http://{}", ipam.address("ipam").await?).parse()?;
    let mut client = IpamServiceClient::new(channel(&target, None)?.describe(FILE_DESCRIPTOR_SET)?);
    // Nothing is told to be complete, so nothing is taken from anybody.
    client
        .adopt(AdoptRequest {
            cluster: "full".to_owned(),
            ..AdoptRequest::default()
        })
        .await?;
    Ok(client)
}

/// The most that a file of the process may hold; `None`: as much as it likes.
fn limit(ipam: &Process, bytes: Option<u64>) -> Result<()> {
    let pid = Pid::from_raw(ipam.child()?.pid()).context("a process has an id")?;
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(Some(pid), Resource::Fsize, limit).context("limit the size of files")?;
    Ok(())
}

fn owner(name: &str) -> Owner {
    Owner {
        cluster: "full".to_owned(),
        kind: "service".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        slot: String::new(),
    }
}

/// An address for one owner, or the code and the text of the refusal.
async fn one(client: &Client, name: &str) -> Result<String, String> {
    let wanted = AddressRequest {
        family: Family::Ipv4.into(),
        ..AddressRequest::default()
    };
    let request = AllocateRequest {
        owner: Some(owner(name)),
        requests: vec![wanted],
        ..AllocateRequest::default()
    };
    match client.clone().allocate(request).await {
        Ok(answer) => {
            let given = answer.into_inner().allocations.pop();
            given
                .map(|held| held.prefix)
                .ok_or_else(|| "acknowledged without an address".to_owned())
        }
        Err(status) => Err(format!("{:?}: {}", status.code(), status.message())),
    }
}

/// Addresses for that many new owners at once. Who is refused is refused for the disk's sake.
async fn allocate(
    client: &Client,
    count: usize,
    told: &mut Told,
    refused: &mut BTreeSet<String>,
) -> Result<()> {
    let first = told.len() + refused.len();
    let names: Vec<_> = (first..first + count)
        .map(|number| format!("owner-{number}"))
        .collect();
    let answers = join_all(names.iter().map(|name| one(client, name))).await;
    for (name, answer) in names.into_iter().zip(answers) {
        match answer {
            Ok(prefix) => {
                told.insert(name, prefix);
            }
            Err(refusal) => {
                is_full(&refusal)?;
                refused.insert(name);
            }
        }
    }
    Ok(())
}

/// The refusal that says what is wrong, and that trying again may help.
fn is_full(refusal: &str) -> Result<()> {
    let clear = refusal.starts_with("Unavailable: the store cannot write") && refusal.contains("too large");
    ensure!(clear, "refused for something else: {refusal}");
    Ok(())
}

/// Everybody holds what they were told, nobody else holds anything.
async fn agrees(client: &Client, told: &Told, refused: &BTreeSet<String>) -> Result<()> {
    let mut held = Told::new();
    let mut page_token = String::new();
    loop {
        let request = ListAllocationsRequest {
            page_size: 5_000,
            page_token,
            ..ListAllocationsRequest::default()
        };
        let page = client.clone().list_allocations(request).await?.into_inner();
        for allocation in page.allocations {
            let name = allocation.owner.unwrap_or_default().name;
            let before = held.insert(name, allocation.prefix);
            ensure!(before.is_none(), "one owner has two addresses: {before:?}");
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let prefixes: BTreeSet<_> = held.values().collect();
    assert_eq!(prefixes.len(), held.len(), "one address has two holders");
    assert_eq!(&held, told);
    for name in refused.iter().take(CALLERS) {
        let request = LookupRequest {
            by: Some(By::Owner(owner(name))),
            ..LookupRequest::default()
        };
        let found = client.clone().lookup(request).await?.into_inner().allocations;
        ensure!(found.is_empty(), "{name} was refused and holds {found:?}");
    }
    Ok(())
}
