package host

// The functions that tests use besides the exported API.
var (
	HopsOf     = vxlanHops
	ListRoutes = listRoutes
)
