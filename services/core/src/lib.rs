//! Values that every groundplane service shares: addresses, names, owners, kinds of error, time.
//!
//! Nothing here does I/O, and nothing here knows a service. A value of these types has been parsed: its
//! constructor refused what is not valid, so the rest of the code never checks again.

mod address;
mod clock;
mod driver;
mod error;
mod name;
pub mod names;
pub mod older;
pub mod order;
mod owner;

pub use address::{AddressRange, Family, ParseAddressError, Prefix};
pub use clock::{Clock, FixedClock, SystemClock};
pub use driver::{DriverName, UnknownDriver};
pub use error::{ErrorKind, Kinded};
pub use name::{ClusterId, Name, NetworkName, NodeName, ParseNameError, PoolName, ProviderId};
pub use owner::{Owner, OwnerKind, PoolId, PoolSource, Revision};
