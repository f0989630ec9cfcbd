//! groundplane's contracts, compiled. The proto files beside this crate are their documentation.
//!
//! Messages that carry a secret print it as `[redacted]`.

/// The descriptors of every contract, for server reflection and for the test that no field is renumbered.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

mod redact;
mod values;

pub use values::FieldError;

/// Values that several contracts share.
pub mod core {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("groundplane.core.v1");
    }
}
/// Which address belongs to whom.
pub mod ipam {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("groundplane.ipam.v1");
    }
}
/// Which elastic IP serves whom.
pub mod eip {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("groundplane.eip.v1");
    }
}
/// Who speaks BGP with whom.
pub mod bgp {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("groundplane.bgp.v1");
    }
}
/// Is the endpoint alive.
pub mod health {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("groundplane.health.v1");
    }
}
/// What machines there are.
pub mod instances {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("groundplane.instances.v1");
    }
}
/// What `groundplane ctl` asks.
pub mod gateway {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("groundplane.gateway.v1");
    }
}
/// What a cloud implements.
pub mod provider {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("groundplane.provider.v1");
    }
}
/// Galaxy's contract for clouds, wire-identical.
pub mod rpc {
    #![allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    tonic::include_proto!("rpc");
}
