package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func exampleState() State {
	return State{Elapsed: 7 * time.Second, Scenes: []SceneState{
		{Title: "ghost users", text: "3 of 9 users deleted, 2 pending"},
		{Title: "undo", text: "1 of 2 wrong deletions"},
	}}
}

func TestDisplayPrintsLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := NewDisplay(&out, false)
	for done := int64(0); done <= 2000; done += 50 {
		d.Loaded(done, 2000)
	}
	loaded := out.String()
	require.Equal(t, 10, strings.Count(loaded, "\n"), "a line for every tenth")
	require.Contains(t, loaded, "loading sample data: 2,000 of 2,000 rows\n")
	out.Reset()
	d.Show(exampleState())
	require.Equal(t, "  7 s | ghost users: 3 of 9 users deleted, 2 pending\n  7 s | undo: 1 of 2 wrong deletions\n",
		out.String())
}

func TestPanelFitsTheTerminal(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"  ghost users         3 of 9 users deleted, 2 pending",
		"  undo                1 of 2 wrong deletions", "  Ctrl-C stops and removes everything.",
	}, panel(exampleState(), 80, 24))
	require.Equal(t, []string{"  undo               ", "  Ctrl-C stops and re"}, panel(exampleState(), 22, 3))
}
