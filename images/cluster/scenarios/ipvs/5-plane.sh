kubectl create configmap enough
kubectl delete pod a --wait=true
