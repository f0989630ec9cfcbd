use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const TEXT: &str = r#"# ours since 2019
peers:   # the routers
  - peer-address: 10.0.0.1
    # do not touch
    peer-asn: 0xFDE8
    my-asn: 65001
    password: "yes"

  # the second
  - my-asn: 65001
    peer-address: 10.0.0.2

"bfd-profiles": [{name: fast, receive-interval: 100}]
address-pools:
- {name: a, protocol: layer2, addresses: [192.0.2.0/28], auto-assign: on}
- name: b
  protocol: bgp
  addresses:
  - 198.51.100.0/28
  - 198.51.100.32/28
bgp-communities:
    none: 65535:65281
"#;

fn append(value: Value) -> Edit {
    Edit {
        append: vec![value],
        ..Edit::default()
    }
}

fn remove(at: usize) -> Edit {
    Edit {
        remove: [at].into(),
        ..Edit::default()
    }
}

/// E56: every line that is not of a changed entry is as it was, to the byte.
#[test]
fn what_is_not_changed_keeps_its_bytes() {
    let document = Document::parse(TEXT).unwrap();
    let with_peer = document.edit("peers", &append(json!({ "my-asn": 1 }))).unwrap();
    let second = "  - my-asn: 65001\n    peer-address: 10.0.0.2\n";
    assert_eq!(
        with_peer.text(),
        TEXT.replace(second, &format!("{second}  - my-asn: 1\n"))
    );
    let with_pool = with_peer
        .edit(
            "address-pools",
            &append(json!({ "name": "c", "addresses": ["192.0.2.7/32"] })),
        )
        .unwrap();
    assert_eq!(
        with_pool.text(),
        with_peer.text().replace(
            "bgp-communities:",
            "- addresses:\n  - 192.0.2.7/32\n  name: c\nbgp-communities:"
        )
    );
    let without = with_pool
        .edit("address-pools", &remove(2))
        .unwrap()
        .edit("peers", &remove(2))
        .unwrap();
    assert_eq!(without.text(), TEXT);
    let first = document.edit("peers", &remove(0)).unwrap();
    assert!(
        first.text().contains("  # the second\n  - my-asn: 65001\n"),
        "{}",
        first.text()
    );
    assert_eq!(first.list("peers").unwrap().len(), 1);
}

#[test]
fn a_replaced_entry_stays_in_its_place() {
    let document = Document::parse(TEXT).unwrap();
    let edit = Edit {
        replace: [(0, json!({ "name": "z" }))].into(),
        ..Edit::default()
    };
    let edited = document.edit("address-pools", &edit).unwrap();
    let names: Vec<&Value> = edited
        .list("address-pools")
        .unwrap()
        .iter()
        .map(|pool| &pool["name"])
        .collect();
    assert_eq!(names, ["z", "b"]);
    assert!(edited.text().contains("- name: z\n- name: b\n"));
}

/// E55: lists that are missing, empty or null.
#[test]
fn a_list_that_is_not_there_is_made() {
    for text in [
        "",
        "\n",
        "# nothing\n",
        "peers: []\n",
        "peers: null\n",
        "peers:\n",
        "peers: ~ # none\n",
        "other: 1",
    ] {
        let document = Document::parse(text).unwrap();
        assert_eq!(document.list("peers").unwrap(), &[] as &[Value]);
        let edited = document.edit("peers", &append(json!({ "my-asn": 1 }))).unwrap();
        assert!(
            edited.text().ends_with("peers:\n- my-asn: 1\n"),
            "{text:?}: {}",
            edited.text()
        );
        let emptied = edited.edit("peers", &remove(0)).unwrap();
        assert!(emptied.list("peers").unwrap().is_empty());
        emptied.edit("peers", &append(json!({ "my-asn": 2 }))).unwrap();
    }
}

/// E56: what cannot be changed without writing it anew is refused, and never damaged.
#[test]
fn a_document_in_another_style_is_refused() {
    for text in [
        "peers: [{my-asn: 1}]\n",
        "{peers: [{my-asn: 1}]}\n",
        "peers: &all\n- my-asn: 1\n",
        "peers:\n- my-asn: 1\n--- \npeers: []\n",
        "x: |\n  peers:\npeers: {}\n",
        "- 1\n",
        "peers: [\n",
        "peers: 7\n",
    ] {
        let edited = Document::parse(text)
            .and_then(|document| document.edit("peers", &append(json!({ "my-asn": 2 }))));
        assert!(edited.is_err(), "{text:?}: {edited:?}");
    }
}

#[test]
fn text_is_quoted_unless_it_can_be_nothing_else() {
    for plain in [
        "default/svc1",
        "a,b",
        "layer2",
        "145.40.1.1/32",
        "169.254.255.1",
        "pw",
    ] {
        assert!(is_plain(plain), "{plain}");
    }
    for quoted in [
        "",
        "1",
        "1e3",
        "yes",
        "No",
        "null",
        "64512:1",
        "a: b",
        "-",
        "2001:db8::1/128",
        "a #b",
        "ü",
        "x\ny",
    ] {
        assert!(!is_plain(quoted), "{quoted}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any text in an entry of ours comes back as it was.
    #[test]
    fn entries_say_what_was_meant(password in "\\PC{0,12}", number in any::<u32>(), twice in any::<bool>()) {
        let entry = json!({ "password": password, "my-asn": number, "list": [password, { "a": [] }], "none": null, "flag": twice });
        let document = Document::parse(TEXT).unwrap();
        let edited = document.edit("peers", &append(entry.clone())).unwrap();
        prop_assert_eq!(edited.list("peers").unwrap().last().unwrap(), &entry);
    }

    /// Whatever the text: it is refused, or what is appended is there and all else is as it was.
    #[test]
    fn no_text_is_damaged(text in "(peers:|address-pools:|- |a: 1|  b: |\\[\\]|#c|\n|'|\"|\\{|: |x){0,24}") {
        if let Ok(document) = Document::parse(&text)
            && let Ok(edited) = document.edit("peers", &append(json!({ "my-asn": 1 })))
        {
            let again = Document::parse(edited.text()).unwrap();
            let mut expected = document.list("peers").unwrap().to_vec();
            expected.push(json!({ "my-asn": 1 }));
            prop_assert_eq!(again.list("peers").unwrap(), &expected);
            prop_assert_eq!(again.list("address-pools").ok(), document.list("address-pools").ok());
        }
    }
}
