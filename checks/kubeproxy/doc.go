// Package kubeproxy reads the rules that kube-proxy wrote into a node and judges them.
//
// It is a pure library: text in, findings out. It opens no file, runs no program and changes nothing. Rules come as
// iptables-save text (either backend, 1.15 to 1.36) or as the JSON of `nft -j list ruleset` (nftables mode, 1.29 to 1.36); both
// become one graph of Services, chains and endpoints. [Judge] compares the rules with kube-proxy's own invariants and, when
// given EndpointSlices, against the API. One cause gives one finding: what follows from a broken chain is not reported again.
//
// The form of the rules was read in kube-proxy's source (pkg/proxy/iptables, pkg/proxy/nftables, pkg/proxy/topology.go).
package kubeproxy
