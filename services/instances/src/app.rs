//! Use cases: what to read, and when absence is proof.

mod unlisted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use groundplane_cloud::{
    Cloud, CloudError, CloudErrorKind, Inventory, Machine, MachineSource, PowerState, Snapshot, keep,
};
use groundplane_core::{Clock, NodeName, ProviderId};
use groundplane_runtime::{Component, Context, Tasks};
use jiff::Timestamp;
use tracing::instrument;

use crate::domain::{Found, Sought, SoughtError, find};
use crate::error::InstancesError;
use unlisted::Unlisted;

/// How old a list may be that says "not there", or that says whose a name is, to who did not ask for a fresh one. A machine that joined
/// is found within this time, and nodes which nobody knows cost no more than a list in it.
const ABSENT: Duration = Duration::from_secs(2);

/// The scheme of machines that no cloud knows.
const STATIC: &str = "static";

/// A list of machines, and its cache.
#[derive(Clone)]
struct Listed {
    source: Arc<dyn MachineSource>,
    inventory: Inventory<Machine>,
    unlisted: Unlisted,
    max_age: Duration,
}

/// The machines. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Instances {
    /// `None`: the machine is what its node says.
    listed: Option<Listed>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Instances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inventory = self.listed.as_ref().map(|listed| &listed.inventory);
        f.debug_struct("Instances")
            .field("inventory", &inventory)
            .finish_non_exhaustive()
    }
}

impl Instances {
    pub(crate) fn new(cloud: Cloud, max_age: Duration, context: &Context) -> Self {
        let listed = cloud.machines.map(|source| {
            let lister = Arc::clone(&source);
            let list = move || {
                let lister = Arc::clone(&lister);
                async move { lister.list().await }
            };
            let inventory = Inventory::new(list, Arc::clone(&context.clock), context.tasks.clone());
            Listed {
                unlisted: Unlisted::new(Arc::clone(&source), Arc::clone(&context.clock)),
                source,
                inventory,
                max_age,
            }
        });
        Self {
            listed,
            clock: Arc::clone(&context.clock),
        }
    }

    /// Keeps the list warm for as long as the process runs. Ready at once where there is no list.
    pub(crate) fn keep(&self, component: Component, tasks: &Tasks) {
        match &self.listed {
            Some(listed) => keep(&listed.inventory, component, listed.max_age, tasks),
            None => component.ready(),
        }
    }

    /// The machine behind a node, and when the cloud was read.
    #[instrument(skip_all, fields(node = sought.name(), fresh), err(level = "debug"))]
    pub(crate) async fn resolve(
        &self,
        sought: &Sought,
        fresh: bool,
    ) -> Result<(Machine, Timestamp), InstancesError> {
        match &self.listed {
            Some(listed) => listed.resolve(sought, fresh).await,
            None => Ok((from_node(sought)?, self.clock.now())),
        }
    }

    /// Every machine, ordered by provider id, and when the cloud was read.
    pub(crate) async fn list(&self, fresh: bool) -> Result<(Vec<Machine>, Timestamp), InstancesError> {
        let Some(listed) = &self.listed else {
            return Ok((Vec::new(), self.clock.now()));
        };
        let snapshot = listed.read(fresh, listed.max_age).await?;
        let mut machines = snapshot.items.clone();
        machines.sort_by(|a, b| a.id.cmp(&b.id));
        Ok((machines, snapshot.read_at))
    }
}

impl Listed {
    async fn resolve(&self, sought: &Sought, fresh: bool) -> Result<(Machine, Timestamp), InstancesError> {
        self.refuse_foreign(sought)?;
        // A name or an address may have passed from a machine that is gone to one that joins, and what a node is given of the first is
        // for good: its provider id never changes. An id is one machine's for ever.
        let max_age = match &sought.provider_id {
            Some(_) => self.max_age,
            None => ABSENT.min(self.max_age),
        };
        let mut snapshot = self.read(fresh, max_age).await?;
        let mut found = find(&snapshot, sought);
        if !fresh && !matches!(found, Found::One(_)) {
            snapshot = self.read(false, ABSENT.min(self.max_age)).await?;
            found = find(&snapshot, sought);
        }
        match found {
            Found::One(machine) => Ok((*machine, snapshot.read_at)),
            Found::Several(ids) => Err(InstancesError::Ambiguous {
                name: sought.name().to_owned(),
                provider_ids: ids.into_iter().map(Into::into).collect(),
            }),
            Found::None => self.beyond(sought, fresh).await,
        }
    }

    /// The machine that the list does not have: it may be of another project, which the list is not about.
    async fn beyond(&self, sought: &Sought, fresh: bool) -> Result<(Machine, Timestamp), InstancesError> {
        // A provider may have said only with the list which ids are its own: what is somebody else's is not absent.
        self.refuse_foreign(sought)?;
        if let Some(id) = &sought.provider_id
            && let Some(found) = self.unlisted.read(id, fresh).await?
        {
            return Ok(found);
        }
        let name = sought.name().to_owned();
        if self.source.proves_absence() {
            Err(InstancesError::NotFound(name))
        } else {
            Err(InstancesError::Unlisted(name))
        }
    }

    fn refuse_foreign(&self, sought: &Sought) -> Result<(), InstancesError> {
        match &sought.provider_id {
            Some(id) if !self.source.accepts(id) => Err(InstancesError::Foreign(id.clone())),
            _ => Ok(()),
        }
    }

    /// A list that began after the call, or one that is young enough.
    async fn read(&self, fresh: bool, max_age: Duration) -> Result<Arc<Snapshot<Machine>>, CloudError> {
        let read = if fresh {
            self.inventory.fresh().await
        } else {
            self.inventory.get(max_age).await
        };
        read.map_err(never_not_found)
    }
}

/// Rule of [`MachineSource::list`], held here too: to a client `NOT_FOUND` is the proof on which a node is deleted.
fn never_not_found(error: CloudError) -> CloudError {
    match error.kind {
        CloudErrorKind::NotFound => CloudError {
            kind: CloudErrorKind::Refused,
            ..error
        },
        _ => error,
    }
}

impl Sought {
    /// For people.
    pub(crate) fn name(&self) -> &str {
        let node = self.node.as_ref().map(NodeName::as_str);
        node.or_else(|| self.provider_id.as_ref().map(ProviderId::as_str))
            .unwrap_or("the given addresses")
    }
}

/// The machine of which nobody knows more than its node says. It is there as long as its node is.
fn from_node(sought: &Sought) -> Result<Machine, InstancesError> {
    let id = match (&sought.provider_id, &sought.node) {
        (Some(id), _) if id.scheme() == Some(STATIC) => id.clone(),
        (Some(id), _) => return Err(InstancesError::Foreign(id.clone())),
        (None, Some(node)) => {
            let text = format!("{STATIC}://{node}");
            text.parse().map_err(|error: groundplane_core::ParseNameError| {
                SoughtError::Node(node.to_string(), error.to_string())
            })?
        }
        (None, None) => return Err(SoughtError::Nothing.into()),
    };
    Ok(Machine {
        hostname: sought
            .node
            .as_ref()
            .map_or_else(|| id.id().to_owned(), ToString::to_string),
        id,
        instance_type: String::new(),
        zone: String::new(),
        region: String::new(),
        addresses: Vec::new(),
        power: PowerState::On,
        labels: BTreeMap::new(),
    })
}
