//! Requests that are not whole: what they may take before the password.

use crate::support::{TestServer, bulk, error, request, status};

#[test]
fn before_the_password_a_request_has_ten_arguments_of_sixteen_kibibytes() {
    let server = TestServer::start_with(&["--requirepass", "secret"]);
    for (bytes, text) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*1048576\r\n", "unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
        (b"*1\r\n$536870912\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send("PING\r\n").send(bytes);
        assert_eq!(client.reply(), error("NOAUTH Authentication required."));
        assert_eq!(client.reply(), error(&format!("ERR Protocol error: {text}")));
        assert!(client.is_closed());
    }
    let mut client = server.client();
    let long = [b'x'; 16_384];
    let most: Vec<&[u8]> = std::iter::once(&b"AUTH"[..]).chain([&long[..]; 9]).collect();
    let arity = error("ERR wrong number of arguments for 'auth' command");
    assert_eq!(client.call_words(&most), arity, "that was read");
    // The password opens the way for what is behind it.
    let big = vec![b'x'; 1_000_000];
    let many: Vec<&[u8]> = std::iter::once(&b"GETJOB"[..]).chain([&b"x"[..]; 20]).collect();
    client.send(request(&[b"AUTH", b"secret"])).send(request(&[b"PING", &big]));
    assert_eq!(client.reply(), status("OK"));
    assert_eq!(client.reply(), bulk(&big));
    assert_eq!(client.call_words(&many), error("ERR syntax error"));
}
