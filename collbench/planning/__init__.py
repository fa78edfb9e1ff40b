"""From a case to a plan and its price: the choice, the layout in memory, the lowering for CPUs."""
