//! A server and a client of ours, talking to each other.

mod fixture;
mod peers;
mod serving;
mod stopping;
mod tls;
mod tracing_context;
