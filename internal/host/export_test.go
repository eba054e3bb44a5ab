package host

// HopsOf is used by the tests.
var HopsOf = vxlanHops
