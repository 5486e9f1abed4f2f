"""cuda_binary and cuda_test: a cc_binary or cc_test, and a cuda_library of its sources."""

load("@rules_cc//cc:cc_binary.bzl", "cc_binary")
load("@rules_cc//cc:cc_test.bzl", "cc_test")
load(":cuda_library.bzl", "cuda_library")

# Attributes for compiling: they go to the library.
_LIBRARY_ATTRS = [
    "archs",
    "copts",
    "defines",
    "deps",
    "host_copts",
    "includes",
    "local_defines",
    "min_arch",
    "srcs",
]

# Attributes that the library and the program get.
_COMMON_ATTRS = ["deprecation", "features", "target_compatible_with", "testonly"]

def _program(rule, name, testonly, kwargs):
    library = {k: kwargs.pop(k) for k in _LIBRARY_ATTRS if k in kwargs}
    library.update({k: kwargs[k] for k in _COMMON_ATTRS if k in kwargs})
    if testonly:
        library["testonly"] = True
    cuda_library(
        name = name + "_cu",
        # It contains main(), and maybe tests that register themselves.
        alwayslink = True,
        tags = ["manual"],
        visibility = ["//visibility:private"],
        **library
    )
    rule(name = name, deps = [":%s_cu" % name], **kwargs)

def cuda_binary(name, **kwargs):
    """A program of .cu sources.

    Args:
      name: the program; its library is NAME_cu.
      **kwargs: attributes of cuda_library and of cc_binary.
    """
    _program(cc_binary, name, False, kwargs)

def cuda_test(name, **kwargs):
    """A test of .cu sources.

    Its target_compatible_with says which GPUs it needs (//ci:gpu.bzl). Without one, it must pass on
    a machine without a GPU.

    Args:
      name: the test; its library is NAME_cu.
      **kwargs: attributes of cuda_library and of cc_test.
    """
    _program(cc_test, name, True, kwargs)
