//! Lists. Complete and with everything once, or an error: what comes in pages from somebody else's program is counted and compared.

use std::collections::HashSet;
use std::future::Future;

use groundplane_runtime::grpc::Channel;
use tonic::{Code, Request, Response, Status};
use tracing::debug;

use super::Remote;
use super::call::Operation;
use crate::{CloudError, CloudErrorKind};

/// How often a list is begun that cannot be gone on with, or that changed under the reader.
const ROUNDS: usize = 3;

/// A page, of whatever.
#[derive(Clone, Debug)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    pub(super) next: String,
    pub(super) total: u32,
}

/// Which page.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub(super) size: u32,
    pub(super) token: String,
}

enum Round<T> {
    Whole(Vec<T>),
    /// It changed meanwhile; what was wrong.
    Again(CloudError),
}

impl Remote {
    /// Every page, as one list.
    pub(super) async fn list<T, Q, A, Fut>(
        &self,
        operation: &Operation,
        ask: impl Fn(Cursor) -> Q,
        send: impl Fn(Channel, Request<Q>) -> Fut,
        page: impl Fn(A) -> Page<T>,
        id: impl Fn(&T) -> &str,
    ) -> Result<Vec<T>, CloudError>
    where
        Q: Clone,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let mut round = 1;
        loop {
            match self.round(operation, &ask, &send, &page, &id).await? {
                Round::Whole(items) => return Ok(items),
                Round::Again(error) if round == ROUNDS => return Err(error),
                Round::Again(error) => debug!(error = %error, round, "the list is read again"),
            }
            round += 1;
        }
    }

    async fn round<T, Q, A, Fut>(
        &self,
        operation: &Operation,
        ask: &impl Fn(Cursor) -> Q,
        send: &impl Fn(Channel, Request<Q>) -> Fut,
        page: &impl Fn(A) -> Page<T>,
        id: &impl Fn(&T) -> &str,
    ) -> Result<Round<T>, CloudError>
    where
        Q: Clone,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let again = |what: String| Ok(Round::Again(operation.nonsense(what)));
        let (mut items, mut ids, mut tokens) = (Vec::new(), HashSet::new(), HashSet::new());
        let (mut token, mut total) = (String::new(), 0);
        loop {
            let cursor = Cursor {
                size: self.inner.page_size,
                token: token.clone(),
            };
            let answer = match self.call(operation, ask(cursor), send).await {
                Ok(answer) => page(answer),
                Err(failed) if failed.code == Code::Aborted => return Ok(Round::Again(failed.error)),
                Err(failed) => return Err(failed.error),
            };
            if total != 0 && answer.total != 0 && answer.total != total {
                return again(format!(
                    "the list changed its length from {total} to {} while it was read",
                    answer.total
                ));
            }
            total = total.max(answer.total);
            if answer.items.is_empty() && !answer.next.is_empty() {
                return Err(operation.nonsense("a page without items that is not the last"));
            }
            for item in answer.items {
                if id(&item).is_empty() {
                    return Err(operation.nonsense("an item without an id"));
                }
                if !ids.insert(id(&item).to_owned()) {
                    return again(format!("`{}` is in the list twice", id(&item)));
                }
                items.push(item);
            }
            if answer.next.is_empty() {
                break;
            }
            if !tokens.insert(answer.next.clone()) {
                return Err(operation.nonsense("the page token repeats itself"));
            }
            token = answer.next;
        }
        if total != 0 && usize::try_from(total).is_ok_and(|total| total != items.len()) {
            return again(format!(
                "the list has {} items and should have {total}",
                items.len()
            ));
        }
        Ok(Round::Whole(items))
    }
}

/// As [`CloudErrorKind::Unavailable`]: a whole list or an error.
pub(super) fn whole<T, U>(
    items: Vec<T>,
    operation: &Operation,
    read: impl Fn(T) -> Result<U, String>,
) -> Result<Vec<U>, CloudError> {
    items
        .into_iter()
        .map(|item| {
            read(item).map_err(|wrong| {
                let error = operation.nonsense(wrong);
                debug_assert!(error.is(CloudErrorKind::Unavailable));
                error
            })
        })
        .collect()
}
