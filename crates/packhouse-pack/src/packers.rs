//! Dispatch: from an admitted tensor to the kernel that serves it.

use crate::int8_tile::bound::Bound as TileBound;
use crate::isa::{Avx2, Avx512, IsaLevel};
use crate::kernels::{Code, KERNELS, PackHead, PackSteps, UnpackGroups};
use crate::parallel;
use packhouse_base::Blame;
use packhouse_base::digest::Fingerprint;
use packhouse_layout::int8_tile::TileOrder;
use packhouse_layout::{Admitted, Convert, Judge, Layout, NotInvertible, judge};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The packers of this CPU, or of a lower level for tests.
#[derive(Debug)]
pub struct Packers {
    level: IsaLevel,
    avx2: Option<Avx2>,
    avx512: Option<Avx512>,
    fingerprints: Mutex<BTreeMap<FingerprintOf, Fingerprint>>,
    /// Of the packer of tiles: row-major, blocked.
    tile_fingerprints: [OnceLock<Fingerprint>; 2],
    /// What that packer makes of small tiles where it is wrong.
    tile_differences: [OnceLock<Vec<u8>>; 2],
}

/// Layout, type id and parameters.
type FingerprintOf = (Layout, u32, BTreeMap<String, u64>);

/// The kernel for one admitted tensor.
#[derive(Clone, Debug)]
pub struct Kernel {
    admitted: Admitted,
    bound: Bound,
}

/// The inverse of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Inverse<'a> {
    admitted: &'a Admitted,
    bound: BoundInverse,
}

/// An inverse with the proof that it may run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BoundInverse {
    Judge(Convert),
    Avx2(Avx2, UnpackGroups<Avx2>),
    Avx512(Avx512, UnpackGroups<Avx512>),
}

/// A kernel with the proof that it may run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    Judge(Judge),
    Avx2(Avx2, PackSteps<Avx2>, Option<UnpackGroups<Avx2>>),
    Avx512(Avx512, PackSteps<Avx512>, Option<UnpackGroups<Avx512>>),
    HeadAvx2(Avx2, PackHead<Avx2>),
    HeadAvx512(Avx512, PackHead<Avx512>),
}

/// No packer of ours makes this layout of this type with these parameters at this level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoKernel {
    /// Layout id.
    pub layout: &'static str,
    /// Type name.
    pub type_name: &'static str,
    /// The layout's parameters.
    pub parameters: BTreeMap<String, u64>,
    /// Name of the level asked.
    pub level: &'static str,
    /// Name of the lowest level at which there is one; `None` where only an engine packs it.
    pub helping: Option<&'static str>,
}

impl fmt::Display for NoKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (layout, type_name, level) = (self.layout, self.type_name, self.level);
        write!(f, "no packer of {layout} for type {type_name}")?;
        for (at, (name, value)) in self.parameters.iter().enumerate() {
            let before = if at == 0 { " with" } else { " and" };
            write!(f, "{before} {name} {value}")?;
        }
        match self.helping {
            Some(helping) => write!(f, " at isa level {level}; there is one at {helping}"),
            None => f.write_str(": an engine makes it"),
        }
    }
}

impl std::error::Error for NoKernel {}

impl NoKernel {
    /// Whose side it is on: this host's CPU where another would do, or else whoever asked without
    /// an engine.
    pub const fn blame(&self) -> Blame {
        match self.helping {
            Some(_) => Blame::Host,
            None => Blame::Caller,
        }
    }
}

impl Packers {
    /// Makes the packers of this CPU.
    pub fn detect() -> Self {
        Self::up_to(IsaLevel::detect())
    }

    /// Makes the packers of a level. `None` when the CPU does not have it.
    pub fn at(level: IsaLevel) -> Option<Self> {
        (level <= IsaLevel::detect()).then(|| Self::up_to(level))
    }

    fn up_to(level: IsaLevel) -> Self {
        let (avx2, avx512) = match level {
            IsaLevel::Scalar => (None, None),
            IsaLevel::Avx2 => (Avx2::detect(), None),
            IsaLevel::Avx512 => (Avx2::detect(), Avx512::detect()),
        };
        Self {
            level,
            avx2,
            avx512,
            fingerprints: Mutex::new(BTreeMap::new()),
            tile_fingerprints: [const { OnceLock::new() }; 2],
            tile_differences: [const { OnceLock::new() }; 2],
        }
    }

    /// The kernels of tiles of the highest level that may run.
    pub(crate) fn tile_kernels(&self) -> TileBound {
        TileBound::best(self.avx2, self.avx512)
    }

    /// Where the fingerprint of the packer of tiles is kept.
    pub(crate) const fn tile_fingerprint_cell(&self, order: TileOrder) -> &OnceLock<Fingerprint> {
        match order {
            TileOrder::RowMajor => &self.tile_fingerprints[0],
            TileOrder::Blocked => &self.tile_fingerprints[1],
        }
    }

    /// Where what that packer makes of small tiles is kept.
    pub(crate) const fn tile_differences_cell(&self, order: TileOrder) -> &OnceLock<Vec<u8>> {
        match order {
            TileOrder::RowMajor => &self.tile_differences[0],
            TileOrder::Blocked => &self.tile_differences[1],
        }
    }

    /// The highest level that may run.
    pub const fn level(&self) -> IsaLevel {
        self.level
    }

    /// Finds the kernel of the highest level for a tensor.
    ///
    /// # Errors
    /// Where only an engine packs the tensor.
    pub fn kernel(&self, admitted: &Admitted) -> Result<Kernel, NoKernel> {
        let rows = KERNELS.iter().filter(|row| row.takes(admitted));
        let bound = rows.filter_map(|row| self.bind(admitted, &row.code));
        let best = bound.max_by_key(Bound::level);
        let bound = best.ok_or_else(|| self.no_kernel(admitted))?;
        Ok(Kernel {
            admitted: admitted.clone(),
            bound,
        })
    }

    fn no_kernel(&self, admitted: &Admitted) -> NoKernel {
        let rows = KERNELS.iter().filter(|row| row.takes(admitted));
        let above = rows.map(|row| row.code.level());
        let above = above.filter(|level| *level > self.level);
        NoKernel {
            layout: admitted.layout().id(),
            type_name: admitted.ty().name(),
            parameters: admitted.parameters().clone(),
            level: self.level.name(),
            helping: above.min().map(IsaLevel::name),
        }
    }

    fn bind(&self, admitted: &Admitted, code: &Code) -> Option<Bound> {
        match code {
            Code::Judge => judge(admitted).ok().map(Bound::Judge),
            Code::Avx2(pack, unpack) => self.avx2.map(|token| Bound::Avx2(token, *pack, *unpack)),
            Code::Avx512(pack, unpack) => {
                let bind = |token| Bound::Avx512(token, *pack, *unpack);
                self.avx512.map(bind)
            }
            Code::HeadAvx2(pack) => self.avx2.map(|token| Bound::HeadAvx2(token, *pack)),
            Code::HeadAvx512(pack) => self.avx512.map(|token| Bound::HeadAvx512(token, *pack)),
        }
    }

    /// The fingerprint of these packers for a tensor's layout, type and parameters: the golden
    /// weight is packed once and the answer kept.
    ///
    /// # Errors
    /// Where only an engine packs the tensor.
    pub fn fingerprint(&self, admitted: &Admitted) -> Result<Fingerprint, NoKernel> {
        let name = (
            admitted.layout(),
            admitted.ty().id(),
            admitted.parameters().clone(),
        );
        // A panic while the lock is held leaves a whole map: entries are inserted by one call.
        let lock = || {
            self.fingerprints
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(known) = lock().get(&name) {
            return Ok(*known);
        }
        let golden = admitted.golden();
        let kernel = self.kernel(&golden.admitted)?;
        let length = usize::try_from(golden.admitted.payload_bytes());
        let mut packed = vec![0; length.expect("because goldens are small")];
        kernel.pack(&golden.source, &mut packed);
        // Goldens are too small for the ways that tiles of heads are packed in.
        if let Some(order) = TileOrder::of(admitted.layout()) {
            packed.extend_from_slice(self.tile_differences(order));
        }
        let fingerprint = golden.admitted.fingerprint(&packed);
        lock().insert(name, fingerprint);
        Ok(fingerprint)
    }
}

impl Bound {
    pub(crate) const fn level(&self) -> IsaLevel {
        match self {
            Self::Judge(_) => IsaLevel::Scalar,
            Self::Avx2(..) | Self::HeadAvx2(..) => IsaLevel::Avx2,
            Self::Avx512(..) | Self::HeadAvx512(..) => IsaLevel::Avx512,
        }
    }
}

impl Kernel {
    /// The tensor that it packs.
    pub const fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// The level of the code that runs, which may be lower than that of the packers.
    pub const fn level(&self) -> IsaLevel {
        self.bound.level()
    }

    /// Packs on the calling thread; writes every byte of `target`.
    ///
    /// # Panics
    /// When a length is not the tensor's.
    pub fn pack(&self, source: &[u8], target: &mut [u8]) {
        self.pack_parallel(source, target, NonZeroUsize::MIN);
    }

    /// Packs on up to `thread_count` threads, the calling one among them. The bytes do not depend
    /// on their number. The judges use one.
    ///
    /// # Panics
    /// When a length is not the tensor's.
    pub fn pack_parallel(&self, source: &[u8], target: &mut [u8], thread_count: NonZeroUsize) {
        assert_eq!(
            source.len() as u64,
            self.admitted.source_bytes(),
            "source bytes"
        );
        assert_eq!(
            target.len() as u64,
            self.admitted.payload_bytes(),
            "payload bytes"
        );
        parallel::pack(&self.admitted, self.bound, source, target, thread_count);
    }

    /// What gives the source of a payload back.
    ///
    /// # Errors
    /// Where the layout has no inverse.
    pub fn inverse(&self) -> Result<Inverse<'_>, NotInvertible> {
        let bound = match self.bound {
            Bound::Judge(judge) => judge.unpack.map(BoundInverse::Judge),
            Bound::Avx2(token, _, unpack) => unpack.map(|unpack| BoundInverse::Avx2(token, unpack)),
            Bound::Avx512(token, _, unpack) => {
                unpack.map(|unpack| BoundInverse::Avx512(token, unpack))
            }
            Bound::HeadAvx2(..) | Bound::HeadAvx512(..) => None,
        };
        let bound = bound.ok_or(NotInvertible {
            layout: self.admitted.layout().id(),
        })?;
        Ok(Inverse {
            admitted: &self.admitted,
            bound,
        })
    }
}

impl Inverse<'_> {
    /// Gives the source of a payload back, on the calling thread; writes every byte of `target`.
    ///
    /// # Panics
    /// When a length is not the tensor's.
    pub fn unpack(&self, payload: &[u8], target: &mut [u8]) {
        self.unpack_parallel(payload, target, NonZeroUsize::MIN);
    }

    /// Gives the source of a payload back on up to `thread_count` threads.
    ///
    /// # Panics
    /// When a length is not the tensor's.
    pub fn unpack_parallel(&self, payload: &[u8], target: &mut [u8], thread_count: NonZeroUsize) {
        assert_eq!(
            payload.len() as u64,
            self.admitted.payload_bytes(),
            "payload bytes"
        );
        assert_eq!(
            target.len() as u64,
            self.admitted.source_bytes(),
            "source bytes"
        );
        parallel::unpack(self.admitted, self.bound, payload, target, thread_count);
    }
}
