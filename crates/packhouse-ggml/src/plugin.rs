//! The plug-in of one process: identified engine, packer, loader, tables.

use crate::abi::v3;
use crate::device::Tables;
use crate::environment::{Configuration, Environment};
use crate::host::Host;
use crate::output::Output;
use crate::packer::EnginePacker;
use crate::select::Selection;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::Geometry;
use packhouse_loader::{Engine, Level, Loader, PackerRefusal, PackerTraits};
use packhouse_store::object::VerifiedObject;
use packhouse_sys::map::Region;
use std::io;
use std::sync::{Arc, OnceLock};

/// Everything the plug-in holds for as long as the process lives.
pub(crate) struct Plugin {
    pub(crate) host: Arc<Host>,
    pub(crate) packer: Arc<EnginePacker>,
    pub(crate) loader: Loader,
    output: Arc<Output>,
    tables: Tables,
    selection: OnceLock<Selection>,
    no_host: bool,
}

/// The engine as the loader sees it.
struct GgmlEngine {
    packer: Arc<EnginePacker>,
    output: Arc<Output>,
}

impl Plugin {
    /// The plug-in of this process, started at the first call; `None` when it stays out.
    pub(crate) fn of_this_process() -> Option<&'static Self> {
        static PLUGIN: OnceLock<Option<Plugin>> = OnceLock::new();
        PLUGIN.get_or_init(Self::start).as_ref()
    }

    /// The registry that the host gets.
    pub(crate) fn reg(&self) -> *mut v3::Reg {
        self.tables.reg
    }

    /// Our buffer type.
    pub(crate) fn buffer_type(&self) -> *mut v3::BufferType {
        self.tables.buffer_type
    }

    /// The engine's own order, asked for when the first weight needs it: by then its devices are
    /// there.
    pub(crate) fn selection(&self) -> &Selection {
        self.selection
            .get_or_init(|| Selection::new(&self.host, self.no_host))
    }

    /// Tells the user one line.
    pub(crate) fn say(&self, level: Level, line: &str) {
        self.output.say(level, line);
    }

    fn start() -> Option<Self> {
        let environment = Environment::of_this_process();
        let configuration = environment.configure();
        let output = configuration
            .as_ref()
            .map_or_else(|_| Output::plain(), Output::new);
        if let Some(path) = environment.announcement() {
            output.announce(&path);
        }
        let configuration = match configuration {
            Ok(configuration) => configuration,
            Err(off) => {
                output.say(
                    Level::Info,
                    &format!("off: {off}; the engine runs as without us"),
                );
                return None;
            }
        };
        let output = Arc::new(output);
        for complaint in &configuration.complaints {
            output.say(Level::Warn, complaint);
        }
        match Host::find() {
            Ok(host) => Some(Self::with_host(Arc::new(host), output, configuration)),
            Err(error) => {
                let version = crate::host::version_of_this_process();
                let line = format!("off: ggml {version}: {error}; the engine runs as without us");
                output.say(Level::Warn, &line);
                None
            }
        }
    }

    fn with_host(host: Arc<Host>, output: Arc<Output>, configuration: Configuration) -> Self {
        let packer = Arc::new(EnginePacker::new(host.clone()));
        let engine = GgmlEngine {
            packer: packer.clone(),
            output: output.clone(),
        };
        let loader = Loader::new(Arc::new(engine), configuration.settings);
        let no_host = configuration.no_host;
        let tables = Tables::new();
        Self {
            host,
            packer,
            loader,
            output,
            tables,
            selection: OnceLock::new(),
            no_host,
        }
    }
}

impl Engine for GgmlEngine {
    fn traits(&self, ty: GgmlType, unit_rows: u64) -> Result<PackerTraits, PackerRefusal> {
        self.packer.traits(ty, unit_rows)
    }

    fn pack(
        &self,
        ty: GgmlType,
        dims: &[u64],
        geometry: &Geometry,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), PackerRefusal> {
        self.packer.pack(ty, dims, geometry, source, target)
    }

    fn attach(&self, region: &Region, object: &VerifiedObject) -> io::Result<()> {
        let descriptor = object.file().as_fd().ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: a VerifiedObject is a file that the store sealed (mode 0444, trusted owner, on a
        // local file system) and whose bytes were verified through this descriptor; the store only
        // ever renames or unlinks objects.
        unsafe { region.attach(descriptor) }
    }

    fn say(&self, level: Level, line: &str) {
        self.output.say(level, line);
    }

    fn report(&self, report: &serde_json::Value) {
        self.output.report(report);
    }
}
