# A server for tests of workers: answers /health as an engine does, and misbehaves as it is told.
#   worker_server.py [WORD...]
#     --port P --host H         where it listens; 127.0.0.1 unless told
#     --also H                  listens there too, repeatable
#     --model FILE              ignored, as the content does not matter
#     --starts FILE             appends its pid to FILE, so that starts can be counted; from then on
#                               it heeds signals as told
#     --ready-after S           /health says 503 until then
#     --ready-when FILE         /health says 503 until FILE is there
#     --listen-after S          listens only then
#     --say LINE                writes LINE to stderr, repeatable
#     --say-bytes N             writes N bytes of numbered lines to stderr
#     --die CODE                ends at once with CODE, after all it says
#     --kill-self SIGNAL        ends at once by that signal
#     --hang                    accepts connections and never answers
#     --ignore INT,TERM         ignores these signals
#     --child FILE              leaves a child in a session of its own, which writes its pid to FILE
#     --bare-child FILE         the same with an empty environment
#     --memory MIB              holds so much private memory
# GET /health: 200 or 503. GET /sick: /health says 500 from then on. GET /exit/CODE: ends with CODE.
# Anything else: 404. No import but what it needs: hundreds of them are started.
import os
import signal
import socket
import sys
import time


def words_of(arguments):
    words = {"also": [], "say": []}
    at = 0
    while at < len(arguments):
        name = arguments[at].removeprefix("--")
        if name == "hang":
            words[name] = True
            at += 1
            continue
        value = arguments[at + 1]
        if name in ("also", "say"):
            words[name].append(value)
        else:
            words[name] = value
        at += 2
    return words


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def leave_child(path, bare):
    # Twice forked and in its own session, as daemons are: only descent or environment tell whose
    # it is. Until it is another program it looks like this one, so this one waits: the pipe's other
    # end is closed by exec.
    ours, theirs = os.pipe()
    if os.fork():
        os.close(theirs)
        os.wait()
        os.read(ours, 1)
        os.close(ours)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    script = "import os,sys,time;open(sys.argv[1],'a').write(f'{os.getpid()}\\n');time.sleep(600)"
    environment = {} if bare else os.environ
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", script, path], environment)


def listen(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(64)
    return listener


def answer(connection, health):
    connection.settimeout(5)
    path = connection.recv(4096).split(b" ")[1].decode()
    code = None
    if path == "/health":
        status = health()
    elif path == "/sick":
        status = 200
    elif path.startswith("/exit/"):
        status, code = 200, int(path.removeprefix("/exit/"))
    else:
        status = 404
    body = '{"status":"%s"}' % ("ok" if status == 200 else "no")
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    connection.sendall((head + body).encode())
    connection.close()
    if code is not None:
        os._exit(code)
    return path == "/sick"


def serve(words, start):
    # One process and one listener after the other: a child per further interface keeps this plain.
    for host in words["also"]:
        if os.fork() == 0:
            words = {**words, "host": host}
            break
    listener = listen(words.get("host", "127.0.0.1"), int(words["port"]))
    ready = start + float(words.get("ready-after", 0))
    sick = False
    kept = []

    def health():
        if sick:
            return 500
        is_due = "ready-when" not in words or os.path.exists(words["ready-when"])
        return 200 if is_due and time.monotonic() >= ready else 503

    while True:
        connection, _ = listener.accept()
        if "hang" in words:
            kept.append(connection)
            continue
        try:
            sick = answer(connection, health) or sick
        except (OSError, IndexError, ValueError):
            connection.close()


def main():
    start = time.monotonic()
    words = words_of(sys.argv[1:])
    for name in filter(None, words.get("ignore", "").split(",")):
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        # An engine that is interrupted ends well, and prints no traceback.
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    if "starts" in words:
        append(words["starts"], f"{os.getpid()}\n")
    for line in words["say"]:
        print(line, file=sys.stderr, flush=True)
    for number in range(int(words.get("say-bytes", 0)) // 64):
        os.write(2, f"line {number:058d}\n".encode())
    if "child" in words:
        leave_child(words["child"], False)
    if "bare-child" in words:
        leave_child(words["bare-child"], True)
    if "kill-self" in words:
        os.kill(os.getpid(), getattr(signal, "SIG" + words["kill-self"]))
    if "die" in words:
        os._exit(int(words["die"]))
    held = bytearray(os.urandom(1)) * (int(words.get("memory", 0)) << 20)
    time.sleep(float(words.get("listen-after", 0)))
    if "port" in words:
        serve(words, start)
    while True:
        signal.pause()
    return held


main()
