//! What is read from tags, without knowing how a cloud writes them.

/// Does it carry all of them?
pub(crate) fn has_all(tags: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|tag| tags.contains(tag))
}

/// Of an owner's tags, the one that no other owner of its cluster has. `shared` are those that all of them have.
pub(crate) fn own_tag<'a>(of_owner: &'a [String], shared: &[String]) -> Option<&'a String> {
    of_owner.iter().find(|tag| !shared.contains(tag))
}

/// The tags of a reservation that becomes another owner's: the new owner's, then what others had put on it. `before` are those by which
/// it was its last owner's; empty where an older controller wrote them.
pub(crate) fn passed_on(now: &[String], before: &[String], to: Vec<String>) -> Vec<String> {
    let key = |tag: &str| tag.split_once('=').map(|(key, _)| key.to_owned());
    let keys: Vec<_> = to.iter().filter_map(|tag| key(tag)).collect();
    let theirs = now.iter().filter(|tag| {
        !before.contains(tag) && !to.contains(tag) && key(tag).is_none_or(|key| !keys.contains(&key))
    });
    let theirs: Vec<_> = theirs.cloned().collect();
    to.into_iter().chain(theirs).collect()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn tags(tags: &[&str]) -> Vec<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    #[test]
    fn what_others_wrote_stays() {
        let before = tags(&["mine", "usage=old", "service=a", "team=x"]);
        let to = tags(&["usage=new", "service=a", "cluster=c"]);
        let after = passed_on(&before, &[], to.clone());
        assert_eq!(
            after,
            tags(&["usage=new", "service=a", "cluster=c", "mine", "team=x"])
        );
        assert_eq!(passed_on(&after, &[], to.clone()), after, "twice is as once");
        let long = tags(&["u", "owner=b"]);
        let short = tags(&["u", "owner-sha256=a", "mine"]);
        assert_eq!(
            passed_on(&short, &tags(&["u", "owner-sha256=a"]), long),
            tags(&["u", "owner=b", "mine"])
        );
    }
}
