package host

// HopsOf exports vxlanHops.
var HopsOf = vxlanHops
