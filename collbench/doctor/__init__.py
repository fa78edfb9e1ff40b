"""What checks are made of: the evidence that they read, the findings that they give, and the paired
experiments that say what a cause costs. The checks themselves are in collbench/doctor/checks.
"""
