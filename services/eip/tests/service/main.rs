//! The service in this process: with the cloud in a box behind the `equinix` driver, and with an ipam that answers as told.

mod cloud;
mod pools;
mod world;
