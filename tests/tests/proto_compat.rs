//! The contracts never break those who speak them: every message, field, enum value and method is written down in
//! `golden/contracts.txt`, and must stay as it is. What is new is added there by a run with `UPDATE_GOLDEN=1`, which only
//! ever adds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use pretty_assertions::assert_eq;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
};

/// What is written down: from what it is and its name, to what must not change about it.
type Contracts = BTreeMap<String, String>;

/// The contracts that this build speaks.
fn current() -> Result<Contracts> {
    let set = FileDescriptorSet::decode(groundplane_proto::FILE_DESCRIPTOR_SET)
        .context("decode the descriptors")?;
    let mut contracts = Contracts::new();
    for file in set.file {
        let package = file.package().to_owned();
        if package.starts_with("google.") {
            continue;
        }
        for message in &file.message_type {
            add_message(&mut contracts, &package, message);
        }
        for values in &file.enum_type {
            add_enum(&mut contracts, &package, values);
        }
        for service in &file.service {
            add_service(&mut contracts, &package, service);
        }
    }
    Ok(contracts)
}

fn add_message(contracts: &mut Contracts, parent: &str, message: &DescriptorProto) {
    let name = format!("{parent}.{}", message.name());
    contracts.insert(format!("message {name}"), String::new());
    for field in &message.field {
        contracts.insert(format!("field {name}.{}", field.name()), shape(field, message));
    }
    for inner in &message.nested_type {
        add_message(contracts, &name, inner);
    }
    for values in &message.enum_type {
        add_enum(contracts, &name, values);
    }
}

/// Number, type and label of a field: all that the wire knows of it.
fn shape(field: &FieldDescriptorProto, message: &DescriptorProto) -> String {
    let of = match field.r#type() {
        Type::Message | Type::Enum | Type::Group => field.type_name().trim_start_matches('.').to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    let oneof = field
        .oneof_index
        .and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
    let label = match (field.label(), oneof) {
        (Label::Repeated, _) => " repeated".to_owned(),
        (_, Some(_)) if field.proto3_optional() => " optional".to_owned(),
        (_, Some(oneof)) => format!(" oneof:{}", oneof.name()),
        _ => String::new(),
    };
    format!("{} {of}{label}", field.number())
}

fn add_enum(contracts: &mut Contracts, parent: &str, values: &EnumDescriptorProto) {
    for value in &values.value {
        let key = format!("value {parent}.{}.{}", values.name(), value.name());
        contracts.insert(key, value.number().to_string());
    }
}

fn add_service(contracts: &mut Contracts, package: &str, service: &ServiceDescriptorProto) {
    for method in &service.method {
        let side = |stream: bool, of: &str| {
            format!(
                "{}{}",
                if stream { "stream " } else { "" },
                of.trim_start_matches('.')
            )
        };
        let shape = format!(
            "{} -> {}",
            side(method.client_streaming(), method.input_type()),
            side(method.server_streaming(), method.output_type())
        );
        contracts.insert(
            format!("method {package}.{}/{}", service.name(), method.name()),
            shape,
        );
    }
}

fn golden_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/contracts.txt")
}

/// One contract a line: `field groundplane.core.v1.Owner.kind = 2 string`. Empty lines and `#` are for people.
fn parse(text: &str) -> Contracts {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(" = ").unwrap_or((line, "")))
        .map(|(key, shape)| (key.to_owned(), shape.to_owned()))
        .collect()
}

fn print(contracts: &Contracts) -> String {
    let mut text = "# What our contracts are on the wire. Lines are added by UPDATE_GOLDEN=1, and never changed or removed.\n".to_owned();
    for (key, shape) in contracts {
        text += key;
        if !shape.is_empty() {
            text += " = ";
            text += shape;
        }
        text.push('\n');
    }
    text
}

/// What would break a peer that was built from `golden`.
fn broken(golden: &Contracts, current: &Contracts) -> Vec<String> {
    let mut found = Vec::new();
    for (key, was) in golden {
        match current.get(key) {
            None => found.push(format!("{key} was removed")),
            Some(is) if is != was => found.push(format!("{key} was `{was}` and is `{is}`")),
            Some(_) => {}
        }
    }
    found
}

/// What is not written down yet.
fn added(golden: &Contracts, current: &Contracts) -> Vec<String> {
    current
        .keys()
        .filter(|key| !golden.contains_key(*key))
        .cloned()
        .collect()
}

#[test]
fn no_contract_is_renumbered_retyped_or_removed() -> Result<()> {
    let (path, current) = (golden_path(), current()?);
    let golden = parse(&std::fs::read_to_string(&path).unwrap_or_default());
    assert_eq!(
        broken(&golden, &current),
        Vec::<String>::new(),
        "peers that run today would break"
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let folder = path.parent().context("no folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(&path, print(&current)).with_context(|| format!("write {}", path.display()))?;
        return Ok(());
    }
    let added = added(&golden, &current);
    assert_eq!(
        added,
        Vec::<String>::new(),
        "new contracts: write them down with UPDATE_GOLDEN=1"
    );
    ensure!(
        golden.len() > 100,
        "only {} contracts are written down",
        golden.len()
    );
    Ok(())
}

/// Clouds implement galaxy's contract today: its names and numbers are theirs, not ours.
#[test]
fn galaxys_contract_is_wire_identical() -> Result<()> {
    let contracts = current()?;
    let ours: Vec<_> = contracts
        .iter()
        .filter(|(key, _)| key.contains(" rpc."))
        .collect();
    let ours: Vec<String> = ours
        .into_iter()
        .map(|(key, shape)| format!("{key} = {shape}"))
        .collect();
    let galaxys = [
        "field rpc.AssignIPReply.msg = 2 string",
        "field rpc.AssignIPReply.success = 1 bool",
        "field rpc.AssignIPRequest.IP_address = 2 string",
        "field rpc.AssignIPRequest.node_name = 1 string",
        "field rpc.UnAssignIPReply.msg = 2 string",
        "field rpc.UnAssignIPReply.success = 1 bool",
        "field rpc.UnAssignIPRequest.IP_address = 2 string",
        "field rpc.UnAssignIPRequest.node_name = 1 string",
        "message rpc.AssignIPReply = ",
        "message rpc.AssignIPRequest = ",
        "message rpc.UnAssignIPReply = ",
        "message rpc.UnAssignIPRequest = ",
        "method rpc.IPProviderService/AssignIP = rpc.AssignIPRequest -> rpc.AssignIPReply",
        "method rpc.IPProviderService/UnAssignIP = rpc.UnAssignIPRequest -> rpc.UnAssignIPReply",
    ];
    assert_eq!(ours, galaxys);
    Ok(())
}

#[test]
fn every_way_to_break_a_contract_is_seen() -> Result<()> {
    let golden = current()?;
    let key = |wanted: &str| {
        let key = golden.keys().find(|key| key.starts_with(wanted));
        key.cloned().with_context(|| format!("there is no {wanted}"))
    };
    let (field, method) = (
        key("field groundplane.core.v1.Owner.")?,
        key("method groundplane.ipam.v1.")?,
    );
    let changed = |key: &str, shape: Option<&str>| {
        let mut current = golden.clone();
        match shape {
            Some(shape) => current.insert(key.to_owned(), shape.to_owned()),
            None => current.remove(key),
        };
        broken(&golden, &current).len()
    };
    let (number, of) = golden[&field].split_once(' ').context("no type")?;
    assert_eq!(changed(&field, Some(&format!("99 {of}"))), 1, "renumbered");
    assert_eq!(changed(&field, Some(&format!("{number} bytes"))), 1, "retyped");
    assert_eq!(
        changed(&field, Some(&format!("{} repeated", golden[&field]))),
        1,
        "relabelled"
    );
    assert_eq!(changed(&field, None), 1, "removed");
    assert_eq!(changed(&method, None), 1, "method removed");
    assert_eq!(
        changed("field groundplane.core.v1.Owner.new", Some("42 string")),
        0,
        "an addition breaks nobody"
    );

    let mut more = golden.clone();
    more.insert("message groundplane.core.v1.New".to_owned(), String::new());
    assert_eq!(added(&golden, &more), ["message groundplane.core.v1.New"]);
    assert_eq!(parse(&print(&golden)), golden, "what is written is read");
    Ok(())
}
