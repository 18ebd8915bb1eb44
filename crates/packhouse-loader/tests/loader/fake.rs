//! A fake engine: a scalar packer that interleaves blocks of rows within units, with switches for
//! what an engine can do wrong, and a clock that only tests and waits move.

use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::{Geometry, ggml_cpu_repack};
use packhouse_loader::{Engine, Level, PackerRefusal, PackerTraits};
use packhouse_store::object::VerifiedObject;
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::map::Region;
use serde_json::Value;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What kind of packer the engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packer {
    /// Turns the rows of a unit: another number is another packer with another fingerprint.
    pub(crate) turn: u64,
    /// Whether units pack alone; else the units of a run come out in reverse order.
    pub(crate) by_units: bool,
    pub(crate) fault: Fault,
}

/// What is wrong with the packer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The golden weight packs to other bytes each time, and the engine says so.
    GoldenDiffers,
    /// Golden weights pack well, live ones to other bytes each time.
    LiveDiffers,
    /// The engine has no packing.
    NoPacking,
}

pub(crate) const PLAIN: Packer = Packer {
    turn: 0,
    by_units: true,
    fault: Fault::None,
};

type Hook = Box<dyn Fn(&[u8]) + Send>;

pub(crate) struct FakeEngine {
    packer: Packer,
    closed: AtomicBool,
    attach_fails: AtomicBool,
    calls: AtomicU64,
    before_pack: Mutex<Option<Hook>>,
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Clone, Default)]
pub(crate) struct Heard {
    pub(crate) lines: Vec<(Level, String)>,
    pub(crate) reports: Vec<Value>,
    /// Bytes of each run packed.
    pub(crate) runs: Vec<usize>,
    /// Calls that came after `close`.
    pub(crate) late: Vec<String>,
}

impl FakeEngine {
    pub(crate) fn new(packer: Packer) -> Arc<Self> {
        Arc::new(Self {
            packer,
            closed: AtomicBool::new(false),
            attach_fails: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            before_pack: Mutex::default(),
            heard: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// What the packer makes of a whole tensor, by index and without cutting it.
    pub(crate) fn expected(&self, ty: GgmlType, geometry: &Geometry, source: &[u8]) -> Vec<u8> {
        let mut target = vec![0; source.len()];
        self.packer.pack(ty, geometry, source, &mut target);
        target
    }

    /// From here on every call is a defect.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn fail_attach(&self) {
        self.attach_fails.store(true, Ordering::SeqCst);
    }

    /// Has `hook` called with the source of each run before it is packed.
    pub(crate) fn before_pack(&self, hook: impl Fn(&[u8]) + Send + 'static) {
        *self.before_pack.lock().expect("because no hook panics") = Some(Box::new(hook));
    }

    pub(crate) fn heard(&self) -> Heard {
        self.heard.lock().expect("because no holder panics").clone()
    }

    /// Waits for the last report of a load: the one that says how its fill ended.
    pub(crate) fn last_report(&self, load: u64) -> Value {
        self.report_of(load, |state| !matches!(state, "waiting" | "running"))
    }

    /// Waits for the first report of a load whose fill is in a state.
    pub(crate) fn report_of(&self, load: u64, wanted: impl Fn(&str) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut heard = self.heard.lock().expect("because no holder panics");
        loop {
            let found = heard.reports.iter().find(|report| {
                report["load"] == load && report["fill"]["state"].as_str().is_some_and(&wanted)
            });
            if let Some(report) = found {
                return report.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no such report: {:?}", heard.reports);
            let waited = self.changed.wait_timeout(heard, left);
            heard = waited.expect("because no holder panics").0;
        }
    }

    fn enter(&self, call: &str) {
        if self.closed.load(Ordering::SeqCst) {
            let mut heard = self.heard.lock().expect("because no holder panics");
            heard.late.push(call.to_owned());
        }
    }
}

impl Packer {
    fn pack(&self, ty: GgmlType, geometry: &Geometry, source: &[u8], target: &mut [u8]) {
        let narrow = |value: u64| usize::try_from(value).expect("because tests are small");
        let (unit_bytes, rows) = (narrow(geometry.unit_bytes()), narrow(geometry.unit_rows));
        let (row_bytes, block) = (narrow(geometry.row_bytes), narrow(ty.block_bytes()));
        let blocks = row_bytes / block;
        let unit_count = source.len() / unit_bytes;
        assert_eq!(
            unit_count * unit_bytes,
            source.len(),
            "a run is whole units"
        );
        for unit in 0..unit_count {
            let at = if self.by_units {
                unit
            } else {
                unit_count - 1 - unit
            };
            let from = &source[unit * unit_bytes..][..unit_bytes];
            let to = &mut target[at * unit_bytes..][..unit_bytes];
            for row in 0..rows {
                let place = (row + narrow(self.turn)) % rows;
                for index in 0..blocks {
                    let piece = &from[row * row_bytes + index * block..][..block];
                    to[(index * rows + place) * block..][..block].copy_from_slice(piece);
                }
            }
        }
    }
}

impl Engine for FakeEngine {
    fn traits(&self, ty: GgmlType, unit_rows: u64) -> Result<PackerTraits, PackerRefusal> {
        self.enter("traits");
        let golden = ggml_cpu_repack::golden(ty, unit_rows);
        let golden = golden.filter(|_| self.packer.fault != Fault::NoPacking);
        let golden = golden.ok_or(PackerRefusal::NoPacking {
            name: ty.name(),
            dims: Vec::new(),
        })?;
        if self.packer.fault == Fault::GoldenDiffers {
            return Err(PackerRefusal::NotDeterministic { name: ty.name() });
        }
        let geometry = ggml_cpu_repack::admit(ty, &golden.dims).expect("because it is golden");
        let packed = self.expected(ty, &geometry, &golden.bytes);
        Ok(PackerTraits {
            fingerprint: ggml_cpu_repack::fingerprint(ty, unit_rows, &packed),
            by_units: self.packer.by_units,
            sample_rows: unit_rows,
        })
    }

    fn pack(
        &self,
        ty: GgmlType,
        dims: &[u64],
        geometry: &Geometry,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), PackerRefusal> {
        self.enter("pack");
        if self.packer.fault == Fault::NoPacking {
            let (name, dims) = (ty.name(), dims.to_vec());
            return Err(PackerRefusal::NoPacking { name, dims });
        }
        if let Some(hook) = &*self.before_pack.lock().expect("because no hook panics") {
            hook(source);
        }
        self.packer.pack(ty, geometry, source, target);
        if self.packer.fault == Fault::LiveDiffers {
            let call = self.calls.fetch_add(1, Ordering::SeqCst);
            target[..8].copy_from_slice(&call.to_le_bytes());
        }
        let mut heard = self.heard.lock().expect("because no holder panics");
        heard.runs.push(source.len());
        Ok(())
    }

    fn attach(&self, region: &Region, object: &VerifiedObject) -> io::Result<()> {
        self.enter("attach");
        if self.attach_fails.load(Ordering::SeqCst) {
            // What the region held is gone, as after a mapping that was taken back.
            region.with_private(|bytes| bytes.fill(0))?;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let file = object
            .file()
            .as_fd()
            .expect("because the file is a real one");
        // SAFETY: the object was verified through this descriptor, and tests change objects only
        // while no region of theirs is read.
        unsafe { region.attach(file) }
    }

    fn say(&self, level: Level, line: &str) {
        self.enter("say");
        let mut heard = self.heard.lock().expect("because no holder panics");
        heard.lines.push((level, line.to_owned()));
    }

    fn report(&self, report: &Value) {
        self.enter("report");
        let mut heard = self.heard.lock().expect("because no holder panics");
        heard.reports.push(report.clone());
        self.changed.notify_all();
    }
}

/// A clock an hour ahead of the files, so that every stat identity is settled, and still but for
/// waits: durations are 0 and samples lie where the test can compute them.
#[derive(Debug)]
pub(crate) struct StillClock {
    wall_ns: AtomicI64,
    steady_ns: AtomicU64,
    stalls: AtomicBool,
}

impl StillClock {
    pub(crate) fn new() -> Arc<Self> {
        let ahead_ns = RealClock.wall_ns() + 3_600_000_000_000;
        Arc::new(Self {
            wall_ns: AtomicI64::new(ahead_ns),
            steady_ns: AtomicU64::new(0),
            stalls: AtomicBool::new(false),
        })
    }

    pub(crate) fn advance_ns(&self, duration_ns: u64) {
        let signed = i64::try_from(duration_ns).expect("because waits are short");
        self.wall_ns.fetch_add(signed, Ordering::SeqCst);
        self.steady_ns.fetch_add(duration_ns, Ordering::SeqCst);
    }
}

impl StillClock {
    /// Holds fills up, or lets them go on: on a busy host a thread of idle priority gets no time.
    /// They are held when they ask for the time, which is at their begin and end, and for 60 s at
    /// most.
    pub(crate) fn stall_fills(&self, stalls: bool) {
        self.stalls.store(stalls, Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn wall_ns(&self) -> i64 {
        self.wall_ns.load(Ordering::SeqCst)
    }

    fn steady_ns(&self) -> u64 {
        if std::thread::current().name() == Some("packhouse-fill") {
            let deadline = Instant::now() + Duration::from_secs(60);
            while self.stalls.load(Ordering::SeqCst) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.steady_ns.load(Ordering::SeqCst)
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.advance_ns(duration_ns);
        RealClock.sleep_ns(duration_ns.min(1_000_000));
    }
}
