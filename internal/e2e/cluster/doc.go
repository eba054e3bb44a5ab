// Package cluster runs a real Kubernetes cluster for the tests: etcd, kube-apiserver and kube-controller-manager in
// namespaces of their own, nodes that are a kube-proxy in namespaces, and nodes that are machines.
//
//	Build        compiles Kubernetes' own programs from the Go module proxy, once a version, into a cache
//	Start        starts a control plane; ControlPlane.API talks to it
//	AddProxyNode a node that is only namespaces and a real kube-proxy: what tests of its rules need, in seconds
//	Nodes        makes machines with containerd, kubelet and kube-proxy; Runner puts them through a Scenario
//	Churn        changes EndpointSlices, so many a second
//
// Contracts that hold everywhere in the package:
//
//   - Every process, link, rule and mount ends with the process that started it, however that process dies: the first
//     process of each Space dies with us, and the kernel ends the rest.
//   - No packet leaves the namespaces.
//   - Nothing is downloaded but Go modules.
//
// It needs root, and the Debian packages in apt-packages.
package cluster
