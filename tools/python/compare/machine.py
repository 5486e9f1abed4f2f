"""The machine of the figures: processor, GPU, versions, commit, and the GPU's clocks meanwhile."""

import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time
from typing import Dict, List, Optional

_FIELDS = {  # fields of nvidia-smi
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "power_w": "power.draw",
    "temperature_c": "temperature.gpu",
}


def commit(root: pathlib.Path) -> str:
    """The commit that git knows, or $ATTNLAB_COMMIT, or ""."""
    named = os.environ.get("ATTNLAB_COMMIT")
    if named or not shutil.which("git"):
        return named or ""
    git = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "HEAD"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return git.stdout.strip() if git.returncode == 0 else ""


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else "unknown"


def describe(device: str, threads: int, root: pathlib.Path, library: str) -> Dict:
    import torch

    found = {
        "cpu": cpu_name(),
        "threads": threads,
        "torch": torch.__version__,
        "commit": commit(root),
        "library": os.path.basename(library),
        "date": time.strftime("%Y-%m-%d"),
    }
    if device == "cpu":
        return {**found, "torch_cpu_capability": torch.backends.cpu.get_cpu_capability()}
    properties = torch.cuda.get_device_properties(device)
    return {
        **found,
        "gpu": properties.name,
        "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": _smi(device, "driver_version"),
        "max_sm_mhz": _number(_smi(device, "clocks.max.sm")),
        "max_memory_mhz": _number(_smi(device, "clocks.max.mem")),
    }


def _command(device: str, fields: str) -> Optional[List[str]]:
    import torch

    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    # PyTorch counts only visible GPUs, nvidia-smi all of them; the UUID identifies the right one.
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    gpu = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
    return [program, f"--id={gpu}", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]


def _smi(device: str, fields: str) -> Optional[str]:
    command = _command(device, fields)
    if command is None:
        return None
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def parse_samples(text: str) -> List[Dict[str, Optional[float]]]:
    """The lines of nvidia-smi as dicts; a truncated line is left out."""
    samples = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(_FIELDS):
            samples.append(dict(zip(_FIELDS, map(_number, values))))
    return samples


def summarize(samples: List[Dict[str, Optional[float]]]) -> Dict:
    """The minimum, median and maximum of each field."""
    found: Dict = {"samples": len(samples)}
    for field in _FIELDS:
        values = [s[field] for s in samples if s.get(field) is not None]
        if values:
            found[field] = [min(values), statistics.median(values), max(values)]
    return found


class Monitor:
    """Clocks, power and temperature of a GPU before, during and after, from nvidia-smi, twice a
    second.

        with Monitor("cuda:0") as monitor:
            …
        monitor.result   # {"before": …, "during": {"sm_mhz": [least, median, most], …}, "after": …}

    On the CPU, or without nvidia-smi, the result says that there is none.
    """

    def __init__(self, device: str):
        self._device = device
        self._process: Optional[subprocess.Popen] = None
        self.result: Dict = {}

    def _now(self) -> Optional[Dict]:
        return next(iter(parse_samples(_smi(self._device, ",".join(_FIELDS.values())) or "")), None)

    def __enter__(self) -> "Monitor":
        command = None
        if self._device != "cpu":
            command = _command(self._device, ",".join(_FIELDS.values()))
        if command is None:
            self.result = {"missing": "no GPU" if self._device == "cpu" else "no nvidia-smi"}
            return self
        self.result["before"] = self._now()
        self._file = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command + ["--loop-ms=500"], stdout=self._file, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *error) -> None:
        if self._process is None:
            return
        self._process.terminate()
        self._process.wait()
        self._file.seek(0)
        self.result["during"] = summarize(parse_samples(self._file.read()))
        self._file.close()
        self.result["after"] = self._now()
