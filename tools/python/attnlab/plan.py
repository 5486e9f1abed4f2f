"""Plans: a problem, the kernel for it, and what that needs. Made once, used often."""

import ctypes
import functools
from typing import NamedTuple, Optional, Union

from . import errors, library
from .problem import Problem, text


class Info(NamedTuple):
    """The figures of a plan, with all sequences at their maximum lengths."""

    kernel: str
    workspace_bytes: int
    flops: float  # 2 (d + dv) for each visible (query, key) pair
    compulsory_bytes: int  # inputs read once, outputs written once
    expected_flops: float  # according to the kernel's model
    expected_bytes_read: int  # a guess if it depends on what the L2 cache keeps
    expected_bytes_written: int


def parse_device(device: str):
    """"cpu" becomes ("cpu", 0), "cuda:1" becomes ("cuda", 1), and "cuda" means "cuda:0"."""
    kind, colon, ordinal = str(device).partition(":")
    if kind == "cpu" and not colon:
        return "cpu", 0
    if kind == "cuda" and (not colon or (ordinal.isascii() and ordinal.isdigit())):
        if int(ordinal or "0") < 2**31:
            return "cuda", int(ordinal or "0")
    raise errors.InvalidArgument(f'device: "{device}" is not one of cpu, cuda, cuda:N')


class Plan:
    """A valid problem with its kernel on a device. Any number of threads may use one.

        plan = attnlab.plan("hq=8,sq=512,d=64,dtype=fp16,mask=causal", device="cuda")
        plan.info.workspace_bytes
        out = plan.forward(q, k, v)            # like attention(), without the plan's arguments
        call = plan.bind(q, k, v, out=out)     # validates the arguments once …
        call()                                 # … for any number of calls
    """

    def __init__(self, problem: Problem, kind: str, ordinal: int, kernel: str, config: str):
        self._handle = ctypes.c_void_p()
        self._library = library.get()
        self.problem = problem
        self.kind, self.ordinal = kind, ordinal
        c = problem.to_c()
        arguments = library.CPlanArgs(
            problem=ctypes.pointer(c),
            device_kind=library.DEVICE_KINDS.index(kind),
            device_ordinal=ordinal,
            kernel=text("kernel", kernel),
            config=text("config", config),
        )
        self._library.call(
            "attnlab_plan_create", ctypes.byref(arguments), ctypes.byref(self._handle)
        )
        info = library.CPlanInfo()
        self._library.call("attnlab_plan_get_info", self._handle, ctypes.byref(info))
        fields = {name: getattr(info, name) for name in Info._fields}
        self.info = Info(**{**fields, "kernel": info.kernel.decode()})

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._library.call("attnlab_plan_destroy", handle)

    def __repr__(self) -> str:
        device = self.kind if self.kind == "cpu" else f"{self.kind}:{self.ordinal}"
        return f"<attnlab.Plan {self.problem} by {self.info.kernel} on {device}>"

    def run(self, arguments: library.CForwardArgs) -> None:
        self._library.call("attnlab_plan_forward", self._handle, ctypes.byref(arguments))

    def forward(self, q, k, v, **options):
        """attention() for the plan's problem; takes its arguments for arrays and lengths."""
        return self.bind(q, k, v, **options)()

    def bind(self, q, k, v, **options):
        """Validates the arguments of forward(), and returns a function without arguments.

        All calls use the same outputs and scratch, so they must follow each other in one stream.
        Each call uses the stream that is current at that time.
        """
        from .attention import bind  # imports this module

        return bind(self, q, k, v, **options)


@functools.lru_cache(maxsize=256)
def cached(problem: Problem, kind: str, ordinal: int, kernel: str, config: str) -> Plan:
    """The plan that attention() uses, from a cache."""
    return Plan(problem, kind, ordinal, kernel, config)


def plan(
    problem: Union[str, Problem], device: str = "cpu", kernel: str = "", config: str = ""
) -> Plan:
    """Plans a problem, given as a Problem or as its line, on "cpu" or "cuda:N".

    Uses the kernel of that name, or the best of those that support the problem. `config` is
    "key=value,key=value"; kernels() lists the keys. Raises InvalidArgument, NotFound for an unknown
    kernel or device, Unimplemented, with the reason of each kernel, if none supports the problem,
    and Unavailable without a GPU.
    """
    if not isinstance(problem, Problem):
        problem = Problem.parse(problem)
    return Plan(problem, *parse_device(device), kernel, config)


def why_not(
    problem: Union[str, Problem], device: str = "cpu", kernel: str = "", config: str = ""
) -> Optional[str]:
    """None if plan() with the same arguments would succeed; otherwise its message."""
    try:
        plan(problem, device, kernel, config)
    except errors.LibraryNotFound:
        raise
    except errors.Error as error:
        return str(error)
    return None
