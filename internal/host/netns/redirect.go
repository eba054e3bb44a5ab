package netns

import "net/netip"

// RedirectSpec is a DNAT of one TCP Service address to one endpoint, in kube-proxy's form, for
// every packet that passes PREROUTING. Packets of Client keep their source: a rule of the node that
// masquerades packets to non-Pod addresses would send the reply to the node, regardless of the
// bridge.
type RedirectSpec struct {
	Name              string // name of the table: unique
	Service, Endpoint netip.AddrPort
	Client            netip.Addr
}

// Hits counts packets in the IP hooks of a redirection's namespace. Frames that a bridge forwards
// without br_netfilter pass no hook and are not counted.
type Hits struct {
	Request    Way    `json:"request"`    // towards the Service, or the endpoint after translation
	Translated uint64 `json:"translated"` // matches of the DNAT rule: one for each connection
	Reply      Way    `json:"reply"`      // from the endpoint's own address
}

// Way counts the packets of one direction in three hooks. Postrouting is counted before source
// translation: a reply still has the endpoint's address there.
type Way struct {
	Prerouting  uint64 `json:"prerouting"`  // packets in PREROUTING
	Forward     uint64 `json:"forward"`     // packets in FORWARD
	Postrouting uint64 `json:"postrouting"` // packets in POSTROUTING
}
