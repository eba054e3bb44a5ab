package host

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"nodegate/internal/ethtool"
)

// Amount is one number of a link's rings, channels or interrupt coalescing.
type Amount struct {
	Now uint32 `json:"now"`
	Max uint32 `json:"max,omitempty"` // the driver's limit, 0 if it reports none
}

// message has room for the longest kind, the coalescing.
type message [23]uint32

// now returns the place of the kind's number i in a message.
func now(k ethtool.Kind, i int) int {
	if k.Limits {
		i += len(k.Numbers)
	}
	return 1 + i
}

func (m *machineLinks) Tuning(_ context.Context, link, kind string) (map[string]Amount, error) {
	k := ethtool.Of(kind)
	got := message{k.Get}
	if err := m.ethtoolIoctl(link, unsafe.Pointer(&got)); err != nil {
		return nil, linkErr("reading "+kind, link, err)
	}
	all := make(map[string]Amount, len(k.Numbers))
	for i, name := range k.Numbers {
		a := Amount{Now: got[now(k, i)]}
		if k.Limits {
			a.Max = got[1+i]
		}
		all[name] = a
	}
	return all, nil
}

// setTuning writes all numbers of the kind in one message: those that are not in to keep their values.
func (m *machineLinks) setTuning(link, kind string, to map[string]string) error {
	k := ethtool.Of(kind)
	sent := message{k.Get}
	if err := m.ethtoolIoctl(link, unsafe.Pointer(&sent)); err != nil {
		return err
	}
	sent[0] = k.Set
	for name, value := range to {
		i := slices.Index(k.Numbers, name)
		n, err := number(value)
		if i < 0 || err != nil {
			return fmt.Errorf("%s=%s: %w", name, value, unix.EINVAL)
		}
		sent[now(k, i)] = n
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

// LinkValues returns a link's settings of one kind of ethtool.Kinds. It uses the names of ethtool(8); the name of a scalar is "".
func (h *Host) LinkValues(ctx context.Context, link, kind string) (map[string]LinkValue, error) {
	all := map[string]LinkValue{}
	switch {
	case ethtool.Of(kind).IsScalar():
		l, err := h.Links.Get(ctx, link)
		n, _ := l.Scalar(kind)
		all[""] = LinkValue{Now: strconv.Itoa(n)}
		return all, err
	case kind == ethtool.Offload:
		features, err := h.Links.Features(ctx, link)
		for name, f := range features {
			all[name] = LinkValue{Now: onOff(f.Active), Feature: f}
		}
		return all, err
	}
	if ethtool.Of(kind).Numbers != nil {
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
