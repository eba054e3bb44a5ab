package policy

import "github.com/hashicorp/hcl/v2"

// The blocks of a policy file, as gohcl decodes them. Attributes are kept as
// expressions, so that every message about a value points at the value.

type fileSchema struct {
	Uses    []useBlock    `hcl:"use,block"`
	Modules []moduleBlock `hcl:"module,block"`
	Sysctls []sysctlBlock `hcl:"sysctl,block"`
	Links   []linkBlock   `hcl:"link,block"`
	Gates   []gateBlock   `hcl:"gate,block"`
}

type useBlock struct {
	Name  string    `hcl:"name,label"`
	Range hcl.Range `hcl:"name,label_range"`
}

type moduleBlock struct {
	Name     string         `hcl:"name,label"`
	Range    hcl.Range      `hcl:"name,label_range"`
	Severity hcl.Expression `hcl:"severity,optional"`
	Reason   hcl.Expression `hcl:"reason,optional"`
	Ref      hcl.Expression `hcl:"ref,optional"`
}

type sysctlBlock struct {
	Body     hcl.Body       `hcl:",body"`
	Key      string         `hcl:"key,label"`
	Range    hcl.Range      `hcl:"key,label_range"`
	Value    hcl.Expression `hcl:"value,optional"`
	Min      hcl.Expression `hcl:"min,optional"`
	Max      hcl.Expression `hcl:"max,optional"`
	OneOf    hcl.Expression `hcl:"one_of,optional"`
	Severity hcl.Expression `hcl:"severity,optional"`
	Reason   hcl.Expression `hcl:"reason,optional"`
	Ref      hcl.Expression `hcl:"ref,optional"`
}

type linkBlock struct {
	Body     hcl.Body       `hcl:",body"`
	Name     string         `hcl:"name,label"`
	Range    hcl.Range      `hcl:"name,label_range"`
	Matches  []matchBlock   `hcl:"match,block"`
	Offload  hcl.Expression `hcl:"offload,optional"`
	MTU      hcl.Expression `hcl:"mtu,optional"`
	Sysctl   hcl.Expression `hcl:"sysctl,optional"`
	Severity hcl.Expression `hcl:"severity,optional"`
	Reason   hcl.Expression `hcl:"reason,optional"`
	Ref      hcl.Expression `hcl:"ref,optional"`
}

type matchBlock struct {
	Body         hcl.Body       `hcl:",body"`
	Range        hcl.Range      `hcl:",def_range"`
	Name         hcl.Expression `hcl:"name,optional"`
	Kind         hcl.Expression `hcl:"kind,optional"`
	Driver       hcl.Expression `hcl:"driver,optional"`
	DefaultRoute hcl.Expression `hcl:"default_route,optional"`
}

type gateBlock struct {
	Range     hcl.Range      `hcl:",def_range"`
	Unit      hcl.Expression `hcl:"unit,optional"`
	Budget    hcl.Expression `hcl:"budget,optional"`
	Interval  hcl.Expression `hcl:"interval,optional"`
	OnTimeout hcl.Expression `hcl:"on_timeout,optional"`
	Repair    hcl.Expression `hcl:"repair,optional"`
}
