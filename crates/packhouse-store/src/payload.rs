//! Bytes together with the digest that this process took of that very buffer.
//!
//! Many buffers are hashed side by side on one core, each at its own place, which is faster than
//! one after another.
//!
//! Invariants:
//! - only hashing the whole buffer makes a `Payload`, and nobody can change it meanwhile or after;
//! - the digest does not depend on the steps, nor on what is hashed beside.
//!
//! Never: takes a digest from anywhere else.

use packhouse_base::digest::{Hasher, ObjectDigest};

/// A buffer that was hashed here.
#[derive(Clone, Debug)]
pub struct Payload<B> {
    bytes: B,
    digest: ObjectDigest,
}

/// A buffer that is being hashed.
pub struct Hashing<B> {
    bytes: B,
    hasher: Hasher,
    done: usize,
}

impl<B: AsRef<[u8]>> Payload<B> {
    /// Hashes a buffer at once.
    pub fn new(bytes: B) -> Self {
        let mut hashing = Hashing::new(bytes);
        hashing.hasher.update(hashing.bytes.as_ref());
        Self {
            digest: ObjectDigest(hashing.hasher.finish()),
            bytes: hashing.bytes,
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Their digest.
    pub fn digest(&self) -> ObjectDigest {
        self.digest
    }

    /// Gives the buffer back.
    pub fn into_bytes(self) -> B {
        self.bytes
    }
}

impl<B: AsRef<[u8]>> Hashing<B> {
    /// Takes a buffer of which nothing is hashed yet.
    pub fn new(bytes: B) -> Self {
        Self {
            bytes,
            hasher: Hasher::default(),
            done: 0,
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Bytes not hashed yet.
    pub fn left_bytes(&self) -> usize {
        self.bytes.as_ref().len() - self.done
    }

    /// Hashes up to so many bytes of each, side by side.
    pub fn advance(parts: &mut [&mut Self], step_bytes: usize) {
        let mut streams: Vec<(&mut Hasher, &[u8])> = Vec::with_capacity(parts.len());
        for part in parts {
            let rest = &part.bytes.as_ref()[part.done..];
            let step = &rest[..step_bytes.min(rest.len())];
            part.done += step.len();
            streams.push((&mut part.hasher, step));
        }
        Hasher::update_many(&mut streams);
    }

    /// Ends the hash. Gives the buffer back as it is when some of it was not hashed.
    pub fn finish(self) -> Result<Payload<B>, Self> {
        if self.left_bytes() > 0 {
            return Err(self);
        }
        Ok(Payload {
            digest: ObjectDigest(self.hasher.finish()),
            bytes: self.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_base::digest::Digest;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 7 % 251) as u8).collect()
    }

    #[test]
    fn digests_do_not_depend_on_steps_or_neighbours() {
        let lengths = [0, 1, 63, 64, 65, 1000, 4096, 5000];
        for step_bytes in [1, 64, 100, 1 << 20] {
            let mut all: Vec<_> = lengths.iter().map(|l| Hashing::new(bytes(*l))).collect();
            while all.iter().any(|hashing| hashing.left_bytes() > 0) {
                let mut parts: Vec<_> = all.iter_mut().collect();
                Hashing::advance(&mut parts, step_bytes);
            }
            for (hashing, length) in all.into_iter().zip(lengths) {
                let payload = hashing.finish().ok();
                let digest = payload.map(|payload| payload.digest().0);
                assert_eq!(digest, Some(Digest::of(&bytes(length))), "{length}");
            }
        }
        assert_eq!(Payload::new(bytes(999)).digest().0, Digest::of(&bytes(999)));
    }

    #[test]
    fn half_a_hash_is_none() {
        let mut hashing = Hashing::new(bytes(100));
        Hashing::advance(&mut [&mut hashing], 99);
        assert!(
            hashing
                .finish()
                .is_err_and(|hashing| hashing.left_bytes() == 1)
        );
    }
}
