package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"

	"nodegate/internal/signature"
)

// sums writes the sums of everything made so far, as sha256sum does.
func (r release) sums() error {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(r.dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", sha256Of(content), f.Name())
	}
	fmt.Print(list.String())
	return put(filepath.Join(r.dir, signature.ListName), []byte(list.String()), 0o644)
}

// sign signs the list, so that minisign(1) and `nodegate verify` prove it.
func (r release) sign() error {
	file := os.Getenv("NODEGATE_SIGNING_KEY")
	if file == "" {
		fmt.Println("not signed: NODEGATE_SIGNING_KEY names no secret key of minisign")
		return nil
	}
	key, err := secretKey(file, os.Getenv("NODEGATE_SIGNING_PASSWORD"))
	if err != nil {
		return fmt.Errorf("reading the secret key %s: %w", file, err)
	}
	list, err := os.Open(filepath.Join(r.dir, signature.ListName))
	if err != nil {
		return err
	}
	defer list.Close()
	hashed := minisign.NewReader(list)
	if _, err := io.Copy(io.Discard, hashed); err != nil {
		return err
	}
	comment := fmt.Sprintf("nodegate %s timestamp:%d", r.version, r.time.Unix())
	return put(filepath.Join(r.dir, signature.SignatureName), hashed.SignWithComments(key, comment,
		"minisign signature of nodegate's "+signature.ListName), 0o644)
}

func secretKey(file, password string) (minisign.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return minisign.PrivateKey{}, err
	}
	if minisign.IsEncrypted(text) {
		return minisign.DecryptKey(password, text)
	}
	var key minisign.PrivateKey
	return key, key.UnmarshalText(text)
}
