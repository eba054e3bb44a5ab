package report

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"nodegate/internal/audit"
	"nodegate/internal/verdict"
)

// manyServices bounds the list of Services that AuditSummary prints by default.
const manyServices = 40

// AuditSummary writes every finding with its evidence and remedy, and then a line for each Service: name, address, other
// addresses, endpoints and verdict. If there are more than manyServices Services, it lists only those with a finding, unless all
// is set.
func AuditSummary(w io.Writer, rep *audit.Judgment, all bool) error {
	if rep.Mode != "" {
		if _, err := fmt.Fprintf(w, "kube-proxy in %s mode, rules of version %s, %s\n", rep.Mode, rep.Version,
			Count(len(rep.Services), "Service port")); err != nil {
			return err
		}
	}
	for _, note := range rep.Notes {
		if _, err := fmt.Fprintf(w, "note: %s\n", printable(note)); err != nil {
			return err
		}
	}
	for i := range rep.Findings {
		if err := writeFinding(w, &rep.Findings[i]); err != nil {
			return err
		}
	}
	return writeServices(w, rep, all || len(rep.Services) <= manyServices)
}

func writeServices(w io.Writer, rep *audit.Judgment, all bool) error {
	services, alone := rep.Services, ""
	for _, f := range rep.Findings {
		if f.Name == "kubeproxy.jump.missing" {
			alone = ", but see " + f.Name
		}
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	shown := 0
	for i := range services {
		s := service{&services[i]}
		if !all && len(s.Findings) == 0 {
			continue
		}
		if shown == 0 {
			fmt.Fprintln(tw, "\nSERVICE\tADDRESS\tALSO\tENDPOINTS\tVERDICT")
		}
		shown++
		said := s.verdict()
		if s.Verdict == verdict.Pass {
			said += alone
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", printable(s.Name), printable(s.address()), printable(s.also()), s.endpointCount(), said)
	}
	if err := tw.Flush(); err != nil || shown == len(services) {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d Service ports without a finding are not listed; -v lists them\n", len(services)-shown)
	return err
}

func writeFinding(w io.Writer, f *audit.Finding) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s", f.Verdict, f.Name)
	if f.Service != "" {
		fmt.Fprintf(&b, " (%s)", f.Service)
	}
	message, seen := f.Message, ""
	if f.Means != "" {
		message, seen = f.Means, f.Message
	}
	fmt.Fprintf(&b, "\n  %s\n", message)
	var where []string
	for _, part := range []string{f.Family, f.Table, f.Chain} {
		if part != "" {
			where = append(where, part)
		}
	}
	if f.Line > 0 {
		where = append(where, "line "+strconv.Itoa(f.Line))
	}
	if f.Handle > 0 {
		where = append(where, "handle "+strconv.Itoa(f.Handle))
	}
	for _, part := range []struct{ label, text string }{
		{"seen", seen}, {"where", strings.Join(where, " ")}, {"rule", f.Rule}, {"remedy", f.Remedy}, {"ref", f.Ref},
	} {
		if part.text != "" {
			fmt.Fprintf(&b, "  %-7s %s\n", part.label+":", part.text)
		}
	}
	_, err := io.WriteString(w, printableLines(b.String()))
	return err
}

// printable replaces control characters, so that text from rules cannot control a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// printableLines applies printable to each line of s.
func printableLines(s string) string {
	parts := strings.Split(s, "\n")
	for i := range parts {
		parts[i] = printable(parts[i])
	}
	return strings.Join(parts, "\n")
}

func (s service) address() string {
	if s.ClusterIP == "" {
		return "-"
	}
	return net.JoinHostPort(s.ClusterIP, strconv.Itoa(s.Port)) + "/" + s.Protocol
}

// external lists a Service's addresses other than its ClusterIP.
func (s service) external() (list []string) {
	if s.NodePort != 0 {
		list = append(list, "node port "+strconv.Itoa(s.NodePort))
	}
	for _, ip := range s.ExternalIPs {
		list = append(list, "external "+ip)
	}
	for _, ip := range s.LoadBalancerIPs {
		list = append(list, "load balancer "+ip)
	}
	return list
}

// also lists the same, and a Service's policies if they are not the defaults.
func (s service) also() string {
	list := s.external()
	if s.InternalLocal {
		list = append(list, "internal Local")
	}
	if s.ExternalLocal {
		list = append(list, "external Local")
	}
	if s.AffinitySeconds > 0 {
		list = append(list, "affinity "+strconv.Itoa(s.AffinitySeconds)+" s")
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

func (s service) endpointCount() string {
	switch {
	case s.Blocked != "":
		return "none, " + s.Blocked
	case s.InternalLocal && len(s.Endpoints) == 0:
		return fmt.Sprintf("%d local", len(s.LocalEndpoints))
	case s.InternalLocal || s.ExternalLocal:
		return fmt.Sprintf("%d, %d local", len(s.Endpoints), len(s.LocalEndpoints))
	}
	return strconv.Itoa(len(s.Endpoints))
}

func (s service) verdict() string {
	if len(s.Findings) == 0 {
		return s.Verdict.String()
	}
	return s.Verdict.String() + ": " + s.Findings[0]
}

// service prints a Service of the rules.
type service struct{ *audit.Service }
