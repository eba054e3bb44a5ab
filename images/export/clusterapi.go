package export

import "strings"

type kubeadmConfig struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Files              []cloudFile
		PreKubeadmCommands []string `yaml:"preKubeadmCommands"`
	}
}

// clusterAPI is a bootstrap configuration that brings nodegate. kubeadm starts
// kubelet after the commands have run: nothing need be held before.
func clusterAPI(in Input) (Result, error) {
	n, err := in.node("kubeadm")
	if err != nil {
		return Result{}, err
	}
	k := kubeadmConfig{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta1", Kind: "KubeadmConfig"}
	k.Metadata.Name = "nodegate"
	k.Spec.Files = n.cloudFiles("root:root")
	names := strings.Join(n.names(), " ")
	k.Spec.PreKubeadmCommands = []string{"systemctl daemon-reload", "systemctl enable " + names, "systemctl start --no-block " + names}
	lacks := kubeletOnly(in)
	text, err := encodeYAML(k)
	comment := head("kubeadm", in, lacks,
		"For Cluster API: merge files and preKubeadmCommands into your KubeadmConfigTemplate (spec.template.spec)",
		"and KubeadmControlPlane (spec.kubeadmConfigSpec).")
	return Result{Text: append([]byte(comment), text...), Lacks: lacks}, err
}
