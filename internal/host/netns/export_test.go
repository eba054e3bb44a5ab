package netns

// What the tests with a kernel use beside the exported API.
var (
	NFTTables    = nftTables
	LegacyTables = legacyTables
	AddWith      = (*Namespace).addRedirectWith
)
