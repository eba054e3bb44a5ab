package export

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/textproto"
)

// mimeBoundary separates the parts. It is fixed, so that equal policies have equal user data.
const mimeBoundary = "nodegate-user-data"

// MIME returns a cloud-config as multipart user data, beside whose part other tools put their own: EKS' nodeadm and Karpenter. The part
// has no transfer encoding, because Karpenter copies only the Content-Type of a part
// (aws/karpenter-provider-aws, pkg/providers/amifamily/bootstrap/mime/mime.go).
func MIME(cloudConfig []byte) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"%s\"\n\n", mimeBoundary)
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(mimeBoundary); err != nil {
		return nil, err
	}
	part, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {`text/cloud-config; charset="utf-8"`}})
	if err != nil {
		return nil, err
	}
	if _, err := part.Write(cloudConfig); err != nil {
		return nil, err
	}
	err = w.Close()
	return bytes.ReplaceAll(b.Bytes(), []byte("\r\n"), []byte("\n")), err
}
