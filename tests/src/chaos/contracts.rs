//! The contracts of services, as simulated processes read them.

use prost::Message as _;
use prost_types::FileDescriptorSet;

/// The contracts of these services (`eip`), methods alone: each process reads them, and thousands of processes start.
///
/// # Panics
/// Where our own contracts cannot be read.
#[allow(clippy::expect_used, reason = "they are a part of this very program")]
#[must_use]
pub fn contracts_of(services: &[&str]) -> Vec<u8> {
    let mut all =
        FileDescriptorSet::decode(groundplane_proto::FILE_DESCRIPTOR_SET).expect("our own contracts");
    let spoken = |package: &str| {
        services
            .iter()
            .any(|name| package == format!("groundplane.{name}.v1"))
    };
    all.file.retain(|file| spoken(file.package()));
    for file in &mut all.file {
        file.message_type.clear();
        file.source_code_info = None;
    }
    all.encode_to_vec()
}
