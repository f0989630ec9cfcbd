//! Thousands of objects.

use std::collections::HashSet;

use groundplane_sandbox::{ProjectOptions, ReservationOptions};

use crate::start;

/// Walks a list in pages of 1,000, and returns ids in order with the number of pages.
async fn walk(client: &crate::Client, path: &str, list: &str) -> (Vec<String>, usize) {
    let mut next = Some(format!("{path}?per_page=1000"));
    let (mut ids, mut pages) = (Vec::new(), 0);
    while let Some(path) = next {
        let (_, page) = client.get(&path).await;
        pages += 1;
        ids.extend(
            page[list]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["id"].as_str().unwrap().to_owned()),
        );
        next = page["meta"]["next"]["href"]
            .as_str()
            .map(|href| href.strip_prefix("/metal/v1").unwrap().to_owned());
    }
    (ids, pages)
}

#[tokio::test]
async fn five_thousand_devices_and_ten_thousand_reservations() {
    let options = ProjectOptions {
        list_machine_blocks: false,
        ..ProjectOptions::default()
    };
    let (_sandbox, project, client) = start(options).await;
    let made = project.add_devices(5_000);
    let addresses: HashSet<_> = (0..10_000)
        .map(|n| {
            project
                .add_reservation(ReservationOptions::tagged([format!("service={n}")]))
                .address
                .unwrap()
        })
        .collect();
    assert_eq!(addresses.len(), 10_000);
    let own: HashSet<_> = made
        .iter()
        .flat_map(|id| project.addresses(*id))
        .map(|row| row.address)
        .collect();
    assert_eq!(own.len(), 15_000);

    let (devices, pages) = walk(&client, &format!("/projects/{}/devices", project.id()), "devices").await;
    assert_eq!((devices.len(), pages), (5_000, 5));
    assert_eq!(devices, made.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (reservations, pages) = walk(
        &client,
        &format!("/projects/{}/ips", project.id()),
        "ip_addresses",
    )
    .await;
    assert_eq!(
        (reservations.iter().collect::<HashSet<_>>().len(), pages),
        (10_000, 10)
    );
    assert_eq!(project.journal().total(0), 15);
}
