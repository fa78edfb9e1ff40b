"""What checks are made of: the evidence that they read and the findings that they give. The checks
themselves are in collbench/doctor/checks.
"""
