first_start
saw 1
within 120 settled
right_now
