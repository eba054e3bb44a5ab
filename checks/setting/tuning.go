package setting

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
)

// readTunings reads the required numbers of the rings, channels and coalescing of one interface.
func (l link) readTunings(ctx context.Context, h *host.Host, name string) ([]setting, error) {
	var all []setting
	for _, kind := range policy.TuningKinds() {
		var required []policy.Tuning
		for _, t := range l.Tunings {
			if t.Kind == kind {
				required = append(required, t)
			}
		}
		if required == nil {
			continue
		}
		have, err := h.Links.Tuning(ctx, name, kind)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		for _, t := range required {
			a, known := have[t.Name]
			all = append(all, judgeTuning(name, t, a, known && err == nil))
		}
	}
	return all, nil
}

// judgeTuning compares one number. A driver without a ring or channel of that name has 0 and the limit 0 for it.
func judgeTuning(device string, t policy.Tuning, have host.Amount, known bool) setting {
	want := t.Value
	if t.Max {
		want = have.Max
	}
	s := setting{name: t.Setting(), tuning: t, want: t.Text(want), got: t.Text(have.Now), ok: known && have.Now == want}
	flag := map[string]string{"ring": "-G", "channels": "-L", "coalesce": "-C"}[t.Kind]
	s.remedy = fmt.Sprintf("run `ethtool %s %s %s %s`", flag, plain.Quote(device), t.Name, s.want)
	switch {
	case !known, t.Resets() && have.Max == 0 && (t.Max || t.Value > 0):
		s.ok, s.stuck, s.want, s.got = false, true, t.Want(), "not supported by the driver"
		s.remedy = "remove " + s.name + " from the policy for this kind of link"
	case t.Resets() && want > have.Max:
		s.stuck = true
		s.remedy = fmt.Sprintf("the driver allows at most %d for %s of %s: require \"max\", or another number", have.Max, s.name, device)
	case t.Resets():
		s.remedy += ", which may reset the link"
	}
	return s
}

// changeTunings returns one change for each kind of numbers that differ.
func changeTunings(device string, settings []setting) []checks.Change {
	var all []checks.Change
	for _, kind := range policy.TuningKinds() {
		var from, to []string
		numbers := map[string]uint32{}
		note := ""
		for _, s := range settings {
			if s.tuning.Kind != kind || s.ok || s.stuck {
				continue
			}
			n, err := s.tuning.Number(s.want)
			if err != nil {
				continue // Text returned it
			}
			numbers[s.tuning.Name] = n
			from, to = append(from, s.tuning.Name+"="+s.got), append(to, s.tuning.Name+"="+s.want)
			if s.tuning.Resets() {
				note = "may reset the link; watch does this only when a link appears"
			}
		}
		if len(numbers) > 0 {
			all = append(all, checks.Change{
				What: device + " " + kind, From: strings.Join(from, ", "), To: strings.Join(to, ", "), Note: note,
				Kind: checks.ChangeKind(kind), Target: device,
				Make: func(ctx context.Context, h *host.Host) error { return h.Links.SetTuning(ctx, device, kind, numbers) },
			})
		}
	}
	return all
}

// keepResetting marks the settings that only a reset of the link could correct as stuck.
func keepResetting(settings []setting) {
	for i, s := range settings {
		if s.tuning.Kind != "" && s.tuning.Resets() {
			settings[i].stuck = true
		}
	}
}
