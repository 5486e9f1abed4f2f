"""Plans: a problem, the kernel that does it, and what that needs. Made once, used often."""

import ctypes
import functools
from typing import NamedTuple, Optional, Union

from . import errors, library
from .problem import Problem, text


class Info(NamedTuple):
    """What a plan says of itself, with all sequences at their maximal lengths."""

    kernel: str
    workspace_bytes: int
    flops: float  # 2 (d + dv) for each visible (query, key) pair
    compulsory_bytes: int  # inputs read once, outputs written once
    expected_flops: float  # what the kernel says it does
    expected_bytes_read: int  # a guess where it depends on what the L2 cache keeps
    expected_bytes_written: int


def parse_device(device: str):
    """("cpu", 0) of "cpu"; ("cuda", 1) of "cuda:1"; "cuda" is "cuda:0"."""
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
        out = plan.forward(q, k, v)            # as attention(), without what the plan knows
        call = plan.bind(q, k, v, out=out)     # the arguments looked at once …
        call()                                 # … and used again and again
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
        """attention() of the plan's problem; takes its arguments for arrays and lengths."""
        return self.bind(q, k, v, **options)()

    def bind(self, q, k, v, **options):
        """The call of forward() with everything looked at: a function without arguments.

        Outputs and scratch are those of the first call, so calls must follow each other, in one
        stream. The stream is the one that is current at each call.
        """
        from .attention import bind  # which needs this module

        return bind(self, q, k, v, **options)


@functools.lru_cache(maxsize=256)
def cached(problem: Problem, kind: str, ordinal: int, kernel: str, config: str) -> Plan:
    """The plan that attention() uses: one is made once."""
    return Plan(problem, kind, ordinal, kernel, config)


def plan(
    problem: Union[str, Problem], device: str = "cpu", kernel: str = "", config: str = ""
) -> Plan:
    """Plans a problem, given as a Problem or as its line, on "cpu" or "cuda:N".

    By the kernel of that name, or by the one that is best of those that support the problem.
    `config` is "key=value,key=value"; kernels() has the keys. Raises InvalidArgument, NotFound
    for a kernel or device that is not there, Unimplemented with each kernel's reason where none
    does it, Unavailable without a GPU.
    """
    if not isinstance(problem, Problem):
        problem = Problem.parse(problem)
    return Plan(problem, *parse_device(device), kernel, config)


def why_not(
    problem: Union[str, Problem], device: str = "cpu", kernel: str = "", config: str = ""
) -> Optional[str]:
    """None if plan() of the same arguments would do; otherwise its message."""
    try:
        plan(problem, device, kernel, config)
    except errors.LibraryNotFound:
        raise
    except errors.Error as error:
        return str(error)
    return None
