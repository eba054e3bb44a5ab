across 400
