// Package ethtool has the one list of the kinds of link settings that ip(8) and ethtool(8) change: the language, the checks, the exports
// and host read it.
package ethtool

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Offload is the kind of the features, which are switches. All others are numbers, or switches with a name that begins with adaptive-.
const Offload = "offload"

// Kind is one kind of setting.
type Kind struct {
	Name string // the argument of a link block

	// A scalar is one number, which is also an attribute in /sys/class/net/LINK. All others are maps of names.
	Command     string // sets the VALUE of a scalar of LINK
	Least, Most int64
	Unit        string // " bytes"

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
		{Name: "mtu", Command: "ip link set dev LINK mtu VALUE", Least: 68, Most: 65535, Unit: " bytes"},
		{Name: "channels", Flag: "-L", Resets: true, Like: number + "channels = { combined = 4 }", Limits: true,
			Get: unix.ETHTOOL_GCHANNELS, Set: unix.ETHTOOL_SCHANNELS, Numbers: []string{"rx", "tx", "other", "combined"}},
		{Name: "ring", Flag: "-G", Resets: true, Like: number + "ring = { rx = 512 }", Limits: true,
			Get: unix.ETHTOOL_GRINGPARAM, Set: unix.ETHTOOL_SRINGPARAM, Numbers: []string{"rx", "rx-mini", "rx-jumbo", "tx"}},
		{Name: "coalesce", Flag: "-C", Like: number + "coalesce = { rx-usecs = 50 }",
			Get: unix.ETHTOOL_GCOALESCE, Set: unix.ETHTOOL_SCOALESCE, Numbers: []string{
				"rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq", "tx-usecs", "tx-frames", "tx-usecs-irq", "tx-frames-irq",
				"stats-block-usecs", "adaptive-rx", "adaptive-tx", "pkt-rate-low", "rx-usecs-low", "rx-frames-low", "tx-usecs-low",
				"tx-frames-low", "pkt-rate-high", "rx-usecs-high", "rx-frames-high", "tx-usecs-high", "tx-frames-high", "sample-interval",
			}},
		{Name: Offload, Flag: "-K", Like: "feature to true or false: offload = { tx-checksum-ip-generic = false }"},
	}
}

// IsScalar reports whether a setting of this kind is one number.
func (k Kind) IsScalar() bool { return k.Command != "" }

// Of returns the kind of that name. The zero Kind means that there is none.
func Of(name string) Kind {
	all := Kinds()
	if i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return all[i]
	}
	return Kind{}
}
