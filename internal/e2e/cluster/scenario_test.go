package cluster

import (
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

func TestOurScenariosLoad(t *testing.T) {
	all, err := Load("scenarios")
	require.NoError(t, err)
	for _, s := range all {
		assert.True(t, len(s.Steps) != 0 && s.Description != "", "%s is empty", s.Name)
	}
}
