package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseNeighbourStat reads /proc/net/stat/arp_cache: hexadecimal columns, named in the first line.
// Every CPU has a line, which repeats the number of entries in the table and has its own count of
// how often the table was full. Old kernels lack that count.
func ParseNeighbourStat(text string) (entries, full uint64, err error) {
	lines := strings.Split(text, "\n")
	names := strings.Fields(lines[0])
	entriesAt, fullAt := slices.Index(names, "entries"), slices.Index(names, "table_fulls")
	if entriesAt < 0 || len(lines) < 2 {
		return 0, 0, errors.New("the column entries is missing")
	}
	for _, line := range lines[1:] {
		columns := strings.Fields(line)
		if len(columns) <= max(entriesAt, fullAt) {
			return 0, 0, fmt.Errorf("the line %q is too short", line)
		}
		if entries, err = strconv.ParseUint(columns[entriesAt], 16, 64); err != nil {
			return 0, 0, err
		}
		if fullAt < 0 {
			continue
		}
		n, err := strconv.ParseUint(columns[fullAt], 16, 64)
		if err != nil {
			return 0, 0, err
		}
		full += n
	}
	return entries, full, nil
}
