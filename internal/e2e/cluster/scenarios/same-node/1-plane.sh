within 400 ready node1
within 400 ready node2
run client node1
run server node1
run far node2
service server
for pod in client server far; do within 200 running $pod; done

direct() { asks client "$(address server):8080" server; }
within 60 direct
within 60 asks far "$(cluster_ip server):80" server
silent client "$(cluster_ip server):80" || die "want a time-out, got: $(says client "$(cluster_ip server):80")"
echo "without nodegate: the server's address answers, the Service answers the other node, and the Service times out on its own node"
