package proxyrules

// Now returns what the API says now, as if it had just been listed: without a past. It shares the objects, which nobody changes.
func (v *Versions) Now() *Versions {
	now := NewVersions()
	now.Endpoints = &Endpoints{Version: v.Endpoints.Version, services: map[string]*apiEndpoints{}}
	now.Services = &Services{Version: v.Services.Version}
	for _, slices := range v.slices {
		for _, s := range slices {
			now.Endpoints.add(s)
			now.putSlice(s)
		}
	}
	for _, s := range v.objects {
		now.Services.Count++
		now.Services.add(s)
		now.putService(s)
	}
	return now
}

// Forget drops what the API said before.
func (v *Versions) Forget() {
	clear(v.pastEps)
	clear(v.pastPort)
}
