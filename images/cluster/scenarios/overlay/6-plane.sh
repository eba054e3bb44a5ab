directly() { asks client "$(address far):8080" far; }
through() { asks client "$(cluster_ip far):80" far; }
back() { asks far "$(cluster_ip client):80" client; }
within 400 directly
within 30 through
within 60 back
