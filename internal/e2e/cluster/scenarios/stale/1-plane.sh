within 400 ready node1
for pod in a b c d; do run $pod node1 server; done
service server
for pod in a b c d; do within 200 running $pod; done
