//! Frames: a length of four bytes, little-endian, then so many bytes of one message.

use packhouse_base::Blame;

/// The longest message, in bytes.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is 0.
    #[error("frame of 0 bytes")]
    Empty,
    /// The length is above `FRAME_BYTES_MAX`. Text that a program prints to its stdout reads as
    /// such a length.
    #[error("frame of {length} bytes, at most {FRAME_BYTES_MAX}; as text its length is {text:?}")]
    TooLong {
        /// The length.
        length: u64,
        /// Its four bytes, as text.
        text: String,
    },
}

impl FrameError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty | Self::TooLong { .. } => Blame::Source,
        }
    }
}

/// Puts a message in a frame.
///
/// # Errors
/// When it is empty, or longer than `FRAME_BYTES_MAX`.
pub fn encode(message: &[u8]) -> Result<Vec<u8>, FrameError> {
    let length = u32::try_from(message.len())
        .unwrap_or(u32::MAX)
        .to_le_bytes();
    check_length(length)?;
    let mut frame = Vec::with_capacity(LENGTH_BYTES + message.len());
    frame.extend_from_slice(&length);
    frame.extend_from_slice(message);
    Ok(frame)
}

/// Takes frames out of bytes that come in pieces of any size.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Adds a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Takes the next message, if all of it is there. A length that is refused is refused before
    /// anything behind it has come.
    ///
    /// # Errors
    /// When the length is 0 or above `FRAME_BYTES_MAX`. Nothing can be read after that.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some(length) = self.bytes.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let end = LENGTH_BYTES + check_length(*length)?;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let message = self.bytes[LENGTH_BYTES..end].to_vec();
        self.bytes.drain(..end);
        Ok(Some(message))
    }

    /// Bytes that are there and were not taken.
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len()
    }
}

fn check_length(length: [u8; LENGTH_BYTES]) -> Result<usize, FrameError> {
    match u32::from_le_bytes(length) as usize {
        0 => Err(FrameError::Empty),
        bytes if bytes > FRAME_BYTES_MAX => Err(FrameError::TooLong {
            length: bytes as u64,
            text: String::from_utf8_lossy(&length).into_owned(),
        }),
        bytes => Ok(bytes),
    }
}

const LENGTH_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_length_that_is_refused_needs_no_more_bytes() {
        let mut frames = Frames::default();
        frames.push(b"Load");
        assert_eq!(
            frames.next_message().expect_err("refused").to_string(),
            "frame of 1684107084 bytes, at most 1048576; as text its length is \"Load\""
        );
        let mut frames = Frames::default();
        frames.push(&[0; 4]);
        assert_eq!(frames.next_message(), Err(FrameError::Empty));
        assert_eq!(encode(b""), Err(FrameError::Empty));
        assert!(encode(&vec![b' '; FRAME_BYTES_MAX]).is_ok());
        assert!(encode(&vec![b' '; FRAME_BYTES_MAX + 1]).is_err());
        let mut frames = Frames::default();
        frames.push(&0x10_0000u32.to_le_bytes());
        assert_eq!(frames.next_message(), Ok(None));
        let mut frames = Frames::default();
        frames.push(&0x10_0001u32.to_le_bytes());
        assert!(frames.next_message().is_err());
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_whatever_the_pieces(
            messages in vec(vec(any::<u8>(), 1..40), 0..6),
            cuts in vec(1usize..9, 1..20),
        ) {
            let stream: Vec<u8> = messages
                .iter()
                .flat_map(|message| encode(message).expect("because it is short"))
                .collect();
            let (mut frames, mut found, mut rest) = (Frames::default(), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                frames.push(piece);
                rest = after;
                while let Some(message) = frames.next_message().expect("because it is ours") {
                    found.push(message);
                }
            }
            prop_assert_eq!(found, messages);
            prop_assert_eq!(frames.pending_bytes(), 0);
        }
    }
}
