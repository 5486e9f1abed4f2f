"""Names of CUDA architectures: sm_90a (machine code for one) and compute_75 (PTX for it and later)."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")

CudaArchsInfo = provider(
    doc = "What cuda_library compiles for.",
    fields = {"archs": "Names of architectures, such as sm_90a."},
)

def _cuda_archs_impl(ctx):
    return [CudaArchsInfo(archs = ctx.attr.flag[BuildSettingInfo].value or ctx.attr.of_platform)]

cuda_archs = rule(
    implementation = _cuda_archs_impl,
    doc = "The architectures that a flag names, or those of the platform where it names none.",
    attrs = {
        "flag": attr.label(mandatory = True, providers = [BuildSettingInfo]),
        "of_platform": attr.string_list(mandatory = True),
    },
    provides = [CudaArchsInfo],
)

_EXAMPLES = "must be sm_XX for machine code or compute_XX for PTX, such as sm_90a or compute_75"

def parse_arch(arch):
    """Splits the name of an architecture.

    Args:
      arch: such as "sm_90a".

    Returns:
      struct(kind = "sm", number = 90, suffix = "a"), or a string that says what is wrong with it.
    """
    kind, separator, rest = arch.partition("_")
    digits = rest.rstrip("af")
    suffix = rest[len(digits):]
    if kind not in ["sm", "compute"] or not separator or not digits.isdigit() or len(digits) < 2 or len(suffix) > 1:
        return "CUDA architecture %r: %s" % (arch, _EXAMPLES)
    return struct(kind = kind, number = int(digits), suffix = suffix)

def capability(number):
    """90 -> "9.0", as in NVIDIA's tables."""
    return "%d.%d" % (number // 10, number % 10)

def select_archs(archs, min_arch, supported, version):
    """Decides what to compile for.

    Machine code for less than `min_arch` is dropped, and PTX for less is raised to it. If nothing
    is left, the result is PTX for `min_arch`, because the caller wants code that runs wherever it
    can.

    Args:
      archs: list of names.
      min_arch: the least compute capability that the sources support, such as 80; 0 for any.
      supported: what the toolkit compiles for, names without suffix.
      version: the toolkit's version, for messages.

    Returns:
      The sorted list of names without repetition, or a string that says what is wrong.
    """
    selected = {}
    for arch in archs:
        parsed = parse_arch(arch)
        if type(parsed) == "string":
            return parsed
        if parsed.number < min_arch:
            if parsed.kind == "compute":
                selected["compute_%d" % min_arch] = None
            continue
        selected[arch] = None
    if archs and not selected:
        selected["compute_%d" % min_arch] = None
    if not selected:
        return "no CUDA architecture: " + _EXAMPLES
    for arch in selected:
        parsed = parse_arch(arch)
        if "%s_%d" % (parsed.kind, parsed.number) not in supported:
            return "%s: CUDA %s does not compile for compute capability %s; it has %s" % (
                arch,
                version,
                capability(parsed.number),
                ", ".join([capability(n) for n in sorted([
                    parse_arch(s).number
                    for s in supported
                    if s.startswith("sm_")
                ])]),
            )
    return sorted(selected)

def gencode(arch):
    """The value of nvcc's -gencode for one architecture."""
    if arch.startswith("compute_"):
        return "arch=%s,code=%s" % (arch, arch)
    return "arch=compute_%s,code=%s" % (arch[len("sm_"):], arch)
