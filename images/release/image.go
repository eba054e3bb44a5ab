package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// These are the types of the OCI image format: https://github.com/opencontainers/image-spec.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type object map[string]any

// layout is an OCI image layout under construction: blobs named by their checksums.
type layout struct{ blobs map[string][]byte }

// image writes one archive with an image for each architecture. An image contains only the binary, as /nodegate. It runs as root,
// because it has to inspect the machine on which it runs.
func (r release) image() error {
	l := layout{blobs: map[string][]byte{}}
	var manifests []object
	for _, arch := range architectures() {
		m, err := r.manifest(l, arch)
		if err != nil {
			return err
		}
		manifests = append(manifests, m)
	}
	both, err := l.json(typeIndex, object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": manifests, "annotations": r.labels()})
	if err != nil {
		return err
	}
	tag := regexp.MustCompile(`[^\w.-]`).ReplaceAllString(strings.TrimPrefix(r.version, "v"), "-")
	both["annotations"] = object{"org.opencontainers.image.ref.name": "nodegate:" + tag}
	index, err := json.Marshal(object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []object{both}})
	if err != nil {
		return err
	}
	l.blobs["index.json"] = index
	l.blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	var names []string
	for name := range l.blobs {
		names = append(names, name)
	}
	archive, err := r.tar(names, func(name string) ([]byte, fs.FileMode) { return l.blobs[name], 0o644 })
	if err != nil {
		return err
	}
	return put(filepath.Join(r.dir, "nodegate-image.oci.tar"), archive, 0o644)
}

func (r release) manifest(l layout, arch string) (object, error) {
	binary, err := os.ReadFile(r.binary(arch))
	if err != nil {
		return nil, err
	}
	files, err := r.tar([]string{"nodegate"}, func(string) ([]byte, fs.FileMode) { return binary, 0o755 })
	if err != nil {
		return nil, err
	}
	packed, err := pack(files)
	if err != nil {
		return nil, err
	}
	created := r.time.Format("2006-01-02T15:04:05Z")
	config, err := l.json(typeConfig, object{
		"architecture": arch, "os": "linux", "created": created,
		"config":  object{"Entrypoint": []string{"/nodegate"}, "Labels": r.labels()},
		"rootfs":  object{"type": "layers", "diff_ids": []string{"sha256:" + sha256Of(files)}},
		"history": []object{{"created": created, "created_by": "make dist"}},
	})
	if err != nil {
		return nil, err
	}
	m, err := l.json(typeManifest, object{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config,
		"layers":      []object{l.add(typeLayer, packed)},
		"annotations": r.labels(),
	})
	if err != nil {
		return nil, err
	}
	m["platform"] = object{"os": "linux", "architecture": arch}
	return m, nil
}

// labels describe the image. Tools read them from one of two places.
func (r release) labels() object {
	all := object{
		"org.opencontainers.image.title": "nodegate", "org.opencontainers.image.version": r.version,
		"org.opencontainers.image.created":     r.time.Format("2006-01-02T15:04:05Z"),
		"org.opencontainers.image.description": "Makes a machine fit to be a Kubernetes node, and proves it",
		"org.opencontainers.image.vendor":      "The nodegate authors",
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
	if r.commit != "" {
		all["org.opencontainers.image.revision"] = r.commit
	}
	return all
}

// add stores a blob and returns its descriptor.
func (l layout) add(mediaType string, content []byte) object {
	sum := sha256Of(content)
	l.blobs["blobs/sha256/"+sum] = content
	return object{"mediaType": mediaType, "digest": "sha256:" + sum, "size": len(content)}
}

func (l layout) json(mediaType string, v object) (object, error) {
	text, err := json.Marshal(v) // keys of a map are sorted
	return l.add(mediaType, text), err
}

// tar packs files in the order of their names, owned by root, with the time of the release.
func (r release) tar(names []string, file func(name string) ([]byte, fs.FileMode)) ([]byte, error) {
	slices.Sort(names)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		content, mode := file(name)
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: r.time,
			Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
