"""The proof: a symbolic execution of a schedule over bounded FIFOs, with vector clocks."""
