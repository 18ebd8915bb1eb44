//! `worker`: engines as persistent servers, one per device or group of devices.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::places::Lookup;
use crate::worker_words::WorkerCommand;
use crate::{
    worker_devices, worker_logs, worker_render, worker_start, worker_status, worker_stop,
    worker_validate,
};

/// Executes one command on workers.
pub(crate) fn execute(command: WorkerCommand, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    match command {
        WorkerCommand::Devices => worker_devices::devices(lookup),
        WorkerCommand::Validate(args) => worker_validate::validate(&args, lookup),
        WorkerCommand::Status(args) => worker_status::status(&args, lookup),
        WorkerCommand::Render(args) => worker_render::render(&args, lookup),
        WorkerCommand::Start(args) => worker_start::start(&args, lookup),
        WorkerCommand::Stop(args) => worker_stop::stop(&args, lookup),
        WorkerCommand::Logs(args) => worker_logs::logs(&args, lookup),
    }
}
