package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRatios(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 0.6667, ratio(2, 3), 1e-9)
	require.Zero(t, ratio(2, 0))
	require.InDelta(t, 2, median([]float64{9, 2, 1}), 0)
	require.InDelta(t, 1, median([]float64{2, 1}), 0)
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for connection, want := range map[string]string{
		"postgres://user:p%40ss@host:5/old?sslmode=disable": "postgres://user:p%40ss@host:5/new?sslmode=disable",
		"postgres:///?host=%2Ftmp%2Fa+b&dbname=old":         "postgres:///new?host=%2Ftmp%2Fa%20b",
		"host=/tmp dbname=old":                              "host=/tmp dbname=old dbname=new",
	} {
		got, err := withDatabase(connection, "new")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := withDatabase("postgres://user:secret@host:port/old", "new")
	require.EqualError(t, err, "connection string cannot be parsed")
}
