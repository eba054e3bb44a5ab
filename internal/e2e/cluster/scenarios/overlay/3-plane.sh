within 300 ready node1
pods_by node1
run client node1
service client
for pod in client far; do within 200 running $pod; done
within 60 directly
