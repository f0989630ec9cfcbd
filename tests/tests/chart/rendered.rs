//! What the chart makes of values, and how to find one's way in it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use groundplane_tests::chart;
use serde_json::Value;

/// The values that the chart is looked at with: its own, and those of its folder `ci`.
pub(crate) fn values() -> [Vec<String>; 6] {
    let file = |name: &str| {
        vec![
            "-f".to_owned(),
            chart::folder().join("ci").join(name).display().to_string(),
        ]
    };
    let set = |values: &str| vec!["--set".to_owned(), values.to_owned()];
    [
        Vec::new(),
        file("services-values.yaml"),
        file("equinix-values.yaml"),
        set("mode=services,tls.mode=off,insecure=true,persistence.enabled=false,hostNetwork=true"),
        set("mode=services"),
        file("cert-manager-values.yaml"),
    ]
}

/// The objects of the chart with these values.
pub(crate) async fn objects(values: &[String]) -> Result<Vec<Value>> {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let objects = chart::render(&values).await?;
    ensure!(objects.len() > 4, "only {} objects", objects.len());
    Ok(objects)
}

/// The objects of the chart with this `--set`.
pub(crate) async fn objects_set(values: &str) -> Result<Vec<Value>> {
    objects(&["--set".to_owned(), values.to_owned()]).await
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The workloads, each by the service that it runs.
pub(crate) fn workloads(objects: &[Value]) -> BTreeMap<String, &Value> {
    let workloads = objects
        .iter()
        .filter(|object| object["kind"] == "Deployment" || object["kind"] == "StatefulSet");
    workloads
        .map(|workload| (text(&container(workload)["args"][0]).to_owned(), workload))
        .collect()
}

pub(crate) fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

pub(crate) fn container(workload: &Value) -> &Value {
    &pod(workload)["containers"][0]
}

/// The configuration file in its `ConfigMap`.
pub(crate) fn text_of(map: &Value) -> &str {
    text(&map["data"]["groundplane.yaml"])
}

/// The pods of every kind of object that has some, each with its object's name.
pub(crate) fn pods(objects: &[Value]) -> Vec<(&str, &Value)> {
    objects
        .iter()
        .filter_map(|object| Some((text(&object["metadata"]["name"]), pod_of(object)?)))
        .collect()
}

pub(crate) fn pod_of(object: &Value) -> Option<&Value> {
    match text(&object["kind"]) {
        "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => Some(pod(object)),
        "CronJob" => Some(pod(&object["spec"]["jobTemplate"])),
        _ => None,
    }
}
