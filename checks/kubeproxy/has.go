package kubeproxy

// Has tells whether any Service has a ready endpoint at that address, spelled `ip:port` or `[ip]:port`.
func (e *Endpoints) Has(address string) bool {
	for _, s := range e.services {
		for _, endpoints := range s.ports {
			for _, ep := range endpoints {
				if ep.address == address && ep.ready {
					return true
				}
			}
		}
	}
	return false
}
