//! Reads one object from the API server itself: what a watch has told may be old.

use std::time::Duration;

use kube::Client;
use kube::api::GetParams;
use tokio::time::timeout;

use super::objects::{Key, Seen, Slim, collection};

/// A read takes no longer.
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
