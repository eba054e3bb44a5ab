// Package cluster makes what a real Kubernetes cluster of the tests runs in.
//
// Contracts that hold everywhere in the package:
//
//   - Every process, link, rule and mount ends with the process that started it, however that process dies: the first
//     process of each Space dies with us, and the kernel ends the rest.
//   - No packet leaves the namespaces.
package cluster
