kubectl delete pod web --force --grace-period=0 2>/dev/null
kubectl delete node node1
