through() { asks client "$(cluster_ip server):80" server; }
within 30 through
