//! Compiles the contracts with protox, a protoc in Rust, so that no tool needs to be installed.

use std::path::PathBuf;

use prost::Message as _;

const FILES: [&str; 9] = [
    "groundplane/core/v1/core.proto",
    "groundplane/ipam/v1/ipam.proto",
    "groundplane/eip/v1/eip.proto",
    "groundplane/bgp/v1/bgp.proto",
    "groundplane/health/v1/health.proto",
    "groundplane/instances/v1/instances.proto",
    "groundplane/gateway/v1/gateway.proto",
    "groundplane/provider/v1/provider.proto",
    "ip_provider.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES {
        println!("cargo:rerun-if-changed={file}");
    }
    let mut compiler = protox::Compiler::new(["."])?;
    compiler
        .include_source_info(true)
        .include_imports(true)
        .open_files(FILES)?;
    let descriptors = compiler.file_descriptor_set();
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    // Encoded by protox, so that options which prost does not know survive into reflection.
    std::fs::write(out, compiler.encode_file_descriptor_set())?;
    debug_assert!(descriptors.encoded_len() > 0);
    let mut config = tonic_prost_build::configure().btree_map(".").skip_debug([
        "groundplane.bgp.v1.Peer",
        "groundplane.provider.v1.GetProjectResponse",
        "groundplane.provider.v1.EnableProjectRequest",
        "groundplane.provider.v1.Neighbor",
    ]);
    config = config.build_transport(true);
    config.compile_fds(descriptors)?;
    Ok(())
}
