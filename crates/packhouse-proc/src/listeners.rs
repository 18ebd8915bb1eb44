//! Who listens on TCP ports here.
//!
//! Invariants:
//! - a listener that is there all the time is found: the kernel's table is no snapshot, so it is
//!   read twice and each listener of either reading counts;
//! - what may be in the way of a bind is in the way: the table does not tell whether a socket of
//!   `::` takes IPv4 too, so it is taken to.
//!
//! Never: a connection to a port, which a server would see.

use crate::identity::ProcessKey;
use crate::procfs::{Procfs, ProcfsError, Unreadable, read};
use ::procfs::net::{TcpNetEntries, TcpState};
use ::procfs::{FromBufReadSI as _, current_system_info};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// A socket that listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// Where.
    pub address: SocketAddr,
    /// The socket's inode, by which its holders are found.
    pub inode: u64,
    /// The user who made it.
    pub uid: u32,
}

/// Who holds a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The processes seen to hold it.
    pub known: Vec<ProcessKey>,
    /// How many processes there are whose open files can't be read: any of them may hold it too.
    pub unreadable_count: u32,
}

/// All sockets that listen in this process' network namespace. A listener that came or went
/// meanwhile may be in it.
pub fn listeners(procfs: &Procfs) -> Result<Vec<Listener>, ProcfsError> {
    let mut found = BTreeSet::new();
    for _ in 0..READINGS {
        for table in ["net/tcp", "net/tcp6"] {
            read_table(procfs, table, &mut found)?;
        }
    }
    Ok(found.into_iter().collect())
}

/// The listeners in the way of a bind to this address and port.
pub fn conflicts(listeners: &[Listener], host: IpAddr, port: u16) -> Vec<&Listener> {
    listeners
        .iter()
        .filter(|listener| listener.address.port() == port)
        .filter(|listener| meets(listener.address.ip(), host))
        .collect()
}

/// Whether two sockets can't be there at once.
pub fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && meets(one.ip(), other.ip())
}

/// The processes that hold a socket.
pub fn owners_of(procfs: &Procfs, inode: u64) -> Result<Owners, ProcfsError> {
    let processes = procfs.processes()?;
    let mut owners = Owners {
        known: Vec::new(),
        unreadable_count: processes.hidden_count,
    };
    for process in processes.shown.iter().filter(|one| !one.is_kernel_thread) {
        match process.open_files() {
            Ok(files) if files.iter().any(|file| file.socket_inode == Some(inode)) => {
                owners.known.push(process.key);
            }
            Ok(_) | Err(Unreadable::Gone | Unreadable::NoProgram | Unreadable::Closed { .. }) => {}
            Err(
                Unreadable::Permission
                | Unreadable::Malformed { .. }
                | Unreadable::Replaced { .. }
                | Unreadable::Io { .. },
            ) => owners.unreadable_count += 1,
        }
    }
    Ok(owners)
}

fn read_table(
    procfs: &Procfs,
    table: &str,
    found: &mut BTreeSet<Listener>,
) -> Result<(), ProcfsError> {
    let path = procfs.root().join(table);
    let bytes = match read::path(&path) {
        Ok(bytes) => bytes,
        // A kernel without IPv6 has no table of it.
        Err(Errno::NOENT) if table == "net/tcp6" => return Ok(()),
        Err(source) => return Err(ProcfsError::Read { path, source }),
    };
    let entries = TcpNetEntries::from_buf_read(&bytes[..], current_system_info())
        .map_err(|_| ProcfsError::Malformed { path })?;
    let listening = entries
        .0
        .into_iter()
        .filter(|entry| entry.state == TcpState::Listen);
    found.extend(listening.map(|entry| Listener {
        address: entry.local_address,
        inode: entry.inode,
        uid: entry.uid,
    }));
    Ok(())
}

/// Whether a socket at one address is in the way of a bind to another, at the same port.
fn meets(one: IpAddr, other: IpAddr) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    one == other || covers(one, other) || covers(other, one)
}

/// Whether an address stands for all addresses of the other's kind.
fn covers(wild: IpAddr, other: IpAddr) -> bool {
    match wild {
        IpAddr::V4(wild) => wild.is_unspecified() && other.is_ipv4(),
        // A socket of `::` takes IPv4 too, unless it was told not to.
        IpAddr::V6(wild) => wild.is_unspecified(),
    }
}

const READINGS: u32 = 2;
