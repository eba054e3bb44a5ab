package cluster

import (
	"context"
	"fmt"
	"net/http"
)

// Service is a Service with one port and without a selector, and its only EndpointSlice. No controller writes either of them.
type Service struct {
	Name      string // in the namespace default
	Protocol  string // TCP or UDP
	ClusterIP string
	Ready     []string // addresses of ready endpoints
	NotReady  []string
	Node      string // node of all endpoints; "": unspecified

	plane *ControlPlane
	given int // number of addresses assigned so far
}

const servicePort, endpointPort = 80, 8080

// AddService creates a Service with an empty EndpointSlice.
func (c *ControlPlane) AddService(ctx context.Context, name, protocol string) (*Service, error) {
	var made struct{ Spec struct{ ClusterIP string } }
	wanted := object{
		"metadata": object{"name": name},
		"spec":     object{"ports": []object{{"port": servicePort, "targetPort": endpointPort, "protocol": protocol}}},
	}
	if err := c.API.Do(ctx, http.MethodPost, "/api/v1/namespaces/default/services", wanted, &made); err != nil {
		return nil, err
	}
	s := &Service{Name: name, Protocol: protocol, ClusterIP: made.Spec.ClusterIP, plane: c}
	return s, c.Create(ctx, slicesPath, s.sliceObject())
}

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

// Update writes Ready and NotReady to the API.
func (s *Service) Update(ctx context.Context) error {
	return s.plane.API.Do(ctx, http.MethodPut, slicesPath+"/"+s.Name+"-1", s.sliceObject(), nil)
}

// Patch changes the Service's spec and its load balancer's addresses; nil leaves either unchanged.
func (s *Service) Patch(ctx context.Context, spec object, ingress []object) error {
	const path = "/api/v1/namespaces/default/services/"
	if spec != nil {
		if err := s.plane.API.Do(ctx, http.MethodPatch, path+s.Name, object{"spec": spec}, nil); err != nil {
			return err
		}
	}
	if ingress == nil {
		return nil
	}
	status := object{"status": object{"loadBalancer": object{"ingress": ingress}}}
	return s.plane.API.Do(ctx, http.MethodPatch, path+s.Name+"/status", status, nil)
}

// replaceEndpoints gives the Service four new endpoints.
func (s *Service) replaceEndpoints() {
	s.Ready = nil
	for range 4 {
		s.given++
		s.Ready = append(s.Ready, fmt.Sprintf("10.245.%d.%d", s.given/250, s.given%250+1))
	}
}

func (s *Service) sliceObject() object {
	endpoints := []object{}
	for ready, addresses := range map[bool][]string{true: s.Ready, false: s.NotReady} {
		for _, a := range addresses {
			one := object{"addresses": []string{a}, "conditions": object{"ready": ready, "serving": ready, "terminating": false}}
			if s.Node != "" {
				one["nodeName"] = s.Node
			}
			endpoints = append(endpoints, one)
		}
	}
	return object{
		"metadata": object{"name": s.Name + "-1", "labels": object{
			"kubernetes.io/service-name": s.Name, "endpointslice.kubernetes.io/managed-by": "cluster-test",
		}},
		"addressType": "IPv4", "endpoints": endpoints,
		"ports": []object{{"port": endpointPort, "protocol": s.Protocol}},
	}
}

// podAddress returns the nth address of the Pod network.
func podAddress(n int) string { return fmt.Sprintf("10.244.%d.%d", n/250, n%250+1) }
