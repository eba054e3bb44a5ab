package netns

// The functions that tests with a kernel use besides the exported API.
var (
	NFTTables    = nftTables
	LegacyTables = legacyTables
	AddWith      = (*Namespace).addRedirectWith
	LinksUpTo    = linksUpTo
)
