package main

import (
	"net/url"
	"path/filepath"
	"slices"

	"nodegate/policy"
)

// The part of SARIF 2.1.0 that GitHub's code scanning reads
// (docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json).
type (
	sarif struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndLine     int `json:"endLine"`
		EndColumn   int `json:"endColumn"`
	}
)

// newSARIF returns the findings as one run. The summary of a finding is its rule.
func newSARIF(findings []lintFinding) sarif {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "nodegate", Version: version, Rules: []sarifRule{}}
	for _, f := range findings {
		id := policy.RuleID(f.Summary)
		i := slices.IndexFunc(run.Tool.Driver.Rules, func(r sarifRule) bool { return r.ID == id })
		if i < 0 {
			i = len(run.Tool.Driver.Rules)
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{id, sarifText{f.Summary}})
		}
		r := sarifResult{RuleID: id, RuleIndex: i, Level: f.Severity, Message: sarifText{f.Summary + ": " + f.Detail}}
		if f.File != "" {
			r.Locations = []sarifLocation{{sarifPhysical{
				sarifArtifact{(&url.URL{Path: filepath.ToSlash(f.File)}).String()},
				sarifRegion{f.Line, f.Column, f.EndLine, f.EndColumn},
			}}}
		}
		run.Results = append(run.Results, r)
	}
	return sarif{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}
