//! A streamed completion with a stamp per token on the monotonic clock.

use serde_json::{Value, json};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// What was asked, what came, and when.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stream {
    /// Tokens of the prompt, as the server evaluated them.
    pub prompt_tokens: u64,
    /// Nanoseconds from the request to each token.
    pub token_ns: Vec<u64>,
    /// The token ids.
    pub tokens: Vec<i64>,
}

impl Stream {
    /// Nanoseconds from the request to the first token.
    pub fn first_token_ns(&self) -> u64 {
        self.token_ns.first().copied().unwrap_or_default()
    }

    /// The gaps between tokens and their sum: the decode's window.
    pub fn decode_window(&self) -> (u64, u64) {
        match (self.token_ns.first(), self.token_ns.last()) {
            (Some(first), Some(last)) => (self.token_ns.len() as u64 - 1, last - first),
            _ => (0, 0),
        }
    }
}

/// Asks for exactly `tokens` greedy tokens after `prompt`.
///
/// # Errors
/// Whatever the socket says; `InvalidData` when an event is no JSON or tokens are missing.
pub fn complete(port: u16, prompt: &str, tokens: usize) -> io::Result<Stream> {
    let body = json!({
        "prompt": prompt, "n_predict": tokens, "temperature": 0, "cache_prompt": false,
        "return_tokens": true, "ignore_eos": true, "stream": true,
    })
    .to_string();
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(300)))?;
    let request = format!(
        "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let start = Instant::now();
    socket.write_all(request.as_bytes())?;
    let mut stream = Stream::default();
    for line in BufReader::new(socket).lines() {
        let line = line?;
        let at = start.elapsed();
        // The server writes each event as one chunk, so an event's line is never torn.
        if let Some(event) = line.strip_prefix("data: ") {
            take(&mut stream, event, at)?;
        }
    }
    if stream.tokens.len() == tokens {
        Ok(stream)
    } else {
        Err(invalid(&format!(
            "{} tokens of {tokens} came",
            stream.tokens.len()
        )))
    }
}

fn take(stream: &mut Stream, event: &str, at: Duration) -> io::Result<()> {
    let event: Value = serde_json::from_str(event).map_err(|error| invalid(&error.to_string()))?;
    if event["stop"] == true {
        stream.prompt_tokens = event["tokens_evaluated"].as_u64().unwrap_or_default();
        return Ok(());
    }
    for token in event["tokens"].as_array().into_iter().flatten() {
        stream.tokens.push(
            token
                .as_i64()
                .ok_or_else(|| invalid("a token id is a number"))?,
        );
        stream
            .token_ns
            .push(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_tokens_have_two_gaps() {
        let stream = Stream {
            token_ns: vec![100, 130, 170],
            ..Stream::default()
        };
        assert_eq!(stream.first_token_ns(), 100);
        assert_eq!(stream.decode_window(), (2, 70));
        assert_eq!(Stream::default().decode_window(), (0, 0));
    }

    #[test]
    fn events_are_taken_as_they_are() {
        let mut stream = Stream::default();
        let at = Duration::from_nanos(5);
        take(&mut stream, r#"{"tokens":[7],"stop":false}"#, at).expect("valid");
        take(
            &mut stream,
            r#"{"tokens":[],"stop":true,"tokens_evaluated":3}"#,
            at,
        )
        .expect("valid");
        assert_eq!((stream.tokens, stream.prompt_tokens), (vec![7], 3));
        assert!(take(&mut Stream::default(), "{", at).is_err());
    }
}
