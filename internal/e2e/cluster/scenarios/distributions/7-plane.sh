run web node1
within 300 running web
within 60 ready node1
kubectl get nodes -o wide
