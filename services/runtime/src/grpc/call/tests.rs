use std::cell::Cell;

use groundplane_core::ErrorKind;
use pretty_assertions::assert_eq;
use tokio::time::Instant;

use super::super::Details;
use super::super::status::status;
use super::*;

#[derive(Debug, thiserror::Error)]
#[error("busy")]
struct Busy;

impl groundplane_core::Kinded for Busy {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }

    fn reason(&self) -> &'static str {
        "BUSY"
    }
}

fn busy(seconds: u64) -> Status {
    let details = Details {
        retry_after: Some(Duration::from_secs(seconds)),
        ..Details::default()
    };
    status("ipam", &Busy, details)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_until_it_succeeds() {
    let tries = Cell::new(0);
    let result = call(Policy::default(), || async {
        tries.set(tries.get() + 1);
        if tries.get() < 4 {
            Err(Status::unavailable("away"))
        } else {
            Ok(Response::new(tries.get()))
        }
    });
    assert_eq!(result.await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn what_repeating_does_not_mend_is_not_repeated() {
    for code in [
        tonic::Code::InvalidArgument,
        tonic::Code::NotFound,
        tonic::Code::Internal,
    ] {
        let tries = Cell::new(0);
        let result: Result<(), _> = call(Policy::default(), || async {
            tries.set(tries.get() + 1);
            Err(Status::new(code, "no"))
        })
        .await;
        assert_eq!(result.unwrap_err().code, code);
        assert_eq!(tries.get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_servers_wish_for_a_pause_is_respected() {
    let begun = Instant::now();
    let tries = Cell::new(0);
    let result = call(Policy::default(), || async {
        tries.set(tries.get() + 1);
        if tries.get() == 1 {
            Err(busy(7))
        } else {
            Ok(Response::new(()))
        }
    });
    result.await.unwrap();
    // Paused time: it moves by what is slept, and by nothing else.
    assert!(begun.elapsed() >= Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn the_time_of_all_tries_together_is_bounded_and_the_last_failure_told() {
    let begun = Instant::now();
    let result: Result<(), _> = call(Policy::default(), || async { Err(busy(0)) }).await;
    assert_eq!(result.unwrap_err().reason, "BUSY");
    assert_eq!(begun.elapsed(), Policy::default().total);
    let result: Result<(), _> = call(Policy::default(), std::future::pending).await;
    assert_eq!(result.unwrap_err().kind, ErrorKind::Timeout);
}
