package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/words"
)

// UndoKind stands in Site.Kinds where deletions are kept. It is no kind of job.
const UndoKind = "undo"

const (
	// undoAfter is how long a wrong DELETE stands in a demo of ordinaryRows, and shorter in a smaller one.
	undoAfter    = 10 * time.Second
	ordinaryRows = 200_000
	// undoRounds are those of a demo that does not end by itself.
	undoRounds = 20
)

// undone deletes a project of its own with 5,000 rows below it by mistake, and takes that back a little later.
type undone struct {
	stage

	undo  func(ctx context.Context, deletion int64) (rows int64, err error)
	wait  time.Duration
	group string

	project, rows int64
	digest        string

	mu sync.Mutex
	// deletion is the number of the one that stands, 0 where none does.
	deletion  int64
	deletedAt time.Time
	rounds    int
	restored  int64
	took      time.Duration
}

func newUndone(on stage, site Site) *undone {
	wait := min(undoAfter, undoAfter*time.Duration(site.Rows)/ordinaryRows)
	return &undone{stage: on, undo: site.Undo, wait: wait, group: "precious-" + strings.ToLower(rand.Text())}
}

// Script tells of a DELETE that was wrong. It waits as long as the project is missing in its group.
func (u *undone) Script() Script {
	return Script{
		Kind: UndoKind, Title: "undo", Acted: "wrong deletes and undos", Unit: "wrong deletes", Finished: "rows back",
		Pace: Pace{Length: 20 * time.Second, Slowest: 0.5}, EndlessPace: Pace{Length: 10 * time.Minute, Slowest: 0.05},
		Waiting: `SELECT 'deletions', own.id, clock_timestamp() FROM "public".groups AS own WHERE own.path = '` + u.group + `'
			AND NOT EXISTS (SELECT FROM "public".projects AS project WHERE project.group_id = own.id)`,
		Processed: "restored",
	}
}

// Plan makes the project. The other scenes have planned by then, and leave it alone.
func (u *undone) Plan(ctx context.Context) (int64, error) {
	if err := u.row(ctx, "plant_project", []any{&u.project}, u.group); err != nil {
		return 0, err
	}
	u.rounds = 1
	if u.endless {
		u.rounds = undoRounds
	}
	return 2 * int64(u.rounds), u.row(ctx, "project_rows", []any{&u.rows, &u.digest}, u.project)
}

// Act deletes the project or, once all below it is gone and some time has passed, takes that back.
func (u *undone) Act(ctx context.Context, _ int) (acted []Item, more bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.deletion == 0 {
		return u.remove(ctx)
	}
	var left int64
	var digest string
	if err := u.row(ctx, "project_rows", []any{&left, &digest}, u.project); err != nil {
		return nil, false, err
	}
	if left > 0 || time.Since(u.deletedAt) < u.wait {
		return nil, true, nil
	}
	began := time.Now()
	rows, err := u.undo(ctx, u.deletion)
	if err != nil {
		return nil, false, fmt.Errorf("undo deletion %d: %w", u.deletion, err)
	}
	u.took, u.deletion, u.restored = time.Since(began), 0, u.restored+rows
	u.rounds--
	return []Item{{}}, u.rounds > 0, nil
}

func (u *undone) remove(ctx context.Context) (acted []Item, more bool, err error) {
	var gone, kept int64
	err = pgx.BeginFunc(ctx, u.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, u.names.Render(query("delete_wrongly")), u.project).Scan(&gone); err != nil {
			return named("delete_wrongly", err)
		}
		return named("kept_as", tx.QueryRow(ctx, u.names.Render(query("kept_as")), u.names.Tracked+".projects", u.project).Scan(&kept))
	})
	if err != nil || gone == 0 || kept == 0 {
		return nil, false, err
	}
	u.deletion, u.deletedAt = kept, time.Now()
	return []Item{{}}, true, nil
}

// Tell says how the scene stands, since no job does.
func (u *undone) Tell(s *SceneState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s.Tally.Numbers = map[string]int64{"restored": u.restored}
	switch {
	case u.deletion != 0:
		s.Oldest = time.Since(u.deletedAt)
		s.Activity = fmt.Sprintf("a project is gone by mistake, with %s rows below it", words.Grouped(u.rows-1))
	case u.took > 0:
		s.Activity = fmt.Sprintf("the last undo took %s", words.Took(u.took))
	default:
		s.Activity = "sleeps until a wrong delete comes"
	}
}

// Check compares the rows with those of before the first deletion.
func (u *undone) Check(ctx context.Context) ([]Finding, error) {
	var rows, changed int64
	var digest string
	if err := u.row(ctx, "project_rows", []any{&rows, &digest}, u.project); err != nil {
		return nil, err
	}
	if digest != u.digest {
		changed = 1
	}
	return []Finding{
		{Name: "restored", Text: "rows came back after wrong deletes", Count: u.restored},
		{Name: "lost", Text: "rows of the project are missing", Count: max(0, u.rows-rows), Fault: true},
		{Name: "changed", Text: "projects came back with other contents", Count: changed, Fault: true},
	}, nil
}
