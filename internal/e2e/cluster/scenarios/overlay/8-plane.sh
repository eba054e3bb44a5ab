across 120
