package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// Site is a database with the reference application and an installation of Sexton.
type Site struct {
	Pool        *pgxpool.Pool
	Definitions []definitions.Definition
	// Objects is the folder to which diffs are moved.
	Objects string
	// Undo restores a deletion and returns the number of restored rows.
	Undo func(ctx context.Context, deletion int64) (rows int64, err error)
	// Rows is the number of rows of the sample data.
	Rows int64
	// Work runs a worker until its context ends.
	Work    func(ctx context.Context) error
	Display *Display
}

const (
	// stallTimeout is the time without progress after which a demo with --exit fails.
	stallTimeout = 2 * time.Minute
	// tick is the interval between two actions of a scene.
	tick = 100 * time.Millisecond
	// exitLength and endlessLength are the times over which the planned actions are
	// spread, with and without --exit. slowest is the maximum time between two actions.
	exitLength    = 10 * time.Second
	endlessLength = 10 * time.Minute
	slowest       = 4 * time.Second
)

// scene describes the actions of the application that create work for one job.
type scene struct {
	// kind is the kind of the job. title has at most 18 letters.
	kind, title string
	// acted and finished are the texts after the number of actions and the number of
	// results of the job. They are short, so that a line fits a terminal of 80 columns.
	acted, finished string
	// plan returns the number of actions. It is called once, before the first action of
	// any scene.
	plan func(ctx context.Context) (int64, error)
	// act performs up to n actions. It returns their number, and whether more are
	// possible.
	act func(ctx context.Context, n int64) (done int64, more bool, err error)
	// waiting is a query that returns the number of pending rows. done is an SQL
	// expression for the results in the statistics of a run.
	waiting, done string
	// count returns the results of the actions after all jobs are done.
	count func(ctx context.Context) ([]Count, error)

	planned int64
	actions atomic.Int64
	ended   atomic.Bool
}

// Count is a result of a scene.
type Count struct {
	Text  string `json:"text"`
	Count int64  `json:"count"`
	// Lost reports whether the count must be 0, because it counts lost or forgotten rows.
	Lost bool `json:"lost"`
}

// play performs all planned actions at an even rate over length, and at least one action
// in each interval of slowest.
func (p *scene) play(ctx context.Context, length time.Duration) error {
	defer p.ended.Store(true)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for credit := 0.0; p.actions.Load() < p.planned; {
		credit += tick.Seconds() * max(float64(p.planned)/length.Seconds(), 1/slowest.Seconds())
		if n := min(int64(credit), p.planned-p.actions.Load()); n > 0 {
			done, more, err := p.act(ctx, n)
			p.actions.Add(done)
			credit -= float64(done)
			// The scene retries after a deadlock, as an application does.
			if err != nil && pgcatalog.SQLState(err) != "40P01" {
				return problem.Doing(err, "%s", p.title)
			}
			if err == nil && !more {
				return nil
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Run plays all scenes at the same time. With exit, it ends when all actions and jobs are
// done, and returns an error if a count shows lost rows. Without exit, it runs until ctx
// ends and returns no error.
func Run(ctx context.Context, site Site, exit bool) (Summary, error) {
	began := time.Now()
	s := &stage{Site: site}
	length := endlessLength
	if exit {
		length = exitLength
	}
	summary := func(state State) Summary {
		return Summary{
			RowsLoaded: site.Rows, Seconds: math.Round(time.Since(began).Seconds()*1e3) / 1e3,
			Scenes: state.Scenes,
		}
	}
	scenes := s.scenes()
	for _, p := range scenes {
		var err error
		if p.planned, err = p.plan(ctx); err != nil {
			return summary(State{}), fmt.Errorf("plan %s: %w", p.title, err)
		}
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// The worker has its own context and ends last, so that the end of the demo does not
	// cancel its batches.
	working, stopWorker := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorker()
	var parts, worker sync.WaitGroup
	var failed error
	worker.Go(func() {
		if failed = site.Work(working); working.Err() == nil {
			failed = fmt.Errorf("the worker ended: %w", cmp.Or(failed, errors.New("without an error")))
			stop(failed)
		}
	})
	for _, p := range scenes {
		parts.Go(func() {
			if err := p.play(running, length); err != nil && running.Err() == nil {
				stop(err)
			}
		})
	}
	state, err := s.watch(running, scenes, began, exit)
	if cause := context.Cause(running); cause != nil {
		err = cause
	}
	stop(nil)
	parts.Wait()
	stopWorker()
	worker.Wait()
	if ctx.Err() != nil && !exit {
		return summary(state), failed
	}
	if err = cmp.Or(err, failed); err != nil {
		return summary(state), err
	}
	err = count(ctx, scenes, state)
	return summary(state), err
}

// count adds the counts of all scenes to state. It returns an error if a count with Lost
// is not 0.
func count(ctx context.Context, scenes []*scene, state State) error {
	var lost error
	for i, p := range scenes {
		counts, err := p.count(ctx)
		if err != nil {
			return fmt.Errorf("count %s: %w", p.title, err)
		}
		state.Scenes[i].Counts = counts
		for _, c := range counts {
			if c.Lost && c.Count > 0 {
				lost = errors.Join(lost, fmt.Errorf("%d %s", c.Count, c.Text))
			}
		}
	}
	return lost
}

// State is the progress of a demo.
type State struct {
	Elapsed time.Duration
	Scenes  []SceneState
}

// SceneState is the progress of a scene.
type SceneState struct {
	Kind  string `json:"kind"`
	Title string `json:"title"`
	// Acted is the number of actions so far, and Planned is the number of all actions.
	Acted   int64 `json:"acted"`
	Planned int64 `json:"planned"`
	// Waiting is the number of rows that wait for the job. Finished is the number of
	// results of the job.
	Waiting  int64 `json:"waiting"`
	Finished int64 `json:"finished"`
	// Counts is nil until all jobs are done.
	Counts []Count `json:"counts"`

	text  string
	ended bool
}

// drained reports whether all actions and all jobs are done.
func (s State) drained() bool {
	for _, one := range s.Scenes {
		if !one.ended || one.Waiting > 0 {
			return false
		}
	}
	return true
}

// watch shows the state once a second. It returns when ctx ends or, with exit, when
// everything is done.
func (s *stage) watch(ctx context.Context, scenes []*scene, began time.Time, exit bool) (state State, err error) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var last string
	for changed := time.Now(); ; {
		next, err := s.read(ctx, scenes)
		if err != nil {
			return state, err
		}
		state = next
		state.Elapsed = time.Since(began)
		s.Display.Show(state)
		if progress := state.progress(); progress != last {
			last, changed = progress, time.Now()
		}
		switch {
		case exit && state.drained():
			return state, nil
		case exit && time.Since(changed) > stallTimeout:
			return state, fmt.Errorf("nothing has changed for %s: %s", stallTimeout, last)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

func (s State) progress() string {
	var texts []string
	for _, one := range s.Scenes {
		texts = append(texts, one.Title+": "+one.text)
	}
	return strings.Join(texts, "; ")
}

// read reads the pending rows and the results of all scenes. It uses one statement,
// because the job of one scene can create work for another scene. Two statements could
// miss such a row.
func (s *stage) read(ctx context.Context, scenes []*scene) (State, error) {
	state := State{Scenes: make([]SceneState, len(scenes))}
	var parts []string
	for i, p := range scenes {
		state.Scenes[i] = SceneState{
			Kind: p.kind, Title: p.title, ended: p.ended.Load(), Acted: p.actions.Load(),
			Planned: p.planned,
		}
		parts = append(parts, fmt.Sprintf(`SELECT %d, (%s), coalesce((
			SELECT sum(%s) FROM sexton.runs AS run WHERE run.kind = '%s' AND run.started_at > pg_postmaster_start_time()), 0)::bigint`,
			i, p.waiting, p.done, p.kind))
	}
	rows, _ := s.Pool.Query(ctx, strings.Join(parts, " UNION ALL "))
	var index int
	var waiting, finished int64
	if _, err := pgx.ForEachRow(rows, []any{&index, &waiting, &finished}, func() error {
		one, p := &state.Scenes[index], scenes[index]
		one.Waiting, one.Finished = waiting, finished
		one.text = fmt.Sprintf("%s of %s %s, %s pending", render.Grouped(one.Acted), render.Grouped(one.Planned), p.acted,
			render.Grouped(waiting))
		if p.finished != "" {
			one.text += fmt.Sprintf(", %s %s", render.Grouped(one.Finished), p.finished)
		}
		return nil
	}); err != nil {
		return state, fmt.Errorf("count waiting rows: %w", err)
	}
	return state, nil
}

// Summary is the result of a demo.
type Summary struct {
	RowsLoaded int64        `json:"rows_loaded"`
	Seconds    float64      `json:"seconds"`
	Scenes     []SceneState `json:"scenes"`
}

// Text returns the summary as text.
func (s Summary) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nended after %.1f s\n", s.Seconds)
	for _, one := range s.Scenes {
		fmt.Fprintf(&b, "%s: %s\n", one.Title, one.text)
		for _, c := range one.Counts {
			fmt.Fprintf(&b, "  %s %s\n", render.Grouped(c.Count), c.Text)
		}
	}
	return b.String()
}
