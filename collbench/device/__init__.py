"""The kernels, one source file a protocol, and the modules that prepare a plan for them: program.py
lowers it, layout.py packs it, compile.py calls NVRTC, card.py launches.
"""
