"""A keeper, a worker and what a worker may leave behind, for tests/proc/families.rs.

`keeper` makes itself the reaper of its descendants and starts what its argument names in a session
of its own. `main` starts a child, a daemon, a daemon without environment, and an orphan without
environment that stays in the session, and what is a keeper of another run by its environment; one
line on stdout names the pids. `breeder` starts daemons
that hold its stdout, as fast as it can, until it has started 300. Everything ends by itself within
a minute.
"""

import ctypes
import json
import os
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
SLEEP = ["/bin/sh", "-c", "exec sleep 60"]


def orphan(new_session, environment):
    """Starts a grandchild whose parent has ended; gives its pid."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        if new_session:
            os.setsid()
        grandchild = os.fork()
        if grandchild == 0:
            os.execve(SLEEP[0], SLEEP, environment)
        os.write(theirs, str(grandchild).encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    pid = int(os.read(ours, 20))
    os.close(ours)
    return pid


def main():
    pids = {
        "main": os.getpid(),
        "keeper": os.getppid(),
        "child": subprocess.Popen(SLEEP).pid,
        "daemon": orphan(True, os.environ),
        "bare_daemon": orphan(True, {}),
        "bare_orphan": orphan(False, {}),
        "other_keeper": orphan(True, {"PACKHOUSE_WORKER_KEEPER": "/run"}),
    }
    print(json.dumps(pids), flush=True)
    time.sleep(60)


def breeder():
    print(json.dumps({"main": os.getpid(), "keeper": os.getppid()}), flush=True)
    for number in range(300):
        orphan(True, os.environ if number % 2 else {})
    time.sleep(60)


def keeper():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    subprocess.Popen([sys.executable, __file__, sys.argv[2]], start_new_session=True)
    # It reaps whatever it has.
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break


{"main": main, "breeder": breeder, "keeper": keeper}[sys.argv[1]]()
