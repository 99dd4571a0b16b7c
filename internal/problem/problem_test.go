package problem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/problem"
)

func TestProblemString(t *testing.T) {
	t.Parallel()

	full := problem.Problem{
		Position: problem.Position{File: "sexton.yaml", Line: 3, Column: 7},
		Key:      "jobs.schema",
		Message:  "is empty",
		Fix:      "name a schema",
	}
	require.Equal(t, "sexton.yaml:3:7: jobs.schema: is empty (name a schema)", full.String())
	require.Equal(t, "SEXTON_JOBS__SCHEMA: is empty", problem.Problem{
		Key:     "SEXTON_JOBS__SCHEMA",
		Message: "is empty",
	}.String())
	require.Equal(t, "sexton.yaml: cannot be read", problem.Problem{
		Position: problem.Position{File: "sexton.yaml"},
		Message:  "cannot be read",
	}.String())
}

func TestListErrReturnsErrorsInOrder(t *testing.T) {
	t.Parallel()

	var list problem.List
	require.NoError(t, list.Err())
	list.Add(problem.Problem{Severity: problem.Warning, Message: "only a warning"})
	require.NoError(t, list.Err(), "a warning is not an error")

	list.Errorf(problem.Position{File: "b.yml", Line: 1}, "k", "third")
	list.Errorf(problem.Position{File: "a.yml", Line: 10}, "k", "second")
	list.Errorf(problem.Position{File: "a.yml", Line: 2}, "k", "first")
	require.EqualError(t, list.Err(), "a.yml:2: k: first\na.yml:10: k: second\nb.yml:1: k: third")
	require.Len(t, list.Only(problem.Warning), 1)
}

func TestNearest(t *testing.T) {
	t.Parallel()

	keys := []string{"schedule", "definitions", "enabled", "url"}
	require.Equal(t, "schedule", problem.Nearest("scheduel", keys))
	require.Equal(t, "enabled", problem.Nearest("Enable", keys))
	require.Equal(t, "url", problem.Nearest("ulr", keys))
	require.Empty(t, problem.Nearest("password", keys))
	require.Empty(t, problem.Nearest("foo", []string{"log"}))
}
