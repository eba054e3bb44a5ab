package kubeproxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// large returns the recording of 5,000 Services with 50,000 endpoints: 215,802 lines, 16.5 MB.
func large(tb testing.TB) []byte {
	tb.Helper()
	f, err := os.Open("testdata/iptables-save-5000x10.txt.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	text, err := io.ReadAll(zr)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func BenchmarkAuditLarge(b *testing.B) { benchmarkAudit(b, large(b)) }

func benchmarkAudit(b *testing.B, text []byte) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		rs, err := ParseIptablesSave(bytes.NewReader(text))
		if err != nil {
			b.Fatal(err)
		}
		if rep := Judge(rs, Options{}); len(rep.Findings) > 0 {
			b.Fatal(rep.Findings[0])
		}
	}
}
