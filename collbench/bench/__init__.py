"""From a case to a record: sweeps, repeats, estimates, ceilings, paired experiments."""
