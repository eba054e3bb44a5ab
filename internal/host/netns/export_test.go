package netns

// LinksUpTo is used by the tests with a kernel.
var LinksUpTo = linksUpTo
