package host

import (
	"context"
	"errors"
	"io"
)

// errTree answers what only a running machine can.
var errTree = errors.New("a file tree has no running kernel; ask at --stage image, or without --root")

type noKernel struct{}

func (noKernel) Release() (string, error)                 { return "", errTree }
func (noKernel) LoadModule(context.Context, string) error { return errTree }

func (noKernel) Version(context.Context, string) (string, error) { return "", errTree }

type noLinks struct{}

func (noLinks) List(context.Context) ([]Link, error)                         { return nil, errTree }
func (noLinks) Driver(context.Context, string) (string, error)               { return "", errTree }
func (noLinks) DefaultRoutes(context.Context) ([]string, error)              { return nil, errTree }
func (noLinks) RoutingRules(context.Context) ([]RoutingRule, error)          { return nil, errTree }
func (noLinks) Features(context.Context, string) (map[string]Feature, error) { return nil, errTree }
func (noLinks) SetFeatures(context.Context, string, map[string]bool) error   { return errTree }
func (noLinks) SetMTU(context.Context, string, int) error                    { return errTree }
func (noLinks) Stats(context.Context, string) (map[string]uint64, error)     { return nil, errTree }

type noUnits struct{}

func (noUnits) State(context.Context, string) (active, file string, err error) {
	return "", "", errTree
}

type noRules struct{}

func (noRules) Dumps(context.Context, func(string, io.Reader) error) error { return errTree }

func (noRules) Accepts(context.Context, string, ...string) (refused string, err error) {
	return "", errTree
}
