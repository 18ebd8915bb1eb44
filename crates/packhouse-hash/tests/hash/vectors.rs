//! Published digests.

use packhouse_hash::{Sha256, digest_many};

/// FIPS 180-4 examples, and the empty string.
#[test]
fn published_digests_come_out() {
    let million = vec![b'a'; 1_000_000];
    let vectors: [(&[u8], &str); 4] = [
        (
            b"",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        (
            b"abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (
            &million,
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ),
    ];
    let inputs: Vec<&[u8]> = vectors.iter().map(|(input, _)| *input).collect();
    let many = digest_many(&inputs);
    for ((input, expected), many) in vectors.iter().zip(many) {
        let mut stream = Sha256::default();
        stream.update(input);
        assert_eq!(hex(&stream.finish()), *expected);
        assert_eq!(hex(&many), *expected);
    }
}

fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
