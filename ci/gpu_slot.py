#!/usr/bin/env python3
"""Assigns a test its place on a GPU:

    bazel test --run_under=//ci:gpu_slot //...          (set by --config=gpu and by sm75 to sm120)

Waits until as many GPUs as the test needs have a free place, sets CUDA_VISIBLE_DEVICES to them,
prints them and the waiting time on stderr, and executes the test. Environment of the test:

    ATTNLAB_GPUS                number of GPUs it needs; if unset, the test starts at once and sees none,
                                so that it does not disturb tests that have a GPU to themselves
    ATTNLAB_TESTS_PER_GPU       tests that share a GPU [one per 4 GiB of its memory, but at most the
                                number of processors]
    ATTNLAB_GPU_EXCLUSIVE       1: the test needs its GPUs to itself
    ATTNLAB_COMPUTE_CAPABILITY  least compute capability of the GPUs, such as 75
    ATTNLAB_GPU_LOCKS           directory of the locks [/tmp/attnlab-gpu-locks]
    CUDA_VISIBLE_DEVICES        if set, the GPUs to choose from: nvidia-smi indices, or UUIDs
    CUDA_CACHE_PATH             the driver's cache of compiled PTX, shared by all tests
                                [/tmp/attnlab-ptx-UID, 4 GiB]
    OMP_THREAD_LIMIT            threads of the test [its share of the processors, at least 2]

An exclusive test holds an exclusive flock on a file named after the GPU's UUID. Tests that share
the GPU hold that lock with LOCK_SH. Each also holds one of the files UUID.slot_0, UUID.slot_1 and
so on, of which there are ATTNLAB_TESTS_PER_GPU; callers may use different numbers. The test
inherits the descriptors, so the locks end with the test and everything that it started, however
they end.

Unlocked GPUs that the fewest tests share come first, then those that no process uses, whoever
started it. One test at a time looks for GPUs, and the others queue behind it. A test that needs
several GPUs, or one to itself, therefore gets them in the end.
"""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time

LOCKS = "/tmp/attnlab-gpu-locks"
POLL_SECONDS = 0.05
# Every attempt tries the locks of all places, so their number is limited.
MOST_TESTS_PER_GPU = 64
# GPU memory that a test may use on a shared GPU.
MIB_PER_TEST = 4096
PTX_CACHE = "/tmp/attnlab-ptx-%d"
PTX_CACHE_BYTES = 4 << 30
# How long a list of GPUs and their users stays valid.
LIST_SECONDS = 5


class Failure(Exception):
    """The message that the launcher prints before it gives up."""


class Gpu:
    def __init__(self, index, uuid, capability=None, memory=0, total=0):
        self.index = index
        self.uuid = uuid
        self.capability = capability  # such as 90; None: unknown
        self.memory = memory  # MiB in use
        self.total = total  # MiB; 0: unknown
        self.busy = False

    def places(self):
        """How many tests share this GPU."""
        return max(1, min(self.total // MIB_PER_TEST, processors(), MOST_TESTS_PER_GPU))


def processors():
    return len(os.sched_getaffinity(0))


def say(text):
    print("gpu_slot: " + text, file=sys.stderr, flush=True)


def number_of(name, least, most, default, what):
    """An environment variable as a number; None if it is not set and the default is ""."""
    value = os.environ.get(name) or str(default)
    if not value:
        return None
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least or (most is not None and number > most):
        raise Failure("%s: \"%s\" is not a number of %s" % (name, value, what))
    return number


def is_exclusive():
    """Whether ATTNLAB_GPU_EXCLUSIVE is set."""
    value = os.environ.get("ATTNLAB_GPU_EXCLUSIVE") or "0"
    if value not in ("0", "1"):
        raise Failure("ATTNLAB_GPU_EXCLUSIVE: \"%s\" is neither 0 nor 1" % value)
    return value == "1"


def nvidia_smi(query):
    """The rows of a query, as lists of words; None if nvidia-smi is missing or fails."""
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                              check=False, universal_newlines=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def parse_gpus(rows):
    """GPUs from the rows of --query-gpu=uuid,compute_cap,memory.used,memory.total."""
    gpus = []
    for index, (uuid, capability, used, total) in enumerate(rows):
        major, _, minor = capability.partition(".")
        known = major.isdigit() and minor.isdigit()
        gpus.append(Gpu(index, uuid, 10 * int(major) + int(minor) if known else None,
                        *(int(mib) if mib.isdigit() else 0 for mib in (used, total))))
    return gpus


def gpus_of_driver(root="/proc/driver/nvidia/gpus"):
    """GPUs as listed by the kernel module, when nvidia-smi lists none; only their UUIDs are
    known."""
    gpus = []
    try:
        for directory in sorted(os.listdir(root)):
            with open(os.path.join(root, directory, "information"), encoding="utf-8") as file:
                for line in file:
                    name, _, value = line.partition(":")
                    if name.strip() == "GPU UUID":
                        gpus.append(Gpu(len(gpus), value.strip()))
    except OSError:
        pass
    return gpus


def list_gpus():
    """All GPUs, or None if there is no way to list them."""
    rows = nvidia_smi("--query-gpu=uuid,compute_cap,memory.used,memory.total")
    if rows is None:
        return gpus_of_driver() or None
    gpus = parse_gpus(rows)
    users = {row[0] for row in nvidia_smi("--query-compute-apps=gpu_uuid") or []}
    for gpu in gpus:
        gpu.busy = gpu.uuid in users
    return gpus


def candidates(gpus, visible, capability):
    """GPUs allowed by the caller's CUDA_VISIBLE_DEVICES and by the capability, the best first."""
    if visible is not None:
        words = [word.strip() for word in visible.split(",") if word.strip()]
        gpus = [g for g in gpus
                if any(w == str(g.index) or (len(w) > 4 and g.uuid.startswith(w)) for w in words)]
    if capability is not None:
        gpus = [g for g in gpus if g.capability is None or g.capability >= capability]
    return sorted(gpus, key=lambda g: (g.busy, g.memory, g.index))


def open_directory(path):
    """A descriptor of the lock directory, which every user of the machine may use."""
    try:
        os.mkdir(path)
        os.chmod(path, 0o1777)
    except FileExistsError:
        pass
    except OSError as error:
        raise Failure("ATTNLAB_GPU_LOCKS: %s: %s" % (path, error.strerror))
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Failure("ATTNLAB_GPU_LOCKS: %s: %s" % (path, error.strerror))


def open_lock(directory, name):
    """A descriptor of a lock file. flock needs only read access, so the file may belong to another
    user."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    deadline = time.monotonic() + 1
    while True:
        try:
            # No O_CREAT: Linux refuses it for other users' files in a sticky directory.
            descriptor = os.open(name, flags, dir_fd=directory)
        except FileNotFoundError:
            try:
                descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=directory)
                os.fchmod(descriptor, 0o644)  # regardless of the umask
            except FileExistsError:
                continue
        except PermissionError as error:
            # Another user may have created it just now, and not yet made it readable.
            if time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            raise Failure("lock %s: %s" % (name, error.strerror))
        except OSError as error:
            raise Failure("lock %s: %s" % (name, error.strerror))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Failure("lock %s: is not a file" % name)
        return descriptor


def lock(directory, name, kind=fcntl.LOCK_EX, wait=False):
    """A descriptor that holds the lock, or None if another process holds it."""
    while True:
        descriptor = open_lock(directory, name)
        try:
            fcntl.flock(descriptor, kind | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        # A lock on a file that was removed meanwhile locks nothing.
        try:
            there = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if os.path.samestat(there, os.fstat(descriptor)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


def close_all(descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


def place_on(directory, gpu, places):
    """(number of other tests on the GPU, descriptors of the locks), or None if the GPU is full.

    `places` is the number of places on the GPU; 1 means the whole GPU. The caller must hold the
    queue's lock. No one else then takes places, so places that are locked here and released are not
    missed.
    """
    name = gpu.uuid.replace("/", "_")
    if places == 1:
        descriptor = lock(directory, name)
        return None if descriptor is None else (0, [descriptor])
    whole = lock(directory, name, fcntl.LOCK_SH)
    if whole is None:
        return None
    slots = [lock(directory, "%s.slot_%d" % (name, k)) for k in range(places)]
    free = [slot for slot in slots if slot is not None]
    close_all(free[1:])
    if not free:
        os.close(whole)
        return None
    return places - len(free), [whole, free[0]]


def take(number, directory, visible, capability, places=None):
    """Waits for a place on `number` GPUs and returns a list of (lock descriptors, GPU).

    `places` is the number of places per GPU; None means Gpu.places(). Returns None if GPUs cannot
    be listed.
    """
    queue = lock(directory, "queue", wait=True)
    taken = []
    listed = None
    while len(taken) < number:
        if listed is None or time.monotonic() - listed > LIST_SECONDS:
            every = list_gpus()
            listed = time.monotonic()
            if every is None:
                return None
            gpus = candidates(every, visible, capability)
            if len(gpus) < number:
                raise Failure("needs %d GPU(s)%s; of the %d here, %d qualify" % (
                    number, " of compute capability %d.%d or later" % divmod(capability, 10)
                    if capability else "", len(every), len(gpus)))
        offers = []
        for gpu in gpus:
            if all(gpu.uuid != t.uuid for _, t in taken):
                place = place_on(directory, gpu, places or gpu.places())
                if place is not None:
                    offers.append((place, gpu))
        # The sort is stable: GPUs shared by equally many tests keep their order.
        offers.sort(key=lambda offer: offer[0][0])
        for (_, descriptors), gpu in offers:
            if len(taken) < number:
                taken.append((descriptors, gpu))
            else:
                close_all(descriptors)
        if len(taken) < number:
            time.sleep(POLL_SECONDS)
    os.close(queue)
    return taken


def share_ptx():
    """Gives all tests one cache of compiled PTX. Each test has its own home, so its cache would be
    empty."""
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")  # compile only what runs
    if os.environ.get("CUDA_CACHE_PATH"):
        return
    path = PTX_CACHE % os.getuid()
    try:
        os.mkdir(path, 0o700)
    except OSError:
        pass
    try:
        found = os.lstat(path)
    except OSError:
        return
    # Code in the cache is executed, so the directory must belong to this user.
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
        os.environ["CUDA_CACHE_PATH"] = path
        os.environ["CUDA_CACHE_MAXSIZE"] = str(PTX_CACHE_BYTES)


def main(argv):
    # The defaults of a program that is waited for; the test must not inherit Python's ignored
    # signals.
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if not argv:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        number = number_of("ATTNLAB_GPUS", 0, None, 0, "GPUs")
        if number > 0:
            places = number_of("ATTNLAB_TESTS_PER_GPU", 1, MOST_TESTS_PER_GPU, "",
                               "tests from 1 to %d" % MOST_TESTS_PER_GPU)
            if is_exclusive():
                places = 1
            capability = os.environ.get("ATTNLAB_COMPUTE_CAPABILITY", "")
            began = time.monotonic()
            taken = take(number, open_directory(os.environ.get("ATTNLAB_GPU_LOCKS") or LOCKS),
                         os.environ.get("CUDA_VISIBLE_DEVICES"),
                         int(capability) if capability.isdigit() else None, places)
            if taken is None:
                say("neither nvidia-smi nor /proc/driver/nvidia lists GPUs; the test runs without its own GPU")
            else:
                for descriptors, _ in taken:
                    for descriptor in descriptors:
                        os.set_inheritable(descriptor, True)
                names = ",".join(gpu.uuid for _, gpu in taken)
                os.environ["CUDA_VISIBLE_DEVICES"] = names
                places = places or min(gpu.places() for _, gpu in taken)
                if places > 1:
                    os.environ.setdefault("OMP_THREAD_LIMIT", str(max(2, processors() // places)))
                say("%s%s after %.1f s" % (names, ", shared," if places > 1 else "", time.monotonic() - began))
            share_ptx()
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
    except Failure as failure:
        say(str(failure))
        return 1
    try:
        try:
            os.execvp(argv[0], argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without "#!", such as Bazel's analysis tests. Shells run those themselves.
            os.execv("/bin/sh", ["sh"] + argv)
    except OSError as error:
        say("%s: %s" % (argv[0], error.strerror))
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
