//! A target that others write to, as devices do: what is read, hashed, summed and written is never
//! what lies there.
//!
//! Linux lets a process write its own memory through `/proc/self/mem`, which is how these tests are
//! the others.

use crate::serve_watched::Watched;
use crate::serve_world::{
    PACKERS, Weights, bits, buffers, geometries, geometry_of, image_files, image_path, new_disk,
    owner, settings, start, weights,
};
use packhouse_image::{Check, HEADER_BYTES, Images, Mode, Outcome, Served, Settings};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder};
use packhouse_pack::int8_tile::Gather;
use packhouse_sim::SimFs;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The caller's buffers of one tile.
struct Buffers {
    codes: Vec<i8>,
    scales: Vec<f32>,
}

/// Where they lie.
#[derive(Clone, Copy)]
struct Places {
    codes: (u64, usize),
    scales: (u64, usize),
}

impl Buffers {
    fn new(geometry: &TileGeometry) -> Self {
        let (codes, scales) = buffers(geometry);
        Self { codes, scales }
    }

    fn places(&self) -> Places {
        Places {
            codes: (self.codes.as_ptr().addr() as u64, self.codes.len()),
            scales: (self.scales.as_ptr().addr() as u64, 4 * self.scales.len()),
        }
    }

    /// Serves the first tile into them; what fills a column is told to `asked` first.
    fn serve(
        &mut self,
        images: &Images,
        weights: &Weights,
        geometry: &TileGeometry,
        asked: &mut dyn FnMut(u64),
    ) -> Served {
        let serve = images.serve(PACKERS.clone(), weights.head(), *geometry, owner());
        let mut serve = serve.expect("because the head fits");
        let mut fill = |column, target: &mut [f32]| {
            asked(column);
            weights.fill(column, target);
            Ok::<(), ()>(())
        };
        let gather = Gather::Serial(&mut fill);
        let (codes, scales) = (&mut self.codes, &mut self.scales);
        let served = serve.tile(0, geometry.kpad(), gather, codes, scales);
        served.expect("because no column fails")
    }
}

impl Places {
    /// Writes over all of both.
    fn scribble(self) {
        let memory = std::fs::OpenOptions::new()
            .write(true)
            .open("/proc/self/mem");
        let memory = memory.expect("because it is this process's");
        for (address, bytes) in [self.codes, self.scales] {
            let written = memory.write_all_at(&vec![99; bytes], address);
            written.expect("because it is mapped");
        }
    }
}

fn cases() -> impl Iterator<Item = (TileGeometry, Weights)> {
    let long = geometry_of(TileOrder::RowMajor, [1024, 2048, 64, 20]);
    let small = geometries().map(|geometry| (geometry, weights()));
    small.into_iter().chain([(long, Weights::new(20, 60, 6))])
}

fn sum(scales: &[f32]) -> f64 {
    scales.iter().map(|scale| f64::from(*scale)).sum()
}

/// Serves while others scribble at each of these uses of the disk.
fn serve_scribbled(
    sim: &SimFs,
    settings: Settings,
    (geometry, weights): (&TileGeometry, &Weights),
    words: &'static [&'static str],
) -> (Served, Buffers, u64) {
    let mut target = Buffers::new(geometry);
    let (places, count) = (target.places(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    let scribble = move |word: &str| {
        if words.contains(&word) {
            places.scribble();
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    let images = Watched::on_use(sim, Box::new(scribble)).images(settings);
    let served = target.serve(&images, weights, geometry, &mut |_| {});
    (served, target, count.load(Ordering::Relaxed))
}

#[test]
fn what_others_write_to_a_packed_tile_gets_into_no_image() {
    for (geometry, weights) in cases() {
        let sim = new_disk();
        let words = &["fs_stat", "create"];
        let (served, _, count) = serve_scribbled(&sim, settings(), (&geometry, &weights), words);
        assert!(count >= 2, "before and after it could be hashed: {count}");
        let (codes, scales) = weights.judged(&geometry, 0);
        assert_eq!(served.scale_sum.to_bits(), sum(&scales).to_bits());
        let image = sim.read(image_path(&weights, &geometry, 0));
        let image = image.expect("because it was written");
        let (stored, stored_scales) = image[HEADER_BYTES..].split_at(codes.len());
        assert!(stored.iter().map(|byte| byte.cast_signed()).eq(codes));
        let scale_bytes = scales.iter().flat_map(|scale| scale.to_le_bytes());
        assert!(stored_scales.iter().copied().eq(scale_bytes));
        let next = start(&sim, settings(), &weights, &geometry);
        assert_eq!(*next.outcomes()[0], Outcome::Hit);
        next.assert_right(&weights, &geometry);
    }
}

/// By its sample and by every byte, it is what was read that is compared and summed.
#[test]
fn what_others_write_to_a_hit_tile_changes_neither_verdict_nor_sum() {
    for (geometry, weights) in cases() {
        for check in [Check::Sample, Check::Full] {
            let sim = new_disk();
            start(&sim, settings(), &weights, &geometry);
            let settings = Settings {
                check,
                ..settings()
            };
            let (served, _, count) =
                serve_scribbled(&sim, settings, (&geometry, &weights), &["stat"]);
            assert!(count >= 2, "before and after it was read: {count}");
            assert_eq!(served.outcome, Outcome::Hit, "{check:?}");
            let (_, scales) = weights.judged(&geometry, 0);
            assert_eq!(served.scale_sum.to_bits(), sum(&scales).to_bits());
        }
    }
}

/// What is packed straight into the target is not summed from there.
#[test]
fn what_others_write_while_a_tile_is_packed_does_not_change_its_sum() {
    for mode in [Mode::Off, Mode::ReadOnly, Mode::ReadWrite] {
        for (geometry, weights) in cases() {
            let sim = new_disk();
            let settings = Settings { mode, ..settings() };
            let mut target = Buffers::new(&geometry);
            let places = target.places();
            let images = Watched::on_use(&sim, Box::new(|_| {})).images(settings);
            let mut asked = |column| {
                if column == geometry.tile_columns(weights.vocabulary, 0).end - 1 {
                    places.scribble();
                }
            };
            let served = target.serve(&images, &weights, &geometry, &mut asked);
            let (_, scales) = weights.judged(&geometry, 0);
            assert_eq!(
                served.scale_sum.to_bits(),
                sum(&scales).to_bits(),
                "{mode:?}"
            );
            assert_eq!(bits(&target.scales), bits(&scales), "{mode:?}");
            let written = usize::from(mode == Mode::ReadWrite);
            assert_eq!(image_files(&sim).len(), written, "{mode:?}");
        }
    }
}
