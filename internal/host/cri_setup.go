package host

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
)

// RuntimeSetup is a container runtime's report about itself, from CRI's Status. A runtime reports only a part of it: the rest is empty.
type RuntimeSetup struct {
	NetworkReady bool                      `json:"networkReady,omitempty"`
	Network      string                    `json:"network,omitempty"`      // why the network is not ready
	SandboxImage string                    `json:"sandboxImage,omitempty"` // the image of a Pod's first container
	PluginDirs   []string                  `json:"pluginDirs,omitempty"`   // directories of CNI plugins
	Networks     []RuntimeNetwork          `json:"networks,omitempty"`
	Ignored      []string                  `json:"ignored,omitempty"` // files of networks that are not valid, each with the reason
	Default      string                    `json:"default,omitempty"` // the handler of a Pod without a RuntimeClass
	Handlers     map[string]RuntimeHandler `json:"handlers,omitempty"`
}

// Plugins returns the CNI plugins of all networks.
func (s RuntimeSetup) Plugins() (all []string) {
	for _, n := range s.Networks {
		all = append(all, n.Plugins...)
	}
	return all
}

// RuntimeNetwork is a CNI configuration that the runtime uses, with the types of its plugins and of their IPAM.
type RuntimeNetwork struct {
	Name    string   `json:"name"`
	Plugins []string `json:"plugins"`
}

// RuntimeHandler is a program that the runtime starts containers with, by default runc.
type RuntimeHandler struct {
	BinaryName    string `json:"binaryName,omitempty"`
	Monitor       string `json:"monitor,omitempty"` // CRI-O's conmon
	SystemdCgroup bool   `json:"systemdCgroup,omitempty"`
}

// RuntimeSetup calls Status. In its response, field 1 is the status, whose field 1 repeats the conditions (type, status, reason, message),
// and field 2 is a map of JSON: "config" is containerd's CRI configuration or a part of CRI-O's; "cniconfig" is containerd's network;
// "lastCNILoadStatus" is plain text, OK or an error.
func (machineRuntimes) RuntimeSetup(ctx context.Context, socket string) (s RuntimeSetup, err error) {
	message, err := criCall(ctx, socket, "runtime.v1.RuntimeService/Status", []byte{8, 1})
	if err != nil {
		return s, err
	}
	for part, err := range protoEach(message) {
		if err == nil && part.field == 1 {
			err = s.addConditions(part.value)
		} else if err == nil && part.field == 2 {
			err = s.addInfo(part.value)
		}
		if err != nil {
			return s, err
		}
	}
	if s.PluginDirs == nil && s.SandboxImage != "" { // not containerd
		s.addCRIO(ctx, socket)
	}
	return s, nil
}

func (s *RuntimeSetup) addConditions(status []byte) error {
	for part, err := range protoEach(status) {
		if err != nil {
			return err
		}
		condition, err := protoFields(part.value)
		if err != nil {
			return err
		}
		if part.field == 1 && string(condition[1]) == "NetworkReady" {
			s.NetworkReady = len(condition[2]) > 0
			s.Network = string(condition[4])
		}
	}
	return nil
}

// addInfo reads an entry of the map. Its JSON is not part of CRI: missing fields stay empty.
func (s *RuntimeSetup) addInfo(entry []byte) error {
	info, err := protoFields(entry)
	if err != nil {
		return err
	}
	switch string(info[1]) {
	case "config":
		var config struct {
			SandboxImage string
			CNI          struct {
				BinDir  string
				BinDirs []string
			}
			Containerd struct {
				DefaultRuntimeName string
				Runtimes           map[string]struct{ Options RuntimeHandler }
			}
			CRIO struct { // since 1.29
				DefaultRuntime, CgroupManagerName string
				Runtimes                          map[string]struct{ RuntimePath, MonitorPath string }
			}
		}
		if json.Unmarshal(info[2], &config) != nil {
			return nil
		}
		s.SandboxImage, s.Default = config.SandboxImage, cmp.Or(config.Containerd.DefaultRuntimeName, config.CRIO.DefaultRuntime)
		if s.PluginDirs == nil {
			s.PluginDirs = config.CNI.BinDirs
		}
		s.Handlers = map[string]RuntimeHandler{}
		for name, runtime := range config.Containerd.Runtimes {
			s.Handlers[name] = runtime.Options
		}
		for name, runtime := range config.CRIO.Runtimes {
			s.Handlers[name] = RuntimeHandler{runtime.RuntimePath, runtime.MonitorPath, config.CRIO.CgroupManagerName == "systemd"}
		}
	case "lastCNILoadStatus":
		if err := string(info[2]); err != "OK" && !strings.Contains(err, "no network config found") {
			s.Ignored = append(s.Ignored, err)
		}
	case "cniconfig":
		var loaded struct {
			PluginDirs []string
			Networks   []struct {
				Config struct {
					Name    string
					Plugins []struct {
						Network struct {
							Type string
							IPAM struct{ Type string }
						}
					}
				}
			}
		}
		if json.Unmarshal(info[2], &loaded) != nil {
			return nil
		}
		s.PluginDirs = loaded.PluginDirs
		for _, n := range loaded.Networks {
			network := RuntimeNetwork{Name: n.Config.Name}
			for _, plugin := range n.Config.Plugins {
				network.Plugins = append(network.Plugins, plugin.Network.Type)
				if ipam := plugin.Network.IPAM.Type; ipam != "" {
					network.Plugins = append(network.Plugins, ipam)
				}
			}
			s.Networks = append(s.Networks, network)
		}
	}
	return nil
}
