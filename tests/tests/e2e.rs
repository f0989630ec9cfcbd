//! The journeys of the design, end to end: real groundplane processes on a real API server, and the sandbox cloud.
//!
//! One binary, so that all scenarios share one API server. Each has its own corner of it.

#[path = "e2e/announced.rs"]
mod announced;
#[path = "e2e/api_faults.rs"]
mod api_faults;
#[path = "e2e/api_faults_lease.rs"]
mod api_faults_lease;
#[path = "e2e/api_faults_nodes.rs"]
mod api_faults_nodes;
#[path = "e2e/bgp_daemon.rs"]
mod bgp_daemon;
#[path = "e2e/chaos.rs"]
mod chaos;
#[path = "e2e/cloud_machines.rs"]
mod cloud_machines;
#[path = "e2e/cloud_nodes.rs"]
mod cloud_nodes;
#[path = "e2e/cloud_nodes_beyond.rs"]
mod cloud_nodes_beyond;
#[path = "e2e/cloud_nodes_peers.rs"]
mod cloud_nodes_peers;
#[path = "e2e/cloud_services.rs"]
mod cloud_services;
#[path = "e2e/cloud_services_say.rs"]
mod cloud_services_say;
#[path = "e2e/clouds.rs"]
mod clouds;
#[path = "e2e/config.rs"]
mod config;
#[path = "e2e/cost.rs"]
mod cost;
#[path = "e2e/crashes.rs"]
mod crashes;
#[path = "e2e/disk_full.rs"]
mod disk_full;
#[path = "e2e/endpoint.rs"]
mod endpoint;
#[path = "e2e/endpoint_beside.rs"]
mod endpoint_beside;
#[path = "e2e/failover.rs"]
mod failover;
#[path = "e2e/faults.rs"]
mod faults;
#[path = "e2e/legacy_config.rs"]
mod legacy_config;
#[path = "e2e/metallb.rs"]
mod metallb;
#[path = "e2e/metallb_config_map.rs"]
mod metallb_config_map;
#[path = "e2e/metallb_refusals.rs"]
mod metallb_refusals;
#[path = "e2e/metallb_speaker.rs"]
mod metallb_speaker;
#[path = "e2e/metallb_takeover.rs"]
mod metallb_takeover;
#[path = "e2e/nodes.rs"]
mod nodes;
#[path = "e2e/prefix_limit.rs"]
mod prefix_limit;
#[path = "e2e/providers.rs"]
mod providers;
#[path = "e2e/reclaim.rs"]
mod reclaim;
#[path = "e2e/replicas.rs"]
mod replicas;
#[path = "e2e/rivals.rs"]
mod rivals;
#[path = "e2e/services.rs"]
mod services;
#[path = "e2e/sharing.rs"]
mod sharing;
#[path = "e2e/stores.rs"]
mod stores;
#[path = "e2e/takeover.rs"]
mod takeover;
#[path = "e2e/takeover_apply.rs"]
mod takeover_apply;
#[path = "e2e/takeover_whole.rs"]
mod takeover_whole;
#[path = "e2e/trace.rs"]
mod trace;
#[path = "e2e/trust.rs"]
mod trust;
