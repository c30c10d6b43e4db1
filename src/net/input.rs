//! What came in and is not processed yet.
//!
//! All connections read into one shared [`ReadBuffer`]. What is complete there is
//! processed in place; only an incomplete rest is copied to its connection's own
//! buffer, to be put in front of the next read. So in the common case a wake-up is
//! one read, and a connection between requests has no buffer at all.
//!
//! ```text
//! nothing kept          shared: [ read ............................ ]
//! a short rest kept     shared: [ rest | read ..................... ]
//! much kept or missing  own:    [ rest ......... | read ............ ]
//! ```
//!
//! An own buffer grows by half of what has come and never by what is announced alone, and
//! for a big argument or frame to its exact size. So the number of reads goes with the
//! number of bytes, in however small arguments they come.
//!
//! What all connections keep is counted in one [`Unfinished`], memory for memory, so
//! that its owner can bound the sum.
//!
//! A caller's round: [`Input::read`], then [`Input::take`] the bytes, process some,
//! [`Input::put_back`] what was not consumed.

use std::cell::Cell;
use std::io;
use std::mem;
use std::rc::Rc;

use super::stream::Stream;
use crate::base::limits::BIG_BULK;

/// Bytes asked of a socket that has no rest in front.
const SHARED_LEN: usize = BIG_BULK + 64 * 1024;
/// Bytes an own buffer grows by at least when nobody knows how much is missing.
const GROWTH_MIN: usize = 64 * 1024;
/// Bytes made room for when they are only announced, until as many have come. Differs from
/// C, which believes a client's 512 MiB: a few of them would pass for full memory.
const TRUSTED: usize = 1024 * 1024;
/// Own buffers over this are given back once empty; smaller ones when idle.
const KEPT_CAPACITY_MAX: usize = 4 * 1024;
/// What the few links to other nodes keep: a new buffer for every large job would be
/// new memory every time. REPLICATE 3 of 64 KiB: 162 us with it, 187 without.
const KEPT_CAPACITY_OF_LINK_MAX: usize = 256 * 1024;

/// Whether a read that returned less than it was asked for has emptied the socket, so
/// that the next bytes cause an event. mio's poll(2) backend reports them only after a
/// read that found nothing.
const SHORT_MEANS_EMPTY: bool = !cfg!(mio_unsupported_force_poll_poll);

/// The buffer all connections read into, and what one of them has in it.
pub struct ReadBuffer {
    bytes: Box<[u8]>,
    len: usize,
}

/// How much memory all connections together hold for requests and frames that are not
/// processed yet.
#[derive(Clone, Default)]
pub struct Unfinished(Rc<Cell<usize>>);

impl Unfinished {
    /// Returns the sum, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.get()
    }
}

/// One connection's unprocessed bytes.
pub struct Input {
    bytes: Vec<u8>,
    /// How many bytes at the start are processed.
    start: usize,
    /// How many bytes the next unit is known to lack; a hint for the size of reads.
    missing: usize,
    whose: Whose,
    unfinished: Unfinished,
    /// This input's part of `unfinished`.
    counted: usize,
}

/// Whose bytes come in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// One of maybe many clients, that are idle most of the time.
    Client,
    /// One of a few nodes.
    Node,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes, and there may be more.
    Full(usize),
    /// This many bytes (0: none), and the socket is empty for now.
    Short(usize),
    /// The other side sends no more.
    Closed,
}

/// Unprocessed bytes on loan from an [`Input`].
pub struct Taken {
    place: Place,
}

/// What became of the bytes on loan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processed {
    /// Bytes at the beginning that are done with.
    pub consumed: usize,
    /// Bytes that the next unit lacks, as far as anybody knows; 0 when it is not known.
    pub missing: usize,
    /// Memory that a parser holds for what is left, in bytes.
    pub parser_memory: usize,
}

enum Place {
    /// The whole shared buffer, of which the first bytes are the connection's.
    Shared(Box<[u8]>, usize),
    /// The connection's own buffer, from an offset on.
    Own(Vec<u8>, usize),
}

impl ReadBuffer {
    pub fn new() -> Self {
        Self { bytes: vec![0; SHARED_LEN].into_boxed_slice(), len: 0 }
    }
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Input {
    /// The input of a client, counted in `unfinished`.
    pub fn of_client(unfinished: &Unfinished) -> Self {
        Self::new(Whose::Client, unfinished)
    }

    /// The input of a link to another node, which keeps a larger buffer than a client's.
    pub fn of_link(unfinished: &Unfinished) -> Self {
        Self::new(Whose::Node, unfinished)
    }

    fn new(whose: Whose, unfinished: &Unfinished) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            missing: 0,
            whose,
            unfinished: unfinished.clone(),
            counted: 0,
        }
    }

    /// How many bytes are kept here.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes the own buffer could take without growing.
    pub fn free_capacity(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// How much memory what is kept here takes, in bytes: its part of [`Unfinished`].
    pub fn memory(&self) -> usize {
        self.counted
    }

    /// Reads once. What came, behind what was kept, is there to be taken.
    pub fn read(&mut self, stream: &mut Stream, shared: &mut ReadBuffer) -> io::Result<Received> {
        let kept = self.len();
        if kept > BIG_BULK || self.missing > BIG_BULK {
            return self.read_own(stream);
        }
        let space = &mut shared.bytes[kept..];
        let received = Received::new(stream.read(space)?, space.len());
        match received {
            Received::Short(0) | Received::Closed => {}
            Received::Full(len) | Received::Short(len) => {
                shared.bytes[..kept].copy_from_slice(&self.bytes[self.start..]);
                shared.len = kept + len;
                self.clear();
            }
        }
        Ok(received)
    }

    fn read_own(&mut self, stream: &mut Stream) -> io::Result<Received> {
        self.bytes.drain(..self.start);
        self.start = 0;
        if self.free_capacity() < self.missing.clamp(1, BIG_BULK) {
            self.bytes.reserve_exact(growth(self.missing, self.bytes.len()));
        }
        let space = self.free_capacity();
        Ok(Received::new(stream.read_spare(&mut self.bytes)?, space))
    }

    /// Hands out all unprocessed bytes. They come back by [`Input::put_back`], or by
    /// [`Taken::discard`] when the connection is gone.
    pub fn take(&mut self, shared: &mut ReadBuffer) -> Taken {
        let place = if self.is_empty() {
            Place::Shared(mem::take(&mut shared.bytes), mem::take(&mut shared.len))
        } else {
            Place::Own(mem::take(&mut self.bytes), mem::take(&mut self.start))
        };
        Taken { place }
    }

    /// Keeps what is left of the bytes on loan.
    pub fn put_back(&mut self, taken: Taken, processed: Processed, shared: &mut ReadBuffer) {
        let Processed { consumed, missing, parser_memory } = processed;
        self.missing = missing;
        match taken.place {
            Place::Shared(bytes, len) => {
                let rest = &bytes[consumed..len];
                if !rest.is_empty() {
                    let is_big = missing.max(rest.len()) > BIG_BULK;
                    let room = if is_big { growth(missing, rest.len()) } else { 0 };
                    self.bytes.reserve_exact(rest.len() + room);
                    self.bytes.extend_from_slice(rest);
                }
                shared.bytes = bytes;
            }
            Place::Own(bytes, start) => {
                self.bytes = bytes;
                self.start = start + consumed;
                if self.is_empty() {
                    self.clear();
                } else if self.bytes.capacity() > self.cut_from() {
                    self.bytes.drain(..self.start);
                    self.start = 0;
                    self.bytes.shrink_to_fit();
                }
            }
        }
        self.count(parser_memory);
    }

    /// The capacity from which on the buffer is too large for what is left in it.
    fn cut_from(&self) -> usize {
        KEPT_CAPACITY_OF_LINK_MAX.max(4 * (self.len() + self.missing.min(TRUSTED)))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
        let kept_max = match self.whose {
            Whose::Client => KEPT_CAPACITY_MAX,
            Whose::Node => KEPT_CAPACITY_OF_LINK_MAX,
        };
        if self.bytes.capacity() > kept_max {
            self.bytes = Vec::new();
        }
    }

    /// Brings this input's part of the common count up to date.
    fn count(&mut self, parser_memory: usize) {
        let memory = if self.is_empty() { 0 } else { self.bytes.capacity() + parser_memory };
        if memory != self.counted {
            let others = self.unfinished.bytes() - self.counted;
            self.unfinished.0.set(others + memory);
            self.counted = memory;
        }
    }

    /// Gives the buffer of an idle connection back.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.discard();
        }
    }

    /// Gives everything up, processed or not.
    pub fn discard(&mut self) {
        self.bytes = Vec::new();
        self.start = 0;
        self.count(0);
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Returns by how much to grow a buffer that holds `kept` bytes of a unit: by half as much
/// again, and for a big argument by no more than it lacks. What is missing says nothing of
/// what comes behind it when it is small.
fn growth(missing: usize, kept: usize) -> usize {
    let half = kept / 2;
    if missing <= BIG_BULK {
        half.max(GROWTH_MIN)
    } else if missing <= half.max(TRUSTED) + BIG_BULK {
        missing
    } else {
        half.max(TRUSTED)
    }
}

impl Received {
    fn new(read: Option<usize>, space: usize) -> Self {
        match read {
            None => Self::Short(0),
            Some(0) => Self::Closed,
            Some(len) if len < space && SHORT_MEANS_EMPTY => Self::Short(len),
            Some(len) => Self::Full(len),
        }
    }
}

impl Taken {
    pub fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Shared(bytes, len) => &bytes[..*len],
            Place::Own(bytes, start) => &bytes[*start..],
        }
    }

    /// The same bytes, for a parser that unquotes in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            Place::Shared(bytes, len) => &mut bytes[..*len],
            Place::Own(bytes, start) => &mut bytes[*start..],
        }
    }

    /// Gives the shared buffer back, and the bytes up.
    pub fn discard(self, shared: &mut ReadBuffer) {
        if let Place::Shared(bytes, _) = self.place {
            shared.bytes = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, Stream) {
        let (far, near) = UnixStream::pair().expect("a socket pair");
        near.set_nonblocking(true).expect("non-blocking");
        (far, Stream::Unix(mio::net::UnixStream::from_std(near)))
    }

    fn input() -> (Input, ReadBuffer) {
        (Input::of_client(&Unfinished::default()), ReadBuffer::new())
    }

    fn processed(consumed: usize, missing: usize) -> Processed {
        Processed { consumed, missing, parser_memory: 0 }
    }

    fn bytes_of(input: &mut Input, shared: &mut ReadBuffer) -> Vec<u8> {
        let taken = input.take(shared);
        let bytes = taken.bytes().to_vec();
        input.put_back(taken, processed(0, 0), shared);
        bytes
    }

    #[test]
    fn what_is_processed_in_place_leaves_no_buffer_behind() {
        let (mut far, mut near) = pair();
        let (mut input, mut shared) = input();
        far.write_all(b"PING\r\n").expect("write");
        assert_eq!(input.read(&mut near, &mut shared).expect("read"), Received::Short(6));
        let taken = input.take(&mut shared);
        assert_eq!(taken.bytes(), b"PING\r\n");
        input.put_back(taken, processed(6, 0), &mut shared);
        assert!(input.is_empty());
        assert_eq!(input.bytes.capacity(), 0);
    }

    #[test]
    fn a_rest_stands_in_front_of_the_next_read() {
        let (mut far, mut near) = pair();
        let (mut input, mut shared) = input();
        far.write_all(b"PING\r\nPI").expect("write");
        input.read(&mut near, &mut shared).expect("read");
        let taken = input.take(&mut shared);
        input.put_back(taken, processed(6, 0), &mut shared);
        assert_eq!(input.len(), 2);
        far.write_all(b"NG\r\n").expect("write");
        assert_eq!(input.read(&mut near, &mut shared).expect("read"), Received::Short(4));
        assert_eq!(bytes_of(&mut input, &mut shared), b"PING\r\n");
        assert_eq!(input.read(&mut near, &mut shared).expect("read"), Received::Short(0));
        assert_eq!(bytes_of(&mut input, &mut shared), b"PING\r\n");
    }

    #[test]
    fn many_small_arguments_are_read_in_few_calls() {
        const PIECE: usize = 60_000;
        let (mut far, mut near) = pair();
        let (mut input, mut shared) = input();
        let (mut reads, mut seen) = (0, 0);
        for piece in 1..=50 {
            far.write_all(&[b'x'; PIECE]).expect("write");
            while seen < piece * PIECE {
                match input.read(&mut near, &mut shared).expect("read") {
                    Received::Full(len) | Received::Short(len) => seen += len,
                    Received::Closed => panic!("the writer lives"),
                }
                reads += 1;
                // An argument lacks a byte or two, and nobody knows how many come behind it.
                let taken = input.take(&mut shared);
                input.put_back(taken, processed(0, 1 + seen % 7), &mut shared);
            }
            let capacity = input.bytes.capacity();
            assert!(capacity <= seen / 2 * 3 + GROWTH_MIN, "{capacity} for {seen} bytes");
        }
        assert!(reads <= 3 * 50, "{reads} reads");
        assert_eq!(input.memory(), input.bytes.capacity());
        let taken = input.take(&mut shared);
        input.put_back(taken, processed(seen, 0), &mut shared);
        assert_eq!((input.memory(), input.bytes.capacity()), (0, 0));
    }

    #[test]
    fn a_buffer_is_cut_once_most_of_it_is_processed() {
        let (mut far, mut near) = pair();
        let unfinished = Unfinished::default();
        let (mut input, mut shared) = (Input::of_client(&unfinished), ReadBuffer::new());
        for _ in 0..100 {
            far.write_all(&[b'x'; 10_000]).expect("write");
            input.read(&mut near, &mut shared).expect("read");
            let taken = input.take(&mut shared);
            input.put_back(taken, Processed::default(), &mut shared);
        }
        assert!((1_000_000..2_000_000).contains(&unfinished.bytes()));
        for left in (0..1_000_000).step_by(10_000).rev() {
            let taken = input.take(&mut shared);
            input.put_back(taken, processed(10_000, 0), &mut shared);
            assert_eq!(input.len(), left);
            let most = if left == 0 { 0 } else { (4 * left).max(KEPT_CAPACITY_OF_LINK_MAX) };
            assert!(unfinished.bytes() <= most, "{} for {left}", unfinished.bytes());
        }
        drop(input);
        assert_eq!(unfinished.bytes(), 0);
    }

    #[test]
    fn the_sum_is_of_all_inputs_that_there_are() {
        let unfinished = Unfinished::default();
        let mut shared = ReadBuffer::new();
        let mut inputs = Vec::new();
        for _ in 0..3 {
            let (mut far, mut near) = pair();
            let mut input = Input::of_client(&unfinished);
            far.write_all(&[b'x'; 1000]).expect("write");
            input.read(&mut near, &mut shared).expect("read");
            let taken = input.take(&mut shared);
            let rest = Processed { consumed: 0, missing: 1, parser_memory: 500 };
            input.put_back(taken, rest, &mut shared);
            inputs.push(input);
        }
        assert_eq!(unfinished.bytes(), 3 * 1500);
        inputs[0].discard();
        assert!(inputs[0].is_empty());
        assert_eq!(unfinished.bytes(), 2 * 1500);
        drop(inputs);
        assert_eq!(unfinished.bytes(), 0);
    }

    #[test]
    fn what_is_only_announced_takes_little_room() {
        let (mut far, mut near) = pair();
        let (mut input, mut shared) = input();
        let announced = 512 * TRUSTED;
        let mut seen = 0;
        while seen < 4 * TRUSTED {
            seen += far.write(&[b'x'; 50_000]).expect("write");
            while input.len() < seen {
                input.read(&mut near, &mut shared).expect("read");
                let taken = input.take(&mut shared);
                let missing = announced - taken.bytes().len();
                input.put_back(taken, processed(0, missing), &mut shared);
            }
            assert!(input.bytes.capacity() <= 2 * seen.max(TRUSTED), "{seen} bytes came");
        }
    }

    #[test]
    fn a_link_keeps_the_buffer_for_its_frames() {
        let (mut far, mut near) = pair();
        let mut shared = ReadBuffer::new();
        let mut input = Input::of_link(&Unfinished::default());
        let mut buffers = Vec::new();
        for _ in 0..3 {
            far.write_all(&[b'x'; 50_000]).expect("write");
            input.read(&mut near, &mut shared).expect("read");
            let taken = input.take(&mut shared);
            input.put_back(taken, processed(0, 50_000), &mut shared);
            far.write_all(&[b'x'; 50_000]).expect("write");
            assert_eq!(input.read(&mut near, &mut shared).expect("read"), Received::Full(50_000));
            let taken = input.take(&mut shared);
            buffers.push(taken.bytes().as_ptr());
            input.put_back(taken, processed(100_000, 0), &mut shared);
        }
        assert!(buffers.iter().all(|buffer| *buffer == buffers[0]));
    }

    #[test]
    fn a_big_bulk_is_read_into_a_buffer_of_its_size() {
        let (mut far, mut near) = pair();
        let (mut input, mut shared) = input();
        let body = vec![b'x'; 150_000];
        let writer = std::thread::spawn(move || {
            far.write_all(&body).expect("write");
            far
        });
        let (mut seen, mut capacity) = (0, None);
        while seen < 150_000 {
            match input.read(&mut near, &mut shared).expect("read") {
                Received::Full(len) | Received::Short(len) => seen += len,
                Received::Closed => panic!("the writer lives"),
            }
            let taken = input.take(&mut shared);
            assert_eq!(taken.bytes().len(), seen);
            input.put_back(taken, processed(0, 150_000 - seen), &mut shared);
            if input.bytes.capacity() >= 150_000 {
                assert_eq!(*capacity.get_or_insert(input.bytes.capacity()), 150_000);
            }
        }
        assert!(bytes_of(&mut input, &mut shared).iter().all(|&byte| byte == b'x'));
        let taken = input.take(&mut shared);
        input.put_back(taken, processed(150_000, 0), &mut shared);
        assert_eq!(input.bytes.capacity(), 0);
        drop(writer.join().expect("the writer ends"));
        assert_eq!(input.read(&mut near, &mut shared).expect("read"), Received::Closed);
    }
}
