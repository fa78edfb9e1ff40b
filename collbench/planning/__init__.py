"""From a case to a plan: the choice of knobs, the layout in memory, the lowering for CPUs, and the
cost.
"""
