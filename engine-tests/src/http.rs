//! The few words of HTTP/1.1 that the engine's server needs.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// An answer: status and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body, chunks joined.
    pub body: String,
}

/// A port of the loopback interface that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}

/// Sends one request and reads the whole answer; the server closes the connection.
///
/// # Errors
/// Whatever the socket says, and `InvalidData` for what is no HTTP.
pub fn request(
    port: u16,
    method: &str,
    path: &str,
    body: &str,
    limit: Duration,
) -> io::Result<Answer> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&String::from_utf8_lossy(&bytes))
}

fn parse(text: &str) -> io::Result<Answer> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| bad("no end of headers"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| bad("no status"))?;
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        join_chunks(body)
    } else {
        body.to_owned()
    };
    Ok(Answer { status, body })
}

fn join_chunks(mut rest: &str) -> String {
    let mut joined = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let Ok(length) = usize::from_str_radix(length.trim(), 16) else {
            break;
        };
        if length == 0 || length > after.len() {
            break;
        }
        joined.push_str(&after[..length]);
        rest = after[length..].trim_start_matches("\r\n");
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_plain_and_chunked_bodies() {
        let plain = parse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").expect("valid");
        assert_eq!(
            plain,
            Answer {
                status: 200,
                body: "hi".to_owned()
            }
        );
        let chunked =
            "HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n";
        let chunked = parse(chunked).expect("valid");
        assert_eq!(
            chunked,
            Answer {
                status: 503,
                body: "hi!".to_owned()
            }
        );
    }

    #[test]
    fn refuses_what_is_no_http() {
        assert!(parse("hello").is_err());
    }
}
