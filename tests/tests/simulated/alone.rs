//! A run of a simulation by itself: one thread, paused time, and no chance but its own. All simulations run so.

/// Does work that a seed decides.
///
/// In which order tokio wakes those who wait for the same it draws from chance, unless it was built with `--cfg tokio_unstable`, as `make
/// chaos` does: then a seed that fails fails again in exactly the same way.
pub(crate) fn alone<T>(seed: u64, work: impl Future<Output = T>) -> T {
    fastrand::seed(seed);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    let runtime = builder.build().expect("a runtime");
    runtime.block_on(work)
}
