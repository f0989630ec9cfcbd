//! Server processes that a test starts, stops, kills, pauses, and never leaves behind.
//!
//! Each runs in a process group of its own, with its output in a file. Dropping a [`Child`] kills its group. For what is
//! never dropped (a `static`, a test process that was itself killed) there is the [`Reaper`]: a shell that holds a pipe from
//! this process and kills the groups when the pipe closes. The kernel's parent-death signal would need `unsafe`.
//!
//! These are `std` processes and not tokio's: those are bound to the runtime that started them, and every test has its own.

mod child;
mod reaper;
mod usage;

use std::io;
use std::net::{Ipv4Addr, TcpListener};

pub(crate) use child::tail_of;
pub use child::{Child, until};
pub use reaper::Reaper;
pub(crate) use reaper::reaper;
pub use usage::Memory;

/// `N` TCP ports of the loopback interface which nobody listens on. All are held until all are found, so they differ.
/// Somebody else may take one before it is used; a caller that starts a server tries again with other ports.
///
/// # Errors
/// The system's, when it has no port to give.
pub fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
