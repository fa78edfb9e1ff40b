"""What a hidden PCIe tree looks like, from copies alone and together. Pure; no module here measures
or prints.
"""
