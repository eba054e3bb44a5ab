package host

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Amount is one number of a link's rings, channels or interrupt coalescing.
type Amount struct {
	Now uint32 `json:"now"`
	Max uint32 `json:"max,omitempty"` // the driver's limit, 0 if it reports none
}

// tuning describes the messages of one kind: struct ethtool_ringparam, ethtool_channels and ethtool_coalesce of linux/ethtool.h. After the
// command come the limits, if there are any, and the numbers, in the same order.
type tuning struct {
	get, set uint32
	limits   bool
	names    []string // of the numbers
}

func messagesOf(kind string) tuning {
	switch kind {
	case "ring":
		return tuning{unix.ETHTOOL_GRINGPARAM, unix.ETHTOOL_SRINGPARAM, true, []string{"rx", "rx-mini", "rx-jumbo", "tx"}}
	case "channels":
		return tuning{unix.ETHTOOL_GCHANNELS, unix.ETHTOOL_SCHANNELS, true, []string{"rx", "tx", "other", "combined"}}
	}
	return tuning{unix.ETHTOOL_GCOALESCE, unix.ETHTOOL_SCOALESCE, false, []string{
		"rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq", "tx-usecs", "tx-frames", "tx-usecs-irq", "tx-frames-irq", "stats-block-usecs",
		"adaptive-rx", "adaptive-tx", "pkt-rate-low", "rx-usecs-low", "rx-frames-low", "tx-usecs-low", "tx-frames-low", "pkt-rate-high",
		"rx-usecs-high", "rx-frames-high", "tx-usecs-high", "tx-frames-high", "sample-interval",
	}}
}

// message has room for the longest kind, the coalescing.
type message [23]uint32

// now returns the place of a number in a message.
func (t tuning) now(i int) int {
	if t.limits {
		i += len(t.names)
	}
	return 1 + i
}

func (m *machineLinks) Tuning(_ context.Context, link, kind string) (map[string]Amount, error) {
	t := messagesOf(kind)
	got := message{t.get}
	if err := m.ethtoolIoctl(link, unsafe.Pointer(&got)); err != nil {
		return nil, linkErr("reading "+kind, link, err)
	}
	all := make(map[string]Amount, len(t.names))
	for i, name := range t.names {
		a := Amount{Now: got[t.now(i)]}
		if t.limits {
			a.Max = got[1+i]
		}
		all[name] = a
	}
	return all, nil
}

// setTuning writes all numbers of the kind in one message: those that are not in to keep their values.
func (m *machineLinks) setTuning(link, kind string, to map[string]string) error {
	t := messagesOf(kind)
	sent := message{t.get}
	if err := m.ethtoolIoctl(link, unsafe.Pointer(&sent)); err != nil {
		return err
	}
	sent[0] = t.set
	for name, value := range to {
		i := slices.Index(t.names, name)
		n, err := number(value)
		if i < 0 || err != nil {
			return fmt.Errorf("%s=%s: %w", name, value, unix.EINVAL)
		}
		sent[t.now(i)] = n
	}
	return m.ethtoolIoctl(link, unsafe.Pointer(&sent))
}

// number returns the number that the kernel has for a value of LinkValues.
func number(value string) (uint32, error) {
	switch value {
	case "on":
		return 1, nil
	case "off":
		return 0, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	return uint32(n), err
}

// LinkValue is the value of a link's setting.
type LinkValue struct {
	Now     string  // "on", "1500"
	Max     uint32  // the driver's limit of a number, 0 if it reports none
	Feature Feature // of an offload
}

// LinkValues returns a link's settings of one kind: mtu, offload, ring, channels or coalesce. It uses the names of ethtool(8); the
// name of the MTU is "".
func (h *Host) LinkValues(ctx context.Context, link, kind string) (map[string]LinkValue, error) {
	all := map[string]LinkValue{}
	switch kind {
	case "mtu":
		l, err := h.Links.Get(ctx, link)
		all[""] = LinkValue{Now: strconv.Itoa(l.MTU)}
		return all, err
	case "offload":
		features, err := h.Links.Features(ctx, link)
		for name, f := range features {
			all[name] = LinkValue{Now: onOff(f.Active), Feature: f}
		}
		return all, err
	case "ring", "channels", "coalesce":
		numbers, err := h.Links.Tuning(ctx, link, kind)
		for name, n := range numbers {
			v := LinkValue{Now: strconv.FormatUint(uint64(n.Now), 10), Max: n.Max}
			if strings.HasPrefix(name, "adaptive-") {
				v.Now = onOff(n.Now != 0)
			}
			all[name] = v
		}
		return all, err
	}
	return nil, fmt.Errorf("unknown kind of change %q; another version of nodegate wrote it", kind)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
