//! Which methods exist, and which of them stream: read from the contracts' descriptors.
//!
//! A path comes from the network, so it becomes a metric's label or a span's name only if it is known here.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message as _;
use prost_types::FileDescriptorSet;

use super::callers::Callers;

/// One method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) service: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) shape: Shape,
    pub(crate) callers: Callers,
}

/// How many messages flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One each way: it has a deadline.
    Unary,
    /// Many, one way or both: it lasts as long as both want it to.
    Stream,
    /// Not known: nobody described the method.
    Unknown,
}

/// The methods that a server or a client knows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Methods {
    by_path: HashMap<String, Method>,
}

impl Methods {
    /// Adds what a descriptor set (serialised) describes. One that cannot be read adds nothing.
    pub(crate) fn describe(&mut self, descriptor_set: &[u8]) -> Result<(), prost::DecodeError> {
        for file in FileDescriptorSet::decode(descriptor_set)?.file {
            let package = file.package().to_owned();
            for service in &file.service {
                let name: Arc<str> = match package.as_str() {
                    "" => service.name().into(),
                    package => format!("{package}.{}", service.name()).into(),
                };
                for method in &service.method {
                    let streams = method.client_streaming() || method.server_streaming();
                    let shape = if streams { Shape::Stream } else { Shape::Unary };
                    self.insert(&name, method.name(), shape);
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, service: &Arc<str>, method: &str, shape: Shape) {
        let path = format!("/{service}/{method}");
        self.by_path.insert(
            path,
            Method {
                service: Arc::clone(service),
                name: method.into(),
                shape,
                callers: Callers::of(service, method),
            },
        );
    }

    /// The method at this path, if known.
    pub(crate) fn get(&self, path: &str) -> Option<&Method> {
        self.by_path.get(path)
    }
}

impl Method {
    /// Stands for every method that nobody described.
    pub(crate) fn unknown() -> Self {
        Self {
            service: "unknown".into(),
            name: "unknown".into(),
            shape: Shape::Unknown,
            callers: Callers::These(&[]),
        }
    }
}
