package host

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
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

// addNetwork adds the network that CRI-O takes: the one with this name, or the first whose plugins exist. If there is none, it adds the
// first, which CRI-O does not use.
func (s *RuntimeSetup) addNetwork(dir, name string) {
	files, _ := os.ReadDir(dir)
	for _, file := range files {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(file.Name())) {
			continue
		}
		text, err := os.ReadFile(path.Join(dir, file.Name()))
		if os.IsNotExist(err) {
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
		if err := json.Unmarshal(text, &list); err != nil {
			s.Ignored = append(s.Ignored, path.Join(dir, file.Name())+": "+err.Error())
			continue
		}
		network, isUsed := RuntimeNetwork{Name: list.Name}, name == "" || list.Name == name
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
