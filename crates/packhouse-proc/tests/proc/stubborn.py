"""An engine that is hard to stop, for tests/proc/stops.rs.

stubborn.py NOTES [interrupt=exit|ignore|breed] [terminate=exit|ignore] [leaves=KIND,...] [port=N]

It leads a session of its own. Every signal that it or a daemon of it gets is a line in NOTES. One
line on stdout names the pids once all stand. Everything ends by itself within a minute.

leaves: `daemon` a deaf grandchild in a session of its own, with the environment; `bare` a child in
a session of its own, without environment; `orphan` a grandchild without environment, in the session
of its parent.
"""

import json
import os
import signal
import socket
import sys
import time

notes = sys.argv[1]
words = dict(word.split("=", 1) for word in sys.argv[2:])
SLEEP = ["/bin/sh", "-c", "exec sleep 60"]


def note(text):
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (text + "\n").encode())
    os.close(file)


def listen(part, interrupt, terminate):
    """Notes signals, and does what is said about them."""

    def act(number, _frame):
        name = {signal.SIGINT: "interrupt", signal.SIGTERM: "terminate"}[number]
        note(f"{part} {name}")
        what = {"interrupt": interrupt, "terminate": terminate}[name]
        if what == "breed":
            heir()
        if what != "ignore":
            os._exit(3)

    signal.signal(signal.SIGINT, act)
    signal.signal(signal.SIGTERM, act)


def live():
    signal.alarm(60)
    while True:
        time.sleep(1)


def heir():
    """A child made while the parent ends. No signal comes to it before it notes its own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    if os.fork() == 0:
        os.setsid()
        listen("heir", "ignore", "exit")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
        live()


def leave(kind):
    """Starts one of the things that are left behind; gives its pid."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        if kind in ("daemon", "bare"):
            os.setsid()
        if kind != "bare" and os.fork() != 0:
            os._exit(0)
        if kind == "daemon":
            listen("daemon", "ignore", "ignore")
        os.write(theirs, str(os.getpid()).encode())
        if kind == "daemon":
            live()
        os.execve(SLEEP[0], SLEEP, {})
    if kind != "bare":
        os.waitpid(child, 0)
    pid = int(os.read(ours, 20))
    os.close(ours)
    os.close(theirs)
    return pid


os.setsid()
pids = {"main": os.getpid()}
for kind in filter(None, words.get("leaves", "").split(",")):
    pids[kind] = leave(kind)
if "port" in words:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", int(words["port"])))
    server.listen()
listen("main", words.get("interrupt", "exit"), words.get("terminate", "exit"))
print(json.dumps(pids), flush=True)
live()
