"""Tests of where a CUDA toolkit is looked for, and of the message if there is none."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")
load("//third_party/cuda:local_cuda.bzl", "CUPTI_HEADERS", "cupti_found", "is_hidden", "no_toolkit_message", "toolkit_places")

def _places_test_impl(ctx):
    env = unittest.begin(ctx)
    asserts.equals(env, ["/usr/local/cuda"], toolkit_places({}, None))
    asserts.equals(
        env,
        ["/home", "/path", "/usr/local/cuda", "/opt/cuda"],
        toolkit_places({"CUDA_HOME": "/home", "CUDA_PATH": "/path"}, "/opt/cuda"),
    )
    asserts.equals(env, ["/a", "/usr/local/cuda"], toolkit_places({"CUDA_HOME": "/a", "CUDA_PATH": "/a"}, "/a"))
    asserts.equals(env, ["/usr/local/cuda"], toolkit_places({"CUDA_HOME": ""}, "/usr"))
    return unittest.end(env)

def _hidden_test_impl(ctx):
    env = unittest.begin(ctx)
    for value in ["", "0"]:
        asserts.false(env, is_hidden({"ATTNLAB_NO_CUDA": value}))
    asserts.false(env, is_hidden({}))
    asserts.true(env, is_hidden({"ATTNLAB_NO_CUDA": "1"}))
    return unittest.end(env)

def _message_test_impl(ctx):
    env = unittest.begin(ctx)
    message = no_toolkit_message(["/a", "/usr/local/cuda"], None)
    for words in ["nothing is built for GPUs", "in /a, /usr/local/cuda.", "CUDA_HOME=DIR", "ATTNLAB_NO_CUDA=1"]:
        asserts.true(env, words in message, words)
    asserts.false(env, "\n" in message)
    asserts.true(env, "the toolkit of /usr" in no_toolkit_message(["/usr/local/cuda"], "/usr"))
    return unittest.end(env)

def _cupti_test_impl(ctx):
    env = unittest.begin(ctx)
    asserts.true(env, cupti_found(CUPTI_HEADERS + ["cupti.h"]))
    asserts.false(env, cupti_found(["cuda_runtime.h"]), "a toolkit without CUPTI")
    for missing in CUPTI_HEADERS:
        asserts.false(env, cupti_found([h for h in CUPTI_HEADERS if h != missing]), "one without " + missing)
    return unittest.end(env)

_places_test = unittest.make(_places_test_impl)
_hidden_test = unittest.make(_hidden_test_impl)
_message_test = unittest.make(_message_test_impl)
_cupti_test = unittest.make(_cupti_test_impl)

def local_cuda_test_suite(name):
    """Declares the tests of this file, each under a name of its own.

    Args:
      name: prefix of their names.
    """
    _places_test(name = name + "_places", size = "small")
    _hidden_test(name = name + "_hidden", size = "small")
    _message_test(name = name + "_message", size = "small")
    _cupti_test(name = name + "_cupti", size = "small")
