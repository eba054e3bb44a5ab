package export_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"testing"

	"nodegate/images/export"
	"nodegate/internal/require"
)

// TestMIME: the user data is one part, which is the cloud-config unchanged, and a reader of MIME finds it.
func TestMIME(t *testing.T) {
	const config = "#cloud-config\nruncmd: [[systemctl, daemon-reload]] # ü\n"
	text, err := export.MIME([]byte(config))
	require.NoError(t, err)
	m, err := mail.ReadMessage(bytes.NewReader(text))
	require.NoError(t, err)
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	require.True(t, err == nil && kind == "multipart/mixed" && m.Header.Get("MIME-Version") == "1.0", "%q, %v, %v", kind, m.Header, err)
	parts := multipart.NewReader(m.Body, params["boundary"])
	part, err := parts.NextPart()
	require.NoError(t, err)
	got, err := io.ReadAll(part)
	if err != nil || string(got) != config || part.Header.Get("Content-Type") != `text/cloud-config; charset="utf-8"` {
		t.Errorf("%q, %v, %v", got, part.Header, err)
	}
	if _, err := parts.NextPart(); err != io.EOF {
		t.Errorf("a second part: %v", err)
	}
	if bytes.Contains(text, []byte("\r")) {
		t.Error("it has carriage returns, which cloud-init keeps in the files that it writes")
	}
}
