//! A tile in memory that nobody else reaches: what is packed there is what is hashed and written,
//! whoever writes to the caller's buffers meanwhile.

use packhouse_layout::int8_tile::TileGeometry;

/// Memory of one tile, kept from tile to tile.
#[derive(Default)]
pub(crate) struct Private {
    pub(crate) codes: Vec<i8>,
    pub(crate) scales: Vec<f32>,
}

/// Where memory for so many codes is from; `None`: there is none.
pub(crate) type Memory = fn(usize) -> Option<Vec<i8>>;

/// Memory from the allocator, which may say no.
pub(crate) fn allocate(length: usize) -> Option<Vec<i8>> {
    let mut codes = Vec::new();
    codes.try_reserve_exact(length).ok()?;
    codes.resize(length, 0);
    Some(codes)
}

impl Private {
    /// Makes sure that there is memory for a tile's codes.
    ///
    /// Errors with their bytes when there is none.
    pub(crate) fn take_codes(
        &mut self,
        geometry: &TileGeometry,
        memory: Memory,
    ) -> Result<(), u64> {
        let bytes = geometry.code_bytes();
        if self.codes.len() as u64 != bytes {
            let codes = usize::try_from(bytes).ok().and_then(memory);
            self.codes = codes.ok_or(bytes)?;
        }
        Ok(())
    }

    /// Makes sure that there is memory for a tile's scales, which are few.
    pub(crate) fn take_scales(&mut self, geometry: &TileGeometry) {
        let length = usize::try_from(geometry.nd());
        let length = length.expect("because the caller has as many in memory");
        self.scales.resize(length, 0.0);
    }
}
