# The Pods are started anew, and have other addresses then. The first answer to a Pod's address is the first moment that counts.
direct() { asks client "$(address server):8080" server; }
within 400 direct
through() { asks client "$(cluster_ip server):80" server; }
within 30 through
within 60 ready node1
