kubectl delete pod a --wait=true
