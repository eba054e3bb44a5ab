// Command pod converts the init container of an exported DaemonSet into a script that runs it as a unit, with the same mounts and
// privileges. The machine tests, which have no Kubernetes, use it:
//
//	pod BASE ROOTFS CONFIGMAP
//
// BASE is the exported directory. ROOTFS is the directory in the machine with the image's files, CONFIGMAP the one with the files of the
// generated ConfigMap.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

type container struct {
	Command         []string
	SecurityContext struct {
		RunAsUser                *int  `yaml:"runAsUser"`
		Privileged               *bool `yaml:"privileged"`
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Add, Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type daemonSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				HostPID        bool        `yaml:"hostPID"`
				HostNetwork    bool        `yaml:"hostNetwork"`
				InitContainers []container `yaml:"initContainers"`
				Volumes        []struct {
					Name      string
					HostPath  struct{ Path, Type string } `yaml:"hostPath"`
					ConfigMap struct{ Name string }       `yaml:"configMap"`
					EmptyDir  *struct{}                   `yaml:"emptyDir"`
				}
			}
		}
	}
}

const emptyDir = "an empty directory"

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pod BASE ROOTFS CONFIGMAP")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func run(base, rootfs, configMap string) error {
	text, err := os.ReadFile(filepath.Join(base, "daemonset.yaml"))
	if err != nil {
		return err
	}
	var d daemonSet
	if err := yaml.Unmarshal(text, &d); err != nil {
		return err
	}
	pod := d.Spec.Template.Spec
	if len(pod.InitContainers) != 1 || pod.HostPID || pod.HostNetwork {
		return fmt.Errorf("this stand-in does not support the Pod: %+v", pod)
	}
	c := pod.InitContainers[0]
	s := c.SecurityContext
	if s.Privileged == nil || *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
		!s.ReadOnlyRootFilesystem ||
		s.RunAsUser == nil || *s.RunAsUser != 0 || len(s.Capabilities.Add) > 0 || strings.Join(s.Capabilities.Drop, "") != "ALL" {
		return fmt.Errorf("this stand-in does not support the security context: %+v", s)
	}
	sources := map[string]string{}
	for _, v := range pod.Volumes {
		source := v.HostPath.Path
		if v.ConfigMap.Name != "" {
			source = configMap
		}
		if v.EmptyDir != nil {
			source = emptyDir
		}
		if v.HostPath.Type == "DirectoryOrCreate" {
			fmt.Println("mkdir -p " + source)
		}
		sources[v.Name] = source
	}
	unit := []string{"[Service]", "Type=oneshot", "RootDirectory=" + rootfs, "MountAPIVFS=yes", "CapabilityBoundingSet=",
		"NoNewPrivileges=yes",
		"PrivateNetwork=yes", "ReadOnlyPaths=/", "ExecStart=" + strings.Join(c.Command, " ")}
	for _, m := range c.VolumeMounts {
		switch source := sources[m.Name]; {
		case source == "":
			return fmt.Errorf("volume %s is missing", m.Name)
		case source == emptyDir:
			unit = append(unit, "TemporaryFileSystem="+m.MountPath+":mode=0755")
		case m.ReadOnly:
			unit = append(unit, "BindReadOnlyPaths="+source+":"+m.MountPath)
		default:
			unit = append(unit, "BindPaths="+source+":"+m.MountPath, "ReadWritePaths="+m.MountPath)
		}
	}
	fmt.Printf("mkdir -p /run/systemd/system\ncat >/run/systemd/system/pod.service <<'E'\n%s\nE\nsystemctl daemon-reload\n"+
		"systemctl restart pod.service\n", strings.Join(unit, "\n"))
	return nil
}
