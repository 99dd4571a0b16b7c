package demo

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
)

func TestRateIsTakenOverTheLastSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rate{}
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		require.Zero(t, r.read(1000), "one reading is no rate")
		<-tick.C
		require.InDelta(t, 200, r.read(1100), 1e-9, "over what there is")
		for rows := int64(1200); rows <= 2000; rows += 100 {
			<-tick.C
			require.InDelta(t, 200, r.read(rows), 1e-9)
		}
		for _, want := range []float64{150, 100, 50, 0, 0} {
			<-tick.C
			require.InDelta(t, want, r.read(2000), 1e-9, "what is longer ago than two seconds counts no more")
		}
		require.LessOrEqual(t, len(r.recent), 6)
	})
}

// stepped is a view that goes on only when the test has taken the state.
type stepped struct {
	t      *testing.T
	states chan State
}

// watched starts a watch, and takes what it shows. The end of its goroutine comes by ended.
func watched(ctx context.Context, t *testing.T, w *watch, drained bool) (shown *stepped, ended <-chan error) {
	shown = &stepped{t, make(chan State)}
	w.site.View = viewFunc(func(state State) { shown.states <- state })
	result := make(chan error, 1)
	go func() {
		_, err := w.until(ctx, drained)
		result <- err
	}()
	return shown, result
}

// next takes states until one is as it should be.
func (s *stepped) next(what string, accept func(State) bool) {
	s.t.Helper()
	for began := time.Now(); ; {
		if accept(receive(s.t, s.states, what)) {
			return
		}
		require.Less(s.t, time.Since(began), patience, "waited in vain for %s", what)
	}
}

// end takes all states until the goroutine that shows them has ended, and returns its error.
func (s *stepped) end(ended <-chan error) error {
	for {
		select {
		case <-s.states:
		case err := <-ended:
			return err
		}
	}
}

// newTestWatch watches scenes that have nothing to do.
func newTestWatch(db *dbtest.DB, site Site, playing ...Scene) *watch {
	w := &watch{site: site, on: testStage(db), began: time.Now(), stall: time.Hour}
	for _, scene := range playing {
		w.scenes = append(w.scenes, &application{scene: scene, planned: 9, times: newStopwatch(w.on, scene.Script())})
	}
	return w
}

func TestWatchEndsOnlyWhenNothingIsLeftToDo(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	w := newTestWatch(db, testSite(t, db), newLooseForeignKeys(testStage(db)))
	scene := w.scenes[0]
	shown, ended := watched(t.Context(), t, w, true)
	// A state that is shown after one that would do proves that the latter did not end it.
	goesOn := func(what string, accept func(State) bool) {
		shown.next(what, accept)
		shown.next("another state after "+what, accept)
	}
	goesOn("an application at work", func(s State) bool { return !s.Scenes[0].Done && s.Scenes[0].Backlog == 0 })
	bury(db, "public.issues", 1)
	scene.done.Store(true)
	goesOn("a backlog", func(s State) bool { return s.Scenes[0].Done && s.Scenes[0].Backlog == 1 })
	scene.times.committed(deletedFrom("issues", 1))
	payOff(db, "public.issues", 1)
	goesOn("a stopwatch that has not seen it", func(s State) bool { return s.Scenes[0].Done && s.Scenes[0].Backlog == 0 })
	require.NoError(t, scene.times.look(t.Context()))
	require.NoError(t, shown.end(ended))
}

func TestWatchGoesOnUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	w := newTestWatch(db, testSite(t, db), newLooseForeignKeys(testStage(db)))
	w.scenes[0].done.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shown, ended := watched(ctx, t, w, false)
	for range 3 {
		shown.next("a state with nothing left to do", func(s State) bool { return s.Scenes[0].Done && s.Scenes[0].Backlog == 0 })
	}
	cancel()
	require.ErrorIs(t, shown.end(ended), context.Canceled)
}

func TestWatchGivesUpWhenNothingMoves(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	bury(db, "public.issues", 1, 2)
	w := newTestWatch(db, testSite(t, db), newLooseForeignKeys(testStage(db)))
	w.stall = time.Nanosecond
	state, err := w.until(t.Context(), true)
	require.EqualError(t, err, "nothing has moved for 1ns: 2 tombstones left: sleeps")
	require.EqualValues(t, 2, state.Scenes[0].Backlog)
}

func TestStateMoves(t *testing.T) {
	t.Parallel()
	at := func(change func(s *SceneState)) State {
		still := SceneState{Acted: 1, Backlog: 2, Tally: Tally{ByTable: map[string]map[string]int64{"moved": {"notes": 3}}}}
		changed := still
		change(&changed)
		return State{Scenes: []SceneState{still, changed}}
	}
	before := at(func(*SceneState) {})
	require.False(t, before.moved(before))
	require.True(t, before.moved(State{}))
	for what, change := range map[string]func(s *SceneState){
		"action": func(s *SceneState) { s.Acted++ }, "backlog": func(s *SceneState) { s.Backlog-- },
		"rows": func(s *SceneState) { s.Tally.ByTable = map[string]map[string]int64{"moved": {"notes": 2, "todos": 2}} },
	} {
		require.True(t, at(change).moved(before), what)
	}
}

func TestWatchReadsTheState(t *testing.T) {
	t.Parallel()
	h := newRunHistory(t)
	db := h.db
	db.Exec(`CREATE TABLE users_ghost_user_migrations (user_id bigint, created_at timestamptz);
		INSERT INTO users_ghost_user_migrations VALUES (1, now() - interval '30 seconds'), (2, now())`)
	loose, ghost := newLooseForeignKeys(testStage(db)), &ghostUsers{stage: testStage(db)}
	w := newTestWatch(db, testSite(t, db), loose, ghost)
	w.began = time.Now().Add(-time.Hour)
	state, err := w.read(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, state.Elapsed, time.Hour)
	require.InDelta(t, 30, state.Scenes[1].Oldest.Seconds(), 20)
	state.Scenes[1].Oldest = 0
	require.Equal(t, []SceneState{
		{Script: loose.Script(), Planned: 9, Tally: newTally(loose.Script()), Activity: "sleeps"},
		{Script: ghost.Script(), Planned: 9, Tally: newTally(ghost.Script()), Backlog: 2, Activity: "snores"},
	}, state.Scenes)

	bury(db, "public.issues", 1, 2, 3)
	db.Exec("UPDATE loose_foreign_keys_deleted_records SET created_at = now() - interval '90 seconds' WHERE primary_key_value = 2")
	h.finish(h.start(ghostUsersKind, "main"), true, `{"users_processed": 5, "moved": {"notes.author_id": 6}, "users_unfinished": 7}`)
	first := w.scenes[0]
	first.acted.Store(4)
	first.times.elapsed = []time.Duration{time.Second}
	state, err = w.read(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, state.Scenes[0].Backlog)
	require.InDelta(t, 90, state.Scenes[0].Oldest.Seconds(), 30)
	require.EqualValues(t, 4, state.Scenes[0].Acted)
	require.InDelta(t, 1000, state.Scenes[0].Latency.P99, 0)
	require.Zero(t, state.Scenes[0].Tally.Rows(), "the other kind's runs")
	require.EqualValues(t, 6, state.Scenes[1].Tally.Rows())
	require.Equal(t, map[string]int64{"users_processed": 5, "users_failed": 0, "duplicates": 0}, state.Scenes[1].Tally.Numbers)

	gone := errors.New("no activity")
	w.site.Activity = func(context.Context, map[string]int64) (map[string]string, error) { return nil, gone }
	_, err = w.read(t.Context())
	require.ErrorIs(t, err, gone)
	db.Exec("DROP TABLE loose_foreign_keys_deleted_records")
	_, err = w.read(t.Context())
	require.ErrorContains(t, err, "read backlog: ")
}

// One scene's job makes work for another's: all must be done at one time.
func TestWatchWaitsForAllScenes(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(`CREATE TABLE users_ghost_user_migrations (user_id bigint, created_at timestamptz);
		INSERT INTO users_ghost_user_migrations VALUES (1, now())`)
	w := newTestWatch(db, testSite(t, db), newLooseForeignKeys(testStage(db)), &ghostUsers{stage: testStage(db)})
	w.scenes[0].done.Store(true)
	w.scenes[1].done.Store(true)
	shown, ended := watched(t.Context(), t, w, true)
	for range 2 {
		shown.next("a user that waits", func(s State) bool { return s.Scenes[0].Backlog == 0 && s.Scenes[1].Backlog == 1 })
	}
	db.Exec(`WITH gone AS (DELETE FROM users_ghost_user_migrations)
		INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.notes', 1)`)
	for range 2 {
		shown.next("a tombstone that waits", func(s State) bool { return s.Scenes[0].Backlog == 1 && s.Scenes[1].Backlog == 0 })
	}
	payOff(db, "public.notes", 1)
	require.NoError(t, shown.end(ended))
}
