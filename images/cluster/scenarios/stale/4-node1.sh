within 300 audit_says fail
/opt/nodegate status || :
wget -q -O - http://127.0.0.1:10256/healthz || die "kube-proxy's healthz does not say that all is well"
/opt/nodegate audit --kubeconfig /etc/kubernetes/proxy.kubeconfig || :
to=$(iptables-save -t nat | sed -n 's|^-A KUBE-SERVICES -d \([0-9.]*\)/32 .*default/server cluster IP.*|\1:80|p')
/opt/nodegate probe service "$to" -n 1000 --kubeconfig /etc/kubernetes/proxy.kubeconfig || :
