package ipvs

// For the tests that need packages which import this one.
var (
	Sources    = sources
	SourceSets = sourceSets[:]
)
