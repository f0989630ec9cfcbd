//! What the service calls.

mod pools;

pub(crate) use pools::Pools;
