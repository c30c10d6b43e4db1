//! How much memory the process holds, counted at the allocator.
//!
//! INFO and maxmemory want the bytes in use before every command, so asking must cost
//! nothing. [`CountingAllocator`] adds up what it hands out, by the allocator's true
//! size classes. A binary installs it with
//!
//! ```text
//! use disque::base::memory::CountingAllocator;
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//! ```
//!
//! and without that every number here stays 0.
//!
//! The largest blocks come from the system itself, on Linux: a buffer that grows by
//! reallocation is then moved by its page tables and not copied, so that it takes no more
//! memory than what is in it, nor a pause for each of its sizes. This relies on three system
//! calls and on no C library, so glibc and musl are the same:
//!
//! - `mmap` of private, anonymous memory gives whole pages of zeros, or fails;
//! - `mremap` with `MREMAP_MAYMOVE` keeps what is in them, and new pages are zeros; when it fails
//!   the block is as it was. Other systems have no such call, so there no block is mapped;
//! - `munmap` of a whole mapping takes it away. A mapping is never unmapped or moved in part.
//!
//! The kernel rounds lengths up to its own pages. Where these are larger than [`PAGE`] a block
//! has a little more than is counted, and alignments up to [`PAGE`] hold all the same. A limit of
//! address space, or strict overcommitment, makes a call fail like any allocator's.
//!
//! Each thread gathers its changes and adds them to the common count when they pass
//! [`BATCH_BYTES`]. The calling thread's own are always counted, so the server's one
//! working thread reads exact numbers of its own work; each other thread may hide
//! up to a batch.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
#[cfg(feature = "jemalloc")]
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

#[cfg(not(feature = "jemalloc"))]
use std::alloc::System as Inner;
#[cfg(feature = "jemalloc")]
use tikv_jemallocator::Jemalloc as Inner;

const BATCH_BYTES: isize = 4096;
/// Blocks of this size and more get all their pages at once, see [`copy_of`].
const POPULATED_MIN: usize = 32 * 1024;
const PAGE: usize = 4096;
/// Blocks of this size and more are the system's own. Below it, to have a block at hand that
/// was in use before is worth more than not to copy 10 MB once.
const MAPPED_MIN: usize = 16 * 1024 * 1024;

/// Bytes in use, without what the threads have not yet added.
static USED: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    // Constant and without a destructor: using them neither allocates nor fails.
    static PENDING: Cell<isize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Bytes in use.
pub fn used() -> usize {
    flush();
    usize::try_from(USED.load(Relaxed)).unwrap_or(0)
}

/// The most bytes that were ever in use, exact to a batch.
pub fn peak() -> usize {
    flush();
    usize::try_from(PEAK.load(Relaxed)).unwrap_or(0)
}

/// How often the calling thread has allocated, counting each reallocation. Tests
/// take the difference around a command.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// A copy of `bytes` in a block of its exact size.
///
/// A new block's pages come one by one as they are written to, each by an interrupt; a
/// large block asks for them in one call. On a virtual machine this takes an ADDJOB of
/// 64 KiB from 55 to 39 us; huge pages would be faster still (24 us) while the host has them
/// at hand, and stall for up to 6 ms a page while it has not.
pub fn copy_of(bytes: &[u8]) -> Box<[u8]> {
    let mut copy = Vec::with_capacity(bytes.len());
    if bytes.len() >= POPULATED_MIN {
        populate(copy.spare_capacity_mut());
    }
    copy.extend_from_slice(bytes);
    copy.into_boxed_slice()
}

#[cfg(target_os = "linux")]
fn populate(block: &mut [MaybeUninit<u8>]) {
    let to_first_page = block.as_ptr().align_offset(PAGE);
    let Some(pages) = block.get_mut(to_first_page..) else { return };
    // SAFETY: the range lies within a block that this thread has borrowed, and what is in
    // it stays as it is. A kernel before 5.14 refuses, and then they come one by one.
    unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_POPULATE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
fn populate(_block: &mut [MaybeUninit<u8>]) {}

/// Has the allocator give freed memory back from a thread of its own; tells whether it does.
///
/// Left to itself jemalloc gives back what has been free for ten seconds while it is called,
/// and a server whose jobs are all gone, and who has nothing to do, keeps everything: 102 MB
/// after 400,000 jobs, and 10 with the thread. A fork ends the thread: call this after it.
#[cfg(feature = "jemalloc")]
pub fn give_back_from_a_thread() -> bool {
    unsafe extern "C" {
        fn _rjem_mallctl(
            name: *const c_char,
            old: *mut c_void,
            old_len: *mut usize,
            new: *mut c_void,
            new_len: usize,
        ) -> c_int;
    }
    let mut is_on = true;
    let (nothing, new) = (ptr::null_mut(), ptr::from_mut(&mut is_on).cast());
    // SAFETY: this is jemalloc's `mallctl`. The setting is a `bool`, given with its size,
    // and its old value is not asked for.
    let error =
        unsafe { _rjem_mallctl(c"background_thread".as_ptr(), nothing, ptr::null_mut(), new, 1) };
    error == 0
}

#[cfg(not(feature = "jemalloc"))]
pub const fn give_back_from_a_thread() -> bool {
    false
}

/// Counts what goes through it; see the module's text.
pub struct CountingAllocator;

// SAFETY: a block belongs to the inner allocator or to `mapped`, which is decided by nothing
// but its layout, so every call about it goes to the same one. The inner allocator gets the
// arguments as they came, and its answer is handed on as it is. Counting touches thread-locals
// and atomics only and cannot unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let memory = match is_mapped(layout) {
            true => mapped::alloc(layout.size()),
            // SAFETY: the caller keeps `alloc`'s contract, which is the inner one's too.
            false => unsafe { Inner.alloc(layout) },
        };
        if !memory.is_null() {
            count_allocation(size_class(layout));
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let memory = match is_mapped(layout) {
            // What is fresh from the system is zero.
            true => mapped::alloc(layout.size()),
            // SAFETY: as in `alloc`.
            false => unsafe { Inner.alloc_zeroed(layout) },
        };
        if !memory.is_null() {
            count_allocation(size_class(layout));
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match is_mapped(layout) {
            // SAFETY: `memory` came from `mapped` with this size.
            true => unsafe { mapped::dealloc(memory, layout.size()) },
            // SAFETY: `memory` came from the inner allocator with this layout.
            false => unsafe { Inner.dealloc(memory, layout) },
        }
        count(-size_class(layout));
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: `realloc`'s contract: the new size fits a layout of this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let moved = match (is_mapped(layout), is_mapped(new)) {
            // SAFETY: as in `dealloc`; the caller checked the new size.
            (false, false) => unsafe { Inner.realloc(memory, layout, new_size) },
            // SAFETY: as in `dealloc`.
            (true, true) => unsafe { mapped::realloc(memory, layout.size(), new_size) },
            // SAFETY: the caller keeps `realloc`'s contract.
            _ => return unsafe { self.move_to(memory, layout, new) },
        };
        if !moved.is_null() {
            count_allocation(size_class(new) - size_class(layout));
        }
        moved
    }
}

impl CountingAllocator {
    /// Copies a block to a new one, and frees it.
    ///
    /// # Safety
    /// As for `realloc`.
    unsafe fn move_to(&self, memory: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        // SAFETY: the new size is not 0, as the caller has seen to.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            let len = layout.size().min(new.size());
            // SAFETY: both blocks are at least as long and are two. The old one, which came
            // from this allocator with this layout, is not used any more.
            unsafe {
                ptr::copy_nonoverlapping(memory, moved, len);
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

/// Whether a block of this layout is the system's own.
const fn is_mapped(layout: Layout) -> bool {
    cfg!(target_os = "linux") && layout.size() >= MAPPED_MIN && layout.align() <= PAGE
}

/// Blocks that are mappings of their own.
#[cfg(target_os = "linux")]
mod mapped {
    use std::ptr;

    use super::{PAGE, round_up};

    /// Returns a block that is all zeros, at the beginning of a page; null when there is none.
    pub fn alloc(size: usize) -> *mut u8 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping that the system places touches no memory in use.
        let block =
            unsafe { libc::mmap(ptr::null_mut(), round_up(size, PAGE), access, kind, -1, 0) };
        or_null(block)
    }

    /// # Safety
    /// `block` came from here with `size`, and is not used any more.
    pub unsafe fn dealloc(block: *mut u8, size: usize) {
        // SAFETY: the mapping is the block, all of it and nothing else. Unmapping it all cannot
        // fail, and if it did, the block would only be lost.
        unsafe { libc::munmap(block.cast(), round_up(size, PAGE)) };
    }

    /// Returns the block in its new size, maybe at another place; null when that is
    /// impossible, and then it is as it was.
    ///
    /// # Safety
    /// `block` came from here with `size`.
    pub unsafe fn realloc(block: *mut u8, size: usize, new_size: usize) -> *mut u8 {
        let (size, new_size) = (round_up(size, PAGE), round_up(new_size, PAGE));
        // SAFETY: the mapping is the block, all of it and nothing else; it may be moved, since
        // the caller goes on with the address that is returned.
        or_null(unsafe { libc::mremap(block.cast(), size, new_size, libc::MREMAP_MAYMOVE) })
    }

    fn or_null(block: *mut libc::c_void) -> *mut u8 {
        if block == libc::MAP_FAILED { ptr::null_mut() } else { block.cast() }
    }
}

/// Elsewhere no block is one; see [`is_mapped`].
#[cfg(not(target_os = "linux"))]
mod mapped {
    pub fn alloc(_size: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    pub unsafe fn dealloc(_block: *mut u8, _size: usize) {}

    pub unsafe fn realloc(_block: *mut u8, _size: usize, _new_size: usize) -> *mut u8 {
        std::ptr::null_mut()
    }
}

fn count_allocation(bytes: isize) {
    ALLOCATIONS.set(ALLOCATIONS.get().wrapping_add(1));
    count(bytes);
}

fn count(bytes: isize) {
    let pending = PENDING.get().wrapping_add(bytes);
    PENDING.set(pending);
    if !(-BATCH_BYTES..=BATCH_BYTES).contains(&pending) {
        flush();
    }
}

#[cold]
fn flush() {
    let pending = PENDING.replace(0);
    if pending != 0 {
        let used = USED.fetch_add(pending, Relaxed).wrapping_add(pending);
        PEAK.fetch_max(used, Relaxed);
    }
}

/// The bytes that an allocation of this layout really takes.
///
/// jemalloc has multiples of 16 up to 128 bytes, then four classes in each doubling,
/// and whole pages from 16 KiB on. They are computed rather than asked for, which
/// would cost as much as the allocation; a test compares.
#[cfg(feature = "jemalloc")]
const fn size_class(layout: Layout) -> isize {
    const SMALLEST: usize = 8;
    const QUANTUM: usize = 16;
    const LARGE_MIN: usize = 4 * PAGE;

    let (size, align) = (layout.size(), layout.align());
    if size < LARGE_MIN && align <= PAGE {
        let padded = round_up(size, align);
        if padded <= SMALLEST {
            return SMALLEST as isize;
        }
        let doubling = (padded - 1).ilog2();
        let step = if doubling < 6 { QUANTUM } else { 1 << (doubling - 2) };
        return round_up(padded, step) as isize;
    }
    let pages = round_up(size, PAGE);
    (if pages < LARGE_MIN { LARGE_MIN } else { pages }) as isize
}

/// The bytes that an allocation of this layout takes, as malloc usually rounds them.
#[cfg(not(feature = "jemalloc"))]
const fn size_class(layout: Layout) -> isize {
    round_up(layout.size(), 16) as isize
}

/// Like `next_multiple_of`, which divides: this runs with every allocation.
const fn round_up(size: usize, power_of_two: usize) -> usize {
    (size + power_of_two - 1) & !(power_of_two - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// For all unit tests of the crate.
    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[cfg(feature = "jemalloc")]
    #[test]
    fn size_classes_are_those_of_jemalloc() {
        let sizes = (1..=40_000).step_by(7).chain((40_000..20_000_000).step_by(99_991));
        for size in sizes.chain([8, 9, 16, 128, 129, 14_336, 14_337, 16_384]) {
            for align in [1, 8, 16, 64, 4096, 8192] {
                let layout = Layout::from_size_align(size, align).expect("a valid layout");
                // SAFETY: the size is not 0, and what is allocated is freed as it was.
                let usable = unsafe {
                    let memory = Inner.alloc(layout);
                    let usable = tikv_jemallocator::usable_size(memory);
                    Inner.dealloc(memory, layout);
                    usable
                };
                assert_eq!(size_class(layout) as usize, usable, "size {size} align {align}");
            }
        }
    }

    #[test]
    fn a_copy_is_exact_whether_its_pages_came_at_once_or_not() {
        for len in [0, 1, 64, POPULATED_MIN - 1, POPULATED_MIN, POPULATED_MIN + 1, 1 << 20] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            assert_eq!(*copy_of(&bytes), *bytes);
        }
    }

    #[test]
    fn allocations_of_this_thread_are_counted_one_by_one() {
        let before = allocations();
        let boxed = black_box(Box::new(7_u64));
        assert_eq!(allocations() - before, 1);
        drop(boxed);
        let mut bytes = black_box(vec![0_u8; 100]);
        bytes.reserve_exact(1000);
        assert_eq!(allocations() - before, 3);
    }

    #[test]
    fn a_block_keeps_what_is_in_it_through_all_sizes() {
        let sizes = [1, MAPPED_MIN / 2, MAPPED_MIN, 3 * MAPPED_MIN + 1, MAPPED_MIN + 7, 100];
        let mut bytes: Vec<u8> = Vec::new();
        for size in sizes {
            let kept = bytes.len().min(size);
            bytes.truncate(size);
            bytes.reserve_exact(size - kept);
            bytes.shrink_to(size);
            assert_eq!(bytes.capacity(), size);
            let at = kept..size;
            bytes.extend(at.map(|at| (at % 251) as u8));
            let differs = (0..size).find(|&at| bytes[at] != (at % 251) as u8);
            assert_eq!(differs, None, "of {size}");
        }
        let zeros = black_box(vec![0_u8; 2 * MAPPED_MIN]);
        assert!(zeros.iter().all(|&byte| byte == 0));
    }

    /// Large enough to stand out from what tests beside this one allocate.
    #[test]
    fn used_and_peak_follow_a_large_allocation_of_any_thread() {
        const BIG: usize = 1 << 30;
        let before = used();
        let taken = std::thread::spawn(|| black_box(Vec::<u8>::with_capacity(BIG)));
        let taken = taken.join().expect("the thread only allocates");
        assert!(used() > before + BIG / 2);
        drop(black_box(taken));
        assert!(used() < before + BIG / 2);
        assert!(peak() >= BIG);
    }
}
