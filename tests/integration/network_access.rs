//! From where clients and nodes may connect: protected-mode and cluster-allow.

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, Ipv6Addr, TcpStream, UdpSocket};
use std::process::Command;

use disque::proto::reply_reader::Value;

use crate::bus_peer::{BusPeer, link_to};
use crate::support::program::Program;
use crate::support::{
    Client, PATIENCE, TestServer, bulk, error, eventually, free_port, server_path, status,
};

/// An address of this host that is not of the loopback interface. No packet is sent.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.99:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn protected_mode_serves_the_loopback_interface_until_a_password_is_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    // Listens on all addresses, unlike other servers of these tests.
    let _program = Program::start(
        Command::new(server_path())
            .args(["--port", &port.to_string(), "--logfile", "log", "--protected-mode", "yes"])
            .current_dir(folder.path()),
    );
    let near = eventually(|| TcpStream::connect(("127.0.0.1", port)), Result::is_ok);
    let mut near = Client::over(near.expect("it listens"));
    assert_eq!(near.call("PING"), status("PONG"));
    if let Ok(stream) = TcpStream::connect((Ipv6Addr::LOCALHOST, port)) {
        assert_eq!(Client::over(stream).call("PING"), status("PONG"));
    }
    // A host without a network has no other clients to refuse.
    let Some(address) = outer_address() else { return };
    let far = || Client::over(TcpStream::connect((address, port)).expect("it listens"));
    for _ in 0..3 {
        let mut refused = far();
        let Some(Value::Error(text)) = refused.reply_if_open() else { panic!("an error") };
        assert!(text.starts_with(b"DENIED Disque is running in protected mode"));
        assert!(refused.is_closed());
    }
    let log = fs::read_to_string(folder.path().join("log")).expect("it logs");
    let lines = log.lines().filter(|line| line.contains("protected-mode: refusing")).count();
    assert_eq!(lines, 1, "{log}");
    near.ok("CONFIG SET requirepass word");
    assert_eq!(far().call("PING"), error("NOAUTH Authentication required."));
    near.ok("AUTH word");
    assert_eq!(near.call_words(&[b"CONFIG", b"SET", b"requirepass", b""]), status("OK"));
    assert!(far().reply_if_open().is_some_and(|reply| matches!(reply, Value::Error(_))));
    near.ok("CONFIG SET protected-mode no");
    assert_eq!(far().call("PING"), status("PONG"));
}

#[test]
fn an_address_to_bind_to_ends_the_protection() {
    let server = TestServer::start_with(&["--protected-mode", "yes"]);
    assert_eq!(server.client().call("PING"), status("PONG"));
}

/// Whether a link is closed by the server.
fn is_closed(mut link: TcpStream) -> bool {
    link.set_read_timeout(Some(PATIENCE)).expect("a timeout above 0");
    matches!(link.read(&mut [0; 1]), Ok(0) | Err(_))
}

#[test]
fn nodes_connect_from_allowed_networks_only() {
    let file = "# nodes\ncluster-allow 10.0.0.0/8 fd00::1/8\n";
    let server = TestServer::start_with_config(file, &["--bind", "127.0.0.1", "::1"]);
    let mut client = server.client();
    let set = |client: &mut Client, value: &str| {
        client.call_words(&[b"CONFIG", b"SET", b"cluster-allow", value.as_bytes()])
    };
    let shown = |client: &mut Client, value: &str| {
        let pair = Value::Array(vec![bulk("cluster-allow"), bulk(value)]);
        assert_eq!(client.call("CONFIG GET cluster-allow"), pair);
    };
    shown(&mut client, "10.0.0.0/8 fd00::/8");
    for _ in 0..3 {
        assert!(is_closed(link_to(&server)));
    }
    let lines = |part: &str| server.log().lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("cluster-allow: refusing the connection of 127.0.0.1:"), 1);
    let over_v6 =
        || TcpStream::connect((Ipv6Addr::LOCALHOST, server.port() + 10_000)).expect("it listens");
    assert!(is_closed(over_v6()));

    // Whoever is let in stays as long as it is allowed.
    assert_eq!(set(&mut client, "fd00::/8 127.0.0.0/8"), status("OK"));
    BusPeer::listen([7; 20]).join(&server);
    let link = link_to(&server);
    assert!(is_closed(over_v6()));
    assert_eq!(set(&mut client, "::1"), status("OK"));
    assert!(is_closed(link));

    client.ok("CONFIG REWRITE");
    let written = || fs::read_to_string(server.folder().join("disque.conf")).expect("it is there");
    assert!(written().starts_with("# nodes\ncluster-allow ::1/128\n"), "{}", written());
    let reason = "'1.2.3.4/40' is no network: an address, or an address, / and a number of bits";
    assert_eq!(
        set(&mut client, "::1 1.2.3.4/40"),
        error(&format!(
            "ERR Invalid argument '::1 1.2.3.4/40' for CONFIG SET 'cluster-allow': {reason}"
        ))
    );
    shown(&mut client, "::1/128");
    assert_eq!(set(&mut client, ""), status("OK"));
    shown(&mut client, "");
    client.ok("CONFIG REWRITE");
    assert!(!written().contains("cluster-allow"), "{}", written());
    BusPeer::listen([8; 20]).join(&server);
}
