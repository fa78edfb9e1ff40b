"""Files of results: readers, what is best, what changed, tables, plots and pages."""
