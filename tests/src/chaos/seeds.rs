//! Which seeds are run, and the running of them in simulated time.

/// How many seeds run at a time.
const LANES: u64 = 2;

/// A number from the environment: `GROUNDPLANE_SEED` (this one alone), `GROUNDPLANE_SEEDS` (so many), `GROUNDPLANE_FIRST` (from this one on).
///
/// # Panics
/// Where it is no number: a run of other seeds than those that were asked for proves nothing.
#[allow(clippy::expect_used, reason = "a test that was asked for nonsense has failed")]
#[must_use]
pub fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok();
    text.map(|text| text.parse().expect("a number"))
}

/// Runs so many seeds, from `GROUNDPLANE_FIRST` on.
///
/// # Panics
/// Where one fails, with what the lowest of them said.
#[allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a simulation that breaks a rule has failed"
)]
pub fn run_seeds<T: Send>(seeds: u64, run: impl Fn(u64) -> Result<T, String> + Sync) -> Vec<T> {
    let first = number_from("GROUNDPLANE_FIRST").unwrap_or_default();
    let lane = |offset: u64| -> Result<Vec<T>, (u64, String)> {
        (first..first + seeds)
            .filter(|seed| (seed - first) % LANES == offset)
            .map(|seed| run(seed).map_err(|failure| (seed, failure)))
            .collect()
    };
    let lanes: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..LANES)
            .map(|offset| scope.spawn(move || lane(offset)))
            .collect();
        running
            .into_iter()
            .map(|lane| lane.join().expect("no panic"))
            .collect()
    });
    let mut all = Vec::new();
    let mut failed: Vec<(u64, String)> = Vec::new();
    for lane in lanes {
        match lane {
            Ok(lane) => all.extend(lane),
            Err(failure) => failed.push(failure),
        }
    }
    failed.sort();
    if let Some((_, failure)) = failed.first() {
        panic!("{failure}");
    }
    all
}
