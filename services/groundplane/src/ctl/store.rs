//! The store of ipam: trust another one, and what to do with its file.
//!
//! `backup`, `restore` and `rebuild` work on the file while no process has it open. None of them ever deletes one: what stands
//! in the way is set aside.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use groundplane_core::{Clock as _, SystemClock};
use groundplane_proto::gateway::v1 as pb;
use groundplane_proto::gateway::v1::gateway_service_client::GatewayServiceClient;
use groundplane_runtime::grpc::{Channel, Policy, call};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Trust the store with this id from now on; needed once after it was replaced
    Accept {
        /// The id, as the gateway names it in its log and on the Services that wait
        id: String,
    },
    /// Copy the file of a stopped ipam
    Backup {
        /// The file of the store
        #[arg(long, default_value = groundplane_ipam::STORE_FILE)]
        store: PathBuf,
        /// Where the copy goes; must not exist
        #[arg(long)]
        to: PathBuf,
    },
    /// Put a copy in place of the file of a stopped ipam; the file that was there is set aside
    Restore {
        /// The file of the store
        #[arg(long, default_value = groundplane_ipam::STORE_FILE)]
        store: PathBuf,
        /// The copy
        #[arg(long)]
        from: PathBuf,
    },
    /// Set a damaged file aside, so that ipam makes a new one and learns from the cluster who holds what
    Rebuild {
        /// The file of the store
        #[arg(long, default_value = groundplane_ipam::STORE_FILE)]
        store: PathBuf,
    },
}

pub(crate) async fn run(
    command: Command,
    channel: impl Fn() -> anyhow::Result<Channel>,
) -> anyhow::Result<()> {
    match command {
        Command::Accept { id } => accept(channel()?, id).await,
        Command::Backup { store, to } => {
            let _lock = closed(&store)?;
            copy(&store, &to)?;
            say(&format!("copied {} to {}", store.display(), to.display()))
        }
        Command::Restore { store, from } => {
            if !from.is_file() {
                bail!("--from: there is no file `{}`", from.display());
            }
            set_aside(&store)?;
            copy(&from, &store)?;
            say("restored; start ipam, and the gateway tells it what the cluster holds by now")
        }
        Command::Rebuild { store } => {
            if !store.exists() {
                bail!("--store: there is no file `{}`", store.display());
            }
            set_aside(&store)?;
            say(
                "start ipam: it makes a new store; then `groundplane ctl store accept ID` with the id that the gateway names",
            )
        }
    }
}

async fn accept(channel: Channel, id: String) -> anyhow::Result<()> {
    let client = GatewayServiceClient::new(channel);
    let request = pb::AcceptStoreRequest { store_id: id };
    call(Policy::default(), || async {
        client.clone().accept_store(request.clone()).await
    })
    .await?;
    say("accepted")
}

/// Makes sure that no process has the store open, for as long as the returned file lives.
fn closed(store: &Path) -> anyhow::Result<std::fs::File> {
    let file = std::fs::File::open(store)
        .with_context(|| format!("--store: `{}` cannot be read", store.display()))?;
    if file.try_lock().is_err() {
        bail!("`{}` is open in a running ipam; stop it first", store.display());
    }
    Ok(file)
}

/// Copies to a name that does not exist, by way of a name of its own, so that half a copy is never taken for one.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        bail!("`{}` exists; nothing is overwritten", to.display());
    }
    let half = suffixed(to, ".partial");
    std::fs::copy(from, &half).with_context(|| format!("`{}` cannot be copied", from.display()))?;
    std::fs::File::open(&half)?.sync_all()?;
    std::fs::rename(&half, to).with_context(|| format!("`{}` cannot be written", to.display()))
}

/// The path with `suffix` behind its name.
fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Gives the file another name, which says when.
fn set_aside(store: &Path) -> anyhow::Result<()> {
    if !store.exists() {
        return Ok(());
    }
    drop(closed(store)?);
    let stamp = SystemClock.now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let aside = suffixed(store, &format!(".aside-{stamp}"));
    if aside.exists() {
        bail!("`{}` exists; try again in a second", aside.display());
    }
    std::fs::rename(store, &aside).with_context(|| format!("`{}` cannot be set aside", store.display()))?;
    say(&format!("set aside as {}", aside.display()))
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run_offline(command: Command) -> anyhow::Result<()> {
        run(command, || bail!("nobody is asked")).await
    }

    #[tokio::test]
    async fn a_backup_never_overwrites_and_a_restore_keeps_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (store, copy) = (folder.path().join("ipam.redb"), folder.path().join("copy"));
        std::fs::write(&store, "one").unwrap();
        run_offline(Command::Backup {
            store: store.clone(),
            to: copy.clone(),
        })
        .await
        .unwrap();
        let again = run_offline(Command::Backup {
            store: store.clone(),
            to: copy.clone(),
        })
        .await;
        assert!(again.unwrap_err().to_string().contains("nothing is overwritten"));
        std::fs::write(&store, "two").unwrap();
        run_offline(Command::Restore {
            store: store.clone(),
            from: copy,
        })
        .await
        .unwrap();
        assert_eq!(std::fs::read_to_string(&store).unwrap(), "one");
        let aside = std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok);
        let kept = aside.filter(|entry| entry.file_name().to_string_lossy().contains(".aside-"));
        let kept: Vec<_> = kept
            .map(|entry| std::fs::read_to_string(entry.path()).unwrap())
            .collect();
        assert_eq!(kept, ["two"]);
    }

    #[tokio::test]
    async fn a_store_that_is_open_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("ipam.redb");
        std::fs::write(&store, "one").unwrap();
        let holder = std::fs::File::open(&store).unwrap();
        holder.lock().unwrap();
        let refused = run_offline(Command::Rebuild { store: store.clone() }).await;
        assert!(refused.unwrap_err().to_string().contains("stop it first"));
        assert!(store.exists());
    }
}
