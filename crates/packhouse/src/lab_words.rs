//! The words of `packhouse lab`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// A command of the lab, and which lab.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    /// The lab's folder [default: the nearest one upwards that has ledger.jsonl]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) lab: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// One command of the lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Make a folder a lab: its ledger, and a lane and an experiment to edit
    Init(LabInitArgs),
    /// Make, open, pause, resume, block and close lanes
    #[command(subcommand, disable_help_subcommand = true)]
    Lane(LabLaneCommand),
    /// Write an experiment's preregistration to edit, and list experiments, drafted ones too
    #[command(subcommand, disable_help_subcommand = true)]
    Experiment(LabExperimentCommand),
    /// Freeze an experiment by digest: from now on nothing of it may change
    Register(LabRegisterArgs),
    /// Run a registered packet on a null candidate, with every step up to the tampered seals
    ///
    /// May be done as often as wanted. Ends with 1 when the rehearsal is not green.
    #[command(verbatim_doc_comment)]
    Rehearse(LabPacketArgs),
    /// Approve or reject a rehearsed packet
    Review(LabReviewArgs),
    /// Make a reviewed packet ready to be run, once
    Arm(LabPacketArgs),
    /// Give up a packet before it is run, for a reason that everybody sees
    Withdraw(LabWithdrawArgs),
    /// Run an armed packet: once, and never again
    ///
    /// Ends with 0 for a sealed pass, with 1 for a sealed fail or abort, with 3 when the packet was
    /// released before anything irreversible.
    #[command(verbatim_doc_comment)]
    Run(LabRunArgs),
    /// Finish the evidence of a run that was killed; nothing is run again
    Seal(LabRunArgs),
    /// Verify evidence offline by a second implementation: a bag, or all of a packet
    Verify(LabVerifyArgs),
    /// Analyse a sealed bag again with this program; needs no device
    Analyse(LabAnalyseArgs),
    /// Name a sealed pass as the record of a key
    Record(LabRecordArgs),
    /// List the ledger, verify it, or add a note or a correction
    Ledger(LabLedgerArgs),
    /// Show the state of the lab, or write or compare its page
    State(LabStateArgs),
    /// Show one packet
    Report(LabReportArgs),
}

/// What `lab init` takes.
#[derive(Debug, Args)]
pub(crate) struct LabInitArgs {
    /// The folder that becomes a lab; made when missing [default: the one of --lab, else this one]
    pub(crate) folder: Option<PathBuf>,
    /// The lab's name [default: the folder's]
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// One command on lanes.
#[derive(Debug, Subcommand)]
pub(crate) enum LabLaneCommand {
    /// Write a lane's document to edit: lanes/ID.toml
    New(LabLaneNewArgs),
    /// Open a lane by its document, which may not change from then on
    Open(LabLaneReasonArgs),
    /// Pause a lane until a day
    Pause(LabLaneWaitArgs),
    /// Say what a lane waits for, and until which day
    Block(LabLaneWaitArgs),
    /// Go on with a lane that is paused or blocked
    Resume(LabLaneReasonArgs),
    /// Close a lane for ever
    Close(LabLaneReasonArgs),
    /// List the lanes
    Ls,
}

/// What `lab lane new` takes.
#[derive(Debug, Args)]
pub(crate) struct LabLaneNewArgs {
    /// The lane's id
    pub(crate) id: String,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What a change of a lane takes that has a reason.
#[derive(Debug, Args)]
pub(crate) struct LabLaneReasonArgs {
    /// The lane's id
    pub(crate) id: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What a change of a lane takes that has an end.
#[derive(Debug, Args)]
pub(crate) struct LabLaneWaitArgs {
    /// The lane's id
    pub(crate) id: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Until which day
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(crate) until: String,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// One command on experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum LabExperimentCommand {
    /// Write a preregistration to edit: experiments/ID/prereg.toml
    New(LabExperimentNewArgs),
    /// List the experiments, drafted ones too
    Ls,
}

/// What `lab experiment new` takes.
#[derive(Debug, Args)]
pub(crate) struct LabExperimentNewArgs {
    /// The experiment's id
    pub(crate) id: String,
    /// The experiment whose preregistration is copied [default: an example of every field]
    #[arg(long, value_name = "ID")]
    pub(crate) from: Option<String>,
    /// The lane's id [default: that of --from, else the only one that is not closed]
    #[arg(long, value_name = "LANE")]
    pub(crate) lane: Option<String>,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What `lab register` takes.
#[derive(Debug, Args)]
pub(crate) struct LabRegisterArgs {
    /// The experiment's id: the name of its folder below experiments/
    pub(crate) experiment: String,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// Which packet, and whether to do it.
#[derive(Debug, Args)]
pub(crate) struct LabPacketArgs {
    /// The packet: its experiment's id, or 8 or more hex digits
    pub(crate) packet: String,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What `lab withdraw` takes.
#[derive(Debug, Args)]
pub(crate) struct LabWithdrawArgs {
    /// The packet: its experiment's id, or 8 or more hex digits
    pub(crate) packet: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What `lab review` takes.
#[derive(Debug, Args)]
pub(crate) struct LabReviewArgs {
    /// The packet: its experiment's id, or 8 or more hex digits
    pub(crate) packet: String,
    /// Who reviews
    #[arg(long, value_name = "NAME")]
    pub(crate) reviewer: String,
    /// The reviewer's word
    #[arg(long, value_enum)]
    pub(crate) verdict: LabReviewVerdict,
    /// What was looked at, and what was found
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: String,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// A reviewer's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabReviewVerdict {
    /// It may be armed
    Approve,
    /// It may not, until the same reviewer approves
    Reject,
}

/// What `lab run` and `lab seal` take.
#[derive(Debug, Args)]
pub(crate) struct LabRunArgs {
    /// The packet: its experiment's id, or 8 or more hex digits
    pub(crate) packet: String,
    /// Also sign the seal with this Ed25519 key (PKCS#8, PEM)
    #[arg(long, value_name = "PEM")]
    pub(crate) key: Option<PathBuf>,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What `lab verify` takes.
#[derive(Debug, Args)]
pub(crate) struct LabVerifyArgs {
    /// A bag's folder or the folder of a packet; in a lab also an experiment's id, or 8 or more
    /// hex digits of a packet
    #[arg(value_name = "EVIDENCE")]
    pub(crate) path: PathBuf,
    /// The ledger that the evidence must agree with [default: that of the lab that it is in]
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    /// Leave the ledger out
    #[arg(long, conflicts_with = "ledger")]
    pub(crate) no_ledger: bool,
    /// The public key of the seals' signatures (SPKI, PEM)
    #[arg(long, value_name = "PEM")]
    pub(crate) public_key: Option<PathBuf>,
    /// Also tamper with copies in memory in every known way, and see each of them rejected
    #[arg(long)]
    pub(crate) tampers: bool,
}

/// What `lab analyse` takes.
#[derive(Debug, Args)]
pub(crate) struct LabAnalyseArgs {
    /// The packet: its experiment's id, or 8 or more hex digits
    pub(crate) packet: String,
    /// Why it is analysed again
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    /// Also sign the seal with this Ed25519 key (PKCS#8, PEM)
    #[arg(long, value_name = "PEM")]
    pub(crate) key: Option<PathBuf>,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What `lab record` takes.
#[derive(Debug, Args)]
pub(crate) struct LabRecordArgs {
    /// The record's key
    pub(crate) key: String,
    /// The packet: its experiment's id, or 8 or more hex digits
    pub(crate) packet: String,
    /// What the record says
    #[arg(long, value_name = "TEXT")]
    pub(crate) claim: String,
    /// A width that it holds for; may be given again
    #[arg(long, value_name = "ROWS", required = true)]
    pub(crate) width: Vec<u64>,
    /// The ledger's entry of the record that this one takes the place of
    #[arg(long, value_name = "INDEX")]
    pub(crate) supersedes: Option<u64>,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What is done with the ledger; without a word it is listed.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct LabLedgerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LabLedgerCommand>,
}

/// One command on the ledger.
#[derive(Debug, Subcommand)]
pub(crate) enum LabLedgerCommand {
    /// List the entries [default]
    Ls,
    /// Verify the chain, and that all that it cites is there and holds
    Verify(LabLedgerVerifyArgs),
    /// Add a note
    Note(LabLedgerNoteArgs),
    /// Add a correction of an earlier entry, which stays as it is
    Correct(LabLedgerCorrectArgs),
}

/// What `lab ledger verify` takes.
#[derive(Debug, Args)]
pub(crate) struct LabLedgerVerifyArgs {
    /// An earlier copy of the ledger, which this one must begin with byte for byte
    #[arg(long, value_name = "FILE")]
    pub(crate) previous: Option<PathBuf>,
}

/// What `lab ledger note` takes.
#[derive(Debug, Args)]
pub(crate) struct LabLedgerNoteArgs {
    /// What to note
    pub(crate) text: String,
    /// The lane that it is of
    #[arg(long, value_name = "ID")]
    pub(crate) lane: Option<String>,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What `lab ledger correct` takes.
#[derive(Debug, Args)]
pub(crate) struct LabLedgerCorrectArgs {
    /// The entry's index
    pub(crate) entry: u64,
    /// What is right
    pub(crate) text: String,
    /// Do it, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
}

/// What `lab state` takes.
#[derive(Debug, Args)]
pub(crate) struct LabStateArgs {
    /// Compare state.md and state.html with the ledger; ends with 1 when one differs
    #[arg(long, conflicts_with_all = ["live", "html", "md", "execute"])]
    pub(crate) check: bool,
    /// Also look at this host: processes, ports, devices, Git
    #[arg(long)]
    pub(crate) live: bool,
    /// Write the page as HTML to this new file, or to stdout for `-`
    #[arg(long, value_name = "FILE", conflicts_with = "md")]
    pub(crate) html: Option<PathBuf>,
    /// Write the page as Markdown to this new file, or to stdout for `-`
    #[arg(long, value_name = "FILE")]
    pub(crate) md: Option<PathBuf>,
    /// Write state.md and state.html
    #[arg(long, conflicts_with_all = ["live", "html", "md"])]
    pub(crate) execute: bool,
}

/// What `lab report` takes.
#[derive(Debug, Args)]
pub(crate) struct LabReportArgs {
    /// The packet: its experiment's id, or 8 or more hex digits
    pub(crate) packet: String,
    /// Write the page as HTML to this new file, or to stdout for `-`
    #[arg(long, value_name = "FILE", conflicts_with = "md")]
    pub(crate) html: Option<PathBuf>,
    /// Write the page as Markdown to this new file, or to stdout for `-` [default: to stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) md: Option<PathBuf>,
}
