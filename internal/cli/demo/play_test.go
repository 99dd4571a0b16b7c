package demo

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestPlayActsUntilThePlanIsDone(t *testing.T) {
	t.Parallel()
	calls := 0
	p := &scene{title: "test", planned: 10, act: func(_ context.Context, n int64) (int64, bool, error) {
		if calls++; calls == 1 {
			return 0, false, &pgconn.PgError{Code: "40P01"}
		}
		return n, true, nil
	}}
	require.NoError(t, p.play(t.Context(), time.Nanosecond), "play retries after a deadlock")
	require.EqualValues(t, 10, p.actions.Load())
	require.Equal(t, 2, calls)
	require.True(t, p.ended.Load())
}

func TestPlayEndsEarly(t *testing.T) {
	t.Parallel()
	p := &scene{title: "test", planned: 10, act: func(context.Context, int64) (int64, bool, error) {
		return 1, false,
			nil
	}}
	require.NoError(t, p.play(t.Context(), time.Nanosecond), "no more actions are possible")
	require.EqualValues(t, 1, p.actions.Load())

	p.act = func(context.Context, int64) (int64, bool, error) { return 0, true, errors.New("broken") }
	require.EqualError(t, p.play(t.Context(), time.Nanosecond), "test: broken")
}

func TestLostRowsAreAnError(t *testing.T) {
	t.Parallel()
	counts := []Count{{"rows restored", 7, false}, {"rows missing", 2, true}, {"projects changed", 0, true}}
	scenes := []*scene{{title: "test", count: func(context.Context) ([]Count, error) { return counts, nil }}}
	state := State{Scenes: make([]SceneState, 1)}
	require.EqualError(t, count(t.Context(), scenes, state), "2 rows missing")
	require.Equal(t, counts, state.Scenes[0].Counts)
	counts[1].Count = 0
	require.NoError(t, count(t.Context(), scenes, state))
	require.Contains(t, Summary{Scenes: state.Scenes}.Text(), "  7 rows restored\n  0 rows missing\n")
}

func TestDrained(t *testing.T) {
	t.Parallel()
	done := SceneState{ended: true}
	require.True(t, State{Scenes: []SceneState{done}}.drained())
	require.False(t, State{Scenes: []SceneState{done, {}}}.drained(), "the scene has not ended")
	require.False(t, State{Scenes: []SceneState{done, {ended: true, Waiting: 1}}}.drained())
}
