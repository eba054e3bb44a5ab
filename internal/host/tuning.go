package host

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// Amount is one number of a link's rings, channels or interrupt coalescing.
type Amount struct {
	Now uint32 `json:"now"`
	Max uint32 `json:"max,omitempty"` // the driver's limit, 0 if it reports none
}

// tuning is a message of one kind, with its numbers by the names of ethtool(8).
type tuning struct {
	now, most map[string]*uint32
	write     func() error
}

func (m *machineLinks) readTuning(link, kind string) (tuning, error) {
	tool, err := m.ethtool()
	if err != nil {
		return tuning{}, err
	}
	switch kind {
	case "ring":
		r, err := tool.GetRing(link)
		return tuning{
			map[string]*uint32{"rx": &r.RxPending, "rx-mini": &r.RxMiniPending, "rx-jumbo": &r.RxJumboPending, "tx": &r.TxPending},
			map[string]*uint32{"rx": &r.RxMaxPending, "rx-mini": &r.RxMiniMaxPending, "rx-jumbo": &r.RxJumboMaxPending, "tx": &r.TxMaxPending},
			func() error { _, err := tool.SetRing(link, r); return err },
		}, err
	case "channels":
		c, err := tool.GetChannels(link)
		return tuning{
			map[string]*uint32{"rx": &c.RxCount, "tx": &c.TxCount, "other": &c.OtherCount, "combined": &c.CombinedCount},
			map[string]*uint32{"rx": &c.MaxRx, "tx": &c.MaxTx, "other": &c.MaxOther, "combined": &c.MaxCombined},
			func() error { _, err := tool.SetChannels(link, c); return err },
		}, err
	}
	c, err := tool.GetCoalesce(link)
	return tuning{coalescing(&c), nil, func() error { _, err := tool.SetCoalesce(link, c); return err }}, err
}

func coalescing(c *ethtool.Coalesce) map[string]*uint32 {
	return map[string]*uint32{
		"adaptive-rx": &c.UseAdaptiveRxCoalesce, "adaptive-tx": &c.UseAdaptiveTxCoalesce,
		"rx-usecs": &c.RxCoalesceUsecs, "rx-usecs-irq": &c.RxCoalesceUsecsIrq,
		"rx-usecs-low": &c.RxCoalesceUsecsLow, "rx-usecs-high": &c.RxCoalesceUsecsHigh,
		"rx-frames": &c.RxMaxCoalescedFrames, "rx-frames-irq": &c.RxMaxCoalescedFramesIrq,
		"rx-frames-low": &c.RxMaxCoalescedFramesLow, "rx-frames-high": &c.RxMaxCoalescedFramesHigh,
		"tx-usecs": &c.TxCoalesceUsecs, "tx-usecs-irq": &c.TxCoalesceUsecsIrq,
		"tx-usecs-low": &c.TxCoalesceUsecsLow, "tx-usecs-high": &c.TxCoalesceUsecsHigh,
		"tx-frames": &c.TxMaxCoalescedFrames, "tx-frames-irq": &c.TxMaxCoalescedFramesIrq,
		"tx-frames-low": &c.TxMaxCoalescedFramesLow, "tx-frames-high": &c.TxMaxCoalescedFramesHigh,
		"stats-block-usecs": &c.StatsBlockCoalesceUsecs, "sample-interval": &c.RateSampleInterval,
		"pkt-rate-low": &c.PktRateLow, "pkt-rate-high": &c.PktRateHigh,
	}
}

func (m *machineLinks) Tuning(_ context.Context, link, kind string) (map[string]Amount, error) {
	t, err := m.readTuning(link, kind)
	if err != nil {
		return nil, linkErr("reading "+kind, link, err)
	}
	all := make(map[string]Amount, len(t.now))
	for name, n := range t.now {
		a := Amount{Now: *n}
		if most := t.most[name]; most != nil {
			a.Max = *most
		}
		all[name] = a
	}
	return all, nil
}

// setTuning writes all numbers of the kind in one message: those that are not in to keep their values.
func (m *machineLinks) setTuning(link, kind string, to map[string]string) error {
	t, err := m.readTuning(link, kind)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		n, known := t.now[name]
		if !known {
			return fmt.Errorf("%q: %w", name, unix.EINVAL)
		}
		if *n, err = number(to[name]); err != nil {
			return err
		}
	}
	return t.write()
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

// LinkValues returns a link's settings of one kind: mtu, offload, ring, channels or coalesce. The names are those of ethtool(8); the
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
