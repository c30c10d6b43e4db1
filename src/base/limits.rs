//! The maxima that bound what comes from outside, and those that several modules share, each
//! with its reason. What bounds the work of a single module stands there, as a `_MAX` of its own.

/// Longest inline request without a line end, in bytes. C: PROTO_INLINE_MAX_SIZE.
pub const INLINE_MAX: usize = 64 * 1024;
/// Most arguments of one request. C: the multibulk limit.
pub const ARGUMENTS_MAX: usize = 1024 * 1024;
/// Longest argument, so also the longest job body, in bytes.
pub const BULK_MAX: usize = 512 * 1024 * 1024;
/// Most arguments of a request before the client has authenticated, as in Redis: AUTH and
/// HELLO need no more.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;
/// Longest argument before the client has authenticated, in bytes, as in Redis.
pub const UNAUTHENTICATED_BULK_MAX: usize = 16 * 1024;
/// Longest password, in bytes. C: CONFIG_AUTHPASS_MAX_LEN.
pub const PASSWORD_MAX: usize = 512;
/// Longest name of a queue that clients may use, in bytes: beside the longest body and the IDs
/// of all nodes it has to fit into a bus frame.
pub const QUEUE_NAME_MAX: usize = 1024 * 1024;
/// Most unprocessed input of one client, in bytes. C: client_max_querybuf_len.
pub const QUERY_BUFFER_MAX: usize = 1024 * 1024 * 1024;
/// What all clients and links together may have sent of requests and frames that are not
/// whole yet, where `maxmemory` sets no limit, in bytes: one request of the largest kind.
pub const UNFINISHED_MAX: usize = QUERY_BUFFER_MAX;
/// Where it does, they may take what everything else leaves of it, and one part of so many
/// at least.
pub const UNFINISHED_SHARE_OF_MAXMEMORY: usize = 8;
/// An argument from this size on is read straight into a buffer of its size.
pub const BIG_BULK: usize = 32 * 1024;
/// Input read on from a client whose pipeline waits for copies of a job, in bytes.
pub const BLOCKED_INPUT_MAX: usize = 64 * 1024;
/// Nothing more is read from a client with more unsent output than this, in bytes.
pub const UNSENT_OUTPUT_STOPS_READING: usize = 1024 * 1024;
/// A MONITOR client with more unsent output than this is dropped, in bytes.
pub const MONITOR_OUTPUT_MAX: usize = 32 * 1024 * 1024;
/// Lanes are drained in mid-turn when they pass this, in bytes.
pub const LANES_DRAIN_AT: usize = 1024 * 1024;
/// Bytes read of one client in one turn.
pub const READ_PER_TURN: usize = 256 * 1024;
/// Connections accepted in one turn. C: MAX_ACCEPTS_PER_CALL.
pub const ACCEPTS_PER_TURN: usize = 1000;

/// Most jobs asked for in one NEEDJOBS, and sent in one YOURJOBS (the C server
/// keeps them in an array of 100 on its stack).
pub const JOBS_PER_MESSAGE_MAX: usize = 100;
/// Largest payload of a question to a node, and of its answer, in bytes: the attributes of
/// [`JOBS_PER_MESSAGE_MAX`] jobs, of any length that a record has room for.
pub const QUERY_PAYLOAD_MAX: usize = 1024 * 1024;
const _: () = assert!(JOBS_PER_MESSAGE_MAX * (40 + 1 + 255 * 40) <= QUERY_PAYLOAD_MAX);
/// Most gossip entries looked at in one message.
pub const GOSSIP_ENTRIES_MAX: usize = 1000;
/// Largest bus frame of a known sender: a body, its queue name, and room for the rest.
pub const BUS_FRAME_MAX: usize = BULK_MAX + 64 * 1024 * 1024;
const _: () = assert!(BULK_MAX + QUEUE_NAME_MAX + 65_536 * 40 + 4096 <= BUS_FRAME_MAX);
/// Largest bus frame before the sender is known, in bytes: room for a well-filled MEET.
pub const BUS_FRAME_UNKNOWN_MAX: usize = 16 * 1024;
/// Messages in a row on one link that cannot be decoded; with one more it is closed. Single ones
/// may be damaged on their way; a peer that sends nothing else speaks another protocol.
pub const UNDECODABLE_IN_A_ROW_MAX: u32 = 16;
/// Unsent bytes towards one peer before its link is dropped: the largest frame must fit,
/// and what comes behind it.
pub const LINK_UNSENT_MAX: usize = BUS_FRAME_MAX + 256 * 1024 * 1024;
/// The same for a link that a peer has made: only its own pings are answered there, and it may
/// be no node that we know.
pub const LINK_UNSENT_ANSWERS_MAX: usize = 1024 * 1024;
/// File descriptors kept for links whatever clients do: enough for 500 nodes. Half of them
/// are for links that this node makes, to 500 nodes and in handshakes.
pub const LINKS_RESERVED: usize = 1536;
/// Links that peers have made, at once. Where more nodes are known it is two for each.
pub const INBOUND_LINKS_MAX: usize = LINKS_RESERVED / 2;
/// A link that a peer has made is closed when nothing came in for so many node timeouts. A
/// node pings every other one each half of its own.
pub const LINK_IDLE_NODE_TIMEOUTS: u64 = 8;
/// But not before so much time has passed, in milliseconds.
pub const LINK_IDLE_MIN_MS: u64 = 2000;
/// Nodes that a process can tell apart, itself included: references to them have 16 bits.
pub const NODES_MAX: usize = 1 << 16;
/// Handshakes under way at once of each kind: ordered by an operator, from gossip, and for
/// unknown nodes that sent MEET.
pub const HANDSHAKES_MAX: usize = 256;
/// Handshakes under way at once for unknown nodes whose MEET came from one address: a few nodes
/// may share one, and each handshake makes this node connect to wherever the MEET says.
pub const HANDSHAKES_PER_SOURCE_MAX: usize = 16;

/// Acks without a job kept at once; the oldest goes first. Each takes about 400 bytes
/// (measured, with its places in three indexes), so they take 20 MB at most whatever clients
/// send.
pub const ACK_ONLY_JOBS_MAX: usize = 50_000;
/// Items (IDs, rows, buckets) that a long command handles before others run.
pub const COMMAND_SLICE: usize = 256;
/// Bytes of rows that a long command fetches, or tells, before others run: copying them
/// takes about 0.1 ms.
pub const SLICE_BYTES: usize = 256 * 1024;
/// Due jobs handled between two readings of the clock.
pub const TIMER_QUANTUM: usize = 64;
/// Port + this is the bus port. C: CLUSTER_PORT_INCR.
pub const BUS_PORT_OFFSET: u16 = 10_000;
/// Highest client port that leaves room for the bus port.
pub const CLIENT_PORT_MAX: u16 = u16::MAX - BUS_PORT_OFFSET;
/// GETJOB fetches no further job, and QPEEK shows none, once the reply has this many bytes.
pub const GETJOB_REPLY_MAX: usize = 64 * 1024 * 1024;
/// Memory of one reply that a client of ours reads, in bytes: a GETJOB of the largest job
/// and all others that fit beside it is half of that.
pub const REPLY_MAX: usize = 1024 * 1024 * 1024;
/// Longest line of a reply. MONITOR shows a command in one, with its job's body.
pub const REPLY_LINE_MAX: usize = 64 * 1024 * 1024;
/// JSCAN REPLY all ends, and returns its cursor, once its reply has this many bytes: they are
/// kept until it is known how many jobs there are.
pub const JSCAN_REPLY_MAX: usize = 16 * 1024 * 1024;
