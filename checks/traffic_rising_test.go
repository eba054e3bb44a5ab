package checks_test

import (
	"context"

	"nodegate/host"
)

// risingStats is links whose allowance counter is one higher at every read.
type risingStats struct {
	host.Links
	reads uint64
}

func (r *risingStats) Stats(ctx context.Context, link string) (map[string]uint64, error) {
	stats, err := r.Links.Stats(ctx, link)
	if err != nil {
		return nil, err
	}
	answer := map[string]uint64{}
	for name, n := range stats {
		if n > 0 {
			n += r.reads
		}
		answer[name] = n
	}
	r.reads++
	return answer, nil
}

// secondRead is files of which one reads differently from the second time on.
type secondRead struct {
	host.Files
	name, then string
	read       bool
}

func (s *secondRead) ReadFile(name string) ([]byte, error) {
	if name == s.name && s.read {
		return []byte(s.then), nil
	}
	s.read = s.read || name == s.name
	return s.Files.ReadFile(name)
}
