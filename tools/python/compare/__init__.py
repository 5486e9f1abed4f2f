"""attnlab's kernels beside PyTorch's scaled_dot_product_attention: what tools/compare_torch.py runs.

  suites      the problems, a visible table each
  contenders  attnlab's kernels and PyTorch's back ends as calls of one shape
  oracle      double precision on sampled rows, and how large an error may be
  clock       times the calls, taking turns
  machine     what the figures were measured on
  report      statistics, the table, the JSON
  main        the command
"""
