package host

// HopsOf is what Hops makes of one link's routes and entries.
var HopsOf = hopsOf
