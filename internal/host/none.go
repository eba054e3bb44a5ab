package host

import (
	"context"
	"errors"
	"io"
	"net/netip"

	"nodegate/internal/ruleset"
)

// errTree is the error of every query that only a running machine can answer.
var errTree = errors.New("a file tree has no running kernel; use --stage image, or omit --root")

type noKernel struct{}

func (noKernel) Release() (string, error)                            { return "", errTree }
func (noKernel) Synchronised() (bool, error)                         { return false, errTree }
func (noKernel) LoadModule(context.Context, string, ...string) error { return errTree }

func (noKernel) Version(context.Context, string, ...string) (string, error) { return "", errTree }

func (noKernel) Complaint(context.Context, string, ...string) (string, error) { return "", errTree }

type noLinks struct{}

func (noLinks) List(context.Context) ([]Link, error)                         { return nil, errTree }
func (noLinks) Get(context.Context, string) (Link, error)                    { return Link{}, errTree }
func (noLinks) Watch(context.Context, func(), chan<- LinkEvent) error        { return errTree }
func (noLinks) Driver(context.Context, string) (string, error)               { return "", errTree }
func (noLinks) PodMTUs(context.Context) (map[string]int, error)              { return nil, errTree }
func (noLinks) DefaultRoutes(context.Context) ([]string, error)              { return nil, errTree }
func (noLinks) Addresses(context.Context) ([]netip.Addr, error)              { return nil, errTree }
func (noLinks) Routes(context.Context) ([]Route, error)                      { return nil, errTree }
func (noLinks) Lookup(RouteQuery) (RouteAnswer, error)                       { return RouteAnswer{}, errTree }
func (noLinks) Encrypts() (bool, error)                                      { return false, errTree }
func (noLinks) RoutingRules(context.Context) ([]RoutingRule, error)          { return nil, errTree }
func (noLinks) Hops(context.Context) ([]Hop, error)                          { return nil, errTree }
func (noLinks) Foreign(context.Context) ([]Foreign, error)                   { return nil, errTree }
func (noLinks) Features(context.Context, string) (map[string]Feature, error) { return nil, errTree }
func (noLinks) Tuning(context.Context, string, string) (map[string]Amount, error) {
	return nil, errTree
}
func (noLinks) Set(context.Context, string, string, map[string]string) error { return errTree }
func (noLinks) Stats(context.Context, string) (map[string]uint64, error)     { return nil, errTree }

type noRules struct{}

func (noRules) Dumps(context.Context, func(string, io.Reader) error) error { return errTree }

func (noRules) ForeignTables(context.Context) ([]*ruleset.NFTTable, error) { return nil, errTree }

func (noRules) Others(context.Context) (Others, error) { return Others{}, errTree }

func (noRules) Accepts(context.Context, string, ...string) (rejected string, err error) {
	return "", errTree
}

func (noRules) Takes(context.Context, string, string, []string) ([]string, error) {
	return nil, errTree
}
