//! A plan's selection as an order: our own kernels are the recipes.

use super::order::{Item, Order, Recipe};
use crate::plan::{Plan, Selection};
use packhouse_base::digest::{Fingerprint, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_pack::{Kernel, NoKernel, Packers};
use packhouse_store::ledger::SourceRange;
use packhouse_store::record::SampleGeometry;
use std::sync::Arc;

/// One tensor packed by a kernel of ours.
struct ByKernel {
    kernel: Kernel,
    fingerprint: Fingerprint,
}

impl Order {
    /// Orders what a plan chose of a container. Errors when a tensor has no packer here.
    pub fn new(plan: &Plan, selection: &Selection, packers: &Packers) -> Result<Self, NoKernel> {
        let items = selection.chosen.iter().map(|chosen| {
            let admitted = &chosen.admitted;
            Ok(Item {
                slot: chosen.slot,
                tensor: chosen.name.clone(),
                shard: chosen.shard,
                range: SourceRange {
                    offset: chosen.offset,
                    length: admitted.source_bytes(),
                },
                recipe: Arc::new(ByKernel {
                    kernel: packers.kernel(admitted)?,
                    fingerprint: packers.fingerprint(admitted)?,
                }),
            })
        });
        Ok(Self {
            plan: plan.name().to_owned(),
            plan_digest: plan.digest(),
            items: items.collect::<Result<_, NoKernel>>()?,
        })
    }
}

impl Recipe for ByKernel {
    fn identity(&self, source: TensorDigest) -> PackIdentity {
        self.kernel.admitted().identity(self.fingerprint, source)
    }

    fn sample(&self) -> SampleGeometry {
        let geometry = self.kernel.admitted().geometry();
        SampleGeometry {
            unit_rows: geometry.unit_rows,
            row_bytes: geometry.row_bytes,
            row_count: geometry.row_count,
        }
    }

    fn payload_bytes(&self) -> u64 {
        self.kernel.admitted().payload_bytes()
    }

    fn pack(&self, source: &[u8], target: &mut [u8]) {
        self.kernel.pack(source, target);
    }
}
