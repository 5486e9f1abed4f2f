"""Times calls that take turns, so that other load on the machine affects all of them alike.

On the CPU: wall-clock time of one call, after a pause in which the other contender's idle threads
stop spinning. On a GPU, between two events in the stream:

    device      one call, queued behind other work that is long enough for the host to enqueue the call
                meanwhile. This times the GPU alone, without Python and launch latency; caches hold
                none of the inputs.
    latency     one call on an idle GPU, including the time from the first event until the host has
                launched the kernels. For calls below about 50 µs that is most of it.
    throughput  many calls back to back, over the input sets in turn, divided by their number. Launches
                overlap with earlier work, and count only if the host is slower than the GPU.
"""

import random
import time
from typing import Callable, Dict, List, Optional, Tuple

TIMINGS = ("device", "latency", "throughput")

MOST_FILLERS = 200

# The calls of each contender, by name.
Calls = Dict[str, List[Callable]]


class CpuClock:
    timing = "wall clock"

    def settle(self) -> None:
        pass

    def warm_up(self, name: str, calls: List[Callable]) -> None:
        for call in calls:
            call()

    def time(self, name: str, calls: List[Callable], turn: int) -> Callable[[], float]:
        time.sleep(0.01)
        start = time.perf_counter()
        calls[turn % len(calls)]()
        seconds = time.perf_counter() - start
        return lambda: seconds

    def wait(self) -> None:
        pass


class CudaClock:
    def __init__(self, device: str, timing: str, calls_in_a_row: int = 10):
        import torch

        self._torch = torch
        self.timing = timing
        self._in_a_row = calls_in_a_row
        self._device = torch.device(device)
        free = torch.cuda.mem_get_info(self._device)[0]
        self._filler = torch.empty(min(1 << 29, free // 16), dtype=torch.uint8, device=device)
        self._fill_s = 0.0
        self._fillers: Dict[str, int] = {}
        self._spin()

    def settle(self, seconds: float = 0.3) -> None:
        """Works for a while. After outputs were checked, of 128k keys in double, the first calls could
        take 18 % longer, plain reads among them. Also raises the clocks."""
        x = self._torch.randn(2048, 2048, device=self._device)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(20):
                x @ x
            self._torch.cuda.synchronize(self._device)

    def _spin(self) -> None:
        """Raises the clocks, and measures the filler."""
        self.settle(0.5)
        start, stop = self._events()
        start.record()
        for _ in range(10):
            self._filler.zero_()
        stop.record()
        stop.synchronize()
        self._fill_s = start.elapsed_time(stop) / 1e4

    def _events(self):
        return (self._torch.cuda.Event(enable_timing=True) for _ in range(2))

    def warm_up(self, name: str, calls: List[Callable]) -> None:
        """Also measures how long the host takes to launch a call."""
        for _ in range(2):
            for call in calls:
                call()
        self._torch.cuda.synchronize(self._device)
        start = time.perf_counter()
        calls[0]()
        host_s = time.perf_counter() - start
        self._torch.cuda.synchronize(self._device)
        # Twice the launch time, plus some for the events.
        self._fillers[name] = max(1, min(MOST_FILLERS // 4, round((2 * host_s + 5e-5) / self._fill_s + 0.5)))

    def time(self, name: str, calls: List[Callable], turn: int) -> Callable[[], float]:
        """Returns a function that returns the seconds once the GPU is done."""
        in_a_row = self._in_a_row if self.timing == "throughput" else 1
        if self.timing == "latency":
            self._torch.cuda.synchronize(self._device)
        while True:
            for _ in range(self._fillers.get(name, 1) if self.timing != "latency" else 0):
                self._filler.zero_()
            if self.timing != "latency":
                # Reading leaves L2 nothing to write back, which would count as the call's time.
                self._filler.view(self._torch.float32).sum()
            start, stop = self._events()
            start.record()
            for i in range(in_a_row):
                calls[(turn * in_a_row + i) % len(calls)]()
            stop.record()
            fillers = self._fillers.get(name, 1)
            if self.timing != "device" or not start.query() or fillers >= MOST_FILLERS:
                return lambda: start.elapsed_time(stop) / 1e3 / in_a_row
            # The GPU was done with the filler before the host was with the call: that would count as time of the GPU.
            self._fillers[name] = min(MOST_FILLERS, 2 * fillers)

    def wait(self) -> None:
        self._torch.cuda.synchronize(self._device)


def rounds_of(
    clock,
    contenders,
    calls: Calls,
    rounds: int,
    seed: int,
    deadline: Optional[float] = None,
    at_least: int = 3,
) -> Tuple[Dict[str, List[float]], Dict[str, str]]:
    """Returns the seconds of each contender in each round, and the contenders that failed, with the
    reason.

    Every contender runs once per round, in random order. Contenders that failed have no times. Ends
    early at the deadline (of time.monotonic()), but not before `at_least` rounds, and not before all
    sets of inputs have had as many: one may lie in slower memory.
    """
    sets = max(map(len, calls.values()), default=1)
    order = [contender for contender in contenders if contender.name in calls]
    samples: Dict[str, List[float]] = {contender.name: [] for contender in order}
    failed: Dict[str, str] = {}

    def attempt(contender, function, *arguments):
        if contender.name in failed:
            return None
        try:
            with contender.context():
                return function(contender.name, calls[contender.name], *arguments)
        except Exception as error:  # after any error, the others continue
            failed[contender.name] = str(error).split("\n")[0] or type(error).__name__
            return None

    for contender in order:
        attempt(contender, clock.warm_up)
    shuffle = random.Random(seed).shuffle
    for turn in range(rounds):
        late = deadline is not None and turn >= at_least and time.monotonic() > deadline
        if late and turn % sets == 0:
            break
        shuffle(order)
        pending = [(contender.name, attempt(contender, clock.time, turn)) for contender in order]
        clock.wait()
        for name, seconds in pending:
            if seconds is not None:
                samples[name].append(seconds())
    return {name: of for name, of in samples.items() if name not in failed}, failed
