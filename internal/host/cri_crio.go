package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host/file"
)

// addCRIO adds what CRI-O does not report over CRI: the directories of its running configuration, which it serves on the same socket,
// and the network that it takes from them.
func (s *RuntimeSetup) addCRIO(ctx context.Context, socket string) {
	ctx, cancel := context.WithTimeout(ctx, criTime)
	defer cancel()
	transport := unixTransport(socket)
	defer transport.CloseIdleConnections()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/config", nil)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, criAnswer))
	values := func(key string) (all []string) {
		line := regexp.MustCompile(`(?m)^\s*` + key + ` = (.*)`).Find(text)
		for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(line, -1) {
			all = append(all, string(m[1]))
		}
		return all
	}
	s.PluginDirs = values("plugin_dirs")
	s.addNetwork(strings.Join(values("network_dir"), ""), strings.Join(values("cni_default_network"), ""))
}

// addNetwork adds the network that CRI-O takes: the one with this name, or the first whose plugins exist. Without such a network it adds
// the first one, so that its plugins can be named.
func (s *RuntimeSetup) addNetwork(dir, wanted string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(name)) {
			continue
		}
		text, err := file.ReadInput(name, criAnswer)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		type plugin struct {
			Type string
			IPAM struct{ Type string }
		}
		var list struct {
			plugin
			Name    string
			Plugins []plugin
		}
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err != nil {
			s.Ignored = append(s.Ignored, name+": "+err.Error())
			continue
		}
		network, isUsed := RuntimeNetwork{Name: list.Name}, wanted == "" || list.Name == wanted
		for _, p := range append(list.Plugins, list.plugin) {
			isUsed = isUsed && slices.ContainsFunc(s.PluginDirs, func(dir string) bool {
				_, err := os.Stat(path.Join(dir, p.Type))
				return err == nil
			})
			network.Plugins = append(network.Plugins, p.Type, p.IPAM.Type)
		}
		network.Plugins = slices.DeleteFunc(network.Plugins, func(plugin string) bool { return plugin == "" })
		if s.Networks == nil || isUsed {
			s.Networks = []RuntimeNetwork{network}
		}
		if isUsed {
			return
		}
	}
}
