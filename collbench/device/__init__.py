"""The kernels, one source a protocol, and what turns a plan into what they run: program.py lowers
and packs, compile.py calls NVRTC.
"""
