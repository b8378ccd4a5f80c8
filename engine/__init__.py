"""The stepping engine: prefill and decode on MLX one step at a time, with no terminal."""

import os

# MLX reads it once. By default it multiplies float32 in TF32 on CUDA and on newer Apple GPUs, with 11 bits of 24, and
# only the products of several rows: chunks would differ from steps by 1e-3. Set it to 1 to get that.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

# numpy's own OpenBLAS reads it when numpy is imported, and else starts a thread for each core, which spin for a while
# after each of its products.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
