//! Links that others make to the bus: how many there may be, and how long they may be silent.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use disque::base::limits::{INBOUND_LINKS_MAX, LINK_IDLE_MIN_MS};
use disque::proto::bus::GossipKind;

use crate::bus_peer::{BusPeer, link_to, read_frame};
use crate::support::{TestServer, eventually, status};

/// Whether the server has closed a link.
fn is_closed(link: &mut TcpStream) -> bool {
    link.set_nonblocking(true).expect("a socket");
    match link.read(&mut [0; 65_536]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Lets this process open as many files as it may.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls are given one rlimit, and nothing else.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_link_that_nothing_comes_in_on_is_closed_and_one_with_pings_is_not() {
    let server = TestServer::start_with(&["--cluster-node-timeout", "200"]);
    let peer = BusPeer::silent([3; 20]);
    let started = Instant::now();
    let (mut silent, mut half, mut alive) = (link_to(&server), link_to(&server), link_to(&server));
    let ping = peer.heartbeat(GossipKind::Ping, &[]);
    half.write_all(&ping[..20]).expect("the server reads");
    let are_closed = || {
        alive.write_all(&ping).expect("the server reads");
        assert!(!is_closed(&mut alive));
        is_closed(&mut silent) && is_closed(&mut half)
    };
    eventually(are_closed, |are_closed| *are_closed);
    assert!(started.elapsed() >= Duration::from_millis(LINK_IDLE_MIN_MS), "not at once");
}

#[test]
fn of_too_many_links_those_go_first_on_which_no_node_speaks() {
    raise_file_limit();
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    let peer = BusPeer::listen([4; 20]);
    peer.join(&server);
    let mut of_node = link_to(&server);
    let ping = peer.heartbeat(GossipKind::Ping, &[]);
    of_node.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout above 0");
    of_node.write_all(&ping).expect("the server reads");
    read_frame(&mut of_node).expect("a pong");
    let mut others: Vec<TcpStream> =
        (0..INBOUND_LINKS_MAX + 50).map(|_| link_to(&server)).collect();
    let (first, last) = others.split_at_mut(50);
    for link in first {
        eventually(|| is_closed(link), |is_closed| *is_closed);
    }
    // The node's is as it was, though it was silent for longer.
    assert!(!is_closed(&mut of_node));
    of_node.set_nonblocking(false).expect("a socket");
    of_node.write_all(&ping).expect("the server reads");
    read_frame(&mut of_node).expect("a pong");
    assert!(!is_closed(last.last_mut().expect("it was the last to come")));
    assert_eq!(server.client().call("PING"), status("PONG"));
}
