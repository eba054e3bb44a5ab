first_start
saw 1
