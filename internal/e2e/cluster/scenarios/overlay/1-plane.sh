within 400 joined node1
within 400 ready node2
pods_by node2
run far node2
service far
