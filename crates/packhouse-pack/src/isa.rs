//! What the CPU can do, asked once, and the tokens that prove it.

/// A level of instructions that kernels are written for. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IsaLevel {
    /// Plain loops: the layouts' judges.
    Scalar,
    /// AVX2.
    Avx2,
    /// AVX-512 F, BW and VL, and AVX2.
    Avx512,
}

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// Proof that the CPU has AVX-512 F, BW and VL.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl IsaLevel {
    /// Every level, lowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Finds a level by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }

    /// The highest level of this CPU.
    pub fn detect() -> Self {
        if Avx512::detect().is_some() {
            Self::Avx512
        } else if Avx2::detect().is_some() {
            Self::Avx2
        } else {
            Self::Scalar
        }
    }
}

impl Avx2 {
    /// Asks the CPU.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<Self> {
        std::arch::is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// There is none on this architecture.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Option<Self> {
        None
    }
}

impl Avx512 {
    /// Asks the CPU.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<Self> {
        let has = Avx2::detect().is_some()
            && std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vl");
        has.then_some(Self(()))
    }

    /// There is none on this architecture.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Option<Self> {
        None
    }
}
