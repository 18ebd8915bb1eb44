//! Which weights do we take? Exactly those that the engine itself would give to CPU_REPACK.
//!
//! Our device comes first in the engine's list, so "would CPU_REPACK take it?" is not enough: a
//! type that stock asks earlier may take it too. The engine's own order is walked with a zero-sized
//! buffer of each type put in the weight's place, on copies, so that nothing of the host is
//! changed.

use crate::abi::v3;
use crate::host::{Candidate, Host};
use crate::tensor::OwnTensor;

/// The walk through the engine's own order.
pub(crate) struct Selection {
    places: Vec<(Candidate, *mut v3::Buffer)>,
}

// SAFETY: the pointers lead to process-long objects of the host that nobody changes.
unsafe impl Send for Selection {}
// SAFETY: as for Send.
unsafe impl Sync for Selection {}

impl Selection {
    /// Asks the host for its order, once all its devices are registered.
    pub(crate) fn new(host: &Host, no_host: bool) -> Self {
        let places = host.candidates(no_host).into_iter();
        let places = places.map(|place| (place, host.dummy_buffer(place.buffer_type)));
        Self {
            places: places.collect(),
        }
    }

    /// Answers `supports_op` of our device: an op that moves no byte on our type, or an op whose
    /// weight in our type the engine would have put into CPU_REPACK.
    ///
    /// # Safety `op` must be a whole tensor of the host with whole sources.
    pub(crate) unsafe fn takes(
        &self,
        host: &Host,
        own_type: *mut v3::BufferType,
        op: *const v3::Tensor,
    ) -> bool {
        // SAFETY: the caller gives a whole tensor.
        let head = unsafe { &*op };
        // SAFETY: sources of a host's op are whole tensors or null.
        let weight = head
            .src
            .iter()
            .position(|source| unsafe { is_in(*source, own_type) });
        if host.found().ops.empty.contains(&head.op) {
            // SAFETY: as above.
            return weight.is_some() || unsafe { is_in(op.cast_mut(), own_type) };
        }
        let Some(weight) = weight else { return false };
        for (place, dummy) in &self.places {
            // SAFETY: `op` and its sources are whole tensors of the host.
            let accepts = unsafe { accepts(host, *place, *dummy, op, weight) };
            if accepts {
                return place.buffer_type == host.repack_type();
            }
        }
        false
    }
}

/// Asks one place about a copy of the op whose weight sits in a dummy buffer of that place's type.
///
/// # Safety
/// As for `Selection::takes`.
unsafe fn accepts(
    host: &Host,
    place: Candidate,
    dummy: *mut v3::Buffer,
    op: *const v3::Tensor,
    weight: usize,
) -> bool {
    if dummy.is_null() {
        return false;
    }
    // SAFETY: both are whole tensors of the host; the copies live over the call.
    unsafe {
        let mut op_copy = OwnTensor::copy_of(host, op);
        let mut weight_copy = OwnTensor::copy_of(host, (*op).src[weight]);
        weight_copy.head_mut().buffer = dummy;
        op_copy.head_mut().src[weight] = weight_copy.as_ptr();
        host.supports_op(place.device, op_copy.as_ptr())
    }
}

/// Tells whether a tensor, or what it views, lies in a buffer of the type.
///
/// # Safety
/// `tensor` must be null or a whole tensor of the host.
unsafe fn is_in(tensor: *mut v3::Tensor, buffer_type: *mut v3::BufferType) -> bool {
    // SAFETY: the host keeps `buffer` and `view_src` null or valid.
    unsafe {
        if tensor.is_null() {
            return false;
        }
        let holder = if (*tensor).view_src.is_null() {
            tensor
        } else {
            (*tensor).view_src
        };
        let buffer = (*holder).buffer;
        !buffer.is_null() && (*buffer).buffer_type == buffer_type
    }
}
