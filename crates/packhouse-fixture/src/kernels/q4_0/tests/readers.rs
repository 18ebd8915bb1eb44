//! Each order is read as the scalar packer of its layout writes it.

use super::super::packed::{Block, Order, Packed};
use super::{MROWS, pack, random};
use crate::Inputs;
use std::collections::BTreeMap;

/// A block of the source, nibble by nibble.
fn source_block(source: &[u8], block_count: usize, row: usize, block: usize) -> Block {
    let bytes = &source[18 * (row * block_count + block)..][..18];
    let mut nibbles = [0; 32];
    for byte in 0..16 {
        nibbles[byte] = (bytes[2 + byte] % 16).cast_signed() - 8;
        nibbles[byte + 16] = (bytes[2 + byte] / 16).cast_signed() - 8;
    }
    Block {
        scale: u16::from_le_bytes([bytes[0], bytes[1]]),
        nibbles,
    }
}

/// K, N and the layout's parameter.
type Size = (u64, u64, Option<(&'static str, u64)>);

/// Sizes beside one tile, one block and one group, and the layout's parameter.
fn sizes(order: Order) -> Vec<Size> {
    let none = |sizes: &[(u64, u64)]| sizes.iter().map(|(k, n)| (*k, *n, None)).collect();
    match order {
        Order::Xe2 => none(&[(32, 16), (64, 48), (608, 64), (96, 112)]),
        Order::Reordered | Order::Rows => none(&[(32, 1), (64, 3), (608, 61)]),
        Order::JointN => {
            let tiles = [1, 3, 8, 16, 61, 1024];
            let tiled = |tile| [(32, 1), (96, 61), (64, 16)].map(|size| (size, tile));
            let all = tiles.into_iter().flat_map(tiled);
            all.map(|((k, n), tile)| (k, n, Some(("n_tile", tile))))
                .collect()
        }
        Order::Repack8 => vec![
            (32, 8, Some(("unit_rows", 8))),
            (96, 48, Some(("unit_rows", 16))),
            (608, 56, Some(("unit_rows", 8))),
        ],
    }
}

#[test]
fn each_order_is_read_where_its_packer_puts_it() {
    for kernel in MROWS {
        for (k, n, parameter) in sizes(kernel.order) {
            let block_count = usize::try_from(k / 32).expect("because tests are small");
            let row_count = usize::try_from(n).expect("because tests are small");
            let source = random(18 * block_count * row_count, k << 32 | n);
            let own: BTreeMap<String, u64> = parameter
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect();
            let payload = pack(kernel.order, [k, n], &own, &source);
            let mut parameters = own.clone();
            parameters.extend([("k".to_owned(), k), ("n".to_owned(), n)]);
            let tensors = BTreeMap::from([("weights".to_owned(), payload.as_slice())]);
            let inputs = Inputs {
                width: 1,
                parameters: &parameters,
                tensors: &tensors,
            };
            let packed = Packed::open(kernel.order, &inputs).expect("because the sizes fit");
            assert_eq!(packed.row_count(), row_count);
            for row in 0..row_count {
                let blocks: Vec<Block> = packed.row(row).collect();
                let source = |block| source_block(&source, block_count, row, block);
                let expected: Vec<Block> = (0..block_count).map(source).collect();
                assert_eq!(blocks, expected, "{:?} {k} {n} row {row}", kernel.order);
            }
        }
    }
}
