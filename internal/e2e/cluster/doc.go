// Package cluster runs a real Kubernetes cluster for the tests. etcd, kube-apiserver and kube-controller-manager run in namespaces.
// Nodes are either a kube-proxy in namespaces, or machines.
//
//	Build        compiles Kubernetes' own programs from the Go module proxy, once per version, into a cache
//	Start        starts a control plane; ControlPlane.API is its client
//	AddProxyNode makes a node of namespaces and a real kube-proxy, in seconds: enough for tests of its rules
//	Nodes        makes machines with containerd, kubelet and kube-proxy; Runner runs a Scenario on them
//	Churn        changes EndpointSlices at a fixed rate
//
// These contracts hold for the whole package:
//
//   - Every process, link, rule and mount ends with the process that started it, however that process dies: the first
//     process of each Space dies with its parent, and the kernel ends the rest.
//   - No packet leaves the namespaces.
//   - Only Go modules are downloaded.
//
// It needs root, and the Debian packages in apt-packages.
package cluster
