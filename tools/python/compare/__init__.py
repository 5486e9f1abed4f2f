"""Compares attnlab's kernels with PyTorch's scaled_dot_product_attention; for
tools/compare_torch.py.

    suites      the problems, one table per suite
    contenders  attnlab's kernels and PyTorch's back ends, called in the same way
    oracle      double precision on sampled rows, and error bounds
    clock       times the calls, which take turns
    machine     the machine that the figures were measured on
    report      statistics, the table, the JSON
    main        the command
"""
