//! Who listens, and what is in the way of a bind, by the kernel's own answer.

use crate::started::{Started, process, procfs};
use packhouse_proc::listeners::{Listener, conflicts, listeners, owners_of};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, Stdio};

fn all() -> Vec<Listener> {
    listeners(&procfs()).expect("because the kernel has tables")
}

fn inode_of(listener: &TcpListener) -> u64 {
    let stat = rustix::fs::fstat(listener.as_fd()).expect("because it is open");
    stat.st_ino
}

fn any_port(host: IpAddr) -> TcpListener {
    TcpListener::bind(SocketAddr::new(host, 0)).expect("because any port will do")
}

/// Addresses that this host can listen at.
fn hosts() -> Vec<IpAddr> {
    let wanted = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()),
    ];
    let (can, cannot): (Vec<IpAddr>, Vec<IpAddr>) = wanted
        .into_iter()
        .partition(|host| TcpListener::bind(SocketAddr::new(*host, 0)).is_ok());
    for host in cannot {
        eprintln!("NOT EXERCISED: this host has no address {host}");
    }
    can
}

#[test]
fn what_is_in_the_way_of_a_bind_is_what_the_kernel_refuses() {
    let only = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only").unwrap_or_default();
    if only.trim() == "1" {
        // No table tells which socket was made otherwise, so more is taken to be in the way.
        eprintln!("NOT EXERCISED: sockets of :: do not take IPv4 on this host");
        return;
    }
    let hosts = hosts();
    let mut refused = 0;
    for first in &hosts {
        for second in &hosts {
            let held = any_port(*first);
            let port = held.local_addr().expect("because it is bound").port();
            let found = all();
            let in_the_way = conflicts(&found, *second, port);
            let ours = in_the_way.iter().any(|one| one.inode == inode_of(&held));
            match TcpListener::bind(SocketAddr::new(*second, port)) {
                Ok(_) => assert!(!ours, "{second} is free beside {first}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
                    assert!(!in_the_way.is_empty(), "{second} is taken by {first}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused >= hosts.len(), "each address is in its own way");
}

#[test]
fn a_listener_is_found_by_address_inode_and_user_and_gone_when_closed() {
    for host in hosts() {
        let held = any_port(host);
        let address = held.local_addr().expect("because it is bound");
        let inode = inode_of(&held);
        let found = all();
        let one = found.iter().find(|one| one.inode == inode);
        let one = one.unwrap_or_else(|| panic!("{address} is not found"));
        assert_eq!(one.address.port(), address.port());
        assert_eq!(one.address.ip().to_canonical(), host.to_canonical());
        assert_eq!(one.uid, rustix::process::geteuid().as_raw());
        assert!(conflicts(&found, host, address.port()).contains(&one));
        let wrong_port = conflicts(&found, host, address.port().wrapping_add(1));
        assert!(wrong_port.iter().all(|other| other.inode != inode));
        drop(held);
        assert!(all().iter().all(|one| one.inode != inode));
    }
}

#[test]
fn a_connection_is_no_listener() {
    let held = any_port(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let address = held.local_addr().expect("because it is bound");
    let _client = std::net::TcpStream::connect(address).expect("because it listens");
    let (_server, _) = held.accept().expect("because somebody connects");
    drop(held);
    let found = all();
    assert_eq!(
        conflicts(&found, address.ip(), address.port()),
        [] as [&Listener; 0]
    );
}

#[test]
fn each_process_that_holds_a_socket_is_named() {
    let held = any_port(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let inode = inode_of(&held);
    let own = process(std::process::id()).key;
    let known = || {
        let owners = owners_of(&procfs(), inode).expect("because it can be read");
        owners.known
    };
    assert_eq!(known(), [own]);
    // A child that has it as its standard input.
    let copy = OwnedFd::from(held.try_clone().expect("because it is open"));
    let child = Started::new(Command::new("sleep").arg("60").stdin(Stdio::from(copy)));
    let mut both = [own, child.key()];
    both.sort_by_key(|key| key.pid);
    assert_eq!(known(), both);
    drop(held);
    assert_eq!(known(), [child.key()]);
    let fd = child.process().open_files().expect("because it is ours");
    assert_eq!((fd[0].fd, fd[0].socket_inode), (0, Some(inode)));
    child.end();
    assert_eq!(known(), []);
}
