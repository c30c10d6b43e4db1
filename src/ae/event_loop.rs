//! Which sockets can be read or written, over mio.
//!
//! mio tells of a change once (edge-triggered), so whoever stops before a socket
//! is empty has to come back by itself: [`EventLoop::still_ready`] puts a token on
//! a list that the next [`EventLoop::poll`] hands out again, with a zero timeout.
//! A source is registered once for both directions and stays so until it closes.
//!
//! A [`Token`] names its source by kind, slot and generation. An event of a source
//! that closed earlier in the same turn still carries the old generation, which no
//! table of sources finds any more: stale events fall through by themselves.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Source;
use mio::{Events, Interest, Poll};

/// Events taken from the selector in one turn.
const EVENTS_PER_POLL: usize = 1024;

/// A source's name in the loop. `kind` is the owner's choice, up to [`Token::KIND_MAX`];
/// slots are below 2^28.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: u8,
    pub slot: u32,
    pub generation: u32,
}

/// What poll found out about one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEvent {
    pub token: Token,
    pub readable: bool,
    pub writable: bool,
    /// The other side will send no more: reads go on until they return 0, short or not.
    pub read_closed: bool,
    /// The loop comes back to the source because it was asked to.
    pub is_again: bool,
}

pub struct EventLoop {
    poll: Poll,
    events: Events,
    still_ready: Vec<Token>,
    /// Kept so that a wake-up is not lost when the thread that sent it ends first.
    waker: Option<Waker>,
}

/// Wakes the loop from another thread.
#[derive(Clone)]
pub struct Waker(Arc<mio::Waker>);

impl Token {
    pub const KIND_MAX: u8 = 15;
    const SLOT_BITS: u32 = 28;

    fn pack(self) -> mio::Token {
        debug_assert!(self.kind <= Self::KIND_MAX && self.slot >> Self::SLOT_BITS == 0);
        let low = u32::from(self.kind) << Self::SLOT_BITS | self.slot;
        mio::Token((u64::from(self.generation) << 32 | u64::from(low)) as usize)
    }

    fn unpack(token: mio::Token) -> Self {
        let bits = token.0 as u64;
        let low = bits as u32;
        Self {
            kind: (low >> Self::SLOT_BITS) as u8,
            slot: low & ((1 << Self::SLOT_BITS) - 1),
            generation: (bits >> 32) as u32,
        }
    }
}

const _: () = assert!(usize::BITS == 64, "a token holds 64 bits");

impl EventLoop {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS_PER_POLL),
            still_ready: Vec::new(),
            waker: None,
        })
    }

    /// Registers a source for both directions.
    pub fn register(&self, source: &mut impl Source, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(source, token.pack(), both)
    }

    /// Registers a source that is only ever read: a listener, signals.
    pub fn register_readable(&self, source: &mut impl Source, token: Token) -> io::Result<()> {
        self.poll.registry().register(source, token.pack(), Interest::READABLE)
    }

    pub fn deregister(&self, source: &mut impl Source) -> io::Result<()> {
        self.poll.registry().deregister(source)
    }

    /// A waker whose events arrive as readable under `token`. The loop holds one at most.
    pub fn waker(&mut self, token: Token) -> io::Result<Waker> {
        let waker = Waker(Arc::new(mio::Waker::new(self.poll.registry(), token.pack())?));
        self.waker = Some(waker.clone());
        Ok(waker)
    }

    /// Has the next poll report `token` as readable without waiting, beside what the selector
    /// may report of it. The caller adds a token once, until [`FileEvent::is_again`] says that
    /// its turn has come.
    pub fn still_ready(&mut self, token: Token) {
        self.still_ready.push(token);
    }

    /// Waits for events, `timeout` at most (`None`: for ever; rounded up to the
    /// millisecond), and appends them to `events`. Returns without any when the time
    /// passed or a signal came: the caller looks at its clock and turns again.
    pub fn poll(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<FileEvent>,
    ) -> io::Result<()> {
        let timeout = if self.still_ready.is_empty() { timeout } else { Some(Duration::ZERO) };
        match self.poll.poll(&mut self.events, timeout.map(round_up_to_ms)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            Err(error) => return Err(error),
        }
        events.extend(self.still_ready.drain(..).map(|token| FileEvent {
            token,
            readable: true,
            writable: false,
            read_closed: false,
            is_again: true,
        }));
        events.extend(self.events.iter().map(|event| FileEvent {
            token: Token::unpack(event.token()),
            readable: event.is_readable() || event.is_error(),
            writable: event.is_writable() || event.is_error(),
            read_closed: event.is_read_closed() || event.is_error(),
            is_again: false,
        }));
        Ok(())
    }
}

impl Waker {
    /// Makes the loop's poll return. Safe to call at any time from any thread.
    pub fn wake(&self) -> io::Result<()> {
        self.0.wake()
    }
}

/// A timeout cut down to whole milliseconds would end just before the point in time
/// it stands for, and the loop would turn idly until then.
fn round_up_to_ms(timeout: Duration) -> Duration {
    let ms = timeout.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token { kind: 3, slot: 0x0abc_def0, generation: 0xfeed_beef };

    #[test]
    fn a_token_survives_the_selector() {
        assert_eq!(Token::unpack(TOKEN.pack()), TOKEN);
        let largest = Token { kind: 15, slot: (1 << 28) - 1, generation: u32::MAX };
        assert_eq!(Token::unpack(largest.pack()), largest);
    }

    #[test]
    fn what_is_still_ready_comes_back_at_once_and_once() {
        let mut event_loop = EventLoop::new().expect("a selector");
        let mut events = Vec::new();
        event_loop.still_ready(TOKEN);
        event_loop.poll(None, &mut events).expect("poll");
        assert_eq!(events.len(), 1);
        assert!(events[0].readable && events[0].is_again && events[0].token == TOKEN);
        events.clear();
        event_loop.poll(Some(Duration::ZERO), &mut events).expect("poll");
        assert_eq!(events, []);
    }

    #[test]
    fn a_waker_ends_the_wait_of_the_loop() {
        let mut event_loop = EventLoop::new().expect("a selector");
        let waker = event_loop.waker(TOKEN).expect("a waker");
        let thread = std::thread::spawn(move || waker.wake());
        let mut events = Vec::new();
        while events.is_empty() {
            event_loop.poll(None, &mut events).expect("poll");
        }
        assert_eq!((events[0].token, events[0].is_again), (TOKEN, false));
        thread.join().expect("the thread ends").expect("wake");
    }

    #[test]
    fn timeouts_round_up_to_the_millisecond() {
        assert_eq!(round_up_to_ms(Duration::from_micros(1)), Duration::from_millis(1));
        assert_eq!(round_up_to_ms(Duration::from_millis(7)), Duration::from_millis(7));
        assert_eq!(round_up_to_ms(Duration::ZERO), Duration::ZERO);
    }
}
