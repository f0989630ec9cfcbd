//! What an agent needs of the world.

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use super::values::{Failure, Holding, Order, Question, Record, Report};

/// Reads and moves the endpoint.
#[async_trait]
pub trait EndpointCloud: Send + Sync + 'static {
    /// Who holds it, read now.
    async fn read(&self) -> Result<Holding, Failure>;
    /// Moves it.
    async fn transfer(&self, order: Order) -> Result<(), Failure>;
}

/// What `health` says, for as long as the connection lasts.
pub type Reports = BoxStream<'static, Result<Report, String>>;

/// Watches the endpoint.
#[async_trait]
pub trait EndpointWatch: Send + Sync + 'static {
    /// Asks what `questions` say, and gives the answers.
    async fn open(&self, questions: mpsc::Receiver<Question>) -> Result<Reports, String>;
}

/// Told of what was done. Must not block.
pub trait Witness: Send + Sync + 'static {
    /// A move was made or tried.
    fn moved(&self, record: &Record);
}
