package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/each"
	"sexton/internal/problem"
)

// State is the data of a view.
type State struct {
	Elapsed time.Duration
	// Scenes stand in the order in which they are shown.
	Scenes []SceneState
	// Over reports that nothing is left to do in a demo that does not end by itself.
	Over bool
}

// drained reports that no application does anything more and that nothing waits.
func (s State) drained() bool {
	return !slices.ContainsFunc(s.Scenes, func(scene SceneState) bool { return !scene.Done || scene.Backlog > 0 })
}

// moved reports that something is not as it was.
func (s State) moved(before State) bool {
	return !slices.EqualFunc(s.Scenes, before.Scenes, func(is, was SceneState) bool {
		return is.Tally.Rows() == was.Tally.Rows() && is.Backlog == was.Backlog && is.Acted == was.Acted
	})
}

// waiting says for what scenes there is still something to wait.
func (s State) waiting() string {
	var parts []string
	for _, scene := range s.Scenes {
		if scene.Backlog > 0 || !scene.Done {
			parts = append(parts, fmt.Sprintf("%d %s left: %s", scene.Backlog, scene.Script.Unit, scene.Activity))
		}
	}
	return strings.Join(parts, "; ")
}

// watch reads the state again and again.
type watch struct {
	site   Site
	on     stage
	scenes []*application
	began  time.Time
	// earlier is the last run of what came before, which does not count.
	earlier int64
	// stall is how long until waits without any progress.
	stall time.Duration
}

// until shows the state until ctx ends or, with drained, until nothing is left to do.
func (w *watch) until(ctx context.Context, drained bool) (State, error) {
	tick := time.NewTicker(w.site.View.Interval())
	defer tick.Stop()
	var state State
	moved := time.Now()
	for {
		next, err := w.read(ctx)
		if err != nil {
			return state, err
		}
		if next.moved(state) {
			moved = time.Now()
		}
		state = next
		state.Over = !drained && state.drained()
		w.site.View.Show(state)
		switch {
		case drained && state.drained() && w.measured():
			return state, nil
		case drained && time.Since(moved) > w.stall:
			return state, fmt.Errorf("nothing has moved for %s: %s", w.stall, state.waiting())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

// measured reports that every stopwatch has seen all its items go.
func (w *watch) measured() bool {
	return !slices.ContainsFunc(w.scenes, func(app *application) bool { return app.times.pending() > 0 })
}

func (w *watch) read(ctx context.Context) (State, error) {
	state := State{Scenes: each.Of(w.scenes, func(app *application) SceneState {
		return SceneState{Script: app.scene.Script(), Done: app.done.Load(), Acted: app.acted.Load(), Planned: app.planned}
	})}
	// Before the runs: what is finished after this is counted in both rather than in neither.
	if err := w.backlogs(ctx, state.Scenes); err != nil {
		return state, err
	}
	waiting := map[string]int64{}
	for _, scene := range state.Scenes {
		waiting[scene.Script.Kind] = scene.Backlog
	}
	activities, err := w.site.Activity(ctx, waiting)
	if err != nil {
		return state, err
	}
	if err := w.tell(ctx, &state); err != nil {
		return state, err
	}
	for i, app := range w.scenes {
		now := &state.Scenes[i]
		now.Latency, now.RowsPerSecond = app.times.percentiles(), app.rate.read(now.Tally.Rows())
		if _, tells := app.scene.(teller); !tells {
			now.Activity = activities[now.Script.Kind]
		}
	}
	state.Elapsed = time.Since(w.began)
	return state, nil
}

// tell has the tallies counted, and scenes without a job say how they stand. It does so once more when the worker has ended: a run tells of
// its last rows after they are gone.
func (w *watch) tell(ctx context.Context, state *State) error {
	tallies, err := w.on.tallies(ctx, w.earlier, each.Of(state.Scenes, func(s SceneState) Script { return s.Script }))
	if err != nil {
		return err
	}
	for i, app := range w.scenes {
		state.Scenes[i].Tally = tallies[i]
		if scene, tells := app.scene.(teller); tells {
			scene.Tell(&state.Scenes[i])
		}
	}
	return nil
}

// backlogs counts what waits, in one statement: what one scene's job finishes may be another one's to do, so two
// statements could find nothing each while something waits.
func (w *watch) backlogs(ctx context.Context, states []SceneState) error {
	var parts []string
	for i, state := range states {
		parts = append(parts, fmt.Sprintf(`SELECT %d, count(*), coalesce(extract(epoch FROM clock_timestamp() - min(waiting.since)), 0)::float8
			FROM (%s) AS waiting (name, number, since)`, i, w.site.Names.Render(state.Script.Waiting)))
	}
	if len(parts) == 0 {
		return nil
	}
	rows, _ := w.site.Pool.Query(ctx, strings.Join(parts, " UNION ALL "))
	var at int
	var backlog int64
	var oldest float64
	_, err := pgx.ForEachRow(rows, []any{&at, &backlog, &oldest}, func() error {
		states[at].Backlog, states[at].Oldest = backlog, time.Duration(oldest*float64(time.Second))
		return nil
	})
	return problem.Doing(err, "read backlog")
}

// rateOver is the time over which a rate is taken.
const rateOver = 2 * time.Second

// rate is how fast a number has grown lately.
type rate struct{ recent []reading }

type reading struct {
	at   time.Time
	rows int64
}

// read takes the number of now and returns the growth in a second.
func (r *rate) read(rows int64) float64 {
	now := time.Now()
	r.recent = append(r.recent, reading{now, rows})
	for len(r.recent) > 2 && now.Sub(r.recent[1].at) >= rateOver {
		r.recent = r.recent[1:]
	}
	first := r.recent[0]
	if since := now.Sub(first.at).Seconds(); since > 0 {
		return float64(rows-first.rows) / since
	}
	return 0
}
