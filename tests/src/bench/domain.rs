//! Allocation in ipam's domain alone: no store, no network, no other thread.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use groundplane_core::{ClusterId, Family, Name, NetworkName, Owner, PoolSource, Prefix};
use groundplane_ipam::domain::{Ask, Change, Ledger, PoolConfig, Selector, Want, Wanted};
use jiff::{SignedDuration, Timestamp};

use super::{Row, Target, median, number, progress};

/// The name of the measure.
pub(super) const MEASURE: &str = "domain_allocation";

/// Addresses of the pool `10.0.0.0/16`, without its edges.
const V4_ADDRESSES: usize = 65_534;
/// Single addresses that are held in the IPv6 pool, each with a gap behind it, beside the blocks that fill it.
const V6_SINGLES: usize = 65_536;
/// Allocations that are timed together, at most.
const BATCH: usize = 500;
/// A cluster as it is named by default: by a UID.
const CLUSTER: &str = "0d4f8a52-7f0e-4c39-a8d1-3b0f5c6e9a27";
/// How often a batch is timed.
const ROUNDS: usize = 21;

/// How a pool is filled before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// From its first address on.
    Dense,
    /// Full at first; then single addresses came back from all over it.
    Scattered,
}

/// Runs the measure.
pub(super) fn run() -> Result<Vec<Row>> {
    let mut cases = Vec::new();
    for (percent, form) in [
        (0, Form::Dense),
        (50, Form::Dense),
        (50, Form::Scattered),
        (99, Form::Dense),
        (99, Form::Scattered),
    ] {
        let mut pool = Pool::new("10.0.0.0/16")?;
        pool.fill_v4(V4_ADDRESSES * percent / 100, form)?;
        cases.push((
            format!("ipv4_16_{percent}_{form:?}").to_lowercase(),
            pool.time(Family::V4)?,
        ));
    }
    // A /65, a /66 … take a half, a quarter … of a /64: seven of them take 99 %. Single addresses with gaps come on top.
    for (percent, blocks) in [(0, 0_u8), (50, 1), (99, 7)] {
        let mut pool = Pool::new("2001:db8::/64")?;
        pool.fill_v6(blocks)?;
        cases.push((format!("ipv6_64_{percent}"), pool.time(Family::V6)?));
    }
    for (case, time) in &cases {
        progress(&format!("domain_allocation: {case} takes {time:.0} ns"));
    }
    let worst = cases.iter().map(|(_, time)| *time).fold(0.0, f64::max);
    let row = Row::absolute(MEASURE, worst, "ns", Target::AtMost(1_000.0));
    Ok(vec![
        cases
            .into_iter()
            .fold(row, |row, (case, time)| row.with(&case, time.round())),
    ])
}

/// A ledger with one pool.
struct Pool {
    ledger: Ledger,
    owners: usize,
    now: Timestamp,
}

impl Pool {
    fn new(addresses: &str) -> Result<Self> {
        let mut ledger = Ledger::new(SignedDuration::ZERO);
        let pool = PoolConfig {
            name: "bench".to_owned(),
            addresses: vec![addresses.to_owned()],
            ..PoolConfig::default()
        };
        ledger.put_pools(&PoolSource("file".parse()?), 1, &[pool])?;
        Ok(Self {
            ledger,
            owners: 0,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    fn fill_v4(&mut self, held: usize, form: Form) -> Result<()> {
        if form == Form::Dense {
            return self.hold_any(Family::V4, held).map(drop);
        }
        let mut all = self.hold_any(Family::V4, V4_ADDRESSES)?;
        let mut random = fastrand::Rng::with_seed(1);
        random.shuffle(&mut all);
        for change in &all[held..] {
            self.ledger.apply(&change.reversed());
        }
        Ok(())
    }

    fn fill_v6(&mut self, blocks: u8) -> Result<()> {
        for block in 0..blocks {
            // The upper half, the quarter below it, and so on: what is given next lies below all of them.
            let first = (0x2001_0db8_u128 << 96) | (1 << (63 - block));
            let block = Prefix::new(Family::V6.address(first).context("an IPv6 address")?, 65 + block)?;
            self.hold(Want::Exact(block))?;
        }
        let singles = self.hold_any(Family::V6, 2 * V6_SINGLES)?;
        for change in singles.iter().step_by(2) {
            self.ledger.apply(&change.reversed());
        }
        Ok(())
    }

    fn hold_any(&mut self, family: Family, count: usize) -> Result<Vec<Change>> {
        let wanted = Want::Any {
            family,
            length: family.bits(),
        };
        (0..count).map(|_| self.hold(wanted)).collect()
    }

    /// Gives something to a new owner.
    fn hold(&mut self, want: Want) -> Result<Change> {
        let ask = self.ask(want)?;
        let changes = allocate(&mut self.ledger, &ask, self.now)?;
        changes
            .into_iter()
            .next()
            .context("an allocation changes something")
    }

    fn ask(&mut self, want: Want) -> Result<Ask> {
        self.owners += 1;
        let (cluster, namespace): (ClusterId, Name) = (CLUSTER.parse()?, "bench".parse()?);
        Ok(Ask {
            owner: Arc::new(Owner::service(
                cluster,
                namespace,
                format!("service-{}", self.owners).parse()?,
            )),
            uid: format!("6f1d2c3b-5a4e-4d7c-9b8a-{:012x}", self.owners).into(),
            network: NetworkName::default(),
            wanted: vec![Wanted {
                want,
                optional: false,
            }],
            selector: Selector::default(),
        })
    }

    /// Nanoseconds of one allocation, decision and change together: the median over all rounds.
    fn time(&mut self, family: Family) -> Result<f64> {
        let free = self
            .ledger
            .pools(self.now)
            .iter()
            .map(|pool| pool.free)
            .sum::<u128>();
        let batch = usize::try_from(free).unwrap_or(BATCH).min(BATCH);
        let wanted = Want::Any {
            family,
            length: family.bits(),
        };
        let asks: Vec<Ask> = (0..batch).map(|_| self.ask(wanted)).collect::<Result<_>>()?;
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let mut made = Vec::with_capacity(batch);
            let begun = Instant::now();
            for ask in &asks {
                made.push(allocate(&mut self.ledger, ask, self.now)?);
            }
            times.push(begun.elapsed().as_secs_f64() * 1e9 / number(batch));
            for change in made.iter().flatten().rev() {
                self.ledger.apply(&change.reversed());
            }
        }
        Ok(median(times))
    }
}

fn allocate(ledger: &mut Ledger, ask: &Ask, now: Timestamp) -> Result<Vec<Change>> {
    let plan = ledger
        .plan_allocate(ask, now)
        .map_err(|refusal| anyhow!(refusal))?;
    for change in &plan.changes {
        ledger.apply(change);
    }
    Ok(plan.changes)
}
