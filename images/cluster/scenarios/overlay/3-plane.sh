within 300 ready node1
pods_by node1
run client node1
service client
for pod in client far; do within 200 running $pod; done
directly() { asks client "$(address far):8080" far; }
within 60 directly
