package kubeproxy

import (
	"fmt"
	"strings"
	"testing"
)

func TestExplore(t *testing.T) {
	text := readFile(t, "iptables-save.txt")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	try := func(op string, i int, broken []string) {
		rs, err := Parse(strings.NewReader(strings.Join(broken, "\n") + "\n"))
		if err != nil {
			if !strings.HasPrefix(lines[i], "*") && lines[i] != "COMMIT" && op != "dup" {
				fmt.Println(op, "ERR", err, lines[i])
			}
			return
		}
		rep := Judge(rs, Options{})
		if len(rep.Findings) != 1 && !strings.HasPrefix(lines[i], "#") {
			fmt.Printf("%s %d [%s] %.150s\n", op, len(rep.Findings), names(rep.Findings), lines[i])
		}
	}
	for i := range lines {
		del := append(append([]string{}, lines[:i]...), lines[i+1:]...)
		try("del", i, del)
		if strings.HasPrefix(lines[i], "-A") {
			dup := append(append([]string{}, lines[:i+1]...), lines[i:]...)
			try("dup", i, dup)
			if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "-A") {
				sw := append([]string{}, lines...)
				sw[i], sw[i+1] = sw[i+1], sw[i]
				if strings.Fields(lines[i])[1] == strings.Fields(lines[i+1])[1] {
					try("swap", i, sw)
				}
			}
		}
	}
}

func TestExploreTokens(t *testing.T) {
	text := readFile(t, "iptables-save.txt")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	seen := map[string]int{}
	for i, l := range lines {
		if !strings.HasPrefix(l, "-A ") {
			continue
		}
		if strings.Contains(l, "kube-dns") && i%37 != 0 {
			continue
		}
		toks := strings.Split(l, " ")
		for k := 2; k < len(toks); k++ {
			if len(toks[k]) < 2 {
				continue
			}
			for _, op := range []string{"drop", "alter", "RETURN"} {
				nt := append([]string{}, toks...)
				switch op {
				case "drop":
					if !strings.HasPrefix(nt[k], "-") || k+1 >= len(nt) || strings.Contains(nt[k+1], `"`) {
						continue
					}
					nt = append(nt[:k:k], nt[k+2:]...)
				case "alter":
					if strings.HasPrefix(nt[k], "-") || nt[k] == "!" {
						continue
					}
					b := []byte(nt[k])
					j := len(b) - 1
					for j > 0 && (b[j] == '"' || b[j] == '.') {
						j--
					}
					switch {
					case b[j] >= '0' && b[j] < '9':
						b[j]++
					case b[j] == '9':
						b[j] = '8'
					case b[j] == 'A':
						b[j] = 'B'
					default:
						b[j] = 'A'
					}
					nt[k] = string(b)
				case "RETURN":
					if nt[k-1] != "-j" {
						continue
					}
					nt[k] = "RETURN"
				}
				br := append([]string{}, lines...)
				br[i] = strings.Join(nt, " ")
				rs, err := Parse(strings.NewReader(strings.Join(br, "\n") + "\n"))
				if err != nil {
					continue
				}
				rep := Judge(rs, Options{})
				if len(rep.Findings) != 1 {
					key := op + toks[k] + toks[k-1]
					if strings.ContainsAny(toks[k], "0123456789") {
						key = op + toks[k-1]
					}
					if toks[k-1] == "-m" || toks[k] == "-m" || strings.Contains(toks[k], "\"") {
						continue
					}
					key += toks[1][:min(8, len(toks[1]))]
					if seen[key]++; seen[key] < 3 {
						fmt.Printf("%s %d [%s] tok %q after %q: %.190s\n", op, len(rep.Findings), names(rep.Findings), toks[k], toks[k-1], l)
					}
				}
			}
		}
	}
}
