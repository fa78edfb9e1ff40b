"""What is asked: collectives, element types, who takes part, the case, the inputs and the expected
outputs.
"""
