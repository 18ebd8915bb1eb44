"""A component that stands between the driver and our own kernels, and lies.

component_liar.py LIES PACKHOUSE FIXTURE: LIES is one lie for the whole session, or several with
commas between them, one for each case. What is not the lie is honest, so that what is refused is
refused for the lie. Each class below is one.
"""

import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import time

LIES, PACKHOUSE, FIXTURE = sys.argv[1:4]
FOLDERS = {}
ANSWERS = {}


def hear(stream):
    head = stream.read(4)
    if len(head) < 4:
        sys.exit(0)
    return json.loads(stream.read(struct.unpack("<I", head)[0]))


def say(stream, message):
    body = json.dumps(message).encode()
    stream.write(struct.pack("<I", len(body)) + body)
    stream.flush()


def path(record):
    return os.path.join(FOLDERS["outputs"], record["file"])


def load(record):
    with open(path(record), "rb") as file:
        return file.read()


def store(record, content):
    with open(path(record), "wb") as file:
        file.write(content)


def last(reply):
    return reply["boundaries"][-1]


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Honest:
    """No lie: every message passes as it is, spelled as Python does."""

    def hello(self, request, reply):
        """Edits the introduction."""

    def case(self, request, reply):
        """Edits an answer."""

    def asked(self, request):
        """Sees a request before it is passed on."""


class Warns(Honest):
    def case(self, request, reply):
        reply["warnings"] = ["slow path", "\x1b[2Jcleared"]


class TellsApart(Honest):
    """Warns of each field by which a drawn case differs from the published one of its width, but
    for its number, the poison that goes by the number, and what is in its inputs."""

    def case(self, request, reply):
        key = "told", request["width"], request["arm"]
        shown = json.loads(json.dumps(request))
        shown["index"] = shown["poison"] = None
        for entry in [*shown["inputs"].values(), *shown["boundaries"]]:
            entry["file"] = entry["sha256"] = None
        old = ANSWERS.setdefault(key, shown)
        fields = [field for field in shown if shown[field] != old[field]]
        reply["warnings"] = [f"told apart by {field}" for field in fields]


class Loads(Honest):
    """Maps a library that nobody froze, before its hello."""

    def asked(self, request):
        import ctypes  # noqa: F401


class LoadsLater(Honest):
    """Maps it when it is asked its first case."""

    def case(self, request, reply):
        import ctypes  # noqa: F401


class Swaps(Honest):
    """Becomes another file, as an editor would write it."""

    def case(self, request, reply):
        with open(__file__, "rb") as file:
            content = file.read()
        with open(__file__ + ".new", "wb") as file:
            file.write(content + b"# another\n")
        os.replace(__file__ + ".new", __file__)


class OneBit(Honest):
    """Wrong elements under their right digest."""

    def case(self, request, reply):
        content = bytearray(load(last(reply)))
        content[5] ^= 1
        store(last(reply), content)
        last(reply)["sha256"] = digest(content)


class Replay(Honest):
    """Gives back what it once answered at this width: the drawn cases come after the published."""

    def case(self, request, reply):
        key = request["width"], request["arm"]
        old = ANSWERS.setdefault(key, [load(record) for record in reply["boundaries"]])
        for record, content in zip(reply["boundaries"], old):
            store(record, content)
            record["sha256"] = digest(content)


class StaleDigest(Honest):
    def case(self, request, reply):
        last(reply)["sha256"] = digest(b"another day")


class Shape(Honest):
    def case(self, request, reply):
        last(reply)["shape"].reverse()


class Stride(Honest):
    def case(self, request, reply):
        last(reply)["stride"].reverse()


class Type(Honest):
    def case(self, request, reply):
        last(reply)["dtype"] = "i32"


class Offset(Honest):
    def case(self, request, reply):
        last(reply)["storage_offset"] += 1


class Bytes(Honest):
    def case(self, request, reply):
        last(reply)["bytes"] -= 1


class Elsewhere(Honest):
    def case(self, request, reply):
        last(reply)["device"] = "cuda:GPU-1"


class OtherFile(Honest):
    def case(self, request, reply):
        last(reply)["file"] = reply["boundaries"][0]["file"]


class Missing(Honest):
    def case(self, request, reply):
        os.unlink(path(reply["boundaries"].pop()))


class Invented(Honest):
    def case(self, request, reply):
        reply["boundaries"].append(dict(last(reply), name="logits"))


class Twice(Honest):
    def case(self, request, reply):
        reply["boundaries"].append(last(reply))


class Extra(Honest):
    def case(self, request, reply):
        store({"file": "notes.txt"}, b"x")


class Empty(Honest):
    def case(self, request, reply):
        store(last(reply), b"")


class Short(Honest):
    def case(self, request, reply):
        store(last(reply), load(last(reply))[:-1])


class Long(Honest):
    def case(self, request, reply):
        store(last(reply), load(last(reply)) + b"x")


class Absent(Honest):
    def case(self, request, reply):
        os.unlink(path(last(reply)))


class Symlink(Honest):
    """The right elements, behind a link."""

    def case(self, request, reply):
        os.rename(path(last(reply)), FOLDERS["outputs"] + "/../moved")
        os.symlink("../moved", path(last(reply)))


class HardLink(Honest):
    """The right elements, under a second name that can be written to later."""

    def case(self, request, reply):
        os.link(path(last(reply)), FOLDERS["outputs"] + "/../kept")


class Folder(Honest):
    def case(self, request, reply):
        os.unlink(path(last(reply)))
        os.makedirs(path(last(reply)) + "/up-0-0" * 40 + "/b")
        store(last(reply) | {"file": last(reply)["file"] + "/up-0-0/b"}, b"x")


class Deep(Honest):
    """Folders deeper than any path is long, in the way of whoever moves them up by plain names."""

    def case(self, request, reply):
        os.unlink(path(last(reply)))
        os.makedirs(path(last(reply)) + "/a/b")
        for index in range(20):
            for name in f"up-0-{index}-0", f"up-0-{index}-0-0":
                os.mkdir(os.path.join(path(last(reply)), name))
        folder = os.open(path(last(reply)), os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("deeper", dir_fd=folder)
            inner = os.open("deeper", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(folder)


class Pipe(Honest):
    """A pipe in a file's place, at which a reader would wait for ever."""

    def case(self, request, reply):
        os.unlink(path(last(reply)))
        os.mkfifo(path(last(reply)))


class Alias(Honest):
    """One byte of the output is one of the other boundary's."""

    def case(self, request, reply):
        record, other = last(reply), reply["boundaries"][0]
        record["start"] = other["end"] - 1
        record["end"] = record["start"] + record["bytes"]


class InPlace(Honest):
    """The output lies in the middle of the weights."""

    def case(self, request, reply):
        record = last(reply)
        record["start"] = reply["inputs"]["weights"]["start"] + 8
        record["end"] = record["start"] + record["bytes"]


class Null(Honest):
    def case(self, request, reply):
        last(reply)["start"], last(reply)["end"] = 0, last(reply)["bytes"]


class Base(Honest):
    """The two halves of one storage, moved apart."""

    def case(self, request, reply):
        for record in reply["boundaries"]:
            if record["name"] == "projected-v":
                record["start"] += 1 << 40
                record["end"] += 1 << 40


class EditInput(Honest):
    """Writes to an input's file after the run."""

    def case(self, request, reply):
        name = os.path.join(FOLDERS["inputs"], request["inputs"]["input"]["file"])
        os.chmod(name, 0o600)
        with open(name, "r+b") as file:
            file.write(b"\xff")


class DropInput(Honest):
    def case(self, request, reply):
        os.unlink(os.path.join(FOLDERS["inputs"], request["inputs"]["input"]["file"]))


class ExtraInput(Honest):
    """Leaves a file among the inputs."""

    def case(self, request, reply):
        with open(os.path.join(FOLDERS["inputs"], "cache.bin"), "wb") as file:
            file.write(b"x")


class InputInMemory(Honest):
    def case(self, request, reply):
        reply["inputs"]["weights"]["sha256"] = digest(b"packed again in place")


class InputUntold(Honest):
    def case(self, request, reply):
        del reply["inputs"]["input"]


class NoWitness(Honest):
    def case(self, request, reply):
        reply["witnesses"] = []


class Capturing(Honest):
    """Says that nothing is captured, though it said that it can't know."""

    def case(self, request, reply):
        reply["capture"] = "idle"


class CaptureUntold(Honest):
    def hello(self, request, reply):
        reply["says_capture"] = True


class Index(Honest):
    def case(self, request, reply):
        reply["index"] += 1


class Declines(Honest):
    def case(self, request, reply):
        for record in reply["boundaries"]:
            os.unlink(path(record))
        reply.clear()
        reply.update(type="declined", index=request["index"], reason="width not built in")


class NoWidth(Honest):
    def hello(self, request, reply):
        reply["kernels"][0]["widths"] = [512]


class NoArm(Honest):
    def hello(self, request, reply):
        reply["kernels"][0]["arms"] = ["other"]


class NoFixture(Honest):
    def hello(self, request, reply):
        reply["kernels"][0]["fixture"] = "another-v1"


class ManyDevices(Honest):
    def hello(self, request, reply):
        reply["devices"] = [f"cuda:GPU-{index}" for index in range(20000)]


class NoDevice(Honest):
    def hello(self, request, reply):
        reply["devices"] = []


class OldChallenge(Honest):
    def hello(self, request, reply):
        reply["challenge"] = digest(b"an earlier session")


class Protocol(Honest):
    def hello(self, request, reply):
        reply["protocol"] = "packhouse/component/2"


class UnknownField(Honest):
    def case(self, request, reply):
        reply["speedup"] = 2


class Rate(Honest):
    def case(self, request, reply):
        reply["witnesses"][0]["counters"]["rate"] = 1.5


class Answers(Honest):
    """Answers every case twice, both in one write."""

    def case(self, request, reply):
        body = json.dumps(reply).encode()
        sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)


class Chatty(Honest):
    """Prints to stdout as a library does."""

    def asked(self, request):
        if request["type"] == "case":
            print("loaded 1 device", flush=True)


class Hangs(Honest):
    def case(self, request, reply):
        print("waiting for the device", file=sys.stderr, flush=True)
        time.sleep(300)


class Dies(Honest):
    def case(self, request, reply):
        print("device lost", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)


class DiesLater(Honest):
    """Fails a row and dies in the next case."""

    def case(self, request, reply):
        if request["index"]:
            os._exit(5)
        OneBit.case(self, request, reply)


class Half(Honest):
    """Dies within a message."""

    def case(self, request, reply):
        sys.stdout.buffer.write(struct.pack("<I", 5000) + b'{"type"')
        sys.stdout.flush()
        os._exit(0)


class BadEnd(Honest):
    def asked(self, request):
        if request["type"] == "bye":
            print("leaked 3 buffers", file=sys.stderr, flush=True)
            os._exit(4)


class LastWord(Honest):
    def asked(self, request):
        if request["type"] == "bye":
            print("done", flush=True)


class Stays(Honest):
    def asked(self, request):
        if request["type"] == "bye":
            time.sleep(300)


def main():
    kinds = {kind.__name__: kind() for kind in Honest.__subclasses__() + [Honest]}
    lies = [kinds[lie] for lie in LIES.split(",")]

    def liar(request):
        if len(lies) == 1:
            return lies[0]
        index = request.get("index", len(lies))
        return lies[index] if index < len(lies) else kinds["Honest"]

    words = [PACKHOUSE, "fixture", "serve", FIXTURE]
    inner = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    while True:
        request = hear(sys.stdin.buffer)
        liar(request).asked(request)
        say(inner.stdin, request)
        if request["type"] == "bye":
            sys.exit(inner.wait())
        if request["type"] == "hello":
            FOLDERS.update(inputs=request["inputs"], outputs=request["outputs"])
        reply = hear(inner.stdout)
        getattr(liar(request), request["type"])(request, reply)
        say(sys.stdout.buffer, reply)


main()
