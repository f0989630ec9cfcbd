//! Awaiting a condition, with a bound.

use std::fmt::Display;
use std::panic::Location;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tokio::time::{Instant, sleep, timeout};

/// How long [`eventually`] waits. Far above what anything here takes: it bounds a failure, and is no measure of speed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long one look at the condition may take. A stopped API server accepts connections and answers nothing.
const ONE_LOOK: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Looks at a condition until it yields a value.
///
/// # Errors
/// After [`PATIENCE`], names `what` was awaited, where in the source, and how the last look ended.
#[track_caller]
pub fn eventually<T, F, L>(what: impl Display, look: F) -> impl Future<Output = Result<T>>
where
    F: FnMut() -> L,
    L: Future<Output = Result<T>>,
{
    await_condition(Location::caller(), what, PATIENCE, look)
}

/// [`eventually`] with another bound.
///
/// # Errors
/// As [`eventually`].
#[track_caller]
pub fn eventually_within<T, F, L>(
    patience: Duration,
    what: impl Display,
    look: F,
) -> impl Future<Output = Result<T>>
where
    F: FnMut() -> L,
    L: Future<Output = Result<T>>,
{
    await_condition(Location::caller(), what, patience, look)
}

async fn await_condition<T, F, L>(
    caller: &'static Location<'static>,
    what: impl Display,
    patience: Duration,
    mut look: F,
) -> Result<T>
where
    F: FnMut() -> L,
    L: Future<Output = Result<T>>,
{
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let last = match timeout(ONE_LOOK.min(patience), look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_) => anyhow!("no answer within {ONE_LOOK:?}"),
        };
        if begun.elapsed() + pause > patience {
            return Err(last.context(format!("{what}: not within {patience:?} ({caller})")));
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Looks at a condition again and again for `span`, and fails as soon as it does not hold: for what must not happen.
/// It proves little by itself; pair it with a condition that shows that the thing had its chance.
///
/// # Errors
/// The error of the look that failed, with `what` and the place in the source.
#[track_caller]
pub fn throughout<F, L>(span: Duration, what: impl Display, mut look: F) -> impl Future<Output = Result<()>>
where
    F: FnMut() -> L,
    L: Future<Output = Result<()>>,
{
    let caller = Location::caller();
    async move {
        let begun = Instant::now();
        loop {
            match timeout(ONE_LOOK, look()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let after = begun.elapsed();
                    return Err(error.context(format!("{what}: broken after {after:?} ({caller})")));
                }
                Err(_) => bail!("{what}: no answer within {ONE_LOOK:?} ({caller})"),
            }
            if begun.elapsed() >= span {
                return Ok(());
            }
            sleep(LONGEST_PAUSE.min(span)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::ensure;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_comes_true_ends_the_wait() -> Result<()> {
        let looks = Cell::new(0);
        let found = eventually("three looks", async || {
            looks.set(looks.get() + 1);
            ensure!(looks.get() == 3, "look {}", looks.get());
            Ok(looks.get())
        })
        .await?;
        assert_eq!(found, 3);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_never_comes_is_named_with_its_place_and_last_error() {
        let error = eventually("the sky falls", async || Err::<(), _>(anyhow!("still up")))
            .await
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(text.starts_with("the sky falls: not within 60s"), "{text}");
        assert!(text.contains(file!()) && text.ends_with("still up"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_does_not_hang_the_wait() {
        let error = eventually_within(
            Duration::from_secs(30),
            "an answer",
            std::future::pending::<Result<()>>,
        )
        .await
        .unwrap_err();
        assert!(format!("{error:#}").contains("no answer within 10s"), "{error:#}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_hold_throughout_fails_at_the_first_breach() {
        let looks = Cell::new(0);
        let error = throughout(Duration::from_secs(5), "peace", async || {
            looks.set(looks.get() + 1);
            ensure!(looks.get() < 4, "war");
            Ok(())
        })
        .await
        .unwrap_err();
        assert_eq!(looks.get(), 4);
        assert!(
            format!("{error:#}").starts_with("peace: broken after"),
            "{error:#}"
        );
    }
}
