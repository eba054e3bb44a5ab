package model

import (
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// Service is one port of a Service in one address family, as the rules implement it.
type Service struct {
	Name            string          `json:"name"`                      // ns/name[:port]
	Protocol        string          `json:"protocol"`                  // tcp, udp or sctp
	Family          string          `json:"family"`                    // "ip" or "ip6"
	ClusterIP       string          `json:"clusterIP,omitempty"`       // the address
	Port            int             `json:"port,omitempty"`            // of the ClusterIP
	NodePort        int             `json:"nodePort,omitempty"`        // 0 if there is none
	ExternalIPs     []string        `json:"externalIPs,omitempty"`     // addresses
	LoadBalancerIPs []string        `json:"loadBalancerIPs,omitempty"` // addresses
	SourceRanges    []string        `json:"sourceRanges,omitempty"`    // the only clients that may use the load balancer's addresses
	InternalLocal   bool            `json:"internalLocal,omitempty"`   // internalTrafficPolicy Local
	ExternalLocal   bool            `json:"externalLocal,omitempty"`   // externalTrafficPolicy Local
	Blocked         string          `json:"blocked,omitempty"`         // "reject" or "drop": treatment of ClusterIP traffic without endpoints
	AffinitySeconds int             `json:"affinitySeconds,omitempty"` // the timeout of ClientIP affinity
	Chains          []string        `json:"chains,omitempty"`          // the Service's own chains
	Endpoints       []Endpoint      `json:"endpoints,omitempty"`       // endpoints on any node
	LocalEndpoints  []Endpoint      `json:"localEndpoints,omitempty"`  // endpoints on this node, for policy Local
	Verdict         verdict.Verdict `json:"verdict"`                   // the worst of its findings
	Findings        []string        `json:"findings,omitempty"`        // names of its findings

	Servers []Server `json:"-"` // IPVS mode: the server of the ClusterIP first
	Health  int      `json:"-"` // iptables mode: the health check node port that table filter accepts
}

// Endpoint is one destination of a Service's connections.
type Endpoint struct {
	Address string  `json:"address"`         // ip:port
	Chain   string  `json:"chain,omitempty"` // the endpoint's chain
	Chance  float64 `json:"chance"`          // probability for a new connection, given all rules before it
	Line    int     `json:"line,omitempty"`  // of the rule in the input
	Index   int32   `json:"-"`               // iptables mode: of the chain
}

// Server is a virtual server of a Service port in IPVS mode.
type Server struct {
	*ruleset.VirtualServer
	Local     bool       // its traffic has policy Local
	Endpoints []Endpoint // endpoints that get new connections
}
