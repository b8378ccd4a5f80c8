"""The stepping engine: prefill and decode on MLX, one step at a time, without a terminal."""

import os

# MLX reads this variable once. By default MLX multiplies float32 matrices of several rows in TF32 (11 instead of 24
# bits) on CUDA and on newer Apple GPUs: the results of chunks would differ from those of steps by 1e-3. Set it to 1 to
# use TF32.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

# numpy's bundled OpenBLAS reads this variable when numpy is imported. Without it, OpenBLAS starts a thread for each
# core, and these threads spin for a while after each matrix product.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
