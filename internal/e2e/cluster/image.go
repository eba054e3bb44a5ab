package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
)

// podImage and pauseImage are the names of the two images. Both contain one program, FROM scratch.
const podImage, pauseImage = "localhost/pod:test", "localhost/pause:test"

// writeImages writes an OCI archive with both images.
func writeImages(program, file string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := addToArchive(w, "pod", binary, 0o755); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	blobs := map[string][]byte{}
	keep := func(kind string, content []byte) object {
		sum := sha256.Sum256(content)
		name := hex.EncodeToString(sum[:])
		blobs["blobs/sha256/"+name] = content
		return object{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + name, "size": len(content)}
	}
	keepJSON := func(kind string, content object) (object, error) {
		text, err := json.Marshal(content)
		return keep(kind, text), err
	}
	rootfs := keep("layer.v1.tar", layer.Bytes())
	var manifests []object
	for name, command := range map[string][]string{podImage: {"/pod"}, pauseImage: {"/pod", "pause"}} {
		config, err := keepJSON("config.v1+json", object{
			"architecture": "amd64", "os": "linux", "config": object{"Entrypoint": command},
			"rootfs": object{"type": "layers", "diff_ids": []any{rootfs["digest"]}},
		})
		if err != nil {
			return err
		}
		manifest, err := keepJSON("manifest.v1+json", object{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []object{rootfs},
		})
		if err != nil {
			return err
		}
		manifest["annotations"] = object{"io.containerd.image.name": name}
		manifests = append(manifests, manifest)
	}
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": manifests})
	if err != nil {
		return err
	}
	blobs["index.json"], blobs["oci-layout"] = index, []byte(`{"imageLayoutVersion":"1.0.0"}`)
	return writeArchive(file, blobs)
}

func writeArchive(file string, content map[string][]byte) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for name, text := range content {
		if err := addToArchive(w, name, text, 0o644); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

func addToArchive(w *tar.Writer, name string, content []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
