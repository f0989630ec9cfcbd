use groundplane_runtime::config;
use pretty_assertions::assert_eq;

use super::*;

#[test]
fn the_default_is_fine() {
    assert_eq!(Config::default().validate(), []);
}

#[test]
fn a_whole_section_is_read() {
    let text = "
kubeconfig: /etc/kubeconfig
namespace: groundplane
announcer: kube-vip
annotationPrefix: example.org
annotationFormats: [indexed, packet]
annotations: { peerIp: 'example.org/peer-{{n}}', eipMetro: example.org/metro }
claimClassless: false
loadBalancerClass: example.org/lb
namespaces: [a, b]
nodeSelector: role in (worker, storage),!gpu
nodePrefix: test-
bgpNodeSelector: role=edge,!gpu
resync: 10s
cloudResync: 1m
nodeMonitorPeriod: 1s
concurrency: 8
writeTimeout: 5s
refreshLabels: true
controllers: { lifecycle: false }
lifecycle: { maxDeleteFraction: 0.2, deleteWindow: 30m }
lease: { name: other, duration: 10s, retry: 1s }
";
    let config: Config = config::parse("test.yaml", text).unwrap();
    assert_eq!(config.validate(), []);
    assert_eq!(config.announcer, Announcer::KubeVip);
    assert!(!config.controllers.lifecycle && config.controllers.node);
    assert_eq!(config.lease.duration.0, Duration::from_secs(10));
}

#[test]
fn every_problem_is_told_at_once() {
    let text = "
annotationPrefix: a/b
loadBalancerClass: plain
namespaces: ['']
nodeSelector: 'role worker'
bgpNodeSelector: 'a in b'
resync: 1ms
concurrency: 0
lifecycle: { maxDeleteFraction: 0, deleteWindow: 1s }
lease: { name: '', duration: 1500ms, retry: 1h }
";
    let config: Config = config::parse("test.yaml", text).unwrap();
    let paths: Vec<String> = config
        .validate()
        .into_iter()
        .map(|problem| problem.path)
        .collect();
    assert_eq!(
        paths,
        [
            "annotationPrefix",
            "loadBalancerClass",
            "namespaces",
            "nodeSelector",
            "bgpNodeSelector",
            "concurrency",
            "resync",
            "lifecycle.maxDeleteFraction",
            "lifecycle.deleteWindow",
            "lease.name",
            "lease.duration",
            "lease.retry",
        ]
    );
}

/// A selector that the API server would refuse is refused at the start, and named.
#[test]
fn both_selectors_are_checked_alike() {
    for text in ["role worker", "=x", "a in b", "a in ()", "-a", "a=-b"] {
        for (path, config) in [
            (
                "nodeSelector",
                Config {
                    node_selector: text.to_owned(),
                    ..Config::default()
                },
            ),
            (
                "bgpNodeSelector",
                Config {
                    bgp_node_selector: text.to_owned(),
                    ..Config::default()
                },
            ),
        ] {
            let problems = config.validate();
            let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
            assert_eq!(paths, [path], "{text}");
            assert!(problems[0].message.contains(text), "{}", problems[0].message);
        }
    }
}
