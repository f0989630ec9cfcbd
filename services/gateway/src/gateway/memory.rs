//! What is remembered of each Service between two looks at it. None of it is needed to act rightly: it spares calls
//! to services that would answer the same, and tells an outage from a blink.
//!
//! Owner: the reconcile of the Service writes its own entry. One lock, never held across an await. About 300 bytes a Service.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::objects::Key;
use crate::domain::service::Desired;

/// What is known of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Which Service of that name.
    pub(crate) uid: Box<str>,
    /// What it was that the user wanted then.
    pub(crate) fingerprint: u64,
    /// In which term of ours as the leader that was. Another leader may have changed what the Service holds since.
    pub(crate) term: i64,
    /// What it holds by the word of the address service, since when.
    pub(crate) verified: Option<(Desired, Instant)>,
    /// The answer counts no more, though it was ours.
    stale: bool,
    /// Failures in a row that only time mends.
    outages: u32,
}

impl Known {
    /// Nothing is known yet.
    pub(crate) fn new(uid: &str) -> Self {
        Self {
            uid: uid.into(),
            fingerprint: 0,
            term: 0,
            verified: None,
            stale: false,
            outages: 0,
        }
    }

    fn addresses(&self) -> &[IpAddr] {
        self.verified
            .as_ref()
            .map_or(&[], |(desired, _)| &*desired.addresses)
    }

    /// What the Service holds, if that was asked for the same wish, in this term, and not too long ago.
    pub(crate) fn holds(
        &self,
        uid: &str,
        fingerprint: u64,
        term: i64,
        fresh_for: Duration,
    ) -> Option<&Desired> {
        let (desired, at) = self.verified.as_ref()?;
        let same = *self.uid == *uid && self.fingerprint == fingerprint && self.term == term;
        let valid = same && !self.stale && at.elapsed() < fresh_for;
        valid.then_some(desired)
    }
}

/// What is known of all Services.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    services: HashMap<Key, Known>,
    /// Who has which address.
    holders: HashMap<IpAddr, BTreeSet<Key>>,
}

impl All {
    /// From now on, this is known of the Service; `None`: nothing.
    fn set(&mut self, key: &Key, known: Option<Known>) {
        let after = known.as_ref().map(|known| known.addresses().to_vec());
        let before = match known {
            Some(known) => self.services.insert(key.clone(), known),
            None => self.services.remove(key),
        };
        for address in before.iter().flat_map(Known::addresses) {
            if let Some(keys) = self.holders.get_mut(address) {
                keys.remove(key);
                if keys.is_empty() {
                    self.holders.remove(address);
                }
            }
        }
        for address in after.into_iter().flatten() {
            self.holders.entry(address).or_default().insert(key.clone());
        }
    }
}

impl Memory {
    /// What is known of this one.
    pub(crate) fn get(&self, key: &Key) -> Option<Known> {
        self.0.lock().services.get(key).cloned()
    }

    /// The Services that have this address, by what is known.
    pub(crate) fn holders(&self, address: IpAddr) -> BTreeSet<Key> {
        self.0.lock().holders.get(&address).cloned().unwrap_or_default()
    }

    /// Has this Service this address, by what is known?
    pub(crate) fn has(&self, key: &Key, uid: &str, address: IpAddr) -> bool {
        let all = self.0.lock();
        let known = all.services.get(key).filter(|known| *known.uid == *uid);
        known.is_some_and(|known| known.addresses().contains(&address))
    }

    /// What the Service of this name has, by what is known.
    pub(crate) fn addresses(&self, key: &Key) -> Vec<IpAddr> {
        let all = self.0.lock();
        all.services
            .get(key)
            .map(|known| known.addresses().to_vec())
            .unwrap_or_default()
    }

    /// Remembers.
    pub(crate) fn put(&self, key: &Key, known: Known) {
        self.0.lock().set(key, Some(known));
    }

    /// Forgets one.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().set(key, None);
    }

    /// Counts a failure that only time mends; returns how many there were in a row.
    pub(crate) fn outage(&self, key: &Key) -> u32 {
        let mut all = self.0.lock();
        let known = all.services.entry(key.clone()).or_insert_with(|| Known::new(""));
        known.outages = known.outages.saturating_add(1);
        known.outages
    }

    /// Lets the next look at those Services ask the address service again which would take more. Returns which these are.
    pub(crate) fn reconsider_incomplete(&self) -> Vec<Key> {
        self.reconsider(|known| {
            known
                .verified
                .as_ref()
                .is_some_and(|(desired, _)| desired.incomplete)
        })
    }

    /// The same for one.
    pub(crate) fn reconsider_one(&self, key: &Key) {
        if let Some(known) = self.0.lock().services.get_mut(key) {
            known.stale = true;
        }
    }

    /// The same for every Service.
    pub(crate) fn reconsider_all(&self) {
        self.reconsider(|_| true);
    }

    fn reconsider(&self, which: impl Fn(&Known) -> bool) -> Vec<Key> {
        let mut all = self.0.lock();
        let chosen = all.services.iter_mut().filter(|(_, known)| which(known));
        chosen
            .map(|(key, known)| {
                known.stale = true;
                key.clone()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::service::Condition;

    fn known(address: &str) -> Known {
        let condition = Condition {
            ready: true,
            reason: "Assigned".to_owned(),
            message: String::new(),
        };
        let desired = Desired {
            incomplete: false,
            addresses: vec![address.parse().unwrap()],
            condition,
        };
        Known {
            verified: Some((desired, Instant::now())),
            ..Known::new("u")
        }
    }

    /// Who has an address is found without a look at everybody, and follows what is known of each.
    #[tokio::test]
    async fn holders_follow_what_is_known() {
        let memory = Memory::default();
        let (web, api) = (
            Key::namespaced("default", "web"),
            Key::namespaced("default", "api"),
        );
        let (seven, eight): (IpAddr, IpAddr) = ("192.0.2.7".parse().unwrap(), "192.0.2.8".parse().unwrap());
        memory.put(&web, known("192.0.2.7"));
        memory.put(&api, known("192.0.2.7"));
        assert_eq!(memory.holders(seven), [api.clone(), web.clone()].into());
        memory.put(&web, known("192.0.2.8"));
        assert_eq!(memory.holders(seven), [api.clone()].into());
        assert_eq!(memory.holders(eight), [web.clone()].into());
        memory.outage(&web);
        memory.forget(&web);
        memory.forget(&api);
        assert!(memory.holders(seven).is_empty() && memory.holders(eight).is_empty());
    }
}
