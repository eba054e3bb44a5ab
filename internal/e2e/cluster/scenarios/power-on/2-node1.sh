# The node joins again, first without nodegate and then with it, in otherwise equal boots.
forget_cluster
