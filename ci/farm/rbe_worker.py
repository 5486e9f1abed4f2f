"""A worker for Bazel's remote execution, enough for the tests of the farm: rbe_worker.py SERVER NAME KEY=VALUE...

It takes actions whose platform properties are its own from a BuildGrid server, runs one at a time in a
directory of its own, and leaves the outputs in the server's storage. Needs the packages `buildgrid` and
`grpcio`. It has no sandbox: let it run what you would run yourself.
"""

import hashlib
import io
import os
import subprocess
import sys
import tempfile
import threading
import time

import grpc
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as re
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2_grpc as re_grpc
from buildgrid._protos.google.bytestream import bytestream_pb2, bytestream_pb2_grpc
from buildgrid._protos.google.devtools.remoteworkers.v1test2 import bots_pb2, bots_pb2_grpc, worker_pb2

BLOCK = 1 << 20


class Storage:
    """The server's content-addressed storage."""

    def __init__(self, channel):
        self._stream = bytestream_pb2_grpc.ByteStreamStub(channel)
        self._cas = re_grpc.ContentAddressableStorageStub(channel)

    def read(self, digest, write):
        request = bytestream_pb2.ReadRequest(resource_name="blobs/%s/%d" % (digest.hash, digest.size_bytes))
        total = hashlib.sha256()
        for part in self._stream.Read(request):
            total.update(part.data)
            write(part.data)
        if total.hexdigest() != digest.hash:
            raise OSError("blob %s arrived damaged" % digest.hash)

    def message(self, kind, digest):
        parts = []
        if digest.size_bytes:
            self.read(digest, parts.append)
        return kind.FromString(b"".join(parts))

    def put_file(self, path):
        total = hashlib.sha256()
        with open(path, "rb") as f:
            for block in iter(lambda: f.read(BLOCK), b""):
                total.update(block)
        digest = re.Digest(hash=total.hexdigest(), size_bytes=os.path.getsize(path))
        self._put(digest, lambda: open(path, "rb"))
        return digest

    def put(self, data):
        digest = re.Digest(hash=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        self._put(digest, lambda: io.BytesIO(data))
        return digest

    def _put(self, digest, open_content):
        if not self._cas.FindMissingBlobs(re.FindMissingBlobsRequest(blob_digests=[digest])).missing_blob_digests:
            return
        name = "uploads/%s/blobs/%s/%d" % (os.urandom(16).hex(), digest.hash, digest.size_bytes)

        def requests():
            at = 0
            with open_content() as content:
                while True:
                    block = content.read(BLOCK)
                    last = at + len(block) == digest.size_bytes
                    yield bytestream_pb2.WriteRequest(resource_name=name, write_offset=at, data=block, finish_write=last)
                    at += len(block)
                    if last:
                        return

        self._stream.Write(requests())


def put_inputs(storage, digest, directory):
    """Writes the tree of inputs."""
    os.makedirs(directory, exist_ok=True)
    tree = storage.message(re.Directory, digest)
    for file in tree.files:
        path = os.path.join(directory, file.name)
        with open(path, "wb") as f:
            if file.digest.size_bytes:
                storage.read(file.digest, f.write)
        os.chmod(path, 0o755 if file.is_executable else 0o644)
    for link in tree.symlinks:
        os.symlink(link.target, os.path.join(directory, link.name))
    for child in tree.directories:
        put_inputs(storage, child.digest, os.path.join(directory, child.name))


def tree_of(storage, directory, children):
    """The message of a directory; those below are added to `children`."""
    message = re.Directory()
    for entry in sorted(os.scandir(directory), key=lambda e: e.name):
        if entry.is_dir(follow_symlinks=False):
            child = tree_of(storage, entry.path, children)
            children.append(child)
            message.directories.add(name=entry.name, digest=storage.put(child.SerializeToString()))
        else:
            message.files.add(name=entry.name, digest=storage.put_file(entry.path),
                              is_executable=os.access(entry.path, os.X_OK))  # fmt: skip
    return message


def execute(storage, action, environment):
    command = storage.message(re.Command, action.command_digest)
    result = re.ActionResult()
    with tempfile.TemporaryDirectory(prefix="attnlab-rbe.") as root:
        put_inputs(storage, action.input_root_digest, root)
        here = os.path.join(root, command.working_directory)
        outputs = list(command.output_files) + list(command.output_directories) + list(command.output_paths)
        for output in outputs:
            os.makedirs(os.path.dirname(os.path.join(here, output)), exist_ok=True)
        for output in command.output_directories:
            os.makedirs(os.path.join(here, output), exist_ok=True)
        env = dict(environment, **{v.name: v.value for v in command.environment_variables})
        timeout = action.timeout.ToTimedelta().total_seconds() or None
        try:
            done = subprocess.run(list(command.arguments), cwd=here, env=env, timeout=timeout,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
            result.exit_code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as error:
            result.exit_code, out, err = 142, error.stdout or b"", (error.stderr or b"") + b"timed out\n"
        except OSError as error:
            result.exit_code, out, err = 127, b"", str(error).encode()
        result.stdout_digest.CopyFrom(storage.put(out))
        result.stderr_digest.CopyFrom(storage.put(err))
        for output in dict.fromkeys(outputs):
            path = os.path.join(here, output)
            if os.path.isdir(path):
                children = []
                tree = re.Tree(root=tree_of(storage, path, children), children=children)
                result.output_directories.add(path=output, tree_digest=storage.put(tree.SerializeToString()))
            elif os.path.isfile(path):
                result.output_files.add(path=output, digest=storage.put_file(path),
                                        is_executable=os.access(path, os.X_OK))  # fmt: skip
    return result


class Worker:
    def __init__(self, server, name, properties, environment):
        options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
        self.channel = grpc.insecure_channel(server, options)
        self.bots, self.storage = bots_pb2_grpc.BotsStub(self.channel), Storage(self.channel)
        self.environment = environment
        self.begun = set()  # leases
        self.done = {}  # lease: ActionResult, or why there is none
        device = worker_pb2.Device(handle="device")
        for key, value in properties:
            device.properties.add(key=key, value=value)
        worker = worker_pb2.Worker(devices=[device])
        self.session = bots_pb2.BotSession(bot_id=name, status=bots_pb2.OK, worker=worker)

    def _run(self, lease_id, payload):
        try:
            action = re.Action()
            if payload.Is(re.Action.DESCRIPTOR):
                payload.Unpack(action)
            else:
                digest = re.Digest()
                payload.Unpack(digest)
                action = self.storage.message(re.Action, digest)
            self.done[lease_id] = execute(self.storage, action, self.environment)
        except Exception as error:  # whatever it is, the server has to know
            self.done[lease_id] = repr(error)
            print("%s: %r" % (self.session.bot_id, error), file=sys.stderr, flush=True)

    def run(self):
        self.session = self.bots.CreateBotSession(bots_pb2.CreateBotSessionRequest(bot_session=self.session), timeout=30)
        while True:
            for lease in self.session.leases:
                # Active, too, if it was given to this worker in an earlier session.
                if lease.state in (bots_pb2.PENDING, bots_pb2.ACTIVE) and lease.id not in self.begun:
                    lease.state = bots_pb2.ACTIVE
                    self.begun.add(lease.id)
                    threading.Thread(target=self._run, args=(lease.id, lease.payload), daemon=True).start()
                elif lease.state == bots_pb2.ACTIVE and lease.id in self.done:
                    result = self.done.pop(lease.id)
                    lease.state = bots_pb2.COMPLETED
                    if isinstance(result, str):
                        lease.status.code, lease.status.message = 14, result  # UNAVAILABLE: try elsewhere
                    else:
                        lease.result.Pack(result)
            request = bots_pb2.UpdateBotSessionRequest(name=self.session.name, bot_session=self.session)
            # Without a lease, the server answers when it has one.
            self.session = self.bots.UpdateBotSession(request, timeout=5)
            if self.session.leases:
                time.sleep(0.02)


def main(argv):
    properties = [tuple(word.split("=", 1)) for word in argv[2:]]
    environment = {"PATH": os.environ["PATH"], "ATTNLAB_RBE_WORKER": argv[1]}
    while True:
        try:
            Worker(argv[0], argv[1], properties, environment).run()
        except grpc.RpcError as error:
            print("%s: %s" % (argv[1], error.details()), file=sys.stderr, flush=True)
            time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1:])
