kubectl delete node node1
