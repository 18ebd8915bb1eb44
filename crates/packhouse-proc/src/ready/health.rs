//! Asks a server's health path whether it serves. Never a prompt: an answer costs no work.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use ureq::Error;

/// What a health path answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// 200: it serves.
    Good,
    /// 503: it loads.
    Loading,
    /// Another status.
    Bad {
        /// Which.
        status: u16,
    },
    /// Nobody listens.
    Refused,
    /// No answer in time, or none that is HTTP.
    Silent {
        /// What went wrong.
        why: String,
    },
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("serves"),
            Self::Loading => f.write_str("loads (health 503)"),
            Self::Bad { status } => write!(f, "health {status}"),
            Self::Refused => f.write_str("nobody listens on its port"),
            Self::Silent { why } => write!(f, "no answer on its health path: {why}"),
        }
    }
}

/// Asks once. A wildcard address is asked through its loopback one. Redirects and proxies are not
/// followed: the answer is of this socket.
pub fn ask(host: IpAddr, port: u16, path: &str, timeout: Duration) -> Health {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        .timeout_global(Some(timeout))
        .build()
        .new_agent();
    match agent.get(url(host, port, path)).call() {
        Ok(answer) => match answer.status().as_u16() {
            200 => Health::Good,
            503 => Health::Loading,
            status => Health::Bad { status },
        },
        Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Health::Refused
        }
        Err(Error::ConnectionFailed) => Health::Refused,
        Err(error) => Health::Silent {
            why: error.to_string(),
        },
    }
}

/// What is asked.
pub fn url(host: IpAddr, port: u16, path: &str) -> String {
    let address = SocketAddr::new(reachable(host), port);
    format!("http://{address}{path}")
}

/// An address that reaches a socket bound to this one.
fn reachable(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// Answers one request with this text; gives the port.
    fn answering(text: &'static str) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            assert!(request.starts_with("GET /health HTTP/1.1\r\n"), "{request}");
            stream.write_all(text.as_bytes()).unwrap();
        });
        port
    }

    #[test]
    fn what_is_asked_can_be_asked_by_hand() {
        let any = url(Ipv4Addr::UNSPECIFIED.into(), 81, "/health");
        assert_eq!(any, "http://127.0.0.1:81/health");
        let six = url(Ipv6Addr::UNSPECIFIED.into(), 81, "/nope");
        assert_eq!(six, "http://[::1]:81/nope");
    }

    #[test]
    fn each_answer_is_told_apart() {
        let second = Duration::from_secs(5);
        let local = |port| ask(Ipv4Addr::LOCALHOST.into(), port, "/health", second);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(local(answering(head)), Health::Good);
        let any = ask(
            Ipv4Addr::UNSPECIFIED.into(),
            answering(head),
            "/health",
            second,
        );
        assert_eq!(any, Health::Good);
        let head = "HTTP/1.1 503 Loading\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(local(answering(head)), Health::Loading);
        let head =
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(local(answering(head)), Health::Bad { status: 302 });
        assert!(matches!(
            local(answering("SSH-2.0\r\n")),
            Health::Silent { .. }
        ));
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        let brief = Duration::from_millis(100);
        let silent = ask(Ipv4Addr::LOCALHOST.into(), port, "/health", brief);
        assert!(matches!(silent, Health::Silent { .. }), "{silent:?}");
        drop(free);
        assert_eq!(local(port), Health::Refused);
    }
}
