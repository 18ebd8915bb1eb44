//! The buffer that an engine's weights go into: placement, hits, misses and every other entry.
//!
//! Invariants:
//! - the buffer carries our type while tensors are placed and the stock CPU_REPACK type from the
//!   first `set_tensor` on, so that stock kernels compute on it and we never do;
//! - a tensor's bytes are, when `set_tensor` returns, what the engine's own packer makes of its
//!   source;
//! - `free_buffer` ends all background work on the buffer before its address space goes away.
//!
//! Never: unwinds into the host. A panic inside falls back to the engine's own packer.

use crate::abi::v3;
use crate::plugin::Plugin;
use crate::tensor::shape_of;
use packhouse_layout::ggml_cpu_repack as layout;
use packhouse_loader::{Level, Load, Request, Served};
use packhouse_sys::map::{Backing, HUGE_PAGE_BYTES, Region, Reservation};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What hangs behind a buffer of ours.
struct BufferContext {
    plugin: &'static Plugin,
    load: Load,
    reservation: Arc<Reservation>,
    /// The regions by offset; each tensor that is no view has one.
    regions: Mutex<BTreeMap<usize, Placed>>,
    relabelled: AtomicBool,
}

#[derive(Clone)]
struct Placed {
    region: Arc<Region>,
    served: bool,
}

/// Where in a region an access goes.
struct Target {
    region: Arc<Region>,
    offset: usize,
    served: bool,
}

/// Our buffer type's `alloc_buffer`. Falls back to the engine's own allocation.
pub(crate) unsafe extern "C" fn alloc_buffer(
    _buffer_type: *mut v3::BufferType,
    bytes: usize,
) -> *mut v3::Buffer {
    guarded("alloc_buffer", || {
        let plugin = Plugin::of_this_process()?;
        Some(new_buffer(plugin, bytes).unwrap_or_else(|| plugin.host.stock_buffer(bytes)))
    })
    .flatten()
    .unwrap_or(ptr::null_mut())
}

/// Our buffer type's `alloc_buffer_n`: places large tensors on huge-page boundaries.
pub(crate) unsafe extern "C" fn alloc_buffer_n(
    _buffer_type: *mut v3::BufferType,
    tensors: *mut *mut v3::Tensor,
    count: c_int,
) -> *mut v3::Buffer {
    guarded("alloc_buffer_n", || {
        let plugin = Plugin::of_this_process()?;
        // SAFETY: the host gives `count` tensors of its own.
        let list = unsafe { tensor_list(tensors, count) };
        let (offsets, bytes) = placement(plugin, list);
        let Some(buffer) = new_buffer(plugin, bytes) else {
            // SAFETY: as above.
            return Some(unsafe { plugin.host.stock_buffer_of(tensors, count) });
        };
        // SAFETY: the buffer is ours and new, the tensors are the host's.
        if unsafe { place_all(plugin, buffer, list, &offsets) } {
            return Some(buffer);
        }
        // SAFETY: nobody else has seen the buffer.
        unsafe { plugin.host.free_buffer(buffer) };
        None
    })
    .flatten()
    .unwrap_or(ptr::null_mut())
}

/// Our buffer type's `get_alloc_size_n`: what `alloc_buffer_n` would reserve.
pub(crate) unsafe extern "C" fn get_alloc_size_n(
    _buffer_type: *mut v3::BufferType,
    tensors: *mut *mut v3::Tensor,
    count: c_int,
) -> usize {
    guarded("get_alloc_size_n", || {
        let plugin = Plugin::of_this_process()?;
        // SAFETY: the host gives `count` tensors of its own.
        Some(placement(plugin, unsafe { tensor_list(tensors, count) }).1)
    })
    .flatten()
    .unwrap_or(0)
}

/// Our buffer type's `get_alignment`: whole pages, so that objects can be mapped over tensors.
pub(crate) unsafe extern "C" fn get_alignment(_buffer_type: *mut v3::BufferType) -> usize {
    page_bytes()
}

fn new_buffer(plugin: &'static Plugin, bytes: usize) -> Option<*mut v3::Buffer> {
    let reservation = match Reservation::new(bytes) {
        Ok(reservation) => Arc::new(reservation),
        Err(error) => {
            let line = format!("no address space for {bytes} bytes: {error}; the engine packs");
            plugin.say(Level::Warn, &line);
            return None;
        }
    };
    let context = Box::new(BufferContext {
        plugin,
        load: plugin.loader.begin(),
        reservation,
        regions: Mutex::default(),
        relabelled: AtomicBool::new(false),
    });
    let context = Box::into_raw(context);
    let buffer_type = plugin.buffer_type();
    Some(
        plugin
            .host
            .make_buffer(buffer_type, INTERFACE, context.cast(), bytes),
    )
}

/// The tensors of a list.
///
/// # Safety
/// `tensors` must point at `count` valid pointers, or `count` must be 0.
unsafe fn tensor_list<'a>(tensors: *mut *mut v3::Tensor, count: c_int) -> &'a [*mut v3::Tensor] {
    match usize::try_from(count) {
        // SAFETY: passed on to the caller.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(tensors, count) },
        Ok(_) | Err(_) => &[],
    }
}

/// Lays tensors that still need a place one after the other: on pages, from 2 MiB on on huge pages,
/// so that large folios and huge-page file systems can back them. Returns an offset per tensor and
/// the whole size.
fn placement(plugin: &Plugin, tensors: &[*mut v3::Tensor]) -> (Vec<Option<usize>>, usize) {
    let mut end = 0usize;
    let offsets = tensors.iter().map(|tensor| {
        // SAFETY: the host's tensors are valid.
        let (open, bytes) = unsafe {
            let open = (**tensor).data.is_null() && (**tensor).view_src.is_null();
            (open, plugin.host.tensor_bytes(*tensor))
        };
        let alignment = if bytes >= HUGE_PAGE_BYTES {
            HUGE_PAGE_BYTES
        } else {
            page_bytes()
        };
        open.then(|| {
            let offset = end.next_multiple_of(alignment);
            end = offset + bytes.next_multiple_of(page_bytes());
            offset
        })
    });
    (offsets.collect(), end)
}

/// Places tensors and initialises views of them, as the host's default does. False when the host
/// refuses.
///
/// # Safety The buffer must be a new one of ours, the tensors the host's.
unsafe fn place_all(
    plugin: &Plugin,
    buffer: *mut v3::Buffer,
    tensors: &[*mut v3::Tensor],
    offsets: &[Option<usize>],
) -> bool {
    // SAFETY: `new_buffer` put this context there.
    let base = unsafe { context_of(buffer) }.reservation.base();
    tensors.iter().zip(offsets).all(|(tensor, offset)| {
        // SAFETY: the offsets are inside the reservation; the tensors are the host's.
        let status = unsafe {
            match offset {
                Some(offset) => plugin
                    .host
                    .place(buffer, *tensor, base.wrapping_add(*offset)),
                None if !(**tensor).view_src.is_null() && (**tensor).buffer.is_null() => {
                    plugin.host.place_view(*tensor)
                }
                None => v3::STATUS_SUCCESS,
            }
        };
        status == v3::STATUS_SUCCESS
    })
}

unsafe extern "C" fn free_buffer(buffer: *mut v3::Buffer) {
    guarded("free_buffer", || {
        // SAFETY: `new_buffer` leaked this box into the buffer, and the host frees a buffer once.
        let context = unsafe { Box::from_raw((*buffer).context.cast::<BufferContext>()) };
        context.load.close();
        // A fill's thread has idle priority and may hold the regions for a while yet.
        for placed in context.lock().values() {
            if let Err(error) = placed.region.give_back() {
                let line = format!("memory of an unloaded model stays: {error}");
                context.plugin.say(Level::Warn, &line);
            }
        }
    });
}

unsafe extern "C" fn get_base(buffer: *mut v3::Buffer) -> *mut c_void {
    // SAFETY: `new_buffer` put this context there.
    unsafe { context_of(buffer) }.reservation.base().cast()
}

unsafe extern "C" fn init_tensor(buffer: *mut v3::Buffer, tensor: *mut v3::Tensor) -> c_int {
    guarded("init_tensor", || {
        // SAFETY: the buffer is ours, the tensor the host's.
        unsafe { context_of(buffer).init_tensor(tensor) }
    })
    .unwrap_or(v3::STATUS_FAILED)
}

unsafe extern "C" fn set_tensor(
    buffer: *mut v3::Buffer,
    tensor: *mut v3::Tensor,
    source: *const c_void,
    offset: usize,
    bytes: usize,
) {
    // SAFETY: the buffer is ours, the tensor the host's, and the host gives `bytes` readable bytes.
    unsafe {
        let context = context_of(buffer);
        context.relabel(buffer);
        let served = guarded("set_tensor", || {
            context.set_tensor(tensor, source.cast(), offset, bytes);
        });
        if served.is_none() {
            // A defect here must not cost the user the model: the engine's own packer does it all
            // again.
            guarded("set_tensor again", || {
                context.set_plainly(tensor, source.cast(), offset, bytes)
            });
        }
    }
}

unsafe extern "C" fn get_tensor(
    buffer: *mut v3::Buffer,
    tensor: *const v3::Tensor,
    target: *mut c_void,
    offset: usize,
    bytes: usize,
) {
    guarded("get_tensor", || {
        // SAFETY: the buffer is ours, the tensor the host's, and the host gives `bytes` writable
        // bytes.
        unsafe {
            let context = context_of(buffer);
            let target = std::slice::from_raw_parts_mut(target.cast::<u8>(), bytes);
            target.fill(0);
            let place = context.find((*tensor).data, offset, bytes);
            if let Some(place) = place
                && let Some(held) = place.region.read()
            {
                target.copy_from_slice(&held[place.offset..place.offset + bytes]);
            }
        }
    });
}

unsafe extern "C" fn memset_tensor(
    buffer: *mut v3::Buffer,
    tensor: *mut v3::Tensor,
    value: u8,
    offset: usize,
    bytes: usize,
) {
    guarded("memset_tensor", || {
        // SAFETY: the buffer is ours, the tensor the host's.
        let context = unsafe { context_of(buffer) };
        // SAFETY: as above.
        let address = unsafe { (*tensor).data };
        context.write(address, offset, bytes, |target| target.fill(value));
    });
}

unsafe extern "C" fn clear(buffer: *mut v3::Buffer, value: u8) {
    guarded("clear", || {
        // SAFETY: the buffer is ours.
        let context = unsafe { context_of(buffer) };
        let regions: Vec<_> = context.lock().values().cloned().collect();
        for placed in regions {
            let address = placed.region.address().cast();
            context.write(address, 0, placed.region.bytes(), |target| {
                target.fill(value)
            });
        }
    });
}

impl BufferContext {
    /// # Safety
    /// The tensor must be a whole one of the host, placed in this buffer.
    unsafe fn init_tensor(&self, tensor: *mut v3::Tensor) -> c_int {
        // SAFETY: passed on to the caller.
        let (status, head, bytes) = unsafe {
            let status = self.plugin.host.init_tensor(tensor);
            (status, *tensor, self.plugin.host.tensor_bytes(tensor))
        };
        if status != v3::STATUS_SUCCESS || !head.view_src.is_null() || bytes == 0 {
            return status;
        }
        let offset = head
            .data
            .addr()
            .wrapping_sub(self.reservation.base().addr());
        let mut regions = self.lock();
        if regions
            .get(&offset)
            .is_some_and(|placed| placed.region.bytes() == bytes)
        {
            return status;
        }
        let region = self
            .vacate(&mut regions, offset, bytes)
            .and_then(|()| Region::new(self.reservation.clone(), offset, bytes));
        match region {
            Ok(region) => {
                let placed = Placed {
                    region: Arc::new(region),
                    served: false,
                };
                regions.insert(offset, placed);
                self.load.expect();
                status
            }
            Err(error) => {
                let line = format!("a tensor of {bytes} bytes at offset {offset}: {error}");
                self.plugin.say(Level::Error, &line);
                v3::STATUS_FAILED
            }
        }
    }

    /// Takes away the regions that share a page with a range, for a host that places tensors over
    /// older ones. Nothing of this load is stored from then on: what waits may be written over.
    /// Errors as mmap does.
    fn vacate(
        &self,
        regions: &mut BTreeMap<usize, Placed>,
        offset: usize,
        bytes: usize,
    ) -> io::Result<()> {
        let end = offset.saturating_add(bytes).next_multiple_of(page_bytes());
        let overlapping = regions.range(..end).filter(|(start, placed)| {
            let region_end = (*start + placed.region.bytes()).next_multiple_of(page_bytes());
            region_end > offset
        });
        let overlapping: Vec<usize> = overlapping.map(|(start, _)| *start).collect();
        if !overlapping.is_empty() {
            self.load.cancel_fill();
        }
        for start in overlapping {
            if let Some(placed) = regions.remove(&start)
                && placed.region.backing() == Backing::Attached
            {
                placed.region.with_private(|_| ())?;
            }
        }
        Ok(())
    }

    /// # Safety The tensor must be a whole one of the host in this buffer; `source` has `bytes`
    /// readable bytes.
    unsafe fn set_tensor(
        &self,
        tensor: *mut v3::Tensor,
        source: *const u8,
        offset: usize,
        bytes: usize,
    ) {
        // SAFETY: passed on to the caller.
        let (head, extra) = unsafe { (*tensor, self.plugin.host.extra_of(tensor)) };
        let whole = offset == 0 && head.view_src.is_null() && !extra.is_null();
        let place = self.find(head.data, offset, bytes);
        let servable = place.filter(|place| {
            whole && !place.served && place.offset == 0 && place.region.bytes() == bytes
        });
        let admitted = servable.and_then(|place| {
            let (ty, dims) = shape_of(&head)?;
            let geometry = layout::admit(ty, &dims).ok()?;
            let same_choice = self.plugin.packer.choice(ty, &dims) == extra;
            let exact = geometry.payload_bytes() == u64::try_from(bytes).ok()?;
            (same_choice && exact).then_some((place, ty, dims, geometry))
        });
        let Some((place, ty, dims, geometry)) = admitted else {
            // SAFETY: passed on to the caller.
            unsafe { self.set_plainly(tensor, source, offset, bytes) };
            return;
        };
        // SAFETY: the host gives `bytes` readable bytes for the length of this call.
        let source = unsafe { std::slice::from_raw_parts(source, bytes) };
        // SAFETY: passed on to the caller.
        let name = unsafe { self.plugin.host.name_of(tensor) };
        let region = &place.region;
        let request = Request {
            name: &name,
            ty,
            dims: &dims,
            geometry,
            source,
            region,
        };
        if self.load.serve(request) == Served::NotFilled {
            // SAFETY: passed on to the caller.
            unsafe { self.set_plainly(tensor, source.as_ptr(), offset, bytes) };
        }
        self.mark_served(region);
    }

    /// Does what stock does, in private memory: packs a whole tensor, copies anything else.
    ///
    /// # Safety
    /// As for `set_tensor`.
    unsafe fn set_plainly(
        &self,
        tensor: *mut v3::Tensor,
        source: *const u8,
        offset: usize,
        bytes: usize,
    ) {
        // SAFETY: passed on to the caller.
        let (address, packs) = unsafe {
            let host = &self.plugin.host;
            let packs = !host.extra_of(tensor).is_null() && offset == 0;
            ((*tensor).data, packs && host.tensor_bytes(tensor) == bytes)
        };
        self.write(address, offset, bytes, |target| {
            // SAFETY: `target` is the tensor's own memory; the host gives `bytes` readable bytes.
            unsafe {
                if packs {
                    self.plugin.host.pack(tensor, source, bytes);
                } else {
                    ptr::copy_nonoverlapping(source, target.as_mut_ptr(), bytes);
                }
            }
        });
    }

    /// Writes into private memory of the region that holds the range. Ends the load's background
    /// work first, which may be reading the region.
    fn write(
        &self,
        address: *mut c_void,
        offset: usize,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let Some(place) = self.find(address, offset, bytes) else {
            let line = format!("a write of {bytes} bytes outside every tensor was left out");
            return self.plugin.say(Level::Error, &line);
        };
        if place.served {
            self.load.cancel_fill();
        } else {
            self.load.leave_out(place.region.bytes());
        }
        let range = place.offset..place.offset + bytes;
        if let Err(error) = place.region.with_private(|target| fill(&mut target[range])) {
            let line = format!("no memory for {bytes} bytes of a tensor: {error}");
            self.plugin.say(Level::Error, &line);
            // Stock fails its allocation here; there is no way to tell the host, and going on would
            // compute with bytes that are not the model's.
            #[expect(
                clippy::disallowed_methods,
                reason = "the host would go on with wrong bytes"
            )]
            std::process::abort();
        }
        self.mark_served(&place.region);
    }

    /// Finds the region that holds a range.
    fn find(&self, address: *mut c_void, offset: usize, bytes: usize) -> Option<Target> {
        let start = address
            .addr()
            .wrapping_sub(self.reservation.base().addr())
            .checked_add(offset)?;
        let regions = self.lock();
        let (first_offset, placed) = regions.range(..=start).next_back()?;
        let offset = start - first_offset;
        if offset.checked_add(bytes)? > placed.region.bytes() {
            return None;
        }
        Some(Target {
            region: placed.region.clone(),
            offset,
            served: placed.served,
        })
    }

    fn mark_served(&self, region: &Arc<Region>) {
        let offset = region.address().addr() - self.reservation.base().addr();
        if let Some(placed) = self.lock().get_mut(&offset) {
            placed.served = true;
        }
    }

    /// Gives the buffer the stock type, once.
    ///
    /// # Safety
    /// The buffer must be this context's.
    unsafe fn relabel(&self, buffer: *mut v3::Buffer) {
        if !self.relabelled.swap(true, Ordering::Relaxed) {
            // SAFETY: the host reads the type only between the calls it makes on the thread that
            // loads.
            unsafe { (*buffer).buffer_type = self.plugin.host.repack_type() };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Placed>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The context of a buffer of ours.
///
/// # Safety
/// The buffer must be one that `new_buffer` made and that was not freed.
unsafe fn context_of<'a>(buffer: *mut v3::Buffer) -> &'a BufferContext {
    // SAFETY: `new_buffer` leaked the box; `free_buffer` takes it back last.
    unsafe { &*(*buffer).context.cast::<BufferContext>() }
}

/// Runs a callback without letting a panic out; `None` after one.
fn guarded<R>(name: &str, run: impl FnOnce() -> R) -> Option<R> {
    let result = catch_unwind(AssertUnwindSafe(run));
    if result.is_err()
        && let Some(plugin) = Plugin::of_this_process()
    {
        plugin.say(
            Level::Error,
            &format!("a defect in {name}: please report; the engine goes on"),
        );
    }
    result.ok()
}

fn page_bytes() -> usize {
    packhouse_sys::map::page_bytes()
}

const INTERFACE: v3::BufferInterface = v3::BufferInterface {
    free_buffer: Some(free_buffer),
    get_base: Some(get_base),
    init_tensor: Some(init_tensor),
    memset_tensor: Some(memset_tensor),
    set_tensor: Some(set_tensor),
    get_tensor: Some(get_tensor),
    set_tensor_2d: None,
    get_tensor_2d: None,
    cpy_tensor: None,
    clear: Some(clear),
    reset: None,
};
