"""Tests that need two or more NVIDIA GPUs and CuPy, and some of them mpirun. Without these they are
skipped before anything is imported.

Run all of them and print what ran and how every injected fault was diagnosed:

    python3 -m pytest tests/gpu -s -p no:xdist -p no:cacheprovider

With -n 4 they take 1,000 s on 2 x H200. What measures fails there, as it should, beside others, and
is to be run again alone: doctor, overlap, torch, trace and wire.

A file of them, such as test_cuda.py (one process for all GPUs) or test_cuda_mpi.py (one a GPU), is
run by itself in the same way.

Run one batch by hand, from its 17th plan on, and the same batch under a launcher:

    python3 -m tests.gpu.batch ll128 16
    mpirun -n 4 python3 -m tests.gpu.batch ll128 16

A first run spends most of its time in NVRTC. A machine without a GPU can compile all kernels in
advance, for example for 4 ranks of compute capability 9.0, into $XDG_CACHE_HOME/collbench/kernels
(or ~/.cache). The cache is valid for the same version of NVRTC and the same sources:

    python3 -m tests.gpu.batch compile 4 90
"""
