//! Messages of the API endpoint to values, and back.

use groundplane_cloud::EndpointAssignment;
use groundplane_proto::eip::v1 as proto;
use groundplane_runtime::grpc::{InvalidField, timestamp};

use super::convert;
use crate::app::{Moved, Seen};
use crate::domain::Wish;
use crate::error::EipError;

/// What a caller wants moved, and where.
pub(super) fn wish(request: &proto::MoveEndpointRequest) -> Result<Wish, EipError> {
    convert::cluster(&request.cluster)?;
    let address = request
        .address
        .parse()
        .map_err(|error| InvalidField::new("address", error))?;
    let to = request
        .to
        .parse()
        .map_err(|error| InvalidField::new("to", error))?;
    let decided_on = Some(request.assignment_id.clone()).filter(|id| !id.is_empty());
    Ok(Wish {
        address,
        to,
        decided_on,
    })
}

fn assignment(assignment: EndpointAssignment) -> proto::EndpointAssignment {
    proto::EndpointAssignment {
        id: assignment.id,
        holder: assignment.machine.to_string(),
    }
}

impl From<Seen> for proto::GetEndpointResponse {
    fn from(seen: Seen) -> Self {
        let mut assignments = seen.endpoint.assignments.into_iter();
        let (holder, assignment_id) = assignments
            .next()
            .map(|first| (first.machine.to_string(), first.id))
            .unwrap_or_default();
        Self {
            address: seen.endpoint.address.to_string(),
            holder,
            assignment_id,
            other_assignments: assignments.map(assignment).collect(),
            read_at: Some(timestamp(seen.read_at)),
            calls_per_move: seen.calls_per_move,
        }
    }
}

impl From<Moved> for proto::MoveEndpointResponse {
    fn from(moved: Moved) -> Self {
        // A gap that does not fit is none that this process has seen.
        let gap = moved.gap.and_then(|gap| gap.try_into().ok());
        Self {
            assignment_id: moved.assignment,
            gap,
            calls: moved.calls,
            unchanged: moved.unchanged,
        }
    }
}
