"""What every other package may use: errors, units, families of parts, shipped profiles."""
