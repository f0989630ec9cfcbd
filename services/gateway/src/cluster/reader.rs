//! Reads from the API server itself: what a watch has told may be old.

use std::time::Duration;

use kube::api::{GetParams, ListParams};
use kube::{Api, Client};
use tokio::time::timeout;

use super::objects::{Key, Seen, Slim, collection};

/// A read of one object takes no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why an object could not be read. That there is none is no error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// No answer in time.
    #[error("the API server did not answer in time")]
    Timeout,
    /// The API server is away, or does not let us read.
    #[error("the object cannot be read: {0}")]
    Failed(#[source] kube::Error),
}

/// A complete list takes no longer.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

/// Objects a page.
const PAGE: u32 = 500;

/// Every object of the kind in the whole cluster, as they were at one moment after this call, by a quorum of the API server's store.
/// Complete, or an error.
pub(super) async fn list<T: Slim>(client: &Client) -> Result<Vec<T>, ReadError> {
    let api: Api<Seen<T>> = Api::all(client.clone());
    let pages = async {
        let mut all = Vec::new();
        // Without a resourceVersion: the first page is what the store has, and the others are of the same moment.
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = api.list(&page).await?;
            all.extend(listed.items.into_iter().map(|seen| seen.object));
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(all),
            }
        }
    };
    match timeout(LIST_PATIENCE, pages).await {
        Ok(listed) => listed.map_err(ReadError::Failed),
        Err(_) => Err(ReadError::Timeout),
    }
}

/// The object as it is now, by a quorum of the API server's store; `None`: there is none.
pub(super) async fn read<T: Slim>(client: &Client, key: &Key) -> Result<Option<T>, ReadError> {
    let requests = kube::core::Request::new(collection::<T>(key));
    let call = async {
        // Without a resourceVersion: the store is asked, and not the API server's own cache.
        let request = requests.get(&key.name, &GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        client.request::<Seen<T>>(request).await
    };
    match timeout(PATIENCE, call).await {
        Ok(Ok(seen)) => Ok(Some(seen.object)),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        Ok(Err(error)) => Err(ReadError::Failed(error)),
        Err(_) => Err(ReadError::Timeout),
    }
}
