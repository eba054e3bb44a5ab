package cluster

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// object is a JSON object for the API.
type object = map[string]any

// makeToken creates the bootstrap token, and allows its holders to request a certificate, which is approved automatically.
func (c *ControlPlane) makeToken(ctx context.Context) error {
	id, secret, _ := strings.Cut(bootstrapToken, ".")
	token := object{
		"metadata": object{"name": "bootstrap-token-" + id}, "type": "bootstrap.kubernetes.io/token",
		"stringData": object{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"},
	}
	wrong := []error{c.Create(ctx, "/api/v1/namespaces/kube-system/secrets", token)}
	for name, binding := range map[string][2]string{
		"join":    {"system:node-bootstrapper", "system:bootstrappers"},
		"approve": {"system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers"},
		"renew":   {"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	} {
		wrong = append(wrong, c.Create(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", object{
			"metadata": object{"name": "test-" + name},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": binding[0]},
			"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": binding[1]}},
		}))
	}
	return errors.Join(wrong...)
}

// Create creates an object.
func (c *ControlPlane) Create(ctx context.Context, path string, o object) error {
	return c.API.Do(ctx, http.MethodPost, path, o, nil)
}
