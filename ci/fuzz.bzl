"""fuzz_test: a fuzz target that is also an ordinary test."""

load("@rules_cc//cc:cc_test.bzl", "cc_test")

def fuzz_test(name, corpus, deps = [], args = [], data = [], tags = [], size = "small", **kwargs):
    """A cc_test of sources that define LLVMFuzzerTestOneInput.

    By default it uses the driver in fuzz_main.cc, which builds with any compiler. `bazel test` runs
    a limited number of mutations; `bazel run TARGET -- -max_total_time=600` runs as long as you
    like. With Clang and libFuzzer, guided by coverage:

        CC=clang bazel run --config=libfuzzer TARGET -- -max_total_time=600

    where --config=libfuzzer (.bazelrc) sets --define=fuzzer=libfuzzer and Clang's flags.

    Args:
      name: name of the test.
      corpus: a directory of this package, one file per input.
      deps: dependencies of the fuzz target.
      args: as in cc_test; placed before the corpus.
      data: as in cc_test.
      tags: as in cc_test; "fuzz" is added.
      size: as in cc_test.
      **kwargs: other attributes of cc_test, srcs among them.
    """
    files = native.glob([corpus + "/*"])
    if not files:
        fail("fuzz_test: %s: nothing in %s" % (name, corpus))
    cc_test(
        name = name,
        size = size,
        args = args + select({
            str(Label("//ci:libfuzzer")): ["-runs=1000000", "-max_total_time=10"],
            "//conditions:default": [],
        }) + [native.package_name() + "/" + corpus],
        data = data + files,
        tags = tags + ["fuzz"],
        deps = deps + select({
            str(Label("//ci:libfuzzer")): [],
            "//conditions:default": [str(Label("//ci:fuzz_main"))],
        }),
        **kwargs
    )
