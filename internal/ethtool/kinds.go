// Package ethtool has the one list of the kinds of link settings that ethtool(8) changes: the language, the checks, the exports and host
// read it.
package ethtool

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Offload is the kind of the features, which are switches. All others are numbers, or switches with a name that begins with adaptive-.
const Offload = "offload"

// Kind is one kind of setting.
type Kind struct {
	Name   string // the argument of a link block
	Flag   string // of ethtool(8)
	Resets bool   // the driver may reset the link to change it
	Like   string // a link block's entry and how to write it

	// The message of linux/ethtool.h (struct ethtool_ringparam, for example): after the command come the limits, if it has any, and the
	// numbers, both with these names. An offload has none.
	Get, Set uint32
	Limits   bool
	Numbers  []string
}

// Kinds returns all kinds in the order in which they are changed: a change of the channels can change the rings.
func Kinds() []Kind {
	const number = "a name of ethtool(8) to a number: "
	return []Kind{
		{"channels", "-L", true, number + "channels = { combined = 4 }",
			unix.ETHTOOL_GCHANNELS, unix.ETHTOOL_SCHANNELS, true, []string{"rx", "tx", "other", "combined"}},
		{"ring", "-G", true, number + "ring = { rx = 512 }",
			unix.ETHTOOL_GRINGPARAM, unix.ETHTOOL_SRINGPARAM, true, []string{"rx", "rx-mini", "rx-jumbo", "tx"}},
		{"coalesce", "-C", false, number + "coalesce = { rx-usecs = 50 }",
			unix.ETHTOOL_GCOALESCE, unix.ETHTOOL_SCOALESCE, false, []string{
				"rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq", "tx-usecs", "tx-frames", "tx-usecs-irq", "tx-frames-irq",
				"stats-block-usecs", "adaptive-rx", "adaptive-tx", "pkt-rate-low", "rx-usecs-low", "rx-frames-low", "tx-usecs-low",
				"tx-frames-low", "pkt-rate-high", "rx-usecs-high", "rx-frames-high", "tx-usecs-high", "tx-frames-high", "sample-interval",
			}},
		{Name: Offload, Flag: "-K", Like: "feature to true or false: offload = { tx-checksum-ip-generic = false }"},
	}
}

// Of returns the kind of that name. The zero Kind means that ethtool has none.
func Of(name string) Kind {
	all := Kinds()
	if i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return all[i]
	}
	return Kind{}
}
