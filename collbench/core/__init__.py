"""Words that every room uses: errors, units, files, collectives, cases, knobs, rows, statistics."""
