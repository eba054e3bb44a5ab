# The Pods restart with other addresses. Measurements start when a Pod's address first answers.
direct() { asks client "$(address server):8080" server; }
within 400 direct
through() { asks client "$(cluster_ip server):80" server; }
within 30 through
within 60 ready node1
